"""Keys for a Flower deployment: OpenSSL and OpenSSH take them, only their owner reads them."""

import datetime
import resource
import shutil
import ssl
import stat
import subprocess

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from accord.flower.certificates import write_certificates


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return write_certificates(
        tmp_path_factory.mktemp("keys") / "new",
        nodes=("clinic-1", "clinic_2"),
        hosts=("127.0.0.1", "localhost", "::1", "link.example.org"),
        days=30,
    )


def handshake(keys, host: str, authority=None) -> None:
    """A TLS handshake of the two sides in memory, the client as strict as OpenSSL can be."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(keys.server, keys.server_key)
    client_side = ssl.create_default_context(cafile=authority or keys.ca)
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(up, down, server_side=True)
    client = client_side.wrap_bio(down, up, server_hostname=host)
    ended = set()
    while len(ended) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
                ended.add(side)
            except ssl.SSLWantReadError:
                pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "link.example.org"])
def test_a_strict_client_trusts_the_server_under_each_of_its_hosts(keys, host):
    handshake(keys, host)


@pytest.mark.parametrize("host", ["127.0.0.2", "example.org"])
def test_a_client_refuses_another_host(keys, host):
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(keys, host)


def test_a_client_of_another_authority_refuses(keys, tmp_path):
    other = write_certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(keys, "localhost", authority=other.ca)


def test_the_certificates_hold_for_the_days_asked(keys):
    for path in (keys.ca, keys.server):
        left = x509.load_pem_x509_certificate(
            path.read_bytes()
        ).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        assert datetime.timedelta(days=29, hours=23) < left <= datetime.timedelta(days=30)


def test_each_node_has_a_pair_of_its_own_on_p384(keys):
    points = set()
    for path in keys.nodes.values():
        private = serialization.load_ssh_private_key(path.read_bytes(), None)
        public = serialization.load_ssh_public_key((path.parent / f"{path.name}.pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        assert private.public_key() == public
        points.add(public.public_numbers().x)
    assert len(points) == 2


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_openssh_derives_the_public_key_written(keys):
    for name, path in keys.nodes.items():
        told = subprocess.run(
            ["ssh-keygen", "-y", "-f", path], capture_output=True, text=True, check=True
        ).stdout
        written = (path.parent / f"{name}.pub").read_text()
        assert told.split()[:2] == written.split()[:2]
        assert written.split()[2] == name


def test_private_keys_are_their_owners_alone(keys):
    for path in (keys.ca_key, keys.server_key, *keys.nodes.values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {path.name for path in keys.ca.parent.iterdir()} == {
        *("ca.crt", "ca.key", "server.crt", "server.key"),
        *("clinic-1", "clinic-1.pub", "clinic_2", "clinic_2.pub"),
    }


def test_a_file_that_is_there_is_kept_and_nothing_is_added(tmp_path):
    (tmp_path / "site-2.pub").write_text("mine")
    with pytest.raises(ValueError, match=r"already holds site-2\.pub; keys are never overwritten"):
        write_certificates(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["site-2.pub"]
    assert (tmp_path / "site-2.pub").read_text() == "mine"
    write_certificates(tmp_path, nodes=("site-1",))
    assert len(list(tmp_path.iterdir())) == 7


@pytest.mark.parametrize("there", [True, False])
def test_a_disk_that_fails_midway_leaves_nothing(tmp_path, there):
    folder = tmp_path / "keys"
    if there:
        folder.mkdir()
    # ca.crt fits into 750 bytes, server.crt with all its hosts does not.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (750, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_certificates(folder, hosts=[f"host-{i}.example.org" for i in range(20)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert folder.exists() == there
    assert not there or not list(folder.iterdir())


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"nodes": ()}, ValueError, "nodes: none given"),
        ({"nodes": "site-1"}, TypeError, "nodes: got 'site-1'; accepted is a sequence of names"),
        ({"nodes": ("a", "a")}, ValueError, "nodes: two files would be called 'a'"),
        ({"nodes": ("a", "a.pub")}, ValueError, "nodes: two files would be called 'a.pub'"),
        ({"nodes": ("ca.key",)}, ValueError, "nodes: two files would be called 'ca.key'"),
        ({"nodes": ("../a",)}, ValueError, "nodes: got '../a'"),
        ({"nodes": ("-rf",)}, ValueError, "nodes: got '-rf'"),
        ({"nodes": ("a" * 65,)}, ValueError, "up to 64 letters"),
        ({"hosts": ()}, ValueError, "hosts: none given"),
        ({"hosts": (1,)}, TypeError, "hosts: got"),
        ({"hosts": ("localhost:8080",)}, ValueError, "without a port"),
        ({"hosts": ("",)}, ValueError, "hosts: got ''"),
        ({"days": 0}, ValueError, "days: got 0"),
        ({"days": True}, TypeError, "days: got True"),
        ({"days": 1.5}, TypeError, r"days: got 1\.5"),
    ],
)
def test_what_is_refused(tmp_path, given, error, message):
    with pytest.raises(error, match=message):
        write_certificates(tmp_path / "keys", **given)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; give a folder"):
        write_certificates(tmp_path / "file")
    with pytest.raises(ValueError, match="does not exist; create it first"):
        write_certificates(tmp_path / "a" / "b")
