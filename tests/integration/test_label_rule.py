"""Labels by a public rule from the request to the verified bundle, of a corpus without a field for them."""

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from models_db.values.amounts import Amount, total_amount
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.planning.keyword_rule import DocumentLabeller, LabelRule
from tasks.planning.label_allocation import allocate, nearest_counts, parse_counts
from tests.integration.killing import balance, instalments, killed
from tests.integration.story import NOTES, REQUEST, Almoner
from tests.integration.test_going_on import left

CONCERNS = ("flows/releases", "tasks/corpus")

RULE: dict[str, Any] = {
    "answers": [
        {"name": "calls", "keywords": ["telephone", "rang", "call"]},
        {"name": "examinations", "keywords": ["examination", "heart sounds"]},
        {"name": "horoscopes", "keywords": ["zodiac"]},
    ],
    "default": "other notes",
}
LABELS = ["calls", "examinations", "horoscopes", "other notes"]
SAMPLES = 8
TOKENS = REQUEST["parameters"] | {"max_new_tokens": 6}
BY_RULE: dict[str, Any] = {
    "epsilon": 2.0,
    "kind": "demonstrations",
    "parameters": TOKENS
    | {"samples": SAMPLES, "label_rule": RULE, "label_allocation": {"method": "proportional", "share": 0.3}},
    "prompt": {"description": "Short notes."},
}


def published(almoner: Almoner) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record and the rows of release 1, verified."""
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True, report
    record: dict[str, Any] = json.loads((almoner.bundle / "release.json").read_text())
    return record, [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]


def approved(almoner: Almoner, **changes: Any) -> dict[str, Any]:
    almoner.ingested()
    price: dict[str, Any] = almoner.ask(f"release request {almoner.request_file(**BY_RULE | changes)}")["price"]
    screen = almoner.type('approve 1 --gate spend --reason "a first look"')
    assert "heart sounds" in " ".join((screen.out + screen.err).split()), "a steward sees the keywords"
    return price


def test_the_story_of_labels_by_a_rule(almoner: Almoner) -> None:
    price = approved(almoner)
    assert "most keywords" in price["facts"]["label rule"]
    stored = almoner.ask("release show 1")["canonical"]["parameters"]
    assert stored["labels"] == LABELS
    assert stored["label_rule"] == {**RULE, "match": "most"}
    assert almoner.ask("run 1")["rho_spent"] == price["rho"]
    record, rows = published(almoner)
    counts = parse_counts(record["released"]["label_counts"])
    found = Counter(row["label"] for row in rows)
    assert tuple(found[label] for label in LABELS) == allocate(SAMPLES, nearest_counts(counts), 1)
    card = (almoner.bundle / "README.md").read_text()
    assert "Documents got their labels from a public rule" in card
    assert "| `calls` | `telephone`, `rang`, `call` |" in card
    assert almoner.ask("dataset show clinic")["history"][0]["labels"] is None
    assert almoner.ask("doctor")["ok"] is True
    internal = {one["name"]: one["values"] for one in almoner.ask("evaluate 1 --internal")["metrics"]}
    assert internal["in_context"]["labels"] == len(LABELS), "the corpus is compared by the labels of the rule"
    assert internal["in_context"]["tested_on"] == len(NOTES)


def test_the_counts_are_those_of_the_units_by_the_rule(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoisyHistogram, "draw", lambda self, counts, rng: list(counts))
    label_of = DocumentLabeller.of(LabelRule.model_validate(RULE))
    carried: dict[str, set[str | None]] = {}
    for note in NOTES:
        carried.setdefault(note["patient_id"], set()).add(label_of(note["text"]))
    approved(almoner)
    almoner.type("run 1")
    counts = parse_counts(published(almoner)[0]["released"]["label_counts"])
    assert sum(counts) == len(carried)
    for label, count in zip(LABELS, counts, strict=True):
        own = [labels for labels in carried.values() if label in labels]
        assert sum(len(labels) == 1 for labels in own) <= count <= len(own)


@pytest.mark.slow
def test_killed_in_the_draws_a_run_goes_on_and_another_unicode_is_refused(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    approved(almoner)
    plan = instalments(almoner)
    killed("run 1", "mid generation")
    kept = left(almoner).results["label histogram"]
    with monkeypatch.context() as patch:
        patch.setattr("unicodedata.unidata_version", "99.0.0")
        refused = almoner.ask("run 1", expected=1)
        assert refused["error"] == "JournalUnfit"
        assert "begun with Unicode" in refused["message"]
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    assert list(parse_counts(published(almoner)[0]["released"]["label_counts"])) == kept


@pytest.mark.parametrize(
    ("parameters", "refusal"),
    [
        ({"label_rule": {"answers": []}}, "AnswersMissing"),
        ({"label_rule": {"answers": [{"name": "a"}]}}, "AnswerWithoutKeywords"),
        ({"label_rule": {**RULE, "default": "Calls"}}, "AnswerRepeated"),
        ({"label_rule": RULE, "labels": ["calls"]}, "LabelsContradictRule"),
        ({"label_rule": {**RULE, "rule": "model"}}, "FileInvalid"),
        ({"labels": ["calls"]}, "LabelsNotKept"),
        ({"label_rule": RULE, "samples": 3}, "LabelWithoutSample"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_it_is_priced(
    almoner: Almoner, parameters: dict[str, Any], refusal: str
) -> None:
    almoner.ingested()
    file = almoner.request_file(**BY_RULE | {"parameters": TOKENS | {"samples": SAMPLES} | parameters})
    told = almoner.type(f"release request {file} --dry-run --json", expected=None)
    assert told.json["error"] == refusal


@pytest.mark.parametrize("mechanism", ["public_only", "non_private", "adapmixed"])
def test_what_charges_nothing_allocates_by_no_histogram(almoner: Almoner, mechanism: str) -> None:
    """Before, baselines accepted the field and allocated equally, which nobody had asked for."""
    almoner.registered("--public")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    own = {"batches": 4} if mechanism == "adapmixed" else {}
    for allocation, refusal in ((BY_RULE["parameters"]["label_allocation"], "AllocationNeedsClaim"), (None, None)):
        parameters = TOKENS | own | {"samples": SAMPLES, "label_rule": RULE, "label_allocation": allocation}
        changes = {"mechanism": mechanism, "epsilon": None, "delta": None, "parameters": parameters}
        told = almoner.type(
            f"release request {almoner.request_file(**BY_RULE | changes)} --dry-run --json", expected=None
        )
        assert told.json.get("error") == refusal


def test_a_plan_takes_a_rule_from_its_file_and_writes_it_out(almoner: Almoner) -> None:
    almoner.ingested("--population 200")
    rule = almoner.write("rule.yaml", RULE)
    path = almoner.folder / "planned.yaml"
    line = f"plan clinic --epsilon 4 --tokens 8 --samples 8 --model {REQUEST['model']} --kind demonstrations"
    examples = almoner.write("examples.yaml", ["He phoned the ward about his knee.", "She wrote about a cough."])
    asked = (
        f"{line} --label-rule {rule} --label-allocation proportional --examples {examples} --choice 1 --write {path}"
    )
    planned = almoner.ask(asked)["alternatives"][0]
    written = yaml.safe_load(path.read_text())["parameters"]
    assert written["label_rule"] == RULE | {"match": "most"}
    assert written["label_allocation"] == {"method": "proportional"}
    price = almoner.ask(f"release request {path} --dry-run")["price"]
    assert price == planned["price"]
    assert price["facts"]["labels"] == ", ".join(LABELS)
    assert almoner.ask(f"{line} --label-rule {rule} --label calls", expected=2)["error"] == "InvalidPlan"
    broken = almoner.write("broken.yaml", {"answers": []})
    assert almoner.ask(f"{line} --label-rule {broken}", expected=2)["error"] in ("AnswersMissing", "FileInvalid")
    assert (
        almoner.ask(f"{line} --label-rule {almoner.folder / 'none.yaml'}", expected=None)["error"] == "FileUnreadable"
    )
    assert almoner.ask(f"{line} --label-allocation by-hand", expected=2)["error"] == "FileInvalid"
