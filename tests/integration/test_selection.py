"""More texts than are published: from the request file to the verified bundle, and what the filter reads."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import flows.releases.execute
from models_db.home import ProjectHome
from models_db.values.amounts import total_amount
from tasks.corpus.store import open_corpus
from tasks.evaluate import select_texts
from tasks.generate import generate_texts
from tests.integration.killing import balance, instalments, killed
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_extend import produced as keyphrases_produced
from tests.integration.test_labels import LABELS
from tests.integration.test_labels import ingested as ingested_with_labels

CONCERNS = ("flows/releases", "tasks/evaluation", "tasks/release")

DRAWN, KEEP = 5, 2
SELECTING: dict[str, Any] = {
    "parameters": REQUEST["parameters"] | {"samples": DRAWN},
    "selection": {"keep": KEEP},
}


def published(almoner: Almoner) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record and the rows of release 1, which a steward has approved and which verifies."""
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True, report
    rows = [json.loads(line) for line in (almoner.bundle / "texts.jsonl").read_text().splitlines()]
    return json.loads((almoner.bundle / "release.json").read_text()), rows


def left_out(record: dict[str, Any]) -> int:
    return sum(int(value) for name, value in record["released"].items() if name.startswith("texts_left_out_"))


def test_the_story_of_a_selection(almoner: Almoner) -> None:
    almoner.ingested()
    file = almoner.request_file(**SELECTING)
    priced = almoner.type(f"release request {file} --details").out
    assert "texts published" in priced
    body = almoner.ask("release show 1")["canonical"]
    assert body["selection"]["keep"] == KEEP
    screen = almoner.type('approve 1 --gate spend --reason "a first look"')
    assert f"{DRAWN} texts, of which {KEEP} are published" in " ".join((screen.out + screen.err).split())
    run = almoner.ask("run 1")
    assert (run["texts"], run["rho_spent"]) == (KEEP, str(balance(almoner).spent.rho_text))
    told = f"Of {DRAWN} texts that were drawn, {KEEP} are published"
    shown = almoner.ask("release show 1")
    assert shown["selection"].startswith(told)
    assert told in " ".join(almoner.type("release show 1").out.split())
    review = almoner.type('approve 1 --gate publish --reason "names nobody"')
    assert told in " ".join((review.out + review.err).split())
    record, rows = published(almoner)
    assert [row["id"] for row in rows] == [1, 2]
    assert record["released"]["texts_drawn"] == str(DRAWN)
    assert left_out(record) == DRAWN - KEEP
    assert record["request"]["selection"] == body["selection"]
    assert told in " ".join((almoner.bundle / "README.md").read_text().split())
    metrics = {m["name"]: m for m in json.loads((almoner.bundle / "evaluation.json").read_text())["metrics"]}
    assert metrics["perplexity"]["values"]["scored"] + metrics["perplexity"]["values"]["unscored"] == KEEP
    assert almoner.ask("doctor")["ok"] is True


def test_all_that_is_drawn_is_charged(almoner: Almoner) -> None:
    """The same mechanisms as without a selection: what is left out was paid for."""
    almoner.ingested()
    plain = {name: value for name, value in SELECTING.items() if name != "selection"}
    prices = [
        almoner.ask(f"release request {almoner.request_file(**changes)} --dry-run")["price"]
        for changes in (plain, SELECTING)
    ]
    assert prices[0]["rho"] == prices[1]["rho"]
    assert [price["expected_texts"] for price in prices] == [DRAWN, KEEP]


def test_labels_keep_their_shares(almoner: Almoner) -> None:
    ingested_with_labels(almoner)
    parameters = SELECTING["parameters"] | {"samples": 6, "labels": LABELS}
    file = almoner.request_file(kind="demonstrations", parameters=parameters, selection={"keep": 4})
    almoner.type(f"release request {file}")
    almoner.type('approve 1 --gate spend --reason "a first look"')
    almoner.type("run 1")
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    _, rows = published(almoner)
    assert [row["label"] for row in rows] == [LABELS[0], LABELS[0], LABELS[1], LABELS[1]]


@pytest.mark.slow
def test_further_texts_are_all_published(almoner: Almoner) -> None:
    keyphrases_produced(almoner, selection={"keep": 4})
    assert len(almoner.ask("release texts 1")["texts"]) == 4
    almoner.type("release extend 1 --samples 9")
    assert "selection" not in almoner.ask("release show 2")["canonical"]
    almoner.type('approve 2 --gate spend --reason "more of the same"')
    assert almoner.ask("run 2")["texts"] == 9


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "more than are drawn": ({"selection": {"keep": 4}}, "draws 3 texts"),
    "none": ({"selection": {"keep": 0}}, "selection.keep"),
    "an unknown criterion": ({"selection": {"keep": 2, "criteria": ["beauty"]}}, "selection.criteria"),
    "records": (
        {
            "selection": {"keep": 2},
            "kind": "records",
            "parameters": REQUEST["parameters"]
            | {"schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
        },
        "none to spare",
    ),
}


def test_an_impossible_selection_is_refused_before_anything_is_submitted(almoner: Almoner) -> None:
    almoner.ingested()
    before = almoner.everything()
    for name, (changes, said) in REFUSED.items():
        told = almoner.type(f"release request {almoner.request_file(**changes)}", 2)
        assert said in " ".join(told.err.split()), name
    assert almoner.everything() == before


# --- what the filter reads ---------------------------------------------------------------------------------------


SEEN: list[list[str]] = []
"""At most one list: of the paths that this process opens or lists at present."""


@cache
def _watch() -> None:
    """Install the audit hook, once; it cannot be removed."""

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if SEEN and event in ("open", "sqlite3.connect", "os.listdir", "os.scandir"):
            SEEN[-1].append(str(arguments[0]))

    sys.addaudithook(see)


@contextmanager
def watching() -> Iterator[list[str]]:
    """What this process opens or lists within the block."""
    _watch()
    SEEN.append(seen := [])
    try:
        yield seen
    finally:
        SEEN.clear()


def opened_by(almoner: Almoner, monkeypatch: pytest.MonkeyPatch, select: Callable[..., Any]) -> list[str]:
    """The paths below the corpora folder that are opened while the texts of a run are selected by `select`."""
    found: list[str] = []

    def watched(*arguments: Any) -> Any:
        with watching() as seen:
            selected = select(*arguments)
        found.extend(path for path in seen if str(almoner.home.corpora) in path)
        return selected

    monkeypatch.setattr(flows.releases.execute, "select_texts", watched)
    almoner.approved(**SELECTING)
    almoner.type("run 1")
    return found


def test_the_filter_never_opens_the_store(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened_by(almoner, monkeypatch, select_texts) == []


LOOKS: dict[str, Callable[[Path], object]] = {
    "its bytes": lambda store: store.read_bytes(),
    "its texts": lambda store: list(open_corpus(ProjectHome(store.parents[2]), store.parent.name).texts()),
    "its size": lambda store: open_corpus(ProjectHome(store.parents[2]), store.parent.name).unit_count(),
    "its folder": lambda store: os.listdir(store.parent),
}


@pytest.mark.slow_except("its bytes", "its folder")
@pytest.mark.parametrize("look", LOOKS.values(), ids=list(LOOKS))
def test_a_filter_that_looks_at_the_corpus_is_seen(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], object]
) -> None:
    """Broken twins, which could prefer texts that resemble the corpus: nobody has paid for that."""

    def looking(*arguments: Any) -> Any:
        (store,) = almoner.home.corpora.glob("*/documents.sqlite")
        look(store)
        return select_texts(*arguments)

    assert opened_by(almoner, monkeypatch, looking) != []


def test_the_filter_gets_texts_and_public_facts_alone(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same texts are selected when the corpus is gone, and nothing else reaches the filter."""
    reached: list[tuple[Any, ...]] = []

    def generated(*arguments: Any) -> Any:
        made = generate_texts(*arguments)
        for path in almoner.home.corpora.rglob("documents.sqlite"):
            path.unlink()
        return made

    def selected(*arguments: Any) -> Any:
        reached.append(arguments)
        return select_texts(*arguments)

    monkeypatch.setattr(flows.releases.execute, "generate_texts", generated)
    monkeypatch.setattr(flows.releases.execute, "select_texts", selected)
    almoner.approved(**SELECTING)
    assert almoner.ask("run 1")["texts"] == KEEP
    ((made, selection, prompt, model),) = reached
    assert type(made).__name__ == "Generated"
    assert selection.keep == KEEP
    assert REQUEST["prompt"]["description"] in prompt
    again = [select_texts(made, selection, prompt, model) for _ in range(2)]
    assert again[0] == again[1]


def test_texts_that_are_left_out_are_kept_nowhere(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def selected(made: Any, *others: Any) -> Any:
        drawn.extend(text.text for text in made.texts)
        return select_texts(made, *others)

    monkeypatch.setattr(flows.releases.execute, "select_texts", selected)
    almoner.approved(**SELECTING)
    almoner.type("run 1")
    kept = {row["text"] for row in almoner.ask("release texts 1")["texts"]}
    gone = [text for text in drawn if len(text) > 8 and not any(text in other for other in kept)]
    assert gone
    everything = b"".join(path.read_bytes() for path in almoner.home.root.rglob("*") if path.is_file())
    assert all(text in drawn for text in kept)
    assert not any(json.dumps(text).encode() in everything or text.encode() in everything for text in gone)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_selects_from_all_texts(almoner: Almoner) -> None:
    almoner.approved(**SELECTING)
    killed("run 1", "after a step is kept")
    assert almoner.ask("run 1")["texts"] == KEEP
    assert balance(almoner).spent == total_amount(instalments(almoner))
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    record, rows = published(almoner)
    assert len(rows) == KEEP
    assert left_out(record) == DRAWN - KEEP
