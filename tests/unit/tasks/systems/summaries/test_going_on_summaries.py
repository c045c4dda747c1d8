"""Token-level summaries that are interrupted at every step, before and after it is written down, and gone on with.

Draws are counted where noise is drawn: for each generation that a step draws for, in all attempts together.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.releases import resume
from tasks.corpus.store import Corpus
from tasks.decoding.journal import Contents, Journal, ResumeState
from tasks.decoding.run_context import RunContext
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.systems.summaries import TokenLevelParameters, TokenLevelSummary
from tasks.systems.summaries.token_level_rule import TokenLevelRule
from tasks.values.results import Generated
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.summaries.summing import FORM, GIVEN, context, one_thread
from tests.unit.tasks.systems.summaries.test_token_level import reviews
from tests.unit.tasks.systems.workshop import KEY, Workshop
from tests.watched_journal import WatchedJournal

CONCERNS = ("tasks/decoding", "tasks/systems/summaries")

pytestmark = pytest.mark.dear

__all__ = ["one_thread", "reviews"]  # fixtures
SYSTEM = TokenLevelSummary()
FREE: dict[str, Any] = {}
FORMED: dict[str, Any] = {"form": FORM, "slot_tokens": 4, "max_new_tokens": 40}
both = pytest.mark.parametrize("own", [FREE, FORMED], ids=["free", "form"])
bounds = pytest.mark.parametrize("bound", [1, 2])


class Killed(Exception):
    """What ends an attempt."""


class Ward:
    """A release across attempts: what is on disk, what is armed, and every draw that was made.

    Attributes:
        forgetful: a broken twin that takes missing draws for not made.
    """

    forgetful = False

    def __init__(self, folder: Path, corpus: Corpus, **own: Any) -> None:
        self.folder, self.corpus = folder, corpus
        self.wanted = TokenLevelParameters.model_validate(GIVEN | {"instalment": 2} | own)
        self.plan = SYSTEM.plan(ask(self.wanted))
        self.armed: list[int] = []
        self.draws: Counter[int] = Counter()
        self.attempts = 0
        self.seen: list[Any] = []

    @property
    def most(self) -> int:
        """Draws that are planned for one text."""
        return self.wanted.draws_per_text

    def run(self, *, die_at: int | None = None, written: bool = True) -> Generated:
        """One attempt. It dies at the step `die_at` of its own (from 1), after or before that is written down."""
        self.attempts += 1
        steps = 0
        with Journal(self.folder / "1-unfinished", 1) as journal, pytest.MonkeyPatch.context() as patch:
            work = self._bench(journal)

            def drawn(armed: int, tokens: Mapping[int, Sequence[float]]) -> None:
                nonlocal steps
                steps += 1
                if written or steps != die_at:
                    journal.step(armed, tokens)
                if steps == die_at:
                    raise Killed

            self._watch(patch)
            return SYSTEM.generate(self.plan, self.wanted, replace(work, journal=WatchedJournal(journal.begin, drawn)))

    def left(self) -> Contents:
        """What the journal has."""
        with Journal(self.folder / "1-unfinished", 1) as journal:
            found = journal.open()
        assert found is not None
        return found

    def _bench(self, journal: Journal) -> RunContext:
        journal.assign("d", self.attempts, KEY)
        found, earlier = journal.open(), ResumeState()
        if found is not None:
            self._accepted(found)
            lost = 0 if self.forgetful else len(found.attempts)
            earlier = ResumeState(found.released, found.tokens, found.kept, len(self.armed), lost)
            journal.go_on()

        def arm(sequence: int, instalment: int) -> None:
            assert sequence == 0
            assert instalment == len(self.armed)  # in order, and nothing twice
            self.armed.append(instalment)

        # Other random numbers in each attempt.
        rng = DeterministicRandom(f"attempt {self.attempts}")
        work = context(Workshop(self.corpus, seen=self.seen), stops=True, arm=arm, rng=rng)
        return replace(work, earlier=earlier)

    def _accepted(self, found: Contents) -> None:
        """What the flow holds against the ledger must let this go on."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(resume.budget, "armed_instalments", lambda *given: {0: set(self.armed)})
            request: Any = SimpleNamespace(id=1, digest="d")
            resumed = resume.load_resume_point(None, request, self.plan, found)  # type: ignore[arg-type]
        assert (resumed.state.armed, resumed.state.lost) == (len(self.armed), len(found.attempts))

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        honest = TokenLevelRule._mean

        def mean(rule: TokenLevelRule, *given: Any) -> Any:
            self.draws.update(self.drawing)
            paid = len(self.armed) * self.wanted.instalment
            over = [number for number in self.drawing if self.draws[number] > min(paid, self.most)]
            assert not over, f"generations {over} have drawn more than is paid"
            return honest(rule, *given)

        choose = TokenLevelRule.next_tokens

        def next_tokens(rule: TokenLevelRule, step: Any) -> list[int]:
            self.drawing = step.numbers
            return choose(rule, step)

        patch.setattr(TokenLevelRule, "_mean", mean)
        patch.setattr(TokenLevelRule, "next_tokens", next_tokens)


@pytest.mark.slow_except("written-1-form", "lost-2-free")
@both
@bounds
@pytest.mark.parametrize("written", [True, False], ids=["written", "lost"])
def test_killed_at_every_step(own: Any, bound: int, reviews: Corpus, tmp_path: Path, written: bool) -> None:
    """Each attempt dies some steps later than the one before; the last one finishes."""
    ward = Ward(tmp_path, reviews, groups_per_unit=bound, **own)
    first = 3 if own else 0  # a form begins with tokens that nobody draws
    for step in (1 + first, 1, 2, 3):
        with pytest.raises(Killed):
            ward.run(die_at=step, written=written)
    made = ward.run()
    assert len(made.texts) == 4
    assert max(ward.draws.values()) <= ward.most
    assert len(ward.armed) <= len(ward.plan.invocations[0].instalments)
    if own:
        assert all(text.text.startswith("It is ") for text in made.texts)
        assert not any(letter in text.text for text in made.texts for letter in "{}[]<>")
    else:
        assert all(text.tokens <= 12 - 4 for text in made.texts)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("written", [True, False], ids=["written", "lost"])
def test_a_form_is_gone_on_with_after_every_step(reviews: Corpus, tmp_path: Path, size: int, written: bool) -> None:
    """Dying at one step after another, wherever in the form that is, until nothing is left to die at."""
    ward = Ward(tmp_path, reviews, **FORMED, instalment=size)
    for step in [7, *[4] * 6]:
        try:
            ward.run(die_at=step, written=written)
        except Killed:
            continue
        break
    made = ward.run()
    assert max(ward.draws.values()) <= ward.most
    for text in made.texts:
        assert text.complete
        assert text.text.startswith("It is")
        # Where interruptions took all that a slot needed, the text breaks off before it.
        assert text.text.endswith("!") or text.text == "It is" or text.text.endswith(". Some say")


@both
def test_who_takes_missing_draws_for_not_made_is_caught(own: Any, reviews: Corpus, tmp_path: Path) -> None:
    ward = Ward(tmp_path, reviews, **own)
    ward.forgetful = True
    with pytest.raises(AssertionError, match="have drawn more than is paid"):  # noqa: PT012
        for _ in range(3):
            with pytest.raises(Killed):
                ward.run(die_at=8 if own else 2, written=False)
        ward.run()


@both
def test_the_texts_go_on_with_the_tokens_that_were_drawn(own: Any, reviews: Corpus, tmp_path: Path) -> None:
    ward = Ward(tmp_path, reviews, **own)
    with pytest.raises(Killed):
        ward.run(die_at=8)
    before = ward.left()
    with pytest.raises(Killed):
        ward.run(die_at=2, written=False)
    ward.run()
    after = ward.left()
    assert all(after.tokens[number][: len(tokens)] == tokens for number, tokens in before.tokens.items())
    assert after.attempts == [1, 2, 3]


@both
def test_after_the_last_step_nothing_is_drawn_and_nothing_is_read(own: Any, reviews: Corpus, tmp_path: Path) -> None:
    ward = Ward(tmp_path, reviews, **own)
    whole = ward.run()
    armed, draws = list(ward.armed), Counter(ward.draws)
    again = ward.run()
    assert (again.texts, again.released) == (whole.texts, whole.released)
    assert (ward.armed, ward.draws) == (armed, draws)


@bounds
def test_interrupted_as_often_as_a_text_has_draws_there_is_nothing_to_go_on_with(
    reviews: Corpus, tmp_path: Path, bound: int
) -> None:
    """The flow says so by name, also where a unit is in several groups and the event has more draws than a text."""
    ward = Ward(tmp_path, reviews, groups_per_unit=bound, max_new_tokens=3)
    for _ in range(3):
        with pytest.raises(Killed):
            ward.run(die_at=1, written=False)
    with pytest.raises(resume.JournalUnfit, match="no draw is left for a text"):
        ward.run()
