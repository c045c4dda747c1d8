"""`dp_length`: the length of the private units' texts, and the release's distance from it."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from tasks.evaluation.charged.estimates import (
    NOISE_INTERVAL,
    EstimateRequest,
    NoisyHistogramEstimate,
    UnitText,
    histogram_of,
    shares,
)
from tasks.evaluation.core.embedded_texts import figure
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.words import words
from tasks.values.results import MetricResult, MetricValue, rounded

NAME = "dp_length"

EDGES: Sequence[int] = (0, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
"""Words at which the bins begin, the same for every release; the last one is open and stands for 2048 to 4096."""

_MIDDLES = np.array([*((low + high - 1) / 2 for low, high in pairwise(EDGES)), 3072.0])


class LengthEstimate:
    """Public bins of words, one for a unit: that of its documents together."""

    by_label = False

    def bins(self, request: EstimateRequest) -> int:
        """Return the same for every request."""
        return len(EDGES)

    def places(self, subject: EvaluationInput, request: EstimateRequest) -> Callable[[UnitText], int | None]:
        """Return the bin of the number of words."""
        return lambda unit: _length_bin(unit.text)

    def result(
        self, subject: EvaluationInput, request: EstimateRequest, noisy: NoisyHistogramEstimate | None
    ) -> MetricResult:
        """Return the mean words of a private unit and of a released text, and the distance between both histograms."""
        lengths = [len(words(text.text)) for text in subject.texts]
        mean: dict[str, MetricValue] = figure("mean_words", None, None, 1)
        distance: dict[str, MetricValue] = figure("total_variation", None, None)
        note = "not measured"
        if noisy is not None:
            about = noisy.figure(lambda counts: shares(counts) @ _MIDDLES, (float(_MIDDLES[0]), float(_MIDDLES[-1])))
            mean = figure("mean_words", *about, 1)
            note = f"about {about[0]:.0f} words a unit"
            if lengths:
                released = histogram_of([_bin_of(count) for count in lengths], len(EDGES))
                distance = figure("total_variation", *noisy.total_variation(released))
                note += f", {np.mean(lengths):.0f} a released text"
        return MetricResult(
            name=NAME,
            exposure="charged",
            values={
                **mean,
                "released_mean_words": rounded(float(np.mean(lengths)), 1) if lengths else None,
                **distance,
            },
            source="noisy histogram: Canonne, Kamath, Steinke, arXiv 2004.00010; total variation distance",
            method="words of a unit's documents together, by a charged noisy histogram of public bins (a bin counts"
            f" as its middle, the last one as 3072); {NOISE_INTERVAL}",
            line=note,
        )


def _length_bin(text: str) -> int:
    return _bin_of(len(words(text)))


def _bin_of(count: int) -> int:
    return int(np.searchsorted(EDGES, count, side="right")) - 1
