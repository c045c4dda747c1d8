"""Texts allocated to labels by a histogram, from the request file to the verified bundle; killed on the way as well."""

import json
from collections import Counter
from typing import Any

import pytest

from models_db.values.amounts import Amount, total_amount
from tasks.planning.label_allocation import allocate, nearest_counts, parse_counts
from tests.integration.killing import balance, goes_on, instalments, killed
from tests.integration.story import NOTES, REQUEST, Almoner
from tests.integration.test_going_on import left
from tests.integration.test_labels import SECTIONS, UNKNOWN, ingested

CONCERNS = ("flows/releases", "tasks/planning", "tasks/prompted_generation")

LABELS = [*SECTIONS[:2], UNKNOWN]
SAMPLES = 8
ALLOCATED: dict[str, Any] = {
    "epsilon": 2.0,
    "kind": "demonstrations",
    "parameters": REQUEST["parameters"]
    | {"samples": SAMPLES, "labels": LABELS, "label_allocation": {"method": "proportional", "share": 0.3}},
}


def approved(almoner: Almoner) -> None:
    ingested(almoner)
    almoner.type(f"release request {almoner.request_file(**ALLOCATED)}")
    almoner.type('approve 1 --gate spend --reason "a first look"')


def verified(almoner: Almoner) -> dict[str, Any]:
    """The record of release 1, whose texts have the labels that its counts lead to."""
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True, report
    record: dict[str, Any] = json.loads((almoner.bundle / "release.json").read_text())
    counts = parse_counts(record["released"]["label_counts"])
    rows = [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]
    found = Counter(row["label"] for row in rows)
    assert tuple(found[label] for label in LABELS) == allocate(SAMPLES, nearest_counts(counts), 1)
    return record


def test_the_story_of_a_proportional_allocation(almoner: Almoner) -> None:
    ingested(almoner)
    file = almoner.request_file(**ALLOCATED)
    price = almoner.ask(f"release request {file} --dry-run")["price"]
    assert "proportional to a noisy histogram of the units by label" in price["facts"]["texts per label"]
    almoner.type(f"release request {file}")
    screen = almoner.type('approve 1 --gate spend --reason "a first look"')
    assert "noisy histogram" in " ".join((screen.out + screen.err).split())
    assert almoner.ask("run 1")["rho_spent"] == price["rho"]
    record = verified(almoner)
    assert record["events"][0]["mechanism"] == "noisy_histogram"
    card = (almoner.bundle / "README.md").read_text()
    assert "Texts were allocated to labels in proportion to a noisy histogram" in card
    assert f"| `{UNKNOWN}` | " in card
    assert "While the assignment is secret" not in card
    assert almoner.ask("doctor")["ok"] is True


def test_a_bundle_with_other_labels_or_counts_does_not_verify(almoner: Almoner) -> None:
    approved(almoner)
    almoner.type("run 1")
    verified(almoner)
    texts = almoner.bundle / "texts.jsonl"
    texts.write_text(texts.read_text().replace(UNKNOWN, LABELS[0]))
    report = almoner.ask(f"verify-release {almoner.bundle}", expected=1)
    assert "texts" in {check["name"] for check in report["checks"] if not check["ok"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "paid", "lost"),
    [
        ("after arm", 1, False),
        ("while the first result is drawn", 1, True),
        ("after the first result is kept", 1, False),
    ],
)
def test_a_histogram_is_paid_once_and_never_drawn_again(almoner: Almoner, point: str, paid: int, lost: bool) -> None:
    approved(almoner)
    killed("run 1", point)
    kept = left(almoner).results
    goes_on(almoner, paid, lost=lost)
    counts = list(parse_counts(verified(almoner)["released"]["label_counts"]))
    if kept:
        assert kept == {"label histogram": counts}


@pytest.mark.slow
def test_killed_in_the_draws_a_run_goes_on_with_the_counts_that_it_has(almoner: Almoner) -> None:
    approved(almoner)
    plan = instalments(almoner)
    killed("run 1", "mid generation")
    kept = left(almoner).results["label histogram"]
    killed("run 1", "mid generation")
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    assert list(parse_counts(verified(almoner)["released"]["label_counts"])) == kept


@pytest.mark.slow
def test_labels_of_two_fields_from_ingest_to_the_bundle(almoner: Almoner) -> None:
    """The request names values of each field; a text has one of their combinations, and its prompt names both."""
    almoner.registered()
    notes = [{**note, "visit": number % 2} for number, note in enumerate(NOTES)]
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=notes)} --label-field section --label-field visit")
    assert almoner.ask("dataset show clinic")["history"][0]["labels"] == "section / visit"
    labels = {"section": SECTIONS[:2], "visit": [0, 1]}
    parameters = {**ALLOCATED["parameters"], "labels": labels}
    swapped = {**parameters, "labels": {"visit": [0, 1], "section": SECTIONS[:2]}}
    refused = almoner.ask(f"release request {almoner.request_file(**{**ALLOCATED, 'parameters': swapped})}", expected=2)
    assert refused["error"] == "LabelFieldsDiffer"
    almoner.type(f"release request {almoner.request_file(**{**ALLOCATED, 'parameters': parameters})}")
    expected = [f"{section} / {visit}" for section in SECTIONS[:2] for visit in (0, 1)]
    assert almoner.ask("release show 1")["canonical"]["parameters"]["labels"] == expected
    almoner.type('approve 1 --gate spend --reason "a first look"')
    almoner.type("run 1")
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    rows = [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]
    assert {row["label"] for row in rows} == set(expected)


@pytest.mark.parametrize("mechanism", ["public_only", "non_private", "adapmixed"])
def test_what_charges_nothing_allocates_by_no_histogram(almoner: Almoner, mechanism: str) -> None:
    almoner.registered("--public")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()} --label-field section")
    own = {"batches": 4} if mechanism == "adapmixed" else {}
    for allocation, refusal in ((ALLOCATED["parameters"]["label_allocation"], "AllocationNeedsClaim"), (None, None)):
        parameters = ALLOCATED["parameters"] | own | {"label_allocation": allocation}
        changes = {"mechanism": mechanism, "epsilon": None, "delta": None, "parameters": parameters}
        file = almoner.request_file(**ALLOCATED | changes)
        assert almoner.ask(f"release request {file} --dry-run", expected=None).get("error") == refusal
