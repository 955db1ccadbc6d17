"""A test set of keys for a Flower deployment with TLS and SuperNode authentication."""

import datetime
import ipaddress
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from accord.files import write_whole

HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*")
NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Certificates(NamedTuple):
    """Where the keys lie; a node's public key is beside its private one, under its name and ``.pub``."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    nodes: dict[str, Path]


def write_certificates(
    folder: str | Path,
    nodes: Sequence[str] = ("site-1", "site-2", "site-3"),
    hosts: Sequence[str] = ("127.0.0.1", "localhost"),
    days: int = 365,
) -> Certificates:
    """Writes a test set of keys: one authority, one server certificate, a key pair a SuperNode.

    It is meant for trying a deployment out, not for running one: all private keys are made in one place and
    lie there unencrypted, though readable to their owner only. Where rows are worth protecting, each site
    makes its own key pair and hands over the public half alone, and certificates come from the consortium's
    authority.

    ``folder`` (made where absent) receives ``ca.crt``, ``ca.key``, ``server.crt``, ``server.key`` in PEM for
    ``flower-superlink``, and for each of ``nodes`` a pair of files on the curve P-384 in OpenSSH's format,
    ``NAME`` for ``flower-supernode`` and ``NAME.pub`` for ``flwr supernode register``. The server's
    certificate is good for ``hosts``, addresses and names alike; the certificates hold from yesterday (clocks
    differ) for ``days`` days from now.

    Raises ValueError or TypeError, with nothing written, where a name is not accepted or a file is there
    already.
    """
    nodes, hosts = _names("nodes", nodes), _names("hosts", hosts)
    for node in nodes:
        if not NODE.fullmatch(node):
            raise ValueError(
                f"nodes: got {node!r}; a name becomes a file's name: up to 64 letters, digits, '.', '-' and "
                "'_' are accepted, not beginning with '.' or '-'"
            )
    alternatives = [_alternative(host) for host in hosts]
    if isinstance(days, bool) or not isinstance(days, int):
        raise TypeError(f"days: got {days!r}; accepted is a whole number, such as 365")
    if not 1 <= days <= 36500:
        raise ValueError(f"days: got {days}; accepted is a whole number from 1 to 36500")

    folder = Path(folder)
    paths = Certificates(
        ca=folder / "ca.crt",
        ca_key=folder / "ca.key",
        server=folder / "server.crt",
        server_key=folder / "server.key",
        nodes={node: folder / node for node in nodes},
    )
    names = ["ca.crt", "ca.key", "server.crt", "server.key"]
    names += [name for node in nodes for name in (node, f"{node}.pub")]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"nodes: two files would be called {twice[0]!r}; give every node a name of its own"
        )
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder: {folder} is a file; give a folder")
    there = [name for name in names if (folder / name).exists()]
    if there:
        raise ValueError(
            f"folder: {folder} already holds {there[0]}; keys are never overwritten: remove them or give "
            "another folder"
        )
    if not folder.parent.is_dir():
        raise ValueError(f"folder: {folder.parent} does not exist; create it first")

    contents = dict(zip(names, _make(nodes, alternatives, days), strict=True))
    made = not folder.exists()
    placed = []
    folder.mkdir(exist_ok=True)
    try:
        # Under a folder that only its owner can enter, no key is ever readable to others.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as closed:
            for name, content in contents.items():
                path = write_whole(Path(closed) / name, content)
                if b"PRIVATE KEY" in content:
                    path.chmod(0o600)
            for name in contents:
                placed.append((Path(closed) / name).rename(folder / name))
    except BaseException:
        for path in placed:
            path.unlink()
        if made:
            folder.rmdir()
        raise
    return paths


def _names(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"{argument}: got {given!r}; accepted is a sequence of names")
    if not given:
        raise ValueError(f"{argument}: none given; name at least one")
    return tuple(given)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if HOST.fullmatch(host):
            return x509.DNSName(host)
    raise ValueError(
        f"hosts: got {host!r}; accepted is an address such as '127.0.0.1' or a name such as 'localhost', "
        "without a port"
    )


def _make(nodes: tuple[str, ...], hosts: list[x509.GeneralName], days: int) -> list[bytes]:
    """The files' contents, in the order ca.crt, ca.key, server.crt, server.key, node, node.pub, ..."""
    now = datetime.datetime.now(datetime.UTC)
    authority, server = (
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP384R1()),
    )
    issuer = _distinguished("Accord test authority")

    def certificate(subject: x509.Name, key: ec.EllipticCurvePublicKey, *extensions) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
                critical=False,
            )
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)

    contents = [
        certificate(
            issuer,
            authority.public_key(),
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(authority=True), True),
        ),
        _private(authority, serialization.PrivateFormat.PKCS8),
        certificate(
            _distinguished("Accord test server"),
            server.public_key(),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(authority=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.SubjectAlternativeName(hosts), False),
        ),
        _private(server, serialization.PrivateFormat.PKCS8),
    ]
    for node in nodes:
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        contents += [
            _private(key, serialization.PrivateFormat.OpenSSH),
            public + f" {node}\n".encode(),
        ]
    return contents


def _distinguished(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
