"""The list of what was retracted: sorted, without times, and never with the bundle that carries it."""

import json
import os

import pytest

from models_db.values.canonical_json import digest
from tasks.common.files import FileUnfit, encode_json
from tasks.release.signatures.publisher_statements import Retracted, Revocations

ONE, TWO, THREE = ("1" * 64, "2" * 64, "3" * 64)


def test_it_is_sorted_and_has_nothing_twice():
    found = Revocations.of([THREE, ONE, THREE, TWO], [TWO, ONE, TWO])
    assert found.revoked == (ONE, TWO, THREE)
    assert Revocations.from_bytes(found.to_bytes()) == found
    assert json.loads(found.to_bytes()) == {
        "format": "almoner-revocations/1", "revoked": [ONE, TWO, THREE], "exposed": [ONE, TWO]
    }  # fmt: skip


@pytest.mark.parametrize(
    "stored",
    [
        {"format": "almoner-revocations/1", "exposed": [], "revoked": [TWO, ONE]},
        {"format": "almoner-revocations/1", "exposed": [], "revoked": [ONE, ONE]},
        {"format": "almoner-revocations/1", "exposed": [TWO, ONE], "revoked": []},
        {"format": "almoner-revocations/1", "exposed": [ONE, ONE], "revoked": []},
        {"format": "almoner-revocations/1", "exposed": [], "revoked": ["A" * 64]},
        {"format": "almoner-revocations/1", "exposed": [], "revoked": [ONE], "at": "2026-01-01"},
        {"format": "almoner-revocations/1", "exposed": [], "revoked": {}},
        {"format": "almoner-revocations/1", "revoked": []},
        {"format": "almoner-revocations/2", "exposed": [], "revoked": []},
        {"format": "almoner-revocations/1"},
        [],
    ],
)
def test_what_is_no_list_is_refused(stored):
    with pytest.raises(FileUnfit):
        Revocations.from_bytes(encode_json(stored))


def test_what_is_on_it_is_refused():
    Revocations.of([ONE]).require_valid(TWO)
    with pytest.raises(Retracted, match=ONE):
        Revocations.of([ONE]).require_valid(ONE)


def test_what_is_exposed_is_not_retracted():
    Revocations.of([], [ONE]).require_valid(ONE)


def test_a_bundle_carries_it(release, tmp_path):
    folder = release.publish(tmp_path / "out", revoked=[TWO, ONE]).folder
    assert json.loads((folder / "revocations.json").read_text())["revoked"] == [ONE, TWO]
    assert "revocations.json" in (folder / "SHA256SUMS").read_text()


def test_a_retracted_release_is_not_published(release, tmp_path):
    with pytest.raises(Retracted):
        release.publish(tmp_path / "out", revoked=[digest(release.files)])
    assert not (tmp_path / "out").exists()


def test_publishing_again_finds_the_bundle_though_the_list_has_grown(release, tmp_path):
    first = release.publish(tmp_path / "out", revoked=[ONE])
    assert release.publish(tmp_path / "out", revoked=[ONE, TWO]) == first
    assert os.listdir(tmp_path / "out") == [first.folder.name]
    assert json.loads((first.folder / "revocations.json").read_text())["revoked"] == [ONE]
