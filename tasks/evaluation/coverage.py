"""`dp_coverage`, a charged metric: how well the released texts cover the private units, and the units the texts.

Centres are made of half the released texts. Each unit votes once: for its nearest centre, or for "nowhere near", if it
is farther from it than nearly all texts of the other half. What the votes say is charged; centres, radius and the
released texts' own places are post-processing of what was released before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from models_db.errors import UsageError
from tasks.analysis.clustering.kmeans import k_means
from tasks.evaluation.algorithms import SCALING, frontier_area
from tasks.evaluation.charged import (
    NOISE_INTERVAL,
    SHARE,
    EstimateRequest,
    NoisyHistogramEstimate,
    UnitText,
    histogram_of,
    shares,
    texts_of,
)
from tasks.evaluation.evaluation_input import EvaluationInput, embedder_of, figure, points
from tasks.inference.embeddings.unit_embeddings import without_cache
from tasks.text.public_models import Embedder, Points
from tasks.values.results import MetricResult, MetricValue

NAME = "dp_coverage"
MOST_CENTRES = 16
TEXTS_A_CENTRE = 4
FEWEST_TEXTS = 16
"""Below that the radius, from half of them, is a guess, and budget would be spent on it."""
WITHIN = 0.95
"""The share of released texts that lie within the radius."""
PRESENT = 0.01
"""The share of units that makes a centre one of the private data's; below it noise would."""

_SEED = 0


@dataclass(frozen=True)
class Map:
    """Cluster centres of the released texts, and their radius.

    Attributes:
        centres: [k, d].
        radius: largest distance of a covered point from its nearest centre.
        embed: embedder of the points.
    """

    centres: Points
    radius: float
    embed: Embedder

    @classmethod
    def of(cls, subject: EvaluationInput, count: int) -> "Map":
        """`count` centres of the released texts; some are the same where there are fewer different texts.

        Every other text makes the centres, and the others the radius: a text is nearer to a centre that was made of
        it than any new one, however alike, would be.
        """
        embed = embedder_of(subject)
        texts = points(embed, list(texts_of(subject)) or [""])
        centres = k_means(texts[::2], count, _SEED)
        others = texts[1::2] if len(texts) > 1 else texts
        return cls(centres, float(np.quantile(_distances(others, centres).min(1), WITHIN)), embed)

    def place(self, text: str) -> int:
        """Return the number of a text's nearest centre, or of the last bin, "nowhere near". One text at a time."""
        distances = _distances(points(self.embed, [text]), self.centres)[0]
        nearest = int(distances.argmin())
        # A hair's breadth, because the text that is the farthest may have been read in other company before.
        return nearest if distances[nearest] <= self.radius + 1e-4 else len(self.centres)


class CoverageEstimate:
    """One bin for each centre, one for units that are near none."""

    by_label = False

    def bins(self, request: EstimateRequest) -> int:
        """Return the number of bins: one for every four texts, 16 at most, and one more.

        Raises:
            TooFewTexts: whatever the units voted, it would say nothing.
        """
        if request.samples < FEWEST_TEXTS:
            raise UsageError(
                f"`{NAME}` compares units with at least {FEWEST_TEXTS} texts, and the request asks for"
                f" {request.samples}.",
                f"Raise `parameters.samples`, or leave `{NAME}` out of `evaluation`; nothing was submitted.",
                {"samples": request.samples, "fewest": FEWEST_TEXTS},
                code="TooFewTexts",
            )
        return min(MOST_CENTRES, request.samples // TEXTS_A_CENTRE) + 1

    def places(self, subject: EvaluationInput, request: EstimateRequest) -> Callable[[UnitText], int | None]:
        """Return the bin of the unit's documents together, as far as the embedder reads.

        Units are read once and never kept: no figure of released texts is to come from a point that a unit left.
        """
        coverage_map = Map.of(subject, self.bins(request) - 1)
        alone = replace(coverage_map, embed=without_cache(coverage_map.embed))
        return lambda unit: alone.place(unit.text)

    def result(
        self, subject: EvaluationInput, request: EstimateRequest, noisy: NoisyHistogramEstimate | None
    ) -> MetricResult:
        """Share of units near released texts, share of released texts near units, and a MAUVE-like area."""
        names, note, embedder = ("near", "supported", "area"), "not measured", "an embedder"
        values: dict[str, MetricValue] = {}
        for name in names:
            values |= figure(name, None, None)
        if noisy is not None:
            coverage_map = Map.of(subject, len(noisy.counts) - 1)
            places = [coverage_map.place(text) for text in texts_of(subject)]
            released = shares(histogram_of(places, len(noisy.counts)).astype(np.float64)[None])
            embedder = coverage_map.embed.name
            near = noisy.figure(lambda counts: 1 - shares(counts)[:, -1], SHARE)
            values = {
                **figure("near", *near),
                **figure(
                    "supported", *noisy.figure(lambda counts: _supported_share(shares(counts), released[0]), SHARE)
                ),
                **figure(
                    "area", *noisy.figure(lambda counts: frontier_area(shares(counts), released), SHARE, released[0])
                ),
            }
            note = f"{near[0]:.0%} of the units are near a released text (noise: {near[1][0]:.0%} to {near[1][1]:.0%})"
        return MetricResult(
            name=NAME,
            exposure="charged",
            values=values,
            source="votes of units for centres: after Xie et al., 'Differentially Private Synthetic Data via Foundation"
            " Model APIs 2: Text', ICML 2024, and Pillutla et al., MAUVE, NeurIPS 2021",
            method=f"{embedder}; k-means centres of every other released text; a charged noisy histogram of the units'"
            f" nearest centres, with a bin for those farther away than {WITHIN:.0%} of the other texts are; `near` is"
            " the share of units at a centre, `supported` the share of released texts at centres that hold at least"
            f" {PRESENT:.0%} of the units, `area` MAUVE's frontier of both histograms, scaling {SCALING};"
            f" {NOISE_INTERVAL}",
            line=note,
        )


def _supported_share(private: NDArray[np.float64], released: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((private[:, :-1] >= PRESENT) @ released[:-1], np.float64)


def _distances(rows: Points, centres: Points) -> Points:
    return np.asarray(np.linalg.norm(rows[:, None] - centres[None], axis=2), np.float64)
