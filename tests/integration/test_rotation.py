"""Releases that rotate over blocks: each reads and charges one group, and says which; others have no part in it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import pytest

from flows.workspace.home_keys import load_partition_key
from flows.workspace.workspace import open_workspace
from models_db.services.catalogue import datasets
from tasks.corpus import store
from tasks.corpus.partition import PartitionScheme
from tasks.planning.block_rotation import Rotation
from tasks.values.plan import Plan
from tests.integration.story import NOTES, REQUEST, Almoner
from tests.integration.test_extend import COUNTED
from tests.integration.test_keyphrases import NOTES as SPOKEN
from tests.integration.test_keyphrases import SEEDED
from tests.integration.test_schedules import look, scheduled, slots
from tests.support import fetch

CONCERNS = ("flows/releases", "models_db/services", "tasks/attacks")

ROTATING: dict[str, Any] = {"rotate_over": 2, "epsilon": 1.0, "evaluation": ["length"]}
WHOLE_BLOCKS = {"parameters": REQUEST["parameters"] | {"samples": 2, "batches": 1}}
"""A text of every block, made of all its units; without it, how many units there are is counted first."""


def scheme_of(almoner: Almoner) -> PartitionScheme:
    with open_workspace(almoner.home).database.read() as session:
        clinic = datasets.find_dataset(session, "clinic")
        key, blocks = load_partition_key(almoner.home, session, clinic), datasets.find_partition(session, clinic).blocks
    return PartitionScheme(key, blocks)


def spending(almoner: Almoner) -> list[bool]:
    """Which blocks have spent something."""
    rows = fetch(almoner.database, "SELECT rho_spent FROM account WHERE kind = 'block' ORDER BY block")
    return [int(str(row[0])) > 0 for row in rows]


@contextmanager
def read_units(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Inside, every unit whose text is read."""
    found: set[str] = set()
    real = store._row

    def watched(connection: Any, scheme: PartitionScheme, number: int, unit: str, label: str | None) -> Any:
        found.add(unit)
        return real(connection, scheme, number, unit, label)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_row", watched)
        yield found


def rotating(almoner: Almoner, **changes: Any) -> None:
    """Four blocks, and four runs of one small request that rotates over two groups, authorised as proposal 1."""

    def prepare() -> None:
        almoner.ingested("--blocks 4")
        file = almoner.request_file(**(ROTATING | changes))
        almoner.type(f'standing propose {file} --runs 4 --until 2099-12-31 --reason "every month"')
        almoner.type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")

    almoner.brought(f"rotating {changes!r}", prepare)


def test_runs_take_turns_and_charge_their_own_blocks(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner = any_almoner
    rotating(almoner, **WHOLE_BLOCKS)
    scheduled(almoner, "--every 1m")
    scheme, patients = scheme_of(almoner), {note["patient_id"] for note in NOTES}
    turns = [({0, 2}, [True, False, True, False]), ({1, 3}, [True] * 4), ({0, 2}, [True] * 4)]
    for minutes, (group, charged) in zip((-4, -2, 0), turns, strict=True):
        with read_units(monkeypatch) as units:
            done = look(almoner, ahead=minutes)
        assert [run["outcome"] for run in done["runs"]] == ["produced"]
        assert units == {unit for unit in patients if scheme.block_of(unit) in group}
        assert spending(almoner) == charged
    assert [row[1] for row in slots(almoner)] == [None, None, None]
    least, most = fetch(almoner.database, "SELECT min(rho_spent), max(rho_spent) FROM account WHERE kind = 'block'")[0]
    assert int(str(most)) == 2 * int(str(least))  # three runs cost no block more than two


@pytest.mark.slow
def test_a_request_of_one_turn_is_not_configured_otherwise_than_one_of_another(almoner: Almoner) -> None:
    """Both come under one authorisation: what differs is the group, and what the plan says of it."""
    rotating(almoner)
    file = almoner.request_file(**ROTATING)
    for number in (1, 2):
        almoner.type(f"release request {file} --standing 1")
        almoner.type(f"run {number}")
    bodies = [json.loads(str(row[0])) for row in fetch(almoner.database, "SELECT canonical FROM request ORDER BY id")]
    assert [(body["group"], body["plan"]["blocks"]) for body in bodies] == [(0, [0, 2]), (1, [1, 3])]
    digests = fetch(almoner.database, "SELECT DISTINCT config_digest FROM request")
    assert len(digests) == 1
    assert spending(almoner) == [True] * 4
    assert len(fetch(almoner.database, "SELECT DISTINCT rho_spent, rho_held FROM account WHERE kind = 'block'")) == 1
    almoner.type('approve 2 --gate publish --reason "names nobody"')
    almoner.type(f"publish 2 --to {almoner.folder / 'out'}")
    folder = almoner.folder / "out" / "clinic-release-2"
    assert almoner.ask(f"verify-release {folder}")["holds"] is True
    assert "group 2 of 2: 1, 3 of 4" in (folder / "README.md").read_text()
    assert almoner.ask("doctor")["ok"] is True


def test_a_plan_for_other_blocks_than_the_turns_is_not_run(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was submitted for one group is run for that group, whatever code says another."""
    rotating(almoner)
    almoner.type(f"release request {almoner.request_file(**ROTATING)} --standing 1")
    real = Rotation.renumber_plan

    def elsewhere(self: Rotation, plan: Plan) -> Plan:
        return real(Rotation(self.groups, 1 - self.group, self.whole), plan)

    monkeypatch.setattr(Rotation, "renumber_plan", elsewhere)
    assert almoner.ask("run 1", expected=1)["facts"]["changed"] == "plan"
    assert spending(almoner) == [False] * 4


@pytest.mark.slow
def test_the_blocks_of_another_turn_are_the_hold_out_of_an_audit(almoner: Almoner) -> None:
    rotating(almoner)
    file = almoner.request_file(**ROTATING)
    almoner.type(f"release request {file} --standing 1")
    almoner.type("run 1")
    almoner.type('reject 1 --gate publish --reason "for the test"')
    scheme, patients = scheme_of(almoner), {note["patient_id"] for note in NOTES}
    read = sum(scheme.block_of(unit) in {0, 2} for unit in patients)
    metrics = {each["name"]: each for each in almoner.ask("evaluate 1 --internal")["metrics"]}
    for name in ("disclosures", "closeness"):
        values = metrics[name]["values"]
        assert metrics[name]["exposure"] == "internal"
        assert (values["read"], values["held_out"]) == (read, len(patients) - read)
        assert values["chance"] == "0.5000"
        assert "(claim 1" in metrics[name]["line"]


@pytest.mark.parametrize(
    ("options", "groups", "error"),
    [("--blocks 4", 3, "RotationUnfit"), ("", 2, "RotationUnfit"), ("--blocks 4 --public", 2, "RotationOfPublicData")],
)
def test_what_cannot_rotate(almoner: Almoner, options: str, groups: int, error: str) -> None:
    almoner.ingested(options)
    file = almoner.request_file(**(ROTATING | {"rotate_over": groups}))
    assert almoner.ask(f"release request {file} --dry-run", expected=2)["error"] == error


def test_the_planner_counts_with_turns_and_without(almoner: Almoner) -> None:
    rotating(almoner)
    price = almoner.ask(f"release request {almoner.request_file(**ROTATING)} --dry-run")["price"]
    left, each = Fraction(price["budget"]["rho_left_before"]), Fraction(price["rho"])
    whole = int(left / each)
    line = 'schedule create 1 --every 1d --reason "every day" --dry-run'
    assert almoner.ask(line)["afforded"] == {
        "runs_if_each_reads_every_block": whole, "runs_in_turns": 2 * whole, "groups": 2,
    }  # fmt: skip
    assert f"{whole} runs that read every block, and {2 * whole} in turns over 2 groups" in almoner.type(line).out
    almoner.type(f"release request {almoner.request_file(**ROTATING)} --standing 1")
    almoner.type("run 1")
    found = almoner.ask(line)["afforded"]
    assert (found["runs_if_each_reads_every_block"], found["runs_in_turns"]) == (whole - 1, 2 * whole - 1)
    told = almoner.ask("budget simulate clinic --epsilon 1 --rotate-over 4")
    assert told["rotation"] == {
        "runs_if_each_reads_every_block": whole - 1, "runs_in_turns": 4 * whole - 2, "groups": 4,
    }  # fmt: skip


@pytest.mark.slow
def test_a_system_that_reads_unit_by_unit_reads_its_turn_alone(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keyphrase seeding streams over the corpus; and what took a turn is not extended, because that takes none."""
    almoner.type("init")
    almoner.type("dataset register clinic --unit patient_id --epsilon 90 --delta 1e-5 --accept-weak-promise --blocks 4")
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=SPOKEN)} --label-field ward")
    words = {"parameters": COUNTED, "rotate_over": 2}
    almoner.type(f"release request {almoner.request_file(**SEEDED | words)} --accept-weak-promise")
    almoner.type('approve 1 --gate spend --reason "a first look"')
    with read_units(monkeypatch) as units:
        almoner.type("run 1")
    scheme, people = scheme_of(almoner), {note["patient_id"] for note in SPOKEN}
    assert units == {unit for unit in people if scheme.block_of(unit) in {0, 2}}
    assert spending(almoner) == [True, False, True, False]
    assert almoner.ask("release extend 1 --samples 3", expected=1)["error"] == "NotExtendable"
    assert almoner.type(f"report 1 --out {almoner.folder / 'report.html'}").code == 0
