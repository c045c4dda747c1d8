"""The record answers by dataset, release, person, mechanism, kind and time, through the command that auditors type."""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.app import app
from models_db.values.amounts import Amount
from tests.conftest import Ledgers
from tests.contract.driver import Driver, planned

CONCERNS = ("cli/commands/governance", "flows/audit", "migrations/schema", "models_db/services")

Entry = dict[str, Any]
CLINICS, COURTS, FAILED = 1, 2, 3
"""The requests: two that were published, and a run that ended before it reserved anything."""


@dataclass(frozen=True)
class Desk:
    """An auditor's desk at a short history: a folder without a key, and the ledger's address."""

    driver: Driver
    folder: Path

    def type(self, line: str, command: str = "log") -> Any:
        """Search the record; return what a program reads, of a refusal its name."""
        words = shlex.split(f"audit {command} --json --home {self.folder} {line}")
        done = CliRunner().invoke(app, words, env={"ALMONER_DATABASE_URL": self.driver.world.database.url})
        assert done.exit_code in (0, 2), (done.output, done.exception)
        said = json.loads(done.stdout)
        return said["error"] if done.exit_code else said

    def found(self, line: str = "") -> list[Entry]:
        """All entries that a search finds."""
        entries = self.type(f"{line} --limit 1000")
        assert isinstance(entries, list), entries
        return entries

    def exported(self, line: str) -> list[Entry]:
        """The same in a file, of any length."""
        file = self.folder / "export.jsonl"
        self.type(f"{line} --to {file}", "export")
        lines = file.read_text().splitlines()
        file.unlink()
        return [json.loads(each) for each in lines]

    def paged(self, line: str, limit: int, between: Callable[[], object] = lambda: None) -> list[Entry]:
        """The same in pages, newest first, put together in the order of the record."""
        found: list[Entry] = []
        before = ""
        while page := self.type(f"{line} --limit {limit} {before}"):
            assert len(page) <= limit
            found = [*page, *found]
            before = f"--before {page[0]['seq']}"
            between()
        return found


def published(driver: Driver, dataset: str, system: str, mechanism: str) -> None:
    """Request, run and publish a release."""
    plan = planned(Amount(10), mechanism=mechanism)
    request = driver.request([plan], dataset, system=system)
    driver.approve(request)
    attempt = driver.start(request)
    driver.reserve(attempt, plan)
    driver.arm_part(attempt)
    driver.produce(attempt)
    driver.approve(request, "publish")
    driver.publish(request)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def desk(request: pytest.FixtureRequest, ledgers: Ledgers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with ledgers.new(request.param) as database:
        driver = Driver.on(database)
        for dataset in ("clinic", "court"):
            driver.register(dataset)
        published(driver, "clinic", "invisible_ink", "integer_draw")
        published(driver, "court", "urania", "noisy_count")
        failed = driver.request(system="invisible_ink")
        driver.approve(failed)
        driver.fail(driver.start(failed))
        yield Desk(driver, tmp_path_factory.mktemp("desk"))


def of(*requests: int) -> Callable[[Entry], bool]:
    return lambda entry: entry["request"] in requests


SEARCHES: dict[str, Callable[[Entry], bool]] = {
    "": lambda entry: True,
    "--dataset clinic": lambda entry: entry["dataset"] == "clinic",
    f"--release {CLINICS}": of(CLINICS),
    "--actor steward": lambda entry: entry["actor"] == "steward",
    "--actor runner --dataset court": lambda entry: (entry["actor"], entry["dataset"]) == ("runner", "court"),
    "--kind ledger.": lambda entry: "ledger." in entry["kind"],
    "--kind ledger.arm": lambda entry: entry["kind"] == "ledger.arm",
    "--kind r --dataset court": lambda entry: "+r" in f"+{entry['kind']}" and entry["dataset"] == "court",
    "--mechanism integer_draw": of(CLINICS),  # of the third nothing was ever reserved
    "--mechanism noisy_count": of(COURTS),
    "--mechanism invisible_ink": of(CLINICS, FAILED),
    "--mechanism urania": of(COURTS),
    "--mechanism invisible_ink --kind ledger.arm": lambda entry: of(CLINICS)(entry) and entry["kind"] == "ledger.arm",
    "--mechanism invisible_ink --release 3": of(FAILED),
    "--since 2000-01-01 --until 9998-01-01": lambda entry: True,
}
NOTHING = (
    "--dataset court --release 1", "--mechanism urania --dataset clinic", "--mechanism private_icl",
    "--actor analyst --kind ledger.", "--since 2000-01-01 --until 2001-01-01", "--since 9998-01-01",
    "--until 2000-01-01",
)  # fmt: skip
UNKNOWN = {
    "--dataset clin": "DatasetUnknown",
    "--release 99": "RequestUnknown",
    "--actor stewart": "PrincipalNotFound",
    "--kind ledger_": "SearchedNameUnknown",
    "--mechanism INTEGER_DRAW": "SearchedNameUnknown",
    "--mechanism integer%": "SearchedNameUnknown",
    "--mechanism because": "SearchedNameUnknown",  # the reason of every approval
    "--mechanism entry": "SearchedNameUnknown",
}


def test_the_whole_record_is_what_happened_in_its_order(desk: Desk) -> None:
    entries = desk.found()
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    kinds = {number: [each["kind"] for each in entries if each["request"] == number] for number in (CLINICS, FAILED)}
    assert kinds[CLINICS] == [
        "request.submitted", "request.approve", "run.started", "ledger.hold", "ledger.arm",
        "ledger.commit+run.produced", "request.approve", "release.published",
    ]  # fmt: skip
    assert kinds[FAILED] == ["request.submitted", "request.approve", "run.started", "run.failed"]
    assert {each["actor"] for each in entries} == {"admin", "analyst", "steward", "runner"}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_finds_what_fits_and_nothing_else(desk: Desk, search: str) -> None:
    entries = desk.found()
    expected = [entry for entry in entries if SEARCHES[search](entry)]
    assert expected
    assert desk.found(search) == expected
    assert desk.exported(search) == expected
    assert desk.paged(search, 5) == expected


@pytest.mark.parametrize("search", ["", "--dataset court"])
@pytest.mark.parametrize("limit", [1, 3])
def test_pages_lose_and_repeat_nothing_while_others_write(desk: Desk, search: str, limit: int) -> None:
    before = desk.found(search)
    others = iter(["court", "clinic"])

    def write() -> None:
        if dataset := next(others, None):
            desk.driver.request(dataset=dataset, system="invisible_ink")

    assert desk.paged(search, limit, write) == before
    assert len(desk.found(search)) > len(before)


@pytest.mark.parametrize("search", NOTHING)
def test_a_search_that_nothing_fits_finds_nothing(desk: Desk, search: str) -> None:
    assert desk.found(search) == []


@pytest.mark.parametrize("search", UNKNOWN)
def test_a_name_that_nothing_has_is_refused_and_not_answered_by_nothing(desk: Desk, search: str) -> None:
    assert desk.type(search) == UNKNOWN[search]


def test_a_moment_cuts_the_record_in_two(desk: Desk) -> None:
    """Also where several entries were written at the same moment."""
    entries = desk.found()
    moments = sorted({entry["at"] for entry in entries})
    assert len(moments) > 20
    for at in (moments[0], *moments[1::4], moments[-1]):
        assert desk.found(f"--since {at}") == [entry for entry in entries if entry["at"] >= at]
        assert desk.found(f"--until {at} --dataset court") == [
            entry for entry in entries if entry["at"] < at and entry["dataset"] == "court"
        ]
