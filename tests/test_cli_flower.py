"""accord flower: keys in files, and every bad input in one line."""

import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from accord.cli import app


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def flower(*arguments: str, code: int = 0) -> str:
    """What the command prints; bad input must be one line."""
    result = CliRunner().invoke(app, ["flower", *arguments])
    assert result.exit_code == code, result.output + result.stderr
    if code == 2:
        assert result.stderr.startswith("accord: ")
        assert result.stderr.count("\n") == 1
        return result.stderr
    return result.stdout


def test_every_file_of_keys_is_told(tmp_path):
    told = flower(
        *("certificates", "keys", "--nodes", "north, south", "--hosts", "10.0.0.7,link.example.org"),
        *("--days", "3"),
    )  # fmt: skip
    files = [line.removeprefix("wrote keys/") for line in told.splitlines()]
    assert sorted(files) == sorted(path.name for path in (tmp_path / "keys").iterdir())
    assert files == [
        *("ca.crt", "ca.key", "server.crt", "server.key"),
        *("north", "north.pub", "south", "south.pub"),
    ]
    server = x509.load_pem_x509_certificate((tmp_path / "keys/server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert names.get_values_for_type(x509.DNSName) == ["link.example.org"]
    assert (server.not_valid_after_utc - server.not_valid_before_utc).days == 4  # and yesterday
    private = serialization.load_ssh_private_key((tmp_path / "keys/south").read_bytes(), None)
    public = serialization.load_ssh_public_key((tmp_path / "keys/south.pub").read_bytes())
    assert private.public_key() == public


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--nodes", ""), "nodes: got ''"),
        (("--nodes", "a,a"), "nodes: two files would be called 'a'"),
        (("--hosts", "localhost:8080"), "without a port"),
        (("--days", "0"), "days: got 0"),
        (("--days", "soon"), "days"),
    ],
)
def test_what_is_refused(tmp_path, options, message):
    assert message in flower("certificates", "keys", *options, code=2)
    assert not list(tmp_path.iterdir())


def test_keys_are_never_overwritten(tmp_path):
    flower("certificates", "keys")
    before = {path: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    assert "already holds ca.crt" in flower("certificates", "keys", code=2)
    assert {path: path.read_bytes() for path in (tmp_path / "keys").iterdir()} == before


@pytest.mark.parametrize(
    ("command", "told"),
    [("certificates", "The folder for the keys."), ("init", "A new folder for the Flower app.")],
)
def test_the_help_says_what_the_argument_is(command, told):
    assert told in flower(command, "--help")


@pytest.mark.parametrize("command", [("certificates", "keys"), ("init", "study", "--target", "y")])
def test_without_flower_it_says_what_to_install(tmp_path, command):
    code = "import sys; sys.modules['flwr'] = None; from accord.cli import app; app()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "flower", *command], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr == "accord: accord.flower needs Flower: pip install 'accord[flower]'\n"
    assert not list(tmp_path.iterdir())
