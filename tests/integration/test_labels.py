"""Labels and wording from the request file to the bundle; and what of them stays private."""

import json
import sqlite3
from typing import Any

import pytest

from tests.integration.canary import text_of
from tests.integration.story import NOTES, REQUEST, Almoner

UNKNOWN = "horoscope"
"""A declared label that no note has."""
SECRET_LABEL = "zyzzogeton-ward"
"""A label of the corpus that no request declares."""
SECTIONS = sorted({note["section"] for note in NOTES})
LABELS = [SECTIONS[0], UNKNOWN]
LABELLED: dict[str, Any] = {
    "kind": "demonstrations",
    "parameters": REQUEST["parameters"] | {"samples": 4, "max_new_tokens": 6, "labels": LABELS},
    "prompt": {"description": "Short notes.", "preset": "clinical", "again": "And {{one}} more."},
}


def ingested(almoner: Almoner) -> None:
    notes = [{**note, "section": SECRET_LABEL} if number % 5 == 0 else note for number, note in enumerate(NOTES)]
    almoner.registered()
    almoner.type(f"dataset ingest clinic {almoner.notes_file(notes=notes)} --label-field section")


def test_demonstrations_from_the_request_to_the_bundle(almoner: Almoner) -> None:
    ingested(almoner)
    request = almoner.request_file(**LABELLED)
    priced = almoner.type(f"release request {request} --dry-run").out
    assert "And {{one}} more." in priced
    assert "You write fictional clinical records" in priced
    assert almoner.ask(f"release request {request} --dry-run")["price"]["prompt"]["again"] == "And {{one}} more."
    almoner.type(f"release request {request}")
    screen = almoner.type('approve 1 --gate spend --reason "a first look"')
    assert "prompt: again" in screen.err + screen.out
    almoner.go_on_to("published", after="approved")
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    rows = [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [LABELS[0], LABELS[0], UNKNOWN, UNKNOWN]
    assert all(set(row) == {"id", "label", "text"} for row in rows)
    card = (almoner.bundle / "README.md").read_text()
    for said in ("And {{one}} more.", "You write fictional clinical records", f"`{UNKNOWN}`", "cut: at 48 tokens"):
        assert said in card


def test_the_corpus_own_labels_are_in_its_store_alone(almoner: Almoner, caplog: pytest.LogCaptureFixture) -> None:
    ingested(almoner)
    told = [almoner.type(line).out for line in ("dataset show clinic", "dataset list", "dataset show clinic --json")]
    assert "section" in told[0]
    assert almoner.ask("dataset show clinic")["history"][0]["labels"] == "section"
    almoner.type(f"release request {almoner.request_file(**LABELLED)}")
    told.append(almoner.type('approve 1 --gate spend --reason "a first look"').out)
    told.append(almoner.type("run 1").out)
    told.append(almoner.type("audit log").out)
    assert not any(SECRET_LABEL in one for one in told)
    assert SECRET_LABEL not in caplog.text
    found = [
        path for path in almoner.home.root.rglob("*") if path.is_file() and SECRET_LABEL.encode() in path.read_bytes()
    ]
    assert [path.name for path in found] == ["documents.sqlite"]
    assert SECRET_LABEL not in text_of(almoner.home.root / "quarantine")


def test_labels_of_a_version_without_are_refused_before_anybody_decides(almoner: Almoner) -> None:
    almoner.ingested()
    assert almoner.ask("dataset show clinic")["history"][0]["labels"] is None
    before = almoner.everything()
    refused = almoner.type(f"release request {almoner.request_file(**LABELLED)}", 1)
    assert "was ingested without any" in refused.err
    assert "--label-field" in refused.err
    assert almoner.everything() == before


def test_a_run_refuses_them_too_and_spends_nothing(almoner: Almoner) -> None:
    """The one who asks may have the ledger only; whoever runs has the texts."""
    ingested(almoner)
    almoner.type(f"release request {almoner.request_file(**LABELLED)}")
    almoner.type('approve 1 --gate spend --reason "a first look"')
    (store,) = almoner.home.corpora.glob("*/documents.sqlite")
    connection = sqlite3.connect(store)
    connection.execute("DELETE FROM labelling")
    connection.commit()
    connection.close()
    assert "was ingested without any" in almoner.type("run 1", 1).err
    budget = almoner.ask("budget show clinic")
    assert (budget["rho_spent"], budget["rho_held"]) == ("0", "0")
    assert "ledger.hold" not in [link["kind"] for link in almoner.ask("audit log --dataset clinic")]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no reference": ({"prompt": {"description": "Notes.", "private": "Write."}}, "has no {reference}"),
    "an unknown place": ({"prompt": {"description": "Notes.", "public": "{text}"}}, "unknown placeholder {text}"),
    "a reference in public": (
        {"prompt": {"description": "Notes.", "public": "{reference}"}},
        "must not have {reference}",
    ),
    "a lone brace": ({"prompt": {"description": "Notes.", "system": "{"}}, "belongs to no placeholder"),
    "an empty template": ({"prompt": {"description": "Notes.", "again": "  "}}, "is empty"),
    "a label without labels": ({"prompt": {"description": "Notes.", "public": "{label}"}}, "declares no labels"),
    "labels without a label": (LABELLED | {"prompt": {"description": "Notes.", "public": "One."}}, "has no {label}"),
    "an unknown preset": ({"prompt": {"description": "Notes.", "preset": "legal"}}, "prompt.preset"),
    "demonstrations without labels": ({"kind": "demonstrations"}, "declares none"),
    "a label twice": (
        LABELLED | {"parameters": REQUEST["parameters"] | {"labels": ["a", " a "]}},
        "each label once",
    ),
    "more labels than samples": (
        LABELLED | {"parameters": REQUEST["parameters"] | {"labels": ["a", "b", "c", "d"]}},
        "3 samples cannot be shared by 4 labels",
    ),
}


def test_every_unfit_prompt_and_label_set_is_refused_with_a_reason(almoner: Almoner) -> None:
    ingested(almoner)
    before = almoner.everything()
    for name, (changes, said) in REFUSED.items():
        told = almoner.type(f"release request {almoner.request_file(**changes)}", 2)
        assert said in " ".join(told.err.split()), name
    assert almoner.everything() == before


def test_a_control_token_in_a_template_is_refused_at_the_price(almoner: Almoner) -> None:
    ingested(almoner)
    prompt = {"description": "Notes.", "public": "{description}<|end|>"}
    assert "prompt.public" in almoner.type(f"release request {almoner.request_file(prompt=prompt)}", 2).err
    assert almoner.ask("release list") == []
