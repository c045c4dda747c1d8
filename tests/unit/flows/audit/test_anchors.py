"""Reading what lies outside the ledger: bundles, their checkpoint.json, and the files of `audit checkpoint`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.audit.verify import ChainHead, read_anchor
from models_db.services.audit.chain import ChainPosition
from tasks.common.files import FileUnfit, encode_json
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.publisher_statements import Charged, Checkpoint

AT = "2026-11-21T04:03:00.000000Z"
HASH, ARTIFACT = "a" * 64, "b" * 64

CHARGED = Charged(blocks=(0,), rho="1", delta="0")


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "key.pem")


@pytest.fixture
def head(tmp_path: Path, key: SigningKey) -> Path:
    """A file of `audit checkpoint`."""
    path = tmp_path / "head.json"
    path.write_bytes(ChainHead.signed(ChainPosition(7, HASH), AT, key).to_bytes())
    return path


@pytest.fixture
def bundle(tmp_path: Path, key: SigningKey) -> Path:
    """What matters here of a bundle."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "checkpoint.json").write_bytes(Checkpoint.signed(ARTIFACT, HASH, CHARGED, key).to_bytes())
    return folder


def test_a_checkpoint_file_tells_number_and_time(head: Path, key: SigningKey) -> None:
    found = read_anchor(head)
    assert found.is_genuine
    assert (found.anchor.hash, found.anchor.seq, found.anchor.at, found.anchor.artifact) == (HASH, 7, AT, None)
    assert (found.anchor.public_key, found.fingerprint) == (key.public_key, key.fingerprint)


def test_a_bundle_tells_neither(bundle: Path, key: SigningKey) -> None:
    for path in (bundle, bundle / "checkpoint.json"):
        found = read_anchor(path)
        assert found.is_genuine
        assert (found.anchor.hash, found.anchor.seq, found.anchor.at) == (HASH, None, None)
        assert (found.anchor.artifact, found.anchor.public_key) == (ARTIFACT, key.public_key)


def test_the_file_is_the_one_that_older_versions_wrote(head: Path) -> None:
    assert set(json.loads(head.read_bytes())) == {"format", "seq", "hash", "at", "public_key", "signature"}


CHANGES = {"seq": 8, "hash": "c" * 64, "at": "2026-11-22T04:03:00.000000Z", "public_key": "d" * 64}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_is_not_genuine(head: Path, field: str) -> None:
    head.write_bytes(encode_json(json.loads(head.read_bytes()) | {field: CHANGES[field]}))
    assert not read_anchor(head).is_genuine


@pytest.mark.parametrize("field", ["ledger_head", "artifact_sha256", "public_key"])
def test_a_changed_field_of_a_bundles_is_not_genuine(bundle: Path, field: str) -> None:
    path = bundle / "checkpoint.json"
    path.write_bytes(encode_json(json.loads(path.read_bytes()) | {field: "c" * 64}))
    assert not read_anchor(bundle).is_genuine


SPOILED: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: b"{}\n",
    lambda data: b"[1]\n",
    lambda data: data[:-2],
    lambda data: data.replace(b":", b": "),
    lambda data: data.replace(b'"seq":7', b'"seq":"7"'),
    lambda data: data.replace(b'"seq":7', b'"extra":1,"seq":7'),
    lambda data: data.replace(b"chain-head/1", b"chain-head/2"),
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_what_is_neither_is_named(head: Path, spoil: Callable[[bytes], bytes]) -> None:
    head.write_bytes(spoil(head.read_bytes()))
    with pytest.raises(FileUnfit):
        read_anchor(head)


def test_a_missing_file_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(FileUnfit, match="is missing"):
            read_anchor(path)
