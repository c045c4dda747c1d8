"""Keys and signatures."""

import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from tasks.release.signatures.ed25519 import SigningKey, checked_public_key, fingerprint, verify
from tests.refusals import refusal

pytestmark = pytest.mark.contract

# RFC 8032, section 7.1, TEST 2.
SECRET = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
MESSAGE = b"\x72"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def pem(private, encryption=None) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "signing.pem"


def test_a_key_file_belongs_to_its_owner_alone_whatever_the_umask(path):
    before = os.umask(0)
    try:
        SigningKey.create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_loaded_key_is_the_created_one(path):
    created, loaded = SigningKey.create(path), SigningKey.load(path)
    assert loaded.public_key == created.public_key
    assert verify(created.public_key, loaded.sign(b"text"), b"text")


def test_the_standard_vector(path):
    path.write_bytes(pem(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SECRET))))
    path.chmod(0o600)
    key = SigningKey.load(path)
    assert key.public_key == PUBLIC
    assert key.sign(MESSAGE) == SIGNATURE
    assert verify(PUBLIC, SIGNATURE, MESSAGE)


def test_nothing_shows_the_private_half(path):
    key = SigningKey.create(path)
    secret = path.read_text().splitlines()[1]
    assert key.public_key in repr(key)
    assert secret not in repr(key)
    assert "_private" not in repr(key)


def test_a_key_is_never_replaced(path):
    key = SigningKey.create(path)
    with refusal("SigningKeyUnusable", match="never replaced"):
        SigningKey.create(path)
    assert SigningKey.load(path).public_key == key.public_key


def test_a_link_is_not_written_through(path, tmp_path):
    path.symlink_to(tmp_path / "elsewhere")
    with refusal("SigningKeyUnusable"):
        SigningKey.create(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_key_that_cannot_be_finished_leaves_nothing(path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with refusal("SigningKeyUnusable", match="cannot be written: No space left"):
        SigningKey.create(path)
    assert list(path.parent.iterdir()) == []


def test_a_key_needs_its_folder(tmp_path):
    with refusal("SigningKeyUnusable", match="cannot be written"):
        SigningKey.create(tmp_path / "none" / "key.pem")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_an_open_key_file_is_refused(path, mode):
    SigningKey.create(path)
    path.chmod(mode)
    with refusal("SigningKeyUnusable", match="accessible to other users"):
        SigningKey.load(path)


def test_a_missing_key_is_named(path):
    with refusal("SigningKeyUnusable", match="cannot be read"):
        SigningKey.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"secret words",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(generate_private_key(SECP256R1())),
        pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"word")),
    ],
    ids=["empty", "text", "broken", "another kind", "encrypted"],
)
def test_what_is_no_plain_ed25519_key_is_refused_without_quoting_it(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    with refusal("SigningKeyUnusable") as refused:
        SigningKey.load(path)
    assert refused.value.__cause__ is None
    assert "secret words" not in refused.value.diagnostics()


@pytest.mark.parametrize(
    ("key", "signature", "message"),
    [
        (PUBLIC, SIGNATURE, b"other"),
        (PUBLIC, SIGNATURE.upper(), MESSAGE),
        (PUBLIC.upper(), SIGNATURE, MESSAGE),
        (PUBLIC, SIGNATURE + "\n", MESSAGE),
        (PUBLIC, SIGNATURE[:-2], MESSAGE),
        (PUBLIC, "", MESSAGE),
        ("", SIGNATURE, MESSAGE),
        ("ff" * 32, SIGNATURE, MESSAGE),
        (PUBLIC, "0" * 128, MESSAGE),
    ],
)
def test_every_other_spelling_or_message_fails(key, signature, message):
    assert not verify(key, signature, message)


def test_a_fingerprint_is_for_people():
    assert fingerprint(PUBLIC) == "SHA256:F34nin7tcaYH6WR5LSWSfj6weFBPfBpuyUUoPFP9YjA"


def test_a_trusted_key_may_be_typed():
    assert checked_public_key(f" {PUBLIC.upper()}\n") == PUBLIC
    for wrong in ("", PUBLIC[:-1], PUBLIC + "00", "ssh-ed25519 AAAA"):
        with refusal("NotAPublicKey"):
            checked_public_key(wrong)
