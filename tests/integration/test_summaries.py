"""Private summaries from the catalogue of groups to the bundle: by token, with a form, and by one noisy mean."""

import json
from pathlib import Path
from typing import Any

import pytest

import flows.releases.evaluate_internal
import flows.releases.execute
from models_db.values.amounts import Amount, total_amount
from tasks.adapters.adapter import tensors_of
from tasks.adapters.store import save_adapter
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.engine.language_model import LanguageModel
from tasks.release.bundle_format import CARD, RECORD, TEXTS
from tests.integration.canary import text_of
from tests.integration.killing import balance, instalments, killed
from tests.integration.story import NOTES, REQUEST, Almoner
from tests.tiny_model import tiny_model
from tests.unit.tasks.systems.summaries.planted import adapter

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "tasks/systems/summaries")

SECTIONS = sorted({note["section"] for note in NOTES})
NOBODY = "astrology"
SECRET_GROUP = "zyzzogeton-ward"
"""A group of the corpus that nobody declares."""
CATALOGUE = [
    {"id": SECTIONS[0], "title": "Assessments", "about": ["what was found"]},
    {"id": NOBODY, "title": "The stars"},
    {"id": SECTIONS[1]},
]
GROUPS = [SECTIONS[0], NOBODY, SECTIONS[1]]
FORM = "It is {what}. Some say {more}!"
SUMMARIES: dict[str, Any] = {
    "kind": "summaries",
    "mechanism": "token_level_summary",
    "parameters": {
        "groups": "all",
        "groups_per_unit": 2,
        "references": 6,
        "max_new_tokens": 40,
        "temperature": 1.0,
        "max_reference_tokens": 32,
        "instalment": 4,
        "form": FORM,
        "slot_tokens": 3,
    },
    "prompt": {"description": "a short summary"},
    "evaluation": ["length", "placeholder_leak"],
}
BY_TOKEN = {name: value for name, value in SUMMARIES["parameters"].items() if name not in ("form", "slot_tokens")} | {
    "max_new_tokens": 8
}


def load_with_end(name: str, device: str, precision: Precision = "float32") -> LanguageModel:
    """The tiny model with its end token, which a form needs; a module's own, so that workers can be told of it."""
    return tiny_model(precision)


@pytest.fixture
def groups(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """A dataset whose owner has declared groups, ingested with them."""
    for room in (flows.releases.execute, flows.releases.evaluate_internal):
        monkeypatch.setattr(room, "load", load_with_end)
    monkeypatch.setenv("ALMONER_MODELS", str(almoner.folder / "models"))
    declared = almoner.write("declared.yaml", {"name": "Visits", "groups": CATALOGUE})
    almoner.registered(f"--public-metadata {declared}")
    notes = [{**note, "section": SECRET_GROUP} if number % 7 == 0 else note for number, note in enumerate(NOTES)]
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=notes)} --label-field section")
    return almoner


def requested(almoner: Almoner, **changes: Any) -> Path:
    return almoner.write("request.yaml", REQUEST | SUMMARIES | changes)


def approved(almoner: Almoner, **changes: Any) -> None:
    almoner.type(f"release request {requested(almoner, **changes)}")
    almoner.type('approve 1 --gate spend --reason "a first look"')


def published(almoner: Almoner) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    """Texts, card and record of request 1, which is verified."""
    almoner.go_on_to("published", after="produced")
    verified = almoner.ask(f"verify-release {almoner.bundle}")
    assert verified["holds"] is True
    assert verified["rho"] == total_amount(instalments(almoner)).rho_text
    rows = [json.loads(line) for line in (almoner.bundle / TEXTS).read_text().splitlines()]
    record: dict[str, Any] = json.loads((almoner.bundle / RECORD).read_text())
    return rows, (almoner.bundle / CARD).read_text(), record


def of_every_group(rows: list[dict[str, Any]]) -> None:
    assert [row["group"] for row in rows] == GROUPS
    assert all(set(row) == {"id", "group", "text"} for row in rows)


def test_summaries_of_a_form_from_the_catalogue_to_the_bundle(
    groups: Almoner, caplog: pytest.LogCaptureFixture
) -> None:
    priced = groups.ask(f"release request {requested(groups)} --dry-run")["price"]
    assert (priced["facts"]["groups"], priced["facts"]["groups per unit m"]) == ("3", "2")
    assert priced["facts"]["draws per text T"] == "6"
    assert priced["expected_texts"] == 3
    approved(groups)
    plan = instalments(groups)
    assert [amount.rho for amount in plan] == [plan[0].rho, plan[0].rho // 2]  # 8 of 12 sums, and 4
    groups.type("run 1")
    spent = balance(groups)
    assert (spent.held, spent.spent) == (Amount(), total_amount(plan))  # also if all texts have ended early
    rows, card, record = published(groups)
    of_every_group(rows)
    for row in rows:
        assert row["text"].startswith("It is ")
        assert row["text"].endswith("!")
        assert not set(row["text"]) & set("[]{}<>")
    for said in ("Assessments", "The stars", f"`{NOBODY}`", "groups per unit m"):
        assert said in card, said
    assert record["request"]["parameters"]["groups"] == CATALOGUE
    assert record["request"]["parameters"]["groups_per_unit"] == 2
    assert "groups" not in record["request"]["public_metadata"]
    assert SECRET_GROUP not in caplog.text + text_of(groups.bundle) + text_of(groups.home.root / "quarantine")


@pytest.mark.slow
def test_summaries_by_one_noisy_mean(groups: Almoner) -> None:
    made = adapter(centres=2, tokens=4, words=1)
    known = save_adapter(made.meta, tensors_of(made.space, made.decoder), {})
    own = {name: value for name, value in BY_TOKEN.items() if name not in ("max_reference_tokens", "instalment")}
    approved(
        groups,
        mechanism="one_shot_summary",
        parameters=own | {"adapter": "planted", "shots": 2},
        prompt={"description": made.meta.wording.description},
    )
    (paid,) = instalments(groups)
    groups.type("run 1")
    assert balance(groups).spent == paid
    rows, card, record = published(groups)
    of_every_group(rows)
    stored = record["request"]["parameters"]["adapter"]
    assert (stored["sha256"], stored["meta"]["training"]["file"]) == (known.digest, "train.jsonl")
    for said in (known.digest, "train.jsonl", made.meta.wording.system, "means per group k"):
        assert said in card, said
    assert "noisy_means" not in text_of(groups.bundle)  # they would cost nothing to tell, and are told to nobody


@pytest.mark.slow
def test_an_adapter_that_is_gone_ends_the_run_before_anything_is_spent(groups: Almoner) -> None:
    made = adapter()
    known = save_adapter(made.meta, tensors_of(made.space, made.decoder), {})
    own = {name: value for name, value in BY_TOKEN.items() if name not in ("max_reference_tokens", "instalment")}
    prompt = {"description": made.meta.wording.description}
    approved(groups, mechanism="one_shot_summary", parameters=own | {"adapter": known.digest[:12]}, prompt=prompt)
    folder = groups.folder / "models" / "adapters" / known.digest
    folder.rename(folder.parent / "elsewhere")
    assert groups.ask("run 1", expected=2)["error"] == "AdapterUnknown"
    assert balance(groups).spent == balance(groups).held == Amount()
    (folder.parent / "elsewhere").rename(folder)
    groups.type("run 1")
    of_every_group(published(groups)[0])


@pytest.mark.slow_except("invisible_ink")
@pytest.mark.parametrize("mechanism", ["invisible_ink", "public_only"])
def test_other_systems_summarise_too(groups: Almoner, mechanism: str) -> None:
    changes: dict[str, Any] = {"mechanism": mechanism, "parameters": BY_TOKEN}
    if mechanism == "public_only":
        fields = ("groups", "max_new_tokens", "temperature", "max_reference_tokens")
        changes |= {"parameters": {name: BY_TOKEN[name] for name in fields}, "epsilon": None, "delta": None}
    approved(groups, **{name: value for name, value in changes.items() if value is not None})
    groups.go_on_to("published", after="approved")
    assert groups.ask(f"verify-release {groups.bundle}")["holds"] is True
    of_every_group([json.loads(line) for line in (groups.bundle / TEXTS).read_text().splitlines()])


@pytest.mark.slow
def test_two_workers_write_summaries_of_a_form(groups: Almoner) -> None:
    approved(groups)
    groups.type("run 1 --workers 2")
    rows = published(groups)[0]
    of_every_group(rows)
    assert all(row["text"].startswith("It is ") and row["text"].endswith("!") for row in rows)


def test_a_summary_that_was_killed_goes_on_and_costs_its_plan_once(groups: Almoner) -> None:
    approved(groups, parameters=BY_TOKEN | {"max_new_tokens": 12})
    plan = instalments(groups)
    killed("run 1", "after a step is kept")
    said = groups.type("run 1")
    assert "Going on from attempt 1" in said.err
    assert balance(groups).spent == total_amount(plan)
    of_every_group(published(groups)[0])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown group": ({"groups": [SECTIONS[0], "horoscope"]}, "GroupUnknown"),
    "more groups than there are": ({"groups_per_unit": 4}, "ContributionBoundExceeded"),
    "no groups": ({"groups": []}, "GroupsNeeded"),
    "samples": ({"samples": 2}, "GroupsContradicted"),
    "a group twice": ({"groups": [NOBODY, NOBODY]}, "FileInvalid"),
    "a form that is none": ({"form": "It is."}, "FormInvalid"),
}


def test_what_cannot_be_summarised_is_refused_by_name(groups: Almoner) -> None:
    before = groups.everything()
    for name, (changes, error) in REFUSED.items():
        request = requested(groups, parameters=SUMMARIES["parameters"] | changes)
        assert groups.ask(f"release request {request}", expected=2)["error"] == error, name
    request = requested(groups, mechanism="one_shot_summary", parameters=BY_TOKEN | {"adapter": "nobody"})
    assert groups.ask(f"release request {request}", expected=2)["error"] == "AdapterUnknown"
    assert groups.everything() == before


def test_the_non_private_line_has_a_text_for_every_group_with_documents(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = almoner.write("declared.yaml", {"groups": CATALOGUE})
    almoner.registered(f"--public --public-metadata {declared}")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()} --label-field section")
    fields = ("groups", "max_new_tokens", "temperature", "max_reference_tokens")
    asked = REQUEST | SUMMARIES | {
        "mechanism": "non_private", "parameters": {name: BY_TOKEN[name] for name in fields}, "evaluation": ["length"],
    }  # fmt: skip
    asked = {name: value for name, value in asked.items() if name not in ("epsilon", "delta")}
    almoner.type(f"release request {almoner.write('request.yaml', asked)}")
    almoner.go_on_to("published")
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    rows = [json.loads(line) for line in (almoner.bundle / TEXTS).read_text().splitlines()]
    assert [row["group"] for row in rows] == [SECTIONS[0], SECTIONS[1]]
