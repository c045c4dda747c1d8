"""What is an address and what is none; nothing that may be a secret is repeated."""

from pathlib import Path

import pytest

from tasks.object_storage.address import AZURE, GOOGLE, Address, parse_place
from tests.refusals import refusal


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("notes.jsonl", Path("notes.jsonl")),
        ("/srv/notes", Path("/srv/notes")),
        ("file:///srv/my%20notes", Path("/srv/my notes")),
        ("s3://clinic", Address("clinic")),
        ("s3://clinic/", Address("clinic")),
        ("S3://clinic/a/b.jsonl", Address("clinic", "a/b.jsonl")),
        ("s3://clinic/notes/", Address("clinic", "notes")),
        ("s3://clinic/Patientenbriefe ä%2e", Address("clinic", "Patientenbriefe ä%2e")),
        ("s3://clinic_notes/a.jsonl", Address("clinic_notes", "a.jsonl")),
        ("gs://clinic_notes/a.jsonl", Address("clinic_notes", "a.jsonl", GOOGLE)),
        ("gcs://clinic", Address("clinic", "", GOOGLE)),
        ("az://clinic/notes/", Address("clinic", "notes", AZURE)),
        ("abfs://clinic/a", Address("clinic", "a", AZURE)),
        ("abfss://clinic/a", Address("clinic", "a", AZURE)),
    ],
)
def test_what_people_type(typed: str, meant: Path | Address) -> None:
    assert parse_place(typed) == meant
    if isinstance(meant, Address):
        assert parse_place(str(meant)) == meant


@pytest.mark.parametrize(
    "typed",
    [
        "s3://", "s3:///key", "s3://Clinic/a", "s3://key:hunter2@clinic/a", "s3://clinic:9000/a", "s3://..", "s3://a..b",
        "s3://clinic/../other", "s3://clinic/a/./b", "s3://clinic/a//b", "s3://clinic//a", "s3://clinic/a?versionId=1",
        "s3://clinic/a#b", "s3://clinic/a\nb", "s3://clinic/a\\..\\b", "s3://clinic/" + "a" * 901, "file://host/srv",
        "gs://Clinic/a", "gs://token:hunter2@clinic/a", "gs://clinic/a#1", "az://clinic/a?sv=1&sig=hunter2",
        "abfss://clinic@hunter2.dfs.core.windows.net/a",
    ],
)  # fmt: skip
def test_what_is_no_address(typed: str) -> None:
    with refusal("AddressUnfit") as refused:
        parse_place(typed)
    assert "hunter2" not in refused.value.diagnostics()


@pytest.mark.parametrize("scheme", ["http", "https", "wasb", "memory", "ftp", "s3a", "simplecache"])
def test_the_list_of_schemes_is_closed(scheme: str) -> None:
    with refusal("SchemeUnknown") as refused:
        parse_place(f"{scheme}://user:hunter2@host/key")
    assert refused.value.facts == {"scheme": scheme}
    assert "hunter2" not in refused.value.diagnostics()


def test_what_lies_below() -> None:
    assert Address("clinic") / "a" == Address("clinic", "a")
    assert (Address("clinic", "a") / "b").name == "b"
    assert Address("clinic").name == "clinic"
    for name in ("..", "a/b", "a\n"):
        with refusal("AddressUnfit"):
            Address("clinic", "a") / name
