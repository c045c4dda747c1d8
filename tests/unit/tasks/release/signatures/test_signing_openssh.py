"""OpenSSH keys: imported, enrolled and named as `ssh-keygen` names them."""

import os
import shutil
import struct
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as ec_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as rsa_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tasks.release.signatures import ed25519
from tasks.release.signatures.ed25519 import SigningKey, fingerprint, home_key, parse_public_key, verify
from tests.refusals import refusal
from tests.support import require

pytestmark = pytest.mark.dear

WORD = "correct horse"


def ssh_private(private, word: str = "") -> bytes:
    encryption = BestAvailableEncryption(word.encode()) if word else NoEncryption()
    return private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, encryption)


def ssh_public(private) -> str:
    return private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def written(path: Path, content: bytes | str, mode: int = 0o600) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def nobody() -> str:
    raise AssertionError("the passphrase was asked for")


@pytest.fixture
def private() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def path(tmp_path, private) -> Path:
    return written(tmp_path / "id_ed25519", ssh_private(private))


def test_an_openssh_key_signs_as_itself(path, private):
    key = SigningKey.from_openssh(path, nobody)
    assert key.public_key == private.public_key().public_bytes_raw().hex()
    assert verify(key.public_key, key.sign(b"text"), b"text")


def test_a_passphrase_is_asked_for_once_and_only_where_there_is_one(tmp_path, private):
    path = written(tmp_path / "locked", ssh_private(private, WORD))
    asked = []

    def ask() -> str:
        asked.append(1)
        return WORD

    assert SigningKey.from_openssh(path, ask).public_key == private.public_key().public_bytes_raw().hex()
    assert len(asked) == 1


def test_a_wrong_passphrase_is_refused_without_repeating_it(tmp_path, private):
    path = written(tmp_path / "locked", ssh_private(private, WORD))
    with refusal("OpenSSHKeyUnfit", match="does not open with this passphrase") as refused:
        SigningKey.from_openssh(path, lambda: "battery staple")
    assert "battery" not in str(refused.value.facts) + refused.value.diagnostics()
    assert refused.value.__cause__ is None


def two_keys(private) -> bytes:
    """A file that says it holds two."""
    blob = ed25519._blob(private.public_key().public_bytes_raw())
    parts = [b"none", b"none", b""]
    body = b"openssh-key-v1\0" + b"".join(struct.pack(">I", len(p)) + p for p in parts)
    body += struct.pack(">I", 2) + 2 * (struct.pack(">I", len(blob)) + blob)
    return b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + b64encode(body) + b"\n-----END OPENSSH PRIVATE KEY-----\n"


UNFIT = {
    "rsa": (lambda own: ssh_private(rsa_key(65537, 2048)), "is a key of the type ssh-rsa"),
    "ecdsa": (lambda own: ssh_private(ec_key(SECP256R1())), "is a key of the type ecdsa-sha2-nistp256"),
    "locked ecdsa": (lambda own: ssh_private(ec_key(SECP256R1()), WORD), "is a key of the type ecdsa-sha2-nistp256"),
    "pem": (
        lambda own: own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "is not a private key in OpenSSH's format",
    ),
    "public": (lambda own: ssh_public(own).encode(), "is not a private key in OpenSSH's format"),
    "empty": (lambda own: b"", "is not a private key in OpenSSH's format"),
    "two": (two_keys, "holds several keys"),
    "cut": (lambda own: ssh_private(own)[:90] + b"\n-----END OPENSSH PRIVATE KEY-----\n", "is broken"),
    "mangled": (lambda own: ssh_private(own).replace(b"AAAA", b"BBBB", 1), "is broken"),
}


@pytest.mark.parametrize(("make", "reason"), UNFIT.values(), ids=UNFIT)
def test_any_other_key_is_refused_by_name_before_a_passphrase_is_asked(tmp_path, private, make, reason):
    path = written(tmp_path / "key", make(private))
    with refusal("OpenSSHKeyUnfit") as refused:
        SigningKey.from_openssh(path, nobody)
    assert reason in refused.value.message
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_an_open_file_is_not_imported(path, mode):
    path.chmod(mode)
    with refusal("SigningKeyUnusable", match="accessible to other users"):
        SigningKey.from_openssh(path, nobody)


def test_a_home_takes_a_copy_of_its_own(path, tmp_path):
    own = tmp_path / "signing.key"
    key = home_key(own, path, nobody)
    assert own.stat().st_mode & 0o777 == 0o600
    assert SigningKey.load(own) == key == home_key(own, None, nobody) == home_key(own, path, nobody)


def test_a_home_draws_a_key_where_none_is_given(tmp_path):
    own = tmp_path / "signing.key"
    assert home_key(own, None, nobody) == SigningKey.load(own)


def test_a_home_never_changes_its_key(path, tmp_path):
    own = tmp_path / "signing.key"
    first = SigningKey.create(own)
    with refusal("SigningKeyUnusable", match="is another key"):
        home_key(own, path, nobody)
    assert SigningKey.load(own) == first


def test_a_refused_import_leaves_no_key(tmp_path):
    own = tmp_path / "signing.key"
    with refusal("SigningKeyUnusable"):
        home_key(own, tmp_path / "none", nobody)
    assert not own.exists()


def test_a_public_key_is_read_from_digits_a_line_or_a_file(tmp_path, private):
    digits, line = private.public_key().public_bytes_raw().hex(), ssh_public(private)
    pub = written(tmp_path / "id.pub", f"{line} sue@clinic with words\n", 0o644)
    hexed = written(tmp_path / "id.hex", f"{digits}\n", 0o644)
    for given in (digits, f" {digits.upper()}\n", line, f"{line} sue@clinic", f"{line}\n", pub, str(pub), hexed):
        assert parse_public_key(given) == digits


def encoded_line(kind: str, key: bytes, extra: bytes = b"") -> str:
    blob = b"".join(struct.pack(">I", len(part)) + part for part in (kind.encode(), key)) + extra
    return f"ssh-ed25519 {b64encode(blob).decode()} x"


NO_KEY = {
    "nothing": "",
    "words": "my key",
    "too short": "ab" * 31,
    "rsa": ssh_public(rsa_key(65537, 2048)),
    "a security key": "sk-ssh-ed25519@openssh.com AAAA x",
    "no base64": "ssh-ed25519 ?? x",
    "cut": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA",
    "another type inside": encoded_line("ssh-rsa", bytes(32)),
    "31 bytes": encoded_line("ssh-ed25519", bytes(31)),
    "something behind": encoded_line("ssh-ed25519", b"\x05" * 32, b"x"),
    "the identity": "01" + "00" * 31,
    "small order": encoded_line("ssh-ed25519", bytes(32)),
    "not canonical": "ff" * 32,
}


@pytest.mark.parametrize("given", NO_KEY.values(), ids=NO_KEY)
def test_what_is_no_key_of_a_person_is_refused(given, tmp_path):
    with refusal("NotAPublicKey"):
        parse_public_key(given)
    with refusal("NotAPublicKey"):
        parse_public_key(written(tmp_path / "id.pub", given))


def test_a_private_file_is_not_taken_for_a_public_one(path):
    with refusal("NotAPublicKey", match="private key") as refused:
        parse_public_key(path)
    assert "BEGIN" not in refused.value.diagnostics()


def test_several_lines_are_not_guessed_at(tmp_path, private):
    two = f"{ssh_public(private)} a\n{ssh_public(Ed25519PrivateKey.generate())} b\n"
    with refusal("NotAPublicKey", match="more than one line"):
        parse_public_key(written(tmp_path / "authorized_keys", two))


def ssh_keygen(*words: object) -> str:
    require(shutil.which("ssh-keygen"), "ssh-keygen is not on this machine")
    done = subprocess.run(["ssh-keygen", *map(str, words)], capture_output=True, text=True, check=True, env=os.environ)
    return done.stdout


@pytest.mark.parametrize("word", ["", WORD])
def test_what_ssh_keygen_makes_and_says_is_what_we_read(tmp_path, word):
    path = tmp_path / "id_ed25519"
    ssh_keygen("-q", "-t", "ed25519", "-N", word, "-C", "sue@clinic", "-f", path)
    key = SigningKey.from_openssh(path, lambda: word)
    assert parse_public_key(path.with_suffix(".pub")) == key.public_key
    assert fingerprint(key.public_key) in ssh_keygen("-l", "-f", path.with_suffix(".pub"))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_what_ssh_keygen_makes_of_another_type_is_refused(tmp_path, kind):
    path = tmp_path / f"id_{kind}"
    ssh_keygen("-q", "-t", kind, "-N", WORD, "-f", path)
    with refusal("OpenSSHKeyUnfit", match="is a key of the type"):
        SigningKey.from_openssh(path, nobody)
    with refusal("NotAPublicKey", match="is a key of the type"):
        parse_public_key(path.with_suffix(".pub"))
