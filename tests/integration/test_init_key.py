"""A home that signs with somebody's OpenSSH key."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

import cli.commands.operations.home
from flows.workspace.workspace import signing_key_path
from tasks.release.signatures.ed25519 import SigningKey, fingerprint
from tests.integration.story import Almoner

WORD = "correct horse"


@pytest.fixture
def private() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def written(almoner: Almoner, private: object, word: str = "") -> Path:
    encryption = BestAvailableEncryption(word.encode()) if word else NoEncryption()
    data = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, encryption)
    path = almoner.write("id_key", data)
    path.chmod(0o600)
    return path


def test_a_home_signs_with_an_openssh_key(almoner: Almoner, private: Ed25519PrivateKey) -> None:
    path = written(almoner, private)
    made = almoner.ask(f"init --key {path}")
    public = private.public_key().public_bytes_raw().hex()
    assert (made["public_key"], made["fingerprint"]) == (public, fingerprint(public))
    path.unlink()  # the home has a copy of its own
    assert almoner.ask("init")["public_key"] == public
    assert almoner.ask("doctor")["ok"] is True


def test_the_passphrase_is_asked_for_once(
    almoner: Almoner, private: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(almoner, private, WORD)
    assert almoner.ask(f"init --key {path}", expected=2)["error"] == "PassphraseMissing"
    assert not signing_key_path(almoner.home).exists()
    asked: list[str] = []
    monkeypatch.setattr(cli.commands.operations.home, "read_passphrase", lambda: asked.append(WORD) or WORD)
    told = almoner.type(f"init --key {path}")
    almoner.type("dataset list")
    assert asked == [WORD]
    assert WORD not in told.out + told.err
    assert all(WORD.encode() not in file.read_bytes() for file in almoner.home.root.rglob("*") if file.is_file())


def test_keys_that_cannot_be_used_are_refused_by_name(almoner: Almoner, private: Ed25519PrivateKey) -> None:
    path = written(almoner, generate_private_key(65537, 2048))
    told = almoner.ask(f"init --key {path}", expected=2)
    assert told["error"] == "OpenSSHKeyUnfit"
    assert "ssh-rsa" in told["message"]
    path.unlink()
    path = written(almoner, private)
    path.chmod(0o640)
    assert almoner.ask(f"init --key {path}", expected=3)["error"] == "SigningKeyUnusable"
    assert almoner.ask(f"init --key {almoner.folder / 'none'}", expected=3)["error"] == "SigningKeyUnusable"
    assert not signing_key_path(almoner.home).exists()


def test_a_home_never_changes_its_key(almoner: Almoner, private: Ed25519PrivateKey) -> None:
    made = almoner.ask("init")
    told = almoner.ask(f"init --key {written(almoner, private)}", expected=3)
    assert "never replaced" in told["message"]
    assert SigningKey.load(signing_key_path(almoner.home)).public_key == made["public_key"]
