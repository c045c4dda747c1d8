"""Releases that are interrupted at every step, before and after it is written down, and gone on with.

Draws are counted where they are made: at the meter, which every system asks before rows are read for a draw.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.corpus.store import Corpus
from tasks.decoding import generate, loop, sentence_completion
from tasks.decoding.journal import Journal, ResumeState
from tasks.decoding.run_context import RunContext
from tasks.decoding.sentence_completion import SentenceCompletion
from tasks.inference.engine.isolation import IsolationCheck
from tasks.inference.engine.session import Session
from tasks.planning import shared_parameters
from tasks.systems.adapmixed import AdaPMixed, AdaPMixedParameters
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.systems.private_prediction.rule import PrivatePredictionRule
from tasks.values.results import Generated
from tests.unit.tasks.systems.asking import AMOUNT, ask
from tests.unit.tasks.systems.private_decoding.test_family_at_work import AMIN, GIVEN, ICL, INK, TANG
from tests.unit.tasks.systems.workshop import KEY, Workshop
from tests.watched_journal import WatchedJournal

pytestmark = [pytest.mark.dear, pytest.mark.contract]
CONCERNS = (
    "tasks/decoding",
    "tasks/systems",
)

each_system = pytest.mark.parametrize(
    ("system", "kind", "own"), [AMIN, ICL, TANG, INK], ids=["amin", "icl", "tang", "ink"]
)
SIZE = 4  # draws in an instalment


class Killed(Exception):
    """What ends an attempt."""


class Ward:
    """A release across attempts: what is on disk, what is armed, and every draw that was ever admitted.

    Attributes:
        armed: instalments that are paid, as (sequence, instalment), in order.
        draws: how often each generation's batch met the mechanisms, in all attempts.
        batches: what the units of each place were, for each attempt that read them.
        forgetful: a broken twin that takes missing draws for not made.
    """

    forgetful = False

    def __init__(self, folder: Path, corpus: Corpus, given: tuple[Any, Any, Any], **changes: Any) -> None:
        self.folder, self.corpus = folder, corpus
        self.system, self.kind, own = given
        self.wanted = self.kind.model_validate(GIVEN | own | changes)
        amount = AMOUNT * 1000 if self.system.charges else None
        self.plan = self.system.plan(ask(self.wanted, amount, governed=self.system.charges))
        self.first = len(self.plan.invocations) - (2 if self.system.name == "private_prediction" else 1)
        self.armed: list[tuple[int, int]] = []
        self.draws: Counter[int] = Counter()
        self.batches: list[Any] = []
        self.attempts = 0

    def run(self, *, die_at: int | None = None, written: bool = True) -> Generated:
        """One attempt. It dies at the step `die_at` of its own (from 1), after or before that is written down."""
        self.attempts += 1
        steps = 0

        with Journal(self.folder / "1-unfinished", 1) as journal, pytest.MonkeyPatch.context() as patch:
            context = self._bench(journal)

            def drawn(armed: int, tokens: Mapping[int, Sequence[float]]) -> None:
                nonlocal steps
                steps += 1
                if written or steps != die_at:
                    journal.step(armed, tokens)
                if steps == die_at:
                    raise Killed

            self._watch(patch)
            return self.system.generate(  # type: ignore[no-any-return]
                self.plan, self.wanted, replace(context, journal=WatchedJournal(begin=journal.begin, step=drawn))
            )

    def _bench(self, journal: Journal) -> RunContext:
        journal.assign("d", self.attempts, KEY)
        found = journal.open()
        earlier = ResumeState()
        if found is not None:
            lost = 0 if self.forgetful else len(found.attempts)
            earlier = ResumeState(found.released, found.tokens, found.kept, self._paid(), lost)
            journal.go_on()
        context = Workshop(self.corpus).context(arm=self._arm)
        return replace(context, earlier=earlier)

    def _paid(self) -> int:
        return sum(sequence == self.first for sequence, _ in self.armed)

    def _arm(self, sequence: int, instalment: int) -> None:
        assert (sequence, instalment) not in self.armed  # nothing is paid twice
        self.armed.append((sequence, instalment))

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        """Count draws as rows are scored for them: a run of tests, or a token, of each generation that has rows."""
        score, batches = Session.private_logits, Corpus.batches
        runs: dict[int, int] = {}

        def private_logits(session: Session, candidates: Any = None) -> Any:
            rows = score(session, candidates)
            for index in sorted(set(rows.generation.tolist())):
                number = session.numbers[index]
                if self.system.name != "private_prediction":
                    self.draws[number] += 1
                elif runs.get(number) != len(ended[number]):
                    runs[number] = len(ended[number])
                    self.draws[number] += 1
                covered = not self.system.charges or self.draws[number] <= self._paid() * SIZE
                assert covered, f"generation {number} has drawn more than is paid"
            return rows

        ended: dict[int, list[int]] = {number: [] for number in range(self.wanted.samples)}
        private = PrivatePredictionRule._private_tokens

        def private_tokens(rule: Any, step: Any, choice: Any, rows: Any, some: Sequence[int]) -> Any:
            for index in some:
                ended[step.numbers[index]].append(step.positions[index])
            return private(rule, step, choice, rows, some)

        def read(*given: Any) -> Any:
            found = batches(*given)
            self.batches.append({place: [unit.text for unit in units] for place, units in found.items()})
            return found

        patch.setattr(Session, "private_logits", private_logits)
        patch.setattr(Corpus, "batches", read)
        patch.setattr(PrivatePredictionRule, "_private_tokens", private_tokens)


@pytest.mark.slow_except("written-ink", "lost-amin")
@each_system
@pytest.mark.parametrize("written", [True, False], ids=["written", "lost"])
def test_killed_at_every_step(system: Any, kind: Any, own: Any, corpus: Corpus, tmp_path: Path, written: bool) -> None:
    """Each attempt dies one step later than the one before; the last one finishes."""
    ward = Ward(tmp_path, corpus, (system, kind, own))
    for step in (1, 1, 2, 3):
        with pytest.raises(Killed):
            ward.run(die_at=step, written=written)
    made = ward.run()
    every_draw = system.name != "private_prediction"
    assert [text.tokens for text in made.texts] == [12 - 4 * every_draw] * 4
    assert set(map(str, ward.batches)) == {str(ward.batches[0])}  # the same units in every attempt
    assert len(ward.armed) == len(set(ward.armed)) <= sum(len(each.instalments) for each in ward.plan.invocations)


@pytest.mark.slow_except("ink", "tang")
@each_system
def test_who_takes_missing_draws_for_not_made_is_caught(
    system: Any, kind: Any, own: Any, corpus: Corpus, tmp_path: Path
) -> None:
    ward = Ward(tmp_path, corpus, (system, kind, own))
    ward.forgetful = True
    for _ in range(2):
        with pytest.raises(Killed):
            ward.run(die_at=1, written=False)
    with pytest.raises(AssertionError, match="has drawn more than is paid"):
        ward.run()


@pytest.mark.slow_except("ink", "amin")
@each_system
def test_the_texts_go_on_with_the_tokens_that_were_drawn(
    system: Any, kind: Any, own: Any, corpus: Corpus, tmp_path: Path
) -> None:
    ward = Ward(tmp_path, corpus, (system, kind, own))
    with pytest.raises(Killed):
        ward.run(die_at=5)
    with Journal(tmp_path / "1-unfinished", 1) as journal:
        before = journal.open()
    assert before is not None
    with pytest.raises(Killed):
        ward.run(die_at=2, written=False)
    ward.run()
    with Journal(tmp_path / "1-unfinished", 1) as journal:
        after = journal.open()
    assert after is not None
    assert {number: tokens[:6] for number, tokens in after.tokens.items()} == {
        number: [*tokens, after.tokens[number][5]] for number, tokens in before.tokens.items()
    }
    assert after.attempts == [1, 2, 3]


@each_system
def test_after_the_last_step_nothing_is_drawn_and_nothing_is_read(
    system: Any, kind: Any, own: Any, corpus: Corpus, tmp_path: Path
) -> None:
    """Killed between the last draw and the draft: the texts, their facts and the figures are all there."""
    ward = Ward(tmp_path, corpus, (system, kind, own))
    whole = ward.run()
    armed, draws = list(ward.armed), Counter(ward.draws)
    again = ward.run()
    assert (again.texts, again.released) == (whole.texts, whole.released)
    assert (ward.armed, ward.draws) == (armed, draws)


@pytest.mark.parametrize("written", [True, False], ids=["written", "lost"])
def test_a_text_that_is_killed_while_its_sentence_is_completed_goes_on_with_that(
    corpus: Corpus, tmp_path: Path, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sentence ends by itself here, and none is drawn by the rule behind the last draw: `Ward` counts draws."""
    monkeypatch.setattr(sentence_completion, "ends_sentence", lambda text: False)
    monkeypatch.setattr(shared_parameters, "COMPLETION_TOKENS", 6)
    ward = Ward(tmp_path, corpus, INK)
    most = 12
    deaths = (3, most - 2, 1) if written else (3, most, 1)
    for step in deaths:
        with pytest.raises(Killed):
            ward.run(die_at=step, written=written)
    made = ward.run()
    assert all(ward.draws[number] <= most for number in range(len(made.texts)))
    for text in made.texts:
        completed = text.facts["completion_tokens"]
        assert 0 < completed <= 6
        assert text.tokens - completed in range(most - len(deaths), most + 1)
    assert ward.run() == made


def test_who_forgets_which_tokens_complete_a_sentence_is_not_the_same_run(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the counts a text would go on for more tokens than were asked for, up to the bound of all."""
    monkeypatch.setattr(sentence_completion, "ends_sentence", lambda text: False)
    monkeypatch.setattr(shared_parameters, "COMPLETION_TOKENS", 6)
    ward = Ward(tmp_path, corpus, INK)
    with pytest.raises(Killed):
        ward.run(die_at=15)
    monkeypatch.setattr(SentenceCompletion, "resume", lambda *given: None)
    assert {text.facts["completion_tokens"] for text in ward.run().texts} == {2.0}


FORM = (InvisibleInk(), InvisibleInkParameters, {"form": "Of a cough: {what} and {more}.", "max_new_tokens": 40})


class WardOfForms(Ward):
    """A ward whose model has a token that ends a text. Draws are not counted: forced tokens are read beside them."""

    def _bench(self, journal: Journal) -> RunContext:
        return replace(super()._bench(journal), engine=Workshop(self.corpus).context(stops=True).engine)

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        pass


@pytest.mark.slow_except("None")
@pytest.mark.parametrize("die_at", [None, 14, 22])
def test_the_device_is_asked_about_every_shape_before_a_form_is_paid(
    die_at: int | None, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public words stand before the first draw, also where a run goes on: rows are read behind as many tokens."""
    ward = WardOfForms(tmp_path, corpus, FORM)
    opened: list[tuple[IsolationCheck, Any]] = []

    def watched(engine: Any, *given: Any) -> Session:
        session = loop.open_session(engine, *given)
        opened.append((engine.isolation, engine.isolation.tested_shapes))
        return session

    monkeypatch.setattr(generate, "open_session", watched)
    if die_at is not None:
        with pytest.raises(Killed):
            ward.run(die_at=die_at)
    ward.run()
    for isolation, shapes in opened:
        assert isolation.tested_shapes == shapes


def test_the_count_is_drawn_once(corpus: Corpus, tmp_path: Path) -> None:
    ward = Ward(tmp_path, corpus, INK, batches=None)
    with pytest.raises(Killed):
        ward.run(die_at=2)
    assert ward.armed[0] == (0, 0)
    made = ward.run()
    assert ward.armed.count((0, 0)) == 1
    assert int(made.released["batches_per_block"]) >= 4
    assert len({str(each) for each in ward.batches}) == 1


def test_private_prediction_never_tests_a_run_again(corpus: Corpus, tmp_path: Path) -> None:
    """Each attempt uses a run up, whether or not its private token came: after six, everything is public."""
    ward = Ward(tmp_path, corpus, AMIN)
    for _ in range(5):
        with pytest.raises(Killed):
            ward.run(die_at=1, written=False)
    made = ward.run()
    assert [text.tokens for text in made.texts] == [12] * 4
    assert all(text.facts["private_tokens"] <= 1 for text in made.texts)


def test_what_charges_nothing_loses_nothing(corpus: Corpus, tmp_path: Path) -> None:
    ward = Ward(tmp_path, corpus, (AdaPMixed(), AdaPMixedParameters, {}))
    for written in (True, False, True):
        with pytest.raises(Killed):
            ward.run(die_at=2, written=written)
    made = ward.run()
    assert [text.tokens for text in made.texts] == [12] * 4
    assert float(made.released["private_tokens_per_text"]) <= 12
