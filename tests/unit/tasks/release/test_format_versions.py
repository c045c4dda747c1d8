"""The format of a release: its files by kind, and a bundle of another format is refused by name."""

import json
import os
import re
from pathlib import Path

import pytest

from tasks.common.files import encode_json
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import (
    DRAFT_FILES,
    EXPLORER,
    FORMAT,
    RECORD,
    bundle_files,
    drafted_files,
    stated_kind,
    summed_files,
)
from tasks.values.results import ReleaseKind
from tests.unit.tasks.publishing.forging import failed

TEXTS = "synthetic_corpus"


def test_a_bundle_states_its_format(folder: Path) -> None:
    assert json.loads((folder / RECORD).read_text())["format"] == FORMAT == "almoner-release/1"
    assert set(os.listdir(folder)) == set(bundle_files(TEXTS))


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ("almoner-release/2", "release.json is in almoner-release/2; this almoner reads almoner-release/1."),
        ("almoner-release/99", "release.json is in almoner-release/99; this almoner reads almoner-release/1."),
        ("almoner-release/1 ", "release.json is in no format of a release; this almoner reads almoner-release/1."),
        ("</td>", "release.json is in no format of a release; this almoner reads almoner-release/1."),
        (["almoner-release/1"], "release.json is in no format of a release; this almoner reads almoner-release/1."),
        (None, "release.json is in no format of a release; this almoner reads almoner-release/1."),
    ],
)
def test_another_format_is_refused_by_name(folder: Path, stated: object, told: str) -> None:
    record = json.loads((folder / RECORD).read_text()) | {"format": stated}
    (folder / RECORD).write_bytes(encode_json(record))
    report = verify_release(folder)
    assert "record" in failed(report)
    (detail,) = [check.detail for check in report.checks if check.name == "record"]
    assert detail == told


def test_a_record_without_a_format_is_refused(folder: Path) -> None:
    record = json.loads((folder / RECORD).read_text())
    del record["format"]
    (folder / RECORD).write_bytes(encode_json(record))
    (detail,) = [check.detail for check in verify_release(folder).checks if check.name == "record"]
    assert "this almoner reads almoner-release/1" in detail


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"kind":"insights"}\n', ReleaseKind.INSIGHTS),
        (b'{"kind":"synthetic_corpus"}\n', TEXTS),
        (b'{"kind":"nothing that is"}\n', "nothing that is"),
        (b'{"kind":["insights"]}\n', ""),
        (b'{"kind":"insights" }\n', ""),
        (b"[]\n", ""),
        (b"", ""),
    ],
)
def test_the_kind_is_the_one_the_record_names(data: bytes, found: str) -> None:
    assert stated_kind(data) == found


@pytest.mark.parametrize("kind", ["", TEXTS, ReleaseKind.INSIGHTS])
def test_every_kind_covers_the_draft_and_all_but_the_signature(kind: str) -> None:
    assert set(drafted_files(kind)) < set(summed_files(kind)) < set(bundle_files(kind))
    assert set(drafted_files(kind)) - {EXPLORER} == set(DRAFT_FILES)
    assert (EXPLORER in drafted_files(kind)) == (kind == ReleaseKind.INSIGHTS)
    assert set(bundle_files(kind)) - set(summed_files(kind)) == {"SHA256SUMS", "SHA256SUMS.sig"}


def test_the_page_lists_every_file_of_a_bundle() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "bundle.md").read_text()
    table = page.partition("| file | purpose |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall("`([A-Za-z0-9._]+)`", row.split(" | ")[0])]
    assert set(listed) == set(bundle_files(ReleaseKind.INSIGHTS))
