"""Audits of a whole question histogram (PRIVACY §8): what it writes down tells no more of a unit than is claimed.

A release over people who talk of music, or of nothing that is asked, with one person more and one less. The statistic
is what an attacker who knows the person makes of the rows: the sum of the sizes of some answers. Four broken twins: two
answers of one unit; answers that depend on what another unit says; noise of half the scale; and a release that has no
noisy bin for those without an answer, and says how many there are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from models_db.home import ProjectHome
from models_db.values.canonical_json import Json
from tasks.accounting.zcdp import epsilon_of, release_amount
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.corpus.store import Corpus
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.systems.question_histogram import QuestionHistogram, histogram_for
from tasks.systems.question_histogram.questions import QuestionHistogramParameters
from tasks.systems.question_histogram.run import AnswerRule, QuestionHistogramRun
from tasks.values.plan import PlanInputs
from tests.unit.tasks.systems.workshop import Workshop, store

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/systems/question_histogram",)

CONFIDENCE, DELTA, TRIALS, CLAIM = 0.9999, 0.03, 40_000, 1.0
ANSWERS = [{"name": "zebra", "keywords": ["zebra"]}, {"name": "music", "keywords": ["violin", "flute"]}]
WANTED = QuestionHistogramParameters.model_validate({
    "questions": [
        {"question": "What is it about?", "answers": ANSWERS},
        {"question": "What comes first?", "answers": ANSWERS, "match": "first"},
    ]
})  # fmt: skip
OTHERS = ("The flute is new",) * 12 + ("Good morning",) * 12
OWN, SILENT = "My zebra hears the violin", "Good evening"


class AllAnswers(QuestionHistogramRun):
    """Broken: a unit that has a word of two answers counts for all three."""

    def counts(self) -> list[int]:
        texts = [placed.unit.text for lot in self.context.lots(self.plan.blocks) for placed in lot.units]
        both = sum("zebra" in text and "violin" in text for text in texts)
        extra = [0, both, both] * len(self.rules)
        return [count + more for count, more in zip(super().counts(), extra, strict=True)]


class OverhearingRule:
    """Broken: whoever has no answer says what a unit about zebras says, if there is one."""

    def __init__(self, rule: AnswerRule) -> None:
        self.rule = rule

    def __call__(self, texts: Sequence[str]) -> list[int]:
        (heard,) = self.rule([" ".join(text for text in texts if "zebra" in text)])
        return [heard if "Good" in text else own for text, own in zip(texts, self.rule(texts), strict=True)]


class Overhearing(QuestionHistogramRun):
    """Broken: as its rules."""

    def counts(self) -> list[int]:
        rules = tuple(OverhearingRule(rule) for rule in self.rules)
        return QuestionHistogramRun.counts(replace(self, rules=rules))


class HalfTheNoise(QuestionHistogramRun):
    """Broken: half the scale that is paid for."""

    def _draw(self, counts: list[int]) -> Json:
        return list(replace(self.histogram, scale=self.histogram.scale / 2).draw(counts, self.context.rng))


class NoBinForNoAnswer(QuestionHistogramRun):
    """Broken: those without an answer are in no noisy bin; how many they are is what is left of all."""

    def _draw(self, counts: list[int]) -> Json:
        noisy = self.histogram.draw(counts, self.context.rng)
        return [counts[place] if place % 3 == 2 else count for place, count in enumerate(noisy)]


@dataclass(frozen=True)
class Attack:
    """Who is in the corpus or not, and the answers whose counts are added up."""

    person: str
    answers: tuple[str, ...]


ON_ZEBRA, ON_BOTH = Attack(OWN, ("zebra",)), Attack(OWN, ("zebra", "music"))
ON_ALL = Attack(OWN, ("zebra", "music", "no answer"))
ON_SILENCE = Attack(SILENT, ("no answer",))


def samples(corpus: Corpus, answers: Sequence[str], kind: type[QuestionHistogramRun]) -> list[int]:
    amount = release_amount("1", str(DELTA), "0")
    plan = QuestionHistogram().plan(PlanInputs(amount, WANTED, 1, None, governed=True))
    histogram, seen = histogram_for(WANTED, plan.amount), list[Any]()
    assert epsilon_of(histogram.loss().rho, str(DELTA)) <= CLAIM
    context = Workshop(corpus).context(OS_RANDOM, arm=lambda *step: seen.append(step))
    run = kind.of(WANTED, histogram, plan, context)
    nodes = [text.insight for text in run.generated().texts]
    assert seen == [(0, 0)]
    names = [node.topic.name for node in nodes if node is not None and node.level == 0]
    counts = run.counts()  # rows are a function of what is drawn of these, so nothing else has to be repeated
    places = [place for place, name in enumerate(names) if name in answers]
    return [sum(drawn[place] for place in places) for drawn in (run._draw(counts) for _ in range(TRIALS))]


@pytest.fixture
def bound(tmp_path: Path) -> Callable[..., float]:
    """The lower bound on epsilon that an attack proves of a kind of run."""

    def proved(attack: Attack, kind: type[QuestionHistogramRun] = QuestionHistogramRun) -> float:
        sides = []
        for name, people in (("with", (*OTHERS, attack.person)), ("without", OTHERS)):
            notes = [{"patient_id": f"unit {number}", "text": text} for number, text in enumerate(people)]
            (tmp_path / name).mkdir()
            corpus = store(ProjectHome(tmp_path / name / "home"), tmp_path / name / "notes.jsonl", notes)
            sides.append(samples(corpus, attack.answers, kind))
        return epsilon_lower_bound(*sides, DELTA, CONFIDENCE).epsilon

    return proved


@pytest.mark.parametrize("attack", [ON_ZEBRA, ON_BOTH, ON_SILENCE], ids=["zebra", "both", "silence"])
def test_a_release_tells_no_more_of_a_person_than_is_claimed(bound, attack):
    assert bound(attack) < CLAIM


def test_the_audit_is_not_blind(bound):
    assert bound(ON_ZEBRA) > 0.2


@pytest.mark.parametrize(
    ("kind", "attack"),
    [
        (AllAnswers, ON_ALL),
        (Overhearing, ON_ZEBRA),
        (HalfTheNoise, ON_ZEBRA),
        (NoBinForNoAnswer, ON_SILENCE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_release_exceeds_the_claim(bound, kind, attack):
    assert bound(attack, kind) > CLAIM
