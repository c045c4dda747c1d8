"""Formats of releases: bundles that were made before a format came still verify, and nobody can go back to an old one.

`format_1/`, `format_2/` and `format_3/` hold bundles that earlier versions of almoner wrote; they are never made again.
"""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from models_db.canonical import digest
from models_db.policy import Policy
from models_db.requests import as_json
from tasks.common.files import document
from tasks.publishing.attestation import attestation_payload
from tasks.publishing.formats import (
    FORMAT_1,
    FORMAT_2,
    FORMAT_3,
    FORMAT_5,
    KNOWN,
    NEWEST,
    bundle_files,
    drafted_files,
    stated_format,
    summed_files,
)
from tasks.publishing.layout import DRAFT_FILES, EXPLORER, RECORD
from tasks.publishing.record import CapChange, ReleaseRecord
from tasks.publishing.verify import verify_release
from tests.unit.tasks.publishing.builders import POLICY, a_record, a_request, standing

OLD = Path(__file__).parent / "format_1" / "clinic-release-1"
OLD_KEY = "69ba00243576f4f2404974451c9cde193986adbebb6f7cf1341075f05b91762f"

SECOND = Path(__file__).parent / "format_2" / "clinic-release-1"
SECOND_KEY = "e5358174e0a56e0902ad629f05ef0ef638c91c82f9b8c1802bf4d827b6922fe9"

THIRD = Path(__file__).parent / "format_3" / "clinic-release-1"
THIRD_KEY = "7eb572bfac0a45f84e3d126ef79c470b2fb86c0f8bc7cd11215fce5d85f8e6e5"


@pytest.fixture
def old(tmp_path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def failed(report) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


def test_a_bundle_of_the_first_version_verifies():
    report = verify_release(OLD, OLD_KEY)
    assert report.holds, [check for check in report.checks if not check.ok]
    assert report.to_json()["authentic"] is True
    assert set(os.listdir(OLD)) == set(bundle_files(FORMAT_1))
    said = {check.name: check.detail for check in report.checks}
    assert FORMAT_1 in said["attestation"]
    assert FORMAT_1 in said["revocations"]


@pytest.mark.parametrize(
    ("folder", "key", "name"), [(SECOND, SECOND_KEY, FORMAT_2), (THIRD, THIRD_KEY, FORMAT_3)], ids=["2", "3"]
)
def test_a_bundle_of_a_later_format_verifies(folder, key, name):
    report = verify_release(folder, key)
    assert report.holds, [check for check in report.checks if not check.ok]
    assert report.to_json()["authentic"] is True
    assert set(os.listdir(folder)) == set(bundle_files(name))


@pytest.mark.parametrize("name", sorted(set(bundle_files(NEWEST)) - set(bundle_files(FORMAT_1))))
def test_a_file_that_its_format_does_not_know_is_one_too_many(old, name):
    (old / name).write_text("{}\n")
    assert failed(verify_release(old, OLD_KEY)) == {"files"}


@pytest.mark.parametrize("name", bundle_files(FORMAT_1))
def test_a_changed_byte_in_an_old_bundle_is_found(old, name):
    data = bytearray((old / name).read_bytes())
    data[len(data) // 2] ^= 1
    (old / name).write_bytes(data)
    assert not verify_release(old, OLD_KEY).holds


def test_an_old_bundle_has_no_list_to_be_held_against(release, tmp_path):
    folder = release.publish(tmp_path / "out").folder
    report = verify_release(folder, release.key.public_key, OLD)
    assert failed(report) == {"retraction"}
    assert "has no list" in report.conclusion


def test_an_old_release_can_be_on_a_new_list(make_release, tmp_path):
    artifact = verify_release(OLD).artifact
    later = make_release(a_record(libraries={})).publish(tmp_path / "out", revoked=[artifact]).folder
    report = verify_release(OLD, OLD_KEY, later)
    assert failed(report) == {"retraction"}
    assert "This release was retracted" in report.conclusion


def test_an_old_record_reads_back_to_the_byte():
    data = (OLD / RECORD).read_bytes()
    record = ReleaseRecord.from_bytes(data)
    assert record.to_bytes() == data
    assert (record.format, record.cap_changes, record.standing) == (FORMAT_1, (), None)
    assert not {"cap_changes", "standing"} & set(json.loads(data))


def test_a_draft_of_the_first_version_is_published_in_its_format(make_release, tmp_path):
    """It was made, and paid for, before the format changed."""
    release = make_release(a_record(format=FORMAT_1))
    assert json.loads(attestation_payload(release.draft, release.files))["predicate"]["format"] == FORMAT_1
    made = release.publish(tmp_path / "out", attestations=())
    assert set(os.listdir(made.folder)) == set(bundle_files(FORMAT_1))
    assert verify_release(made.folder, release.key.public_key).holds
    assert release.publish(tmp_path / "out", attestations=()) == made


def test_nobody_can_go_back_to_the_first_format_under_a_policy_that_is_newer():
    """Or a runner would leave out attestation, cap changes and standing authorisations."""
    newer = Policy.model_validate(as_json(POLICY) | {"version": 2})
    request = a_request(policy=digest(as_json(newer)))
    assert a_record(request, policy=newer).format == NEWEST
    with pytest.raises(ValidationError, match="first format"):
        a_record(request, policy=newer, format=FORMAT_1)


@pytest.mark.parametrize(
    "later",
    [
        {"standing": standing()},
        {"cap_changes": [CapChange(old_epsilon="4", old_delta="0", new_epsilon="8", new_delta="0")]},
    ],
)
def test_the_first_format_discloses_what_it_can_only(later):
    with pytest.raises(ValidationError, match="first format"):
        a_record(format=FORMAT_1, **later)


def test_formats_before_the_fourth_declare_nothing():
    request = a_request(public_metadata={"licence": "MIT"})
    assert a_record(request).format == NEWEST
    for earlier in (FORMAT_1, FORMAT_2, FORMAT_3):
        with pytest.raises(ValidationError, match="know no public metadata"):
            a_record(request, format=earlier)


@pytest.mark.parametrize("name", [FORMAT_1, FORMAT_2, FORMAT_3])
def test_a_draft_of_an_earlier_format_has_the_files_of_its_format(make_release, name):
    assert set(os.listdir(make_release(a_record(format=name)).draft)) == set(drafted_files(name))


def test_a_format_to_come_is_refused_with_a_reason(old):
    stored = json.loads((old / RECORD).read_text()) | {"format": "almoner-release/99"}
    (old / RECORD).write_bytes(document(stored))
    (detail,) = [check.detail for check in verify_release(old, OLD_KEY).checks if check.name == "record"]
    assert "none of the formats that this version of almoner knows" in detail
    assert FORMAT_1 in detail


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"format":"almoner-release/1"}\n', FORMAT_1),
        (b'{"format":"almoner-release/2"}\n', FORMAT_2),
        (b'{"format":"almoner-release/3"}\n', FORMAT_3),
        (b'{"format":"almoner-release/4"}\n', NEWEST),
        (b'{"format":"almoner-release/5"}\n', FORMAT_5),
        (b'{"format":"almoner-release/99"}\n', NEWEST),
        (b'{"format":["almoner-release/1"]}\n', NEWEST),
        (b'{"format":"almoner-release/1" }\n', NEWEST),
        (b"[]\n", NEWEST),
        (b"", NEWEST),
    ],
)
def test_the_format_is_the_one_the_record_names(data, found):
    assert stated_format(data) == found


@pytest.mark.parametrize("name", KNOWN)
def test_every_format_covers_the_draft_and_all_but_the_signature(name):
    assert set(drafted_files(name)) < set(summed_files(name)) < set(bundle_files(name))
    assert set(drafted_files(name)) - {EXPLORER} <= set(drafted_files(NEWEST)) == set(DRAFT_FILES)
    assert (EXPLORER in drafted_files(name)) == (name == FORMAT_5)
    assert set(bundle_files(name)) - set(summed_files(name)) == {"SHA256SUMS", "SHA256SUMS.sig"}


def test_the_page_lists_every_file_of_a_bundle() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "bundle.md").read_text()
    table = page.partition("| file | what it is for |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall("`([A-Za-z0-9._]+)`", row.split(" | ")[0])]
    assert set(listed) == {name for each in KNOWN for name in bundle_files(each)}
