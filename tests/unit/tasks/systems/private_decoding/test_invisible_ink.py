"""InvisibleInk at work on a tiny model: what it reads, when, and on whom each text depends."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import tasks.decoding.loop
from models_db.home import ProjectHome
from tasks.corpus.store import Corpus
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.session import Session
from tasks.mechanisms.core.rng import DeterministicRandom, OperatingSystemRandom
from tasks.planning import shared_parameters
from tasks.systems.invisible_ink import InvisibleInk
from tasks.values.results import Generated
from tests.refusals import refusal
from tests.unit.tasks.systems.asking import AMOUNT, ask, ink
from tests.unit.tasks.systems.workshop import (
    NOTES,
    PATIENTS,
    Step,
    Workshop,
    draw_by_one_number_each,
    refusing,
    store,
)

pytestmark = pytest.mark.dear
CONCERNS = (
    "tasks/decoding",
    "tasks/systems",
)

SYSTEM = InvisibleInk()
TOKEN_FIGURES = {"effective_k", "share_from_expansion"}


def make(workshop: Workshop, parameters: Any = None, population: int | None = None, **context: Any) -> Generated:
    wanted = parameters or ink()
    plan = SYSTEM.plan(ask(wanted, population=population, blocks=workshop.blocks))
    return SYSTEM.generate(plan, wanted, workshop.context(**context))


def split_figures(made: Generated) -> dict[str, str]:
    """What was released about the split, and nothing about the tokens."""
    return {name: figure for name, figure in made.released.items() if name not in TOKEN_FIGURES}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Every time private rows are scored goes onto this list (put it into a Workshop), with the session's number."""
    seen: list[Step] = []
    sessions: list[Session] = []
    score = Session.private_logits

    def private_logits(self: Session, candidates: Any = None) -> Any:
        if self not in sessions:
            sessions.append(self)
        seen.append(("read", sessions.index(self)))
        return score(self, candidates)

    monkeypatch.setattr(Session, "private_logits", private_logits)
    return seen


def groups_of(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(tasks.decoding.loop, "generations_at_once", lambda *sizes: size)


def test_the_same_randomness_makes_the_same_texts(corpus: Corpus) -> None:
    assert make(Workshop(corpus)) == make(Workshop(corpus))
    assert make(Workshop(corpus)).texts != make(Workshop(corpus), rng=DeterministicRandom("other")).texts


def test_real_randomness_makes_other_texts_each_time(corpus: Corpus) -> None:
    first, second = (make(Workshop(corpus), rng=OperatingSystemRandom()) for _ in range(2))
    assert first.texts != second.texts


def test_nothing_private_is_read_before_it_is_armed(corpus: Corpus, reads: list[Step]) -> None:
    workshop = Workshop(corpus, seen=reads)
    made = make(workshop)
    split = next(step for step in workshop.seen if step[0] == "batches")
    drawing = [("arm", 1, i) for i in (1, 2)]
    read = ("read", 0)
    assert workshop.seen == [
        ("arm", 0, 0), ("count",), ("arm", 1, 0), split, *[read] * 4, drawing[0], *[read] * 4, drawing[1], *[read] * 4,
    ]  # fmt: skip
    assert split == ("batches", int(made.released["batches_per_block"]), ((0, 0, 0), (0, 0, 1), (0, 0, 2)))


def test_with_declared_batches_nothing_is_counted(corpus: Corpus, reads: list[Step]) -> None:
    workshop = Workshop(corpus, seen=reads)
    made = make(workshop, ink(batches=5))
    assert workshop.seen[:2] == [("arm", 0, 0), ("batches", 5, ((0, 0, 0), (0, 0, 1), (0, 0, 2)))]
    assert split_figures(made) == {"batches_per_block": "5"}


@pytest.mark.parametrize("refused", [(0, 0), (1, 0), (1, 1), (1, 2)])
def test_a_refused_instalment_keeps_what_it_pays_for_unread(
    corpus: Corpus, reads: list[Step], refused: tuple[int, int]
) -> None:
    workshop = Workshop(corpus, seen=reads)
    with pytest.raises(PermissionError):
        make(workshop, arm=refusing(refused))
    assert workshop.seen[-1] == ("arm", *refused)


def test_groups_of_batches_share_prepaid_instalments(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    groups_of(monkeypatch, 2)
    workshop = Workshop(corpus)
    score = Session.private_logits

    def private_logits(self: Session, candidates: Any = None) -> Any:
        workshop.seen.extend(("draw", number) for number in self.numbers)
        return score(self, candidates)

    monkeypatch.setattr(Session, "private_logits", private_logits)
    made = make(workshop, ink(samples=5, batches=5))
    assert len(made.texts) == 5
    assert [step for step in workshop.seen if step[0] == "arm"] == [("arm", 0, 0), ("arm", 0, 1), ("arm", 0, 2)]
    drawn: dict[object, int] = {}
    armed = 0
    for step in workshop.seen:
        if step[0] == "arm":
            armed += 4
        elif step[0] == "draw":
            drawn[step[1]] = drawn.get(step[1], 0) + 1
            assert drawn[step[1]] <= armed
    assert drawn == dict.fromkeys(range(5), 12)


def test_texts_come_in_the_public_order_however_they_are_grouped(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One draw a text: the random numbers of a text are those of any grouping."""
    draw_by_one_number_each(monkeypatch)
    wanted = ink(samples=5, batches=5, max_new_tokens=1)
    together = make(Workshop(corpus), wanted)
    groups_of(monkeypatch, 2)
    assert make(Workshop(corpus), wanted).texts == together.texts


def test_an_empty_batch_is_decoded_like_any_other(corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    made = make(workshop, ink(samples=40, batches=40, max_new_tokens=2))
    occupied = {workshop.place(f"patient-{n:03}", 40) for n in range(1, PATIENTS + 1)}
    assert len(occupied) <= PATIENTS < 40
    assert [text.tokens for text in made.texts] == [2] * 40


def test_every_block_has_its_texts(corpus: Corpus, reads: list[Step]) -> None:
    workshop = Workshop(corpus, blocks=3, seen=reads)
    make(workshop, ink(samples=4, batches=2))
    assert workshop.seen[1] == ("batches", 2, ((0, 0, 0), (0, 0, 1), (1, 0, 0), (2, 0, 0)))


def test_a_noisy_count_below_zero_still_gives_every_sample_a_batch(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.mechanisms.counts.noisy_count.rounded_normal", lambda sigma, rng: -1000)
    made = make(Workshop(corpus))
    assert split_figures(made) == {"noisy_population": str(PATIENTS - 1000), "batches_per_block": "3"}
    assert len(made.texts) == 3


def test_the_number_of_batches_comes_from_the_released_count_alone(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.mechanisms.counts.noisy_count.rounded_normal", lambda sigma, rng: 1000)
    released = split_figures(make(Workshop(corpus)))
    assert released == {"noisy_population": "1012", "batches_per_block": "253"}


def test_a_declared_population_decides_the_batches(corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    made = make(workshop, population=PATIENTS * 10)
    assert split_figures(made) == {"batches_per_block": "30"}
    assert ("count",) not in workshop.seen


@pytest.mark.parametrize(
    ("parameters", "description", "error"),
    [
        ({"max_reference_tokens": 1024}, "Short notes.", "ContextTooLong"),
        ({"max_new_tokens": 1024}, "Short notes.", "ContextTooLong"),
        ({}, "Notes <|end|> and more.", "BadDescription"),
        ({}, "Notes. " * 200, "ContextTooLong"),
    ],
)
@pytest.mark.parametrize("batches", [None, 3])
def test_what_does_not_fit_the_model_is_refused_before_anything_is_armed(
    corpus: Corpus, parameters: dict[str, int], description: str, error: str, batches: int | None
) -> None:
    workshop = Workshop(corpus)
    with refusal(error):
        make(workshop, ink(**parameters, batches=batches), description=description)
    assert workshop.seen == []


UNIT, NEW_UNIT = "patient-004", "patient-999"
PER_BLOCK = 4


def notes_with(change: str) -> Iterable[dict[str, str]]:
    """The corpus with something done to one unit, or to all others."""
    for note in NOTES:
        if note["patient_id"] != UNIT or change == "joined by another":
            yield note
        elif change == "replaced":
            yield note | {"text": "A text about something else altogether, and quite another person."}
        elif change == "lengthened":
            yield note | {"text": note["text"] * 9}
        elif change == "shortened":
            yield note | {"text": note["text"][:7]}
    if change == "joined by another":
        yield {"id": "new", "patient_id": NEW_UNIT, "section": "", "text": "Seen for the first time today."}


@pytest.mark.slow_except("joined by another", "replaced")
@pytest.mark.parametrize("change", ["removed", "replaced", "lengthened", "shortened", "joined by another"])
def test_what_one_unit_does_reaches_one_text_only(
    corpus: Corpus, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End to end: the same random numbers, one unit changed, and all texts but its batch's are the same.

    Real draws share one stream by rejection, so that bytes move from text to text; `test_neighbours` compares what
    they are asked.
    """
    draw_by_one_number_each(monkeypatch)
    sizes = {"references": 1, "max_new_tokens": 40, "max_reference_tokens": 96}
    wanted = ink(samples=PER_BLOCK, batches=PER_BLOCK, **sizes)
    plan = SYSTEM.plan(ask(wanted, AMOUNT * 1000))  # a clip norm that lets every text follow its references

    def texts(source: Corpus) -> list[str]:
        return [text.text for text in SYSTEM.generate(plan, wanted, Workshop(source).context()).texts]

    changed = store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", notes_with(change))
    _, _, batch = Workshop(corpus).place(NEW_UNIT if change == "joined by another" else UNIT, PER_BLOCK)
    before, after = texts(corpus), texts(changed)
    assert [n for n in range(PER_BLOCK) if before[n] != after[n]] == [batch]


@pytest.mark.slow
def test_a_whole_text_must_fit_the_context_with_its_last_sentence(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop, longest = Workshop(corpus), 500
    make(workshop, ink(max_new_tokens=longest, samples=1, temperature="4", batches=1), stops=True)
    monkeypatch.setattr(shared_parameters, "COMPLETION_TOKENS", 500)
    with pytest.raises(ContextTooLong):
        make(Workshop(corpus), ink(max_new_tokens=longest, samples=1, batches=1))
