"""Which metrics a request may ask for."""

import pytest

from tasks.evaluation.registry import METRICS, UnknownMetric, names, requested
from tests.refusals import refusal


def test_the_metrics_of_the_example_request():
    assert [m.name for m in requested(["length", "distinct", "perplexity"], governed=True)] == [
        "length",
        "distinct",
        "perplexity",
    ]


def test_a_metric_named_twice_is_computed_once():
    assert [m.name for m in requested(["length", "length"], governed=True)] == ["length"]


@pytest.mark.parametrize("governed", [True, False])
def test_an_unknown_metric_is_refused_with_the_known_ones(governed):
    with pytest.raises(UnknownMetric) as refused:
        requested(["length", "bleu"], governed=governed)
    assert refused.value.facts == {"metric": "bleu", "known": list(METRICS)}
    assert refused.value.exit_code == 2
    for name in METRICS:
        assert name in refused.value.advice


@pytest.mark.parametrize("name", ["verbatim_overlap", "perplexity_gap"])
def test_an_internal_metric_is_refused_on_governed_data_only(name):
    with refusal("InternalMetric") as refused:
        requested(["length", name], governed=True)
    assert refused.value.exit_code == 1
    assert refused.value.facts == {"metric": name, "allowed": names("public", "charged")}
    assert [m.name for m in requested([name], governed=False)] == [name]
