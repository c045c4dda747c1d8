"""Planted secrets never come out: not on the terminal, not in the ledger, not in a release, not in an error."""

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flows.releases.evaluate_internal
from flows.releases.evaluate_internal import evaluate_internally
from flows.releases.execute import execute
from models_db.errors import AlmonerError
from tasks.corpus.store import Corpus
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.evaluation.registry import METRICS
from tests.integration.canary import CANARIES, PRIVATE_TEXT, leaks, text_of
from tests.integration.story import CONFIRMED, NOTES, SECRETS, Almoner, Told
from tests.support import snapshot

CONCERNS = ("flows/releases", "tasks/decoding", "tasks/systems")


@pytest.fixture
def said(almoner: Almoner, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything any command says; every logger at its most talkative. Searched when the test is over."""
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    real = Almoner.type

    def typed(self: Almoner, line: str, expected: int | None = 0, *, piped: str | None = CONFIRMED) -> Told:
        heard = real(self, line, expected, piped=piped)
        told.append(heard.out + heard.err)
        return heard

    monkeypatch.setattr(Almoner, "type", typed)
    yield told
    told.append(caplog.text)
    assert leaks("\n".join(told)) == []


def searched(almoner: Almoner) -> None:
    """The whole home but the corpora folder, the ledger as rows and as bytes, and what was published."""
    kept = [almoner.home.keys, almoner.home.quarantine, almoner.home.scratch, almoner.folder / "out"]
    ledger = [path.read_bytes().decode("utf-8", "replace") for path in almoner.home.root.glob("almoner.db*")]
    assert ledger
    assert leaks("\n".join([*map(text_of, kept), *ledger, repr(snapshot(almoner.database))])) == []


def test_the_search_finds_what_it_is_for(almoner: Almoner) -> None:
    """A search that finds nothing anywhere proves nothing."""
    almoner.ingested()
    assert len(SECRETS) >= 4 * 12
    assert set(leaks(text_of(almoner.home.corpora))) == set(CANARIES)
    for note in NOTES:
        assert leaks(note["text"])
        assert leaks(json.dumps({"error": note["text"]}))
        assert leaks(repr(ValueError(note["text"])))


def test_a_release_that_succeeds(almoner: Almoner, said: list[str]) -> None:
    """Every stage is typed and watched here; the tests below take stages as they were left once."""
    almoner.published()
    for line in ("audit log", "release show 1", "evaluate 1 --internal", "dataset show clinic", "budget show clinic"):
        almoner.type(line)
        almoner.ask(line)
    almoner.type(f"audit export --to {almoner.folder / 'out' / 'record.jsonl'}")
    almoner.type("doctor")
    searched(almoner)


def with_private_text(*args: Any, **kwargs: Any) -> Any:
    raise ValueError(PRIVATE_TEXT)


def with_a_chain(*args: Any, **kwargs: Any) -> Any:
    try:
        raise KeyError(PRIVATE_TEXT)
    except KeyError as first:
        raise RuntimeError(SECRETS[0]) from first


class Panic(BaseException):
    """What a library written in Rust raises: not an Exception."""


def with_a_panic(*args: Any, **kwargs: Any) -> Any:
    raise Panic(PRIVATE_TEXT)


FAILURES = [with_private_text, with_a_chain, with_a_panic]
PLACES = [(Corpus, "unit_count"), (Corpus, "batches"), (InvisibleInkRule, "next_tokens")]


@pytest.mark.slow_except("place0-with_private_text")
@pytest.mark.parametrize(("place", "failure"), [*zip(PLACES, FAILURES, strict=True)])
def test_a_release_that_fails(
    almoner: Almoner,
    said: list[str],
    shelf: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[Any, str],
    failure: Any,
) -> None:
    replace(almoner, shelf=shelf).approved()
    with monkeypatch.context() as broken:
        broken.setattr(*place, failure)
        assert almoner.ask("run 1", expected=3)["error"] == "TaskFailed"
        assert "TaskFailed" in almoner.type("run 1", expected=3).err
        chain = chain_of(lambda: execute(almoner.home.root, 1))
    assert leaks(chain) == []
    assert "TaskFailed" in chain
    searched(almoner)
    almoner.type("release show 1")
    almoner.type("audit log")
    almoner.type("run 1")


def chain_of(action: Callable[[], Any]) -> str:
    """All that a traceback of the action's failure prints, causes and contexts included."""
    with pytest.raises(AlmonerError) as failed:
        action()
    return "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize("failure", FAILURES)
def test_an_internal_evaluation_that_fails(
    almoner: Almoner, said: list[str], shelf: Path, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    replace(almoner, shelf=shelf).published()
    broken = {name: replace(metric, compute=failure) for name, metric in METRICS.items()}
    monkeypatch.setattr(flows.releases.evaluate_internal, "METRICS", broken)
    assert almoner.ask("evaluate 1 --internal", expected=3)["error"] == "TaskFailed"
    assert leaks(chain_of(lambda: evaluate_internally(almoner.home.root, 1))) == []
    searched(almoner)


@pytest.mark.parametrize(
    "last",
    [
        lambda note: json.dumps(note).encode()[:-9],
        lambda note: json.dumps(note).encode().replace(b"the", b"\xff\xfe", 1),
        lambda note: json.dumps({"patient_id": note["patient_id"], "note": note["text"]}).encode(),
        lambda note: json.dumps(note | {"patient_id": ""}).encode(),
        lambda note: json.dumps(note | {"patient_id": [note["text"]]}).encode(),
        lambda note: json.dumps(note | {"text": [note["text"]]}).encode(),
        lambda note: json.dumps(NOTES[0] | {"text": note["text"]}).encode(),
    ],
)
def test_an_ingest_that_fails(almoner: Almoner, said: list[str], shelf: Path, last: Callable[[Any], bytes]) -> None:
    replace(almoner, shelf=shelf).registered()
    whole = "".join(json.dumps(note) + "\n" for note in NOTES).encode()
    source = almoner.write("notes.jsonl", whole + last(NOTES[-1]) + b"\n")
    refusal = almoner.ask(f"dataset ingest clinic {source}", expected=2)
    assert "notes.jsonl" in refusal["message"]
    almoner.type(f"dataset ingest clinic {source}", expected=2)
    assert list(almoner.home.corpora.iterdir()) == []
    searched(almoner)


def test_units_of_another_dataset_are_not_named(almoner: Almoner, said: list[str]) -> None:
    almoner.ingested()
    almoner.type("dataset register twin --unit patient_id --epsilon 8 --delta 1e-6")
    told = almoner.type(f"dataset ingest twin {almoner.notes_file()}", expected=1)
    assert "patient-0" not in told.out + told.err
    assert "patient-0" not in repr(snapshot(almoner.database))
    searched(almoner)
