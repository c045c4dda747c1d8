"""A dataset that grows: new units bring their own budget, known ones keep theirs, and who reads whom is proved."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tasks.corpus import store
from tasks.corpus.partition import PartitionScheme
from tasks.planning.block_selection import Reading
from tasks.values.plan import Plan
from tests import tiny_model
from tests.integration.story import NOTES, REQUEST, Almoner
from tests.integration.test_guides import blocks, lines
from tests.support import fetch

CONCERNS = ("flows/datasets", "flows/releases", "models_db/services")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "growth.md").read_text()

CANARY = "the blue heron sang of 4711 pears"
KNOWN = sorted({str(note["patient_id"]) for note in NOTES})
NEW = [f"patient-{number:03}" for number in range(101, 107)]
LATER = [
    *({"patient_id": unit, "text": f"A later visit of {unit}: {CANARY}."} for unit in KNOWN[:5]),
    *({"patient_id": unit, "text": f"A first visit of {unit}, and a cough."} for unit in NEW),
]
"""The second version: some who were there before, each with the canary, and some who are new."""

SMALL: dict[str, Any] = {
    "evaluation": ["length"],
    "parameters": REQUEST["parameters"] | {"samples": 4, "batches": 1, "max_new_tokens": 4},
}
"""A text of every block; nothing is counted first."""


@contextmanager
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Inside, every unit that is read, with its text."""
    found: dict[str, str] = {}
    real = store._row

    def watched(connection: Any, scheme: PartitionScheme, number: int, unit: str, label: str | None) -> Any:
        row = real(connection, scheme, number, unit, label)
        found[unit] = row.text
        return row

    with monkeypatch.context() as patch:
        patch.setattr(store, "_row", watched)
        yield found


def spent(almoner: Almoner) -> list[int]:
    """What each block has spent, by its number."""
    rows = fetch(almoner.database, "SELECT rho_spent FROM account WHERE parent_id IS NOT NULL ORDER BY block")
    return [int(str(row[0])) for row in rows]


def grow(almoner: Almoner, options: str = "") -> Path:
    """The second version, which opens cohort 2."""
    later = almoner.notes_file("later.jsonl", LATER)
    almoner.type(f"dataset ingest clinic {later} --new-cohort {options}")
    return later


def approve(almoner: Almoner, number: int) -> None:
    almoner.type(f'approve {number} --gate spend --reason "a look"', piped="clinic\n")


def test_new_units_bring_their_own_budget_and_known_ones_keep_theirs(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    almoner.ingested("--blocks 2")
    almoner.type(f"release request {almoner.request_file(**SMALL | {'epsilon': 7.9})}")
    approve(almoner, 1)
    almoner.type("run 1")
    first = spent(almoner)
    assert min(first) > 0
    grow(almoner)
    assert spent(almoner) == [*first, 0, 0]

    refused = almoner.ask(f"release request {almoner.request_file(**SMALL)}", expected=1)
    assert refused["error"] == "BudgetExceeded"
    assert "left in cohort 1." in refused["message"]
    assert "`cohorts: newest`" in refused["message"]
    for cohorts in ([1], [1, 2]):
        file = almoner.request_file(**SMALL, cohorts=cohorts)
        assert almoner.ask(f"release request {file}", expected=1)["error"] == "BudgetExceeded"

    almoner.type(f"release request {almoner.request_file(**SMALL, cohorts='newest')}")
    approve(almoner, 2)
    with reading(monkeypatch) as read:
        almoner.type("run 2")
    assert set(read) == set(NEW)
    assert CANARY not in " ".join(read.values())
    after = spent(almoner)
    assert after[:2] == first
    assert min(after[2:]) > 0
    body = json.loads(str(fetch(almoner.database, "SELECT canonical FROM request WHERE id = 2")[0][0]))
    assert (body["cohorts"], body["plan"]["blocks"], body["blocks"]) == ([2], [2, 3], 2)

    almoner.type('approve 2 --gate publish --reason "names nobody"', piped="clinic\n")
    almoner.type(f"publish 2 --to {almoner.folder / 'out'}")
    folder = almoner.folder / "out" / "clinic-release-2"
    assert almoner.ask(f"verify-release {folder}")["holds"] is True
    card = (folder / "README.md").read_text()
    assert "cohort 2: blocks 2 to 3" in card
    assert "new units bring a new budget, and known units keep the rest of theirs" in card
    lines = almoner.ask("budget show clinic")["cohorts"]
    assert [(line["cohort"], line["blocks"], line["rho_spent"] != "0") for line in lines] == [
        (1, "0 to 1", True), (2, "2 to 3", True),
    ]  # fmt: skip
    assert lines[0]["rho_left"] != lines[1]["rho_left"]
    assert "Cohort" in almoner.type("budget show clinic").out
    assert almoner.ask("dataset show clinic")["cohorts"] == 2
    assert almoner.ask("doctor")["ok"] is True
    assert [link["kind"] for link in almoner.ask("audit log --dataset clinic") if "cohort" in link["kind"]] == [
        "cohort.opened+dataset.ingested"
    ]


def test_all_cohorts_are_read_if_none_is_named(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.ingested()
    grow(almoner)
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    approve(almoner, 1)
    with reading(monkeypatch) as read:
        almoner.type("run 1")
    assert set(read) == {*KNOWN[:5], *NEW}
    left, right = spent(almoner)
    assert left == right > 0


def test_a_later_version_without_the_flag_goes_to_the_newest_cohort(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested()
    grow(almoner)
    third = [{"patient_id": unit, "text": "again"} for unit in (KNOWN[0], NEW[0], "patient-200")]
    told = almoner.ask(f"dataset ingest clinic {almoner.notes_file('third.jsonl', third)}")
    assert told == {"dataset": "clinic", "version": 3, "labels": None, "opened_cohort": None, "repeats": None}
    almoner.type(f"release request {almoner.request_file(**SMALL, cohorts=[2])}")
    approve(almoner, 1)
    with reading(monkeypatch) as read:
        almoner.type("run 1")
    assert set(read) == {NEW[0], "patient-200"}
    assert spent(almoner)[0] == 0


def test_what_was_approved_before_reads_the_blocks_it_names(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request, and an authorisation for several: neither learns of a cohort that is opened later."""
    almoner.ingested()
    file = almoner.request_file(**SMALL)
    almoner.type(f'standing propose {file} --runs 4 --until 2099-12-31 --reason "every month"')
    almoner.type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    almoner.type(f"release request {file}")
    approve(almoner, 1)
    grow(almoner)

    with reading(monkeypatch) as read:
        almoner.type("run 1")
    assert set(read) == set(KNOWN)  # of the version that was there
    once = spent(almoner)
    assert once[0] > 0 == once[1]

    refused = almoner.ask(f"release request {file} --standing 1", expected=1)
    assert "`cohorts`" in refused["message"]
    almoner.type(f"release request {almoner.request_file(**SMALL, cohorts=[1])} --standing 1")
    with reading(monkeypatch) as read:
        almoner.type("run 2")
    assert set(read) == set(KNOWN[:5])  # of the newest version, those who were known
    assert spent(almoner) == [2 * once[0], 0]


def test_a_schedule_goes_on_with_the_cohorts_of_its_authorisation(almoner: Almoner) -> None:
    from tests.integration.test_schedules import look, scheduled

    almoner.ingested()
    almoner.type(f'standing propose {almoner.request_file(**SMALL)} --runs 4 --until 2099-12-31 --reason "monthly"')
    almoner.type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    scheduled(almoner, "--every 1m")
    grow(almoner)
    assert [run["outcome"] for run in look(almoner, ahead=0)["runs"]] == ["produced"]
    before, after = spent(almoner)
    assert before > 0 == after


def test_a_plan_for_another_cohort_than_the_request_names_is_not_run(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested("--blocks 2")
    grow(almoner)
    almoner.type(f"release request {almoner.request_file(**SMALL, cohorts=[2])}")
    approve(almoner, 1)
    real = Reading.renumber_plan

    def elsewhere(self: Reading, plan: Plan) -> Plan:
        return real(Reading(self.each, (1,), several=True), plan)

    monkeypatch.setattr(Reading, "renumber_plan", elsewhere)
    assert almoner.ask("run 1", expected=1)["facts"]["changed"] == "plan"
    assert spent(almoner) == [0] * 4


def test_a_dry_run_says_what_it_would_do_and_reads_nothing(almoner: Almoner) -> None:
    almoner.ingested("--blocks 2")
    before = almoner.everything()
    told = almoner.ask("dataset ingest clinic nowhere.jsonl --new-cohort --population 40 --dry-run")
    assert told["opens"]["blocks"] == 2
    assert (told["version"], told["cohort_of_new_units"]) == (2, 2)
    told = almoner.ask("dataset ingest clinic nowhere.jsonl --dry-run")
    assert (told["cohort_of_new_units"], told["opens"]) == (1, None)
    assert "Would open: Cohort 2" in almoner.type("dataset ingest clinic x --new-cohort --dry-run").out
    assert almoner.everything() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [("--unit patient_id", "InvalidCohort"), ("", "InvalidCohort"), ("--unit patient_id --public", "InvalidCohort")],
)
def test_where_no_cohort_can_be_opened(almoner: Almoner, options: str, error: str) -> None:
    """Nothing before it; people without names; no budget."""
    almoner.type("init")
    almoner.type(f"dataset register clinic {options} --epsilon 8 --delta 1e-6")
    notes = almoner.notes_file()
    if options != "--unit patient_id":
        almoner.type(f"dataset ingest clinic {notes}")
    before = almoner.everything()
    assert almoner.ask(f"dataset ingest clinic {notes} --new-cohort", expected=1)["error"] == error
    assert almoner.everything() == before


def test_cohorts_that_are_not_there_are_refused(almoner: Almoner) -> None:
    almoner.ingested()
    for cohorts, error in (
        ([2], "CohortUnknown"),
        ([], "FileInvalid"),
        ([2, 1], "FileInvalid"),
        ("all", "FileInvalid"),
    ):
        file = almoner.request_file(**SMALL, cohorts=cohorts)
        assert almoner.ask(f"release request {file} --dry-run", expected=2)["error"] == error
    file = almoner.notes_file("later.jsonl", LATER)
    assert almoner.ask(f"dataset ingest clinic {file} --population 4", expected=2)["error"] == "UnexpectedPopulation"


def test_a_declared_population_is_that_of_the_cohort(almoner: Almoner) -> None:
    almoner.type("init")
    almoner.type("dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6 --population 12")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    grow(almoner, "--population 6")
    for cohorts, expected in (("newest", 6), ([1], 12), (None, 18)):
        file = almoner.request_file(**SMALL, **({} if cohorts is None else {"cohorts": cohorts}))
        number = almoner.ask(f"release request {file}")["request"]
        body = fetch(almoner.database, f"SELECT canonical FROM request WHERE id = {number}")
        assert json.loads(str(body[0][0]))["population"] == expected


@pytest.mark.slow
def test_the_example_of_the_page_can_be_typed(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """From beginning to end: the second time the request is refused as the page says, and then has one more line."""
    monkeypatch.chdir(almoner.folder)
    (written,) = blocks(PAGE, "yaml")
    text = written.replace("smollm2-135m-instruct", tiny_model.NAME)
    almoner.write("request.yaml", text)
    almoner.notes_file("this-year.jsonl")
    almoner.notes_file("next-year.jsonl", LATER)
    first, second = (number for number, line in enumerate(lines(PAGE)) if line.startswith("release request"))
    for number, line in enumerate(lines(PAGE)):
        if number == second:
            refused = " ".join(almoner.type(line, 1).err.split())
            (said,) = blocks(PAGE, "text")
            assert " ".join(said.split()) in refused
            almoner.write("request.yaml", f"{text}cohorts: newest\n")
        almoner.type(line, piped="clinic\n")
    assert first < second
    shown = almoner.ask("budget show clinic")
    assert [line["rho_spent"] == shown["rho_spent"] for line in shown["cohorts"]] == [True, True]
    assert [by["request"] for by in shown["spent_by"]] == [1, 2]
