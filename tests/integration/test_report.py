"""`almoner report`: what each version tells, when it may be had, and that nothing internal reaches a steward."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from flows.attacks.result_store import AttackFolder, configuration_of
from models_db.services import artifacts, exposures, people
from models_db.services.audit.chain import Actor
from models_db.values.canonical_json import digest
from tasks.values.results import MetricResult
from tests.faults import Failing, FaultyLetters, temporary, waits
from tests.integration.story import SECRETS, Almoner
from tests.tiny_embedder import Letters
from tests.unit.tasks.reporting.a_report import STORED

CONCERNS = ("flows/reports", "tasks/reporting")

SENTINELS = ("31337", "271828", "planted_internal")
PLANTED = MetricResult("planted_internal", "internal", {"leak": 31337, "more": "2.71828", "named": "271828"}, "s", "m",
                       "a line of 31337 words")  # fmt: skip


def plant(almoner: Almoner, request: int = 1) -> None:
    """An internal figure in the ledger, as `almoner evaluate --internal` leaves one."""
    with almoner.database.write() as session:
        artifact = artifacts.artifact_of(session, request)
        assert artifact is not None
        exposures.record_view(session, acting(session), artifact, "computed")
        found = (PLANTED, replace(PLANTED, name="perplexity_gap"))
        artifacts.record_metrics(
            session, acting(session), artifact, [(one.name, one.exposure, one.to_json()) for one in found]
        )


def acting(session: Session) -> Actor:
    """The owner of the home."""
    owner = people.list_all(session)[0]
    return Actor(owner.id, owner.name)


def page_of(almoner: Almoner, version: str = "") -> str:
    """What `almoner report 1` puts into the home."""
    almoner.type(f"report 1 {version}")
    return (almoner.home.root / "reports" / f"1-{version.strip('-') or 'steward'}.html").read_text()


def refused(almoner: Almoner, line: str, error: str) -> Any:
    told = almoner.ask(line, 1)
    assert told["error"] == error, told
    return told


def test_a_steward_gets_a_page_and_the_same_as_json(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.produced()
    said = almoner.ask("report 1")
    assert not (almoner.home.root / "reports").exists()
    assert (said["format"], said["version"]) == ("almoner-report/1", "steward")
    assert said["claim"]["epsilon"] == "4"
    assert said["gate"]["state"] == "produced"
    assert said["gate"]["subject_sha256"] == almoner.ask("release show 1")["artifact"]
    assert [one["name"] for one in said["metrics"]] == ["length", "distinct", "perplexity"]
    budget = said["budget"]
    assert float(budget["before"]) == 0
    assert budget["release"] == budget["after"] == said["claim"]["rho"]
    assert len(said["samples"]) == 3
    assert [one["number"] for one in said["text_pages"][0]["texts"]] == [1, 2, 3]
    page = page_of(almoner)
    for fact in ("clinic, release 1", "epsilon 4", "almoner approve 1 --gate publish", budget["after"]):
        assert fact in page
    for secret in SECRETS:
        assert secret not in page


def test_the_map_is_made_again_after_temporary_faults(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner = any_almoner
    almoner.produced()

    def map_with(load: Callable[[], object]) -> Any:
        monkeypatch.setattr("tasks.inference.embeddings.encoder.load_embedder", load)
        return almoner.ask("report 1")["map"]

    expected = map_with(Letters)
    assert expected["texts"] == 3
    with waits() as seconds:
        assert map_with(Failing(FaultyLetters, temporary())) == expected
    assert seconds == [10, 10]  # of the loading, and of the embedding
    with waits() as seconds, pytest.raises(ValueError):
        map_with(Failing(Letters, ValueError()))
    assert seconds == []


def test_a_file_is_written_once_and_for_its_owner_alone(almoner: Almoner, tmp_path: Path) -> None:
    almoner.produced()
    page, data = tmp_path / "page.html", tmp_path / "report.json"
    almoner.type(f"report 1 --out {page}")
    almoner.type(f"report 1 --public --out {data}")
    assert page.stat().st_mode & 0o777 == data.stat().st_mode & 0o777 == 0o600
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert json.loads(data.read_text())["version"] == "public"
    assert almoner.ask(f"report 1 --out {page}", 2)["error"] == "FileUnwritable"
    kept = page_of(almoner)
    assert page_of(almoner) == kept == page.read_text()


@pytest.mark.slow_except("kept/../page.json")
@pytest.mark.parametrize("place", ["page.html", "reports/page.html", "kept/../page.json"])
def test_no_file_of_another_name_is_written_into_the_home(almoner: Almoner, place: str) -> None:
    """An erasure would not find it there."""
    almoner.produced()
    (almoner.home.root / "kept").mkdir()
    (almoner.folder / "link").symlink_to(almoner.home.root)
    before = almoner.everything()
    for root in (almoner.home.root, almoner.folder / "link"):
        assert almoner.ask(f"report 1 --out {root / place}", 2)["error"] == "ReportInHome"
    assert almoner.everything() == before


def test_the_public_version_knows_nothing_of_the_ledger(almoner: Almoner) -> None:
    almoner.produced()
    said = almoner.ask("report 1 --public")
    assert said["budget"] is said["gate"] is said["map"] is None
    assert said["sections"] == said["tradeoff"] == []
    before = page_of(almoner, "--public")
    almoner.go_on_to("published", after="produced")
    assert page_of(almoner, "--public") == before == (almoner.bundle / "report.html").read_text()


def test_the_internal_version_waits_for_the_decision(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.produced()
    told = refused(almoner, "report 1 --internal", "WrongState")
    assert "internal metrics wait for the decision" in told["message"]
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    refused(almoner, "report 1 --internal", "WrongState")
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    assert "There are none yet" in page_of(almoner, "--internal")
    plant(almoner)
    page = page_of(almoner, "--internal")
    for sentinel in SENTINELS:
        assert sentinel in page


@pytest.mark.parametrize("version", ["", "--public"])
def test_no_internal_figure_reaches_a_steward_or_a_reader(almoner: Almoner, version: str) -> None:
    """It is in the ledger, of this release and of an earlier one, and in neither page nor JSON."""
    almoner.published()
    plant(almoner)
    for said in (page_of(almoner, version), json.dumps(almoner.ask(f"report 1 {version}"))):
        for sentinel in (*SENTINELS, "perplexity_gap"):
            assert sentinel not in said
        assert "perplexity" in said


def test_on_public_data_it_needs_no_decision(almoner: Almoner) -> None:
    almoner.type("init")
    almoner.type("dataset register clinic --public --unit patient_id --epsilon 8 --delta 1e-6")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    almoner.type(f"release request {almoner.request_file(evaluation=['length', 'verbatim_overlap'])}")
    almoner.go_on_to("produced")
    assert "verbatim_overlap" in page_of(almoner, "--internal")
    for version in ("", "--public"):
        assert "verbatim_overlap" not in page_of(almoner, version)


def test_a_report_needs_something_that_was_made(almoner: Almoner) -> None:
    almoner.approved()
    refused(almoner, "report 1", "WrongState")
    assert almoner.ask("report 2", 2)["error"] == "RequestUnknown"
    assert almoner.ask("report 1 --public --internal", 2)["error"] == "ConflictingVersions"


def test_files_that_were_changed_are_not_reported(almoner: Almoner) -> None:
    almoner.produced()
    [draft] = almoner.home.quarantine.iterdir()
    (draft / "texts.jsonl").write_text('{"id":1,"text":"other"}\n')
    for version in ("", "--public"):
        refused(almoner, f"report 1 {version}", "ArtifactChanged")


def test_attacks_on_a_twin_of_the_same_configuration_are_told(almoner: Almoner) -> None:
    almoner.produced()
    body = almoner.ask("release show 1")["canonical"]
    assert almoner.ask("report 1")["twin"] is None
    configuration = configuration_of(body)
    found = STORED | {"configuration": configuration, "configuration_digest": digest(configuration)}
    AttackFolder.for_configuration(almoner.home, configuration, "9a").write_result(found)
    other = configuration | {"epsilon": "1"}
    stranger = found | {"configuration_digest": digest(other), "twin": {"name": "another"}}
    AttackFolder.for_configuration(almoner.home, other, "9a").write_result(stranger)
    said = almoner.ask("report 1")
    assert (said["twin"]["corpus"], said["twin"]["same_code"]) == ("mts-dialog", False)
    assert [one["verdict"] for one in said["attacks"]] == ["does not win", "does not win"]
    assert almoner.ask("report 1 --public")["attacks"] == []


def test_releases_of_one_dataset_are_compared(almoner: Almoner) -> None:
    almoner.published()
    plant(almoner)
    almoner.type(f"release request {almoner.request_file(epsilon=2.0)}")
    almoner.go_on_to("produced", 2)
    said = almoner.ask("report 2")
    points = [(p["release"], p["epsilon"], p["this"]) for p in said["tradeoff"] if p["figure"] == "perplexity"]
    assert points == [(1, "4", False), (2, "2", True)]
    assert not {p["metric"] for p in said["tradeoff"]} & {PLANTED.name}
    assert said["budget"]["before"] == almoner.ask("report 1 --public")["claim"]["rho"]
    assert any(table["title"].startswith("Difference to release 1") for table in said["sections"])
