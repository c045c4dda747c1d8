"""What plans expect of a clip norm is what rehearsals measured, and nothing else."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tasks.inference.catalogue import registry
from tasks.pricing.rehearsed_shares import FIGURES, MeasuredShare, expected_shares, measured_shares
from tasks.rehearsal.measures import REFERENCE_WORSE

MODELS = ("smollm2-135m-instruct", "gemma3-270m")
ROOT = Path(__file__).parents[4]


def measured(corpus: str, norm: float, share: float, metric: str = "mauve") -> MeasuredShare:
    return MeasuredShare(corpus, "small", "invisible_ink", metric, norm, 24, (share, share - 10, share + 10))


LIBRARY = (measured("first", 0.1, 0), measured("first", 1, 50), measured("first", 10, 90), measured("second", 1, 70))


def test_a_share_is_interpolated_in_the_logarithm_of_the_norm() -> None:
    (one,) = expected_shares(10**-0.5, "small", "invisible_ink", None, LIBRARY)
    assert (one.metric, one.share, one.low, one.high, one.corpora) == ("mauve", 25, 15, 35, ("first",))


def test_corpora_are_taken_together_and_their_intervals_are_not_narrowed() -> None:
    (one,) = expected_shares(1, "small", "invisible_ink", "log_probability", LIBRARY)
    assert (one.share, one.low, one.high, one.corpora) == (60, 40, 80, ("first", "second"))


def test_corpora_without_any_share_are_named() -> None:
    """Others may only lack a share at this clip norm."""
    silent = [MeasuredShare("third", "small", "invisible_ink", "mauve", norm, 24, None) for norm in (0.1, 1, 10)]
    partly = [measured("fourth", 10, 50), MeasuredShare("fourth", "small", "invisible_ink", "mauve", 0.1, 24, None)]
    (one,) = expected_shares(1, "small", "invisible_ink", None, [*LIBRARY, *silent, *partly])
    assert (one.share, one.corpora, one.without_share) == (60, ("first", "second"), ("third",))
    assert expected_shares(1, "small", "invisible_ink", None, silent) == ()


def test_an_interval_that_says_nothing_is_not_shown() -> None:
    apart = [measured("first", 1, -90), measured("second", 1, 91)]
    assert expected_shares(1, "small", "invisible_ink", None, apart) == ()
    assert len(expected_shares(1, "small", "invisible_ink", None, [apart[0], measured("second", 1, 90)])) == 1


@pytest.mark.parametrize(
    ("norm", "model", "mechanism", "clipping"),
    [
        (0.09, "small", "invisible_ink", None),
        (11, "small", "invisible_ink", None),
        (1, "large", "invisible_ink", None),
        (1, "small", "private_icl", None),
        (1, "small", "invisible_ink", "logit"),
        (0, "small", "invisible_ink", None),
    ],
)
def test_what_was_not_measured_is_not_expected(norm: float, model: str, mechanism: str, clipping: str | None) -> None:
    assert expected_shares(norm, model, mechanism, clipping, LIBRARY) == ()


def test_the_library_is_figures_of_known_models_and_no_text() -> None:
    lines = [json.loads(line) for line in FIGURES.read_text().splitlines()]
    assert lines
    assert {line["model"] for line in lines} <= {model.name for model in registry.REGISTRY}
    assert len({(line["model"], line["corpus"], line["wanted"]) for line in lines}) == len(lines)
    for line in lines:
        assert abs(float(line["clip_norm"]) - line["wanted"]) < 0.02 * line["wanted"]
        for one in line["metrics"]:
            assert set(one) <= {"metric", "public_only", "request", "non_private", "share", "low", "high", "reason"}
    for share in measured_shares():
        assert share.way is None or share.way[1] <= share.way[0] <= share.way[2]
    assert {model: {one.corpus for one in measured_shares() if one.model == model} for model in MODELS} == {
        model: {"yelp", "mts_dialog"} for model in MODELS
    }


def test_the_page_says_what_the_library_has() -> None:
    """Each share of docs/planning.md, beside its model, clip norm and corpus; what gives none is said too."""
    page = (ROOT / "docs" / "planning.md").read_text()
    pattern = r"^\| ([a-z0-9-]+) \| ([0-9.]+) \| (yelp|mts_dialog) \| ([0-9., ]+) \| (.+) \| (.+) \| (.+) \|$"
    found = re.findall(pattern, page, re.M)
    rows = {(model, float(norm), corpus): (mauve, *ways) for model, norm, corpus, mauve, *ways in found}
    lines = [json.loads(line) for line in FIGURES.read_text().splitlines()]
    assert rows.keys() == {(line["model"], line["wanted"], line["corpus"]) for line in lines}
    for line in lines:
        metrics = {one["metric"]: one for one in line["metrics"]}
        mauve, *ways = rows[line["model"], line["wanted"], line["corpus"]]
        figures = [metrics["mauve"][name] for name in ("public_only", "request", "non_private")]
        assert mauve == ", ".join(f"{Decimal(figure):.3f}" for figure in figures)
        assert ways == [way_of(metrics[name]) for name in ("mauve", "perplexity_gap", "coverage")]


def way_of(metric: dict[str, Any]) -> str:
    if "share" in metric:
        return f"{metric['share']} % [{metric['low']}, {metric['high']}]"
    return "undefined" if metric["reason"] == REFERENCE_WORSE else "indistinguishable"
