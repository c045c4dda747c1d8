"""Question histograms: price, counts, rows, margins, and what verification makes of altered rows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.home import ProjectHome
from tasks.accounting.zcdp import release_amount
from tasks.common.files import FileUnfit
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.systems.question_histogram import QuestionHistogram, histogram_for
from tasks.systems.question_histogram.questions import QuestionHistogramParameters, answer_rows, require_answer_rows
from tasks.systems.question_histogram.run import QuestionHistogramRun
from tasks.systems.registry import system_for
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import Topic, margin_of_error, size_with_margin
from tests.unit.tasks.systems.workshop import Step, Workshop, store

AMOUNT = release_amount("1", "1e-6", "0")


def wanted(questions: int = 1, answers: int = 2, **more: Any) -> QuestionHistogramParameters:
    asked = [
        {
            "question": f"Question {number}?",
            "answers": [{"name": f"answer {n}", "keywords": [f"word{n}"]} for n in range(answers)],
        }
        for number in range(questions)
    ]
    return QuestionHistogramParameters.model_validate({"questions": asked, **more})


def planned(parameters: QuestionHistogramParameters, population: int | None = None, blocks: int = 1) -> Plan:
    return QuestionHistogram().plan(PlanInputs(AMOUNT, parameters, blocks, population, governed=True))


@pytest.mark.parametrize("questions", [1, 2, 7, 20])
def test_all_questions_together_cost_what_was_asked_for(questions: int) -> None:
    parameters = wanted(questions, 3)
    plan, histogram = planned(parameters), histogram_for(parameters, AMOUNT)
    assert plan.loss.fits(AMOUNT)
    assert plan.loss.rho > 0.999 * AMOUNT.rho
    assert (histogram.bins, histogram.contributions, histogram.noise) == (4 * questions, questions, "gaussian")
    assert histogram.variance() == pytest.approx(questions / (2 * AMOUNT.rho / 1e12), rel=1e-3)
    assert [len(invocation.instalments) for invocation in plan.invocations] == [1]
    assert isinstance(system_for("question_histogram", "insights"), QuestionHistogram)


def test_the_number_of_answers_costs_nothing() -> None:
    assert histogram_for(wanted(2, 1), AMOUNT).scale == histogram_for(wanted(2, 50), AMOUNT).scale


def test_model_rows_are_estimated_and_keywords_take_none() -> None:
    assert planned(wanted(), 1000).rows == 0
    by_model = QuestionHistogramParameters.model_validate(
        {"questions": [{"question": "Well?", "rule": "model", "answers": [{"name": "yes"}]}]}
    )
    assert planned(by_model, 1000).rows == 2000
    assert "tokens of a unit that the model reads" in planned(by_model).facts


@pytest.mark.parametrize(("population", "warned"), [(None, False), (26, True), (27, False)])
def test_a_margin_above_the_share_of_a_bin_is_a_warning(population: int | None, warned: bool) -> None:
    facts = planned(wanted(), population).facts
    assert facts["margin of error of a count, 95 %"] == "9"
    assert ("warning" in facts) is warned


def pmf(sigma: float) -> np.ndarray:
    reach = math.ceil(12 * sigma) + 2
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


@pytest.mark.parametrize("counts", [1, 2, 5, 51])
def test_a_margin_covers_what_it_says_for_every_noise(counts: int) -> None:
    """Exact, from the discrete distribution; the smallest margin of such coverage is not much smaller."""
    for sigma in (0.05, 0.2, 0.5, 0.77, 1.02, 1.53, 2.04, 4.53, 14.3):
        total = one = pmf(sigma)
        for _ in range(counts - 1):
            total = np.convolve(total, one)
        margin = margin_of_error(Decimal(str(sigma)), counts)
        offsets = np.abs(np.arange(len(total)) - len(total) // 2)
        assert total[offsets <= margin].sum() >= 0.95
        if sigma > 1:
            assert total[offsets <= margin - 2].sum() < 0.95


def test_words_begin_at_zero() -> None:
    assert [size_with_margin(size, Decimal("4.53")) for size in (-7, 0, 1204)] == ["0 ±9", "0 ±9", "1,204 ±9"]


def run_of(
    folder: Path, texts: Sequence[str], parameters: QuestionHistogramParameters, blocks: int = 1
) -> tuple[QuestionHistogramRun, list[Step]]:
    plan = planned(parameters, blocks=blocks)
    notes = [{"patient_id": f"unit {number}", "text": text} for number, text in enumerate(texts)]
    shop = Workshop(store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes), blocks)
    run = QuestionHistogramRun.of(parameters, histogram_for(parameters, plan.amount), plan, shop.context(OS_RANDOM))
    return run, shop.seen


TALK = ["word0 word1", "word1", "word1 word1 word0", "nothing", "word0"]


def test_counts_are_of_units_and_nothing_is_read_before_it_is_paid_for(tmp_path, monkeypatch):
    drawn: list[list[int]] = []
    monkeypatch.setattr(SetHistogram, "draw", lambda self, counts, rng: drawn.append(list(counts)) or list(counts))
    run, seen = run_of(tmp_path, TALK, wanted(2), blocks=3)
    assert seen == []
    rows = [text.insight for text in run.generated().texts]
    assert [step[0] for step in seen] == ["arm", "each_shard"]
    assert seen[1] == ("each_shard", (0, 1, 2), ())
    assert drawn == [[2, 2, 1] * 2]
    assert [row.size for row in rows] == [5, 2, 2, 1] * 2
    require_answer_rows(rows, wanted(2).questions, Decimal(run.plan.facts["standard deviation of a size"]))


def test_whatever_a_rule_says_a_unit_is_in_one_bin(tmp_path, monkeypatch):
    run, _ = run_of(tmp_path, TALK, wanted())
    for said in (99, -1, 3, -(10**9)):
        assert sum(replace(run, rules=(lambda texts, said=said: [said] * len(texts),)).counts()) == len(TALK)
    with pytest.raises(ValueError, match="shorter"):
        replace(run, rules=(lambda texts: [0],)).counts()


def test_a_plan_of_other_noise_is_refused() -> None:
    plan = planned(wanted())
    with pytest.raises(ValueError, match="not those of the plan"):
        QuestionHistogram().generate(replace(plan, amount=release_amount("2", "1e-6", "0")), wanted(), None)  # type: ignore[arg-type]


DEVIATION = Decimal("4.54")


@given(st.lists(st.integers(-100, 10_000), min_size=6, max_size=6))
def test_rows_follow_from_counts_and_counts_from_rows(counts: list[int]) -> None:
    questions = wanted(2).questions
    rows = answer_rows(questions, counts, DEVIATION)
    assert [row.size for row in rows if row.level == 0] == counts
    assert rows[0].size == sum(counts[:3])
    require_answer_rows(rows, questions, DEVIATION)


@pytest.mark.parametrize(
    "alter",
    [
        lambda rows: rows[:-1],
        lambda rows: rows[1:],
        lambda rows: (*rows, rows[-1]),
        lambda rows: (*rows, replace(rows[0], number=9)),
        lambda rows: rows[4:] + rows[:4],
        lambda rows: (replace(rows[0], size=rows[0].size + 1), *rows[1:]),
        lambda rows: (rows[0], replace(rows[1], size=rows[1].size + 1), *rows[2:]),
        lambda rows: (rows[0], replace(rows[1], size=None), *rows[2:]),
        lambda rows: (rows[0], replace(rows[1], topic=Topic("another", rows[1].topic.description)), *rows[2:]),
        lambda rows: (rows[0], replace(rows[1], topic=Topic(rows[1].topic.name, "12 ±1")), *rows[2:]),
        lambda rows: (rows[0], replace(rows[1], keywords=("word9",)), *rows[2:]),
        lambda rows: (rows[0], replace(rows[1], parent=5), *rows[2:]),
        lambda rows: (rows[0], replace(rows[1], clusters=2), *rows[2:]),
        lambda rows: (replace(rows[0], level=0), *rows[1:]),
    ],
)
def test_altered_rows_are_refused(alter: Any) -> None:
    questions = wanted(2).questions
    rows = answer_rows(questions, [5, -3, 7, 1, 2, 3], DEVIATION)
    with pytest.raises(FileUnfit):
        require_answer_rows(alter(rows), questions, DEVIATION)


def test_another_margin_than_the_plans_is_refused() -> None:
    rows = answer_rows(wanted().questions, [5, -3, 7], DEVIATION)
    with pytest.raises(FileUnfit):
        require_answer_rows(rows, wanted().questions, DEVIATION / 2)
    with pytest.raises(ValueError, match="every bin"):
        answer_rows(wanted().questions, [5], DEVIATION)
