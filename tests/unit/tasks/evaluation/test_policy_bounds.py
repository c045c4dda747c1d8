"""Figures of a release against the bounds of its policy."""

from typing import Any

import pytest

from models_db.policies.policy import EvaluationRules
from models_db.values.requests import parse_model
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.policy_bounds import OutsideBounds, figures_of, missed, require_measurable
from tasks.evaluation.registry import METRICS, names
from tasks.values.results import MetricResult, MetricValue
from tests.refusals import refusal
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.subjects import Capitals, Undecided


class Text:
    text, tokens, complete, label = "Patient: better. Doctor: good.", 7, True, "note"


def required(**written: Any) -> Any:
    return parse_model(EvaluationRules, {"required": written}, "evaluation").required


def measured(**values: MetricValue) -> dict[str, MetricResult]:
    return {"length": MetricResult("length", "public", values, "s", "m", "l")}


@pytest.mark.parametrize(
    ("value", "bound", "inside"),
    [
        ("0.5000", {"max": 0.5}, True),
        ("0.5001", {"max": 0.5}, False),
        ("0.4999", {"min": "0.5"}, False),
        ("0.5", {"min": "0.5"}, True),
        (4, {"min": 4, "max": 4}, True),
        (5, {"min": 4, "max": 4}, False),
        ("-1", {"max": 0}, True),
        (None, {"max": 10**9}, False),
        (None, {"min": -(10**9)}, False),
        ("many", {"max": 10**9}, False),
        ("NaN", {"min": -(10**9)}, False),
        ("Infinity", {"min": 0}, False),
    ],
)
def test_a_figure_is_inside_or_refused(value: MetricValue, bound: dict[str, Any], inside: bool) -> None:
    outside = missed(required(length={"cut_share": bound}), measured(cut_share=value))
    if inside:
        assert outside == ()
        return
    refused = OutsideBounds(7, outside)
    assert refused.facts["request"] == 7
    [told] = refused.facts["outside"]  # type: ignore[misc]
    assert (told["figure"], told["value"]) == ("length.cut_share", value)  # type: ignore[index]
    assert "almoner reject 7 --gate publish" in refused.advice


def test_what_was_not_measured_is_outside_even_without_a_bound() -> None:
    assert missed(required(length={}), measured()) == ()
    [unmeasured] = missed(required(length={}, distinct={}), measured())
    assert "distinct is not measured" in str(unmeasured)
    [unmeasured] = missed(required(length={"texts": {"min": 0}}), measured())
    assert "length.texts is not measured" in str(unmeasured)


def test_every_figure_outside_is_named() -> None:
    asked = required(length={"texts": {"min": 3}, "empty": {"max": 0}, "cut_share": {"max": 1}})
    told = OutsideBounds(1, missed(asked, measured(texts=2, empty=1, cut_share="0"))).facts["outside"]
    assert isinstance(told, list)
    assert [each["figure"] for each in told] == ["length.empty", "length.texts"]


@pytest.mark.parametrize("metric", METRICS)
def test_the_figures_of_a_metric_are_the_same_with_texts_and_without(metric: str) -> None:
    subject = EvaluationInput(
        [Text()] * 3,
        score=lambda texts: [(-1.0, 2)] * len(texts),
        documents=lambda: ["a b c"],
        embed=Letters(),
        tag=Capitals(),
        judge=Undecided(),
        labelled=lambda: [("a b c", "note")],
    )
    assert set(METRICS[metric].compute(subject).values) == figures_of(metric) != set()


def test_only_what_a_gate_may_look_at_can_be_required() -> None:
    require_measurable(required(**{name: {} for name in names("public", "charged")}))
    require_measurable(required(length={"cut_share": {"max": 1}}))
    for wrong, told in (
        ({"beauty": {}}, "'beauty'"),
        ({"verbatim_overlap": {}}, "'verbatim_overlap'"),
        ({"length": {"cutshare": {"max": 1}}}, "no figure 'cutshare'"),
    ):
        with refusal("NotMeasurable", match=told):
            require_measurable(required(**wrong))
    with refusal("NotMeasurable") as refused:
        require_measurable(required(beauty={}, length={"size": {"max": 1}}))
    assert len(refused.value.facts["problems"]) == 2  # type: ignore[arg-type]
