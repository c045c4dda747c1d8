"""A metric without a charge is tried again after a temporary fault; one that is charged is drawn once."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tasks.common.faults import Wait, retry, waiting_with
from tasks.corpus.store import Corpus
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.registry import METRICS, Metric, evaluate
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.pricing.charged_metrics import Measuring
from tasks.values.results import MetricResult
from tests.faults import Failing, temporary, waits
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.subjects import texts
from tests.unit.tasks.pricing.test_charged_metrics import SUBJECT, measuring, priced
from tests.unit.tasks.systems.workshop import Workshop

EVALUATION = ["length", "dp_length", "distinct"]
Evaluate = Callable[..., tuple[MetricResult, ...]]


def metrics(**faults: Any) -> list[Metric]:
    """The metrics of `EVALUATION`; `faults` are a metric's own function."""
    return [replace(METRICS[name], compute=faults.get(name, METRICS[name].compute)) for name in EVALUATION]


def drawing(corpus: Corpus) -> tuple[Workshop, Measuring]:
    workshop = Workshop(corpus)
    return workshop, measuring(workshop, priced(evaluation=EVALUATION), [])


def test_a_metric_that_fails_twice_is_computed_and_the_charged_one_is_drawn_once(corpus: Corpus) -> None:
    workshop, draw = drawing(corpus)
    failing = Failing(METRICS["distinct"].compute, temporary(), ConnectionResetError())
    with waits() as seconds:
        found = evaluate(metrics(distinct=failing), SUBJECT, draw)
    assert (failing.calls, seconds) == (3, [10, 20])
    assert found[2] == METRICS["distinct"].compute(SUBJECT)
    assert [result.name for result in found] == EVALUATION
    assert [step[0] for step in workshop.seen] == ["arm", "batches", "begun", "kept"]


def test_a_permanent_fault_of_a_metric_ends_at_once(corpus: Corpus) -> None:
    workshop, draw = drawing(corpus)
    failing = Failing(METRICS["length"].compute, ValueError())
    with waits() as seconds, pytest.raises(ValueError):
        evaluate(metrics(length=failing), SUBJECT, draw)
    assert (failing.calls, seconds, workshop.seen) == (1, [], [])


def test_released_texts_are_embedded_again_for_a_charged_metric_before_it_is_armed(corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    draw = measuring(workshop, priced(evaluation=["dp_coverage"]), [])
    letters = Letters()
    embed: Any = Failing(letters, temporary())
    subject = EvaluationInput(texts("a short note", "another one", "and a third"), embed=embed)

    def note(_: Wait) -> Wait:
        return lambda seconds: workshop.seen.append(("waited", seconds))

    embed.name = letters.name
    with waiting_with(note):
        (result,) = evaluate([METRICS["dp_coverage"]], subject, draw)
    assert None not in result.values.values()
    assert [step[0] for step in workshop.seen] == ["waited", "arm", "batches", "begun", "kept"]


def retrying_everything(
    metrics: Any, subject: EvaluationInput, charged: Callable[..., MetricResult]
) -> tuple[MetricResult, ...]:
    """A broken twin of `evaluate`: a charged metric is tried again too."""
    return tuple(
        retry(partial(charged, metric, subject) if metric.estimate else partial(metric.compute, subject), metric.name)
        for metric in metrics
    )


def require_charged_once(how: Evaluate, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A temporary fault while a charged metric reads or draws: it is armed once, drawn at most once, and not retried.

    Args:
        where: the step that fails: `read` or `draw`.
    """
    workshop, draw = drawing(corpus)
    real = NoisyHistogram.draw
    drawn: list[object] = []

    def draw_and_fail(self: NoisyHistogram, counts: Any, rng: Any) -> list[int]:
        drawn.append(real(self, counts, rng))
        raise temporary()

    def fail(*_: object) -> Any:
        raise temporary()

    monkeypatch.setattr(NoisyHistogram, "draw", draw_and_fail)
    if where == "read":
        monkeypatch.setattr(Measuring, "_units", fail)
    with waits() as seconds, pytest.raises(OSError):
        how(metrics(), SUBJECT, draw)
    assert [step[0] for step in workshop.seen].count("arm") == 1, "a charged metric was armed again"
    assert len(drawn) == (where == "draw"), "a charged metric was drawn again"
    assert seconds == []


@pytest.mark.parametrize("where", ["read", "draw"])
def test_a_charged_metric_is_not_tried_again(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    require_charged_once(evaluate, corpus, monkeypatch, where)


@pytest.mark.parametrize("where", ["read", "draw"])
def test_a_twin_that_tries_a_charged_metric_again_is_caught(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with pytest.raises(AssertionError, match="armed again"):
        require_charged_once(retrying_everything, corpus, monkeypatch, where)
