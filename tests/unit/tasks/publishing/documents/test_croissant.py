"""Croissant files: valid for the reference reader, which also reads the rows; the same terms for every release."""

import json
from pathlib import Path
from typing import Any

import mlcroissant
import pytest

from tasks.common.files import FileTable
from tasks.mechanisms.core.uncharged import uncharged
from tasks.publishing.documents.croissant import CONFORMS_TO, PRIVACY_TERMS, croissant
from tasks.publishing.draft import write_draft
from tasks.release.bundle_format import CROISSANT, PARQUET, TEXTS, labels_of_texts
from tasks.release.record import PublicContent
from tests.unit.tasks.publishing.builders import a_record, a_request, invocation, metrics_of
from tests.unit.tasks.release.test_text_rows import FILM, LABELS, asked

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlcroissant"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:rdflib"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlcroissant"),
]

DATA: FileTable = {TEXTS: {"sha256": "11" * 32, "bytes": 75}, PARQUET: {"sha256": "22" * 32, "bytes": 572}}
DECLARED = {
    "name": "Visits",
    "description": "Notes from \u00dctopia.\nIn two lines.",
    "licence": "CC-BY-4.0",
    "language": ["en", "de-CH"],
    "creators": ["The clinic"],
    "citation": "The clinic (2026)",
    "url": "https://example.org/notes",
    "intended_use": "Teaching.",
    "publication_date": "2026-12-01",
}
NASTY = 'x"}, "dp:epsilon": "0", "y": {"<script>\u202e\n{description}'


def made(request: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(croissant(PublicContent(a_record(request, **changes), (), DATA)))
    return found


def drafted(folder: Path, request: dict[str, Any], texts: tuple[str, ...]) -> mlcroissant.Dataset:
    labels = labels_of_texts("synthetic_corpus", request["parameters"].get("labels", []), len(texts), 1)
    write_draft(folder / "draft", a_record(request), texts, metrics_of(texts, "length"), labels)
    return mlcroissant.Dataset(jsonld=str(folder / "draft" / CROISSANT))


def issues(dataset: mlcroissant.Dataset) -> tuple[set[str], set[str]]:
    found = dataset.metadata.ctx.issues
    return set(found.errors), set(found.warnings)


def test_a_declared_release_is_valid_without_a_warning(tmp_path: Path) -> None:
    dataset = drafted(tmp_path, a_request(public_metadata=DECLARED), ("a", "b"))
    assert issues(dataset) == (set(), set())
    read = dataset.metadata
    assert read.conforms_to == list(CONFORMS_TO)
    assert read.license == ["https://spdx.org/licenses/CC-BY-4.0.html"]
    assert read.data_use_cases == ["Teaching."]
    assert len(read.data_limitations) == 10
    assert read.data_social_impact.startswith("Any finding in the release is at most 54.6 times as likely")


def test_a_release_of_nothing_declared_is_valid_and_lacks_what_only_its_owner_knows(tmp_path: Path) -> None:
    errors, warnings = issues(drafted(tmp_path, a_request(), ("a", "b")))
    assert errors == set()
    absent = ("cr:citeAs", "sc:datePublished", "sc:license")
    assert sorted(name for name in absent for one in warnings if name.partition(":")[2] in one) == list(absent)
    assert len(warnings) == len(absent)


@pytest.mark.parametrize(
    ("kind", "labels", "texts"),
    [
        ("synthetic_corpus", [], ("a", "b\nc")),
        ("demonstrations", LABELS, ("a", "b")),
        ("records", [], (FILM, "no record")),
        ("records", LABELS, (FILM, FILM)),
    ],
)
def test_the_reference_reader_reads_the_rows(
    tmp_path: Path, kind: str, labels: list[str], texts: tuple[str, ...]
) -> None:
    dataset = drafted(tmp_path, asked(kind, labels), texts)
    assert issues(dataset)[0] == set()
    rows = [json.loads(row) for row in (tmp_path / "draft" / TEXTS).read_bytes().splitlines()]
    field = "raw" if kind == "records" else "text"
    read = list(dataset.records("texts"))
    assert [row["texts/id"] for row in read] == [row["id"] for row in rows]
    assert [row[f"texts/{field}"].decode() for row in read] == [row[field] for row in rows]
    if labels:
        assert [row["texts/label"].decode() for row in read] == [row["label"] for row in rows]


def test_the_claim_is_in_terms_of_its_own() -> None:
    found = made()
    assert found["@context"]["dp"] == PRIVACY_TERMS
    assert {name: value for name, value in found.items() if name.startswith("dp:")} == {
        "dp:claimed": True,
        "dp:epsilon": "4",
        "dp:epsilonWhileAssignmentIsSecret": "3.34293506037",
        "dp:delta": "0.0000001",
        "dp:rho": "0.266311880304",
        "dp:privacyUnit": "id",
        "dp:neighbouringRelation": "add_or_remove_one",
        "dp:replaceOneEpsilon": "8.705414862406",
        "dp:replaceOneDelta": "0.0000001",
        "dp:mechanism": ["integer_draw"],
        "dp:lifetimeEpsilon": "8",
        "dp:lifetimeDelta": "0.000001",
    }


def test_a_release_without_claim_claims_nothing() -> None:
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("non_private"))]}
    request = a_request(mechanism="non_private", governed=False, epsilon=None, delta=None, plan=plan)
    found = made(request, lifetime=None, second_opinion=None, released={})
    assert {name for name in found if name.startswith("dp:")} == {"dp:claimed"}
    assert found["dp:claimed"] is False
    assert "differentially" not in found["description"].replace("No differential", "")
    assert "differential-privacy" not in found["keywords"]
    assert "word for word" in found["rai:personalSensitiveInformation"][0]


def test_a_release_that_reads_nothing_says_so() -> None:
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("public_only"))]}
    found = made(a_request(mechanism="public_only", plan=plan), second_opinion=None, released={})
    assert "No private text was read" in found["rai:dataCollection"]
    assert "without the dataset it would have come out the same way" in found["rai:dataSocialImpact"]


def test_what_is_declared_is_stated_and_nothing_else_is_made_up() -> None:
    found = made(a_request(public_metadata=DECLARED))
    assert found["inLanguage"] == ["en", "de-CH"]
    assert found["datePublished"] == "2026-12-01"
    assert found["name"] == "Visits, release 1"
    absent = {"license", "inLanguage", "creator", "citeAs", "url", "datePublished", "rai:dataUseCases"}
    assert absent <= set(found)
    assert not absent & set(made())


def test_nothing_somebody_typed_adds_a_term() -> None:
    said = dict.fromkeys(("description", "citation", "intended_use"), NASTY)
    request = a_request(
        dataset={"name": NASTY, "version": 1, "uid": "4d"},
        unit=NASTY,
        model={"name": NASTY, "revision": "1", "sha256": "1f" * 32, "licence": NASTY},
        public_metadata=said,
        plan=a_request()["plan"],
    )
    found = made(request)
    expected = made(a_request(public_metadata=dict.fromkeys(said, "x")))
    assert set(found) == set(expected)
    assert found["dp:epsilon"] == "4"
    assert found["prov:wasDerivedFrom"]["name"] == NASTY


def test_files_are_named_with_their_digests() -> None:
    found = made()["distribution"]
    assert [(one["@id"], one["sha256"], one["contentSize"]) for one in found] == [
        (TEXTS, "11" * 32, "75 B"),
        (PARQUET, "22" * 32, "572 B"),
    ]
