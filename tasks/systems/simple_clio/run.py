"""Run of SIMPLE-CLIO on public data: units, clusters, and descriptions from their summaries.

Nothing here is protected. Centres start from a fixed seed, because the data is public.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.clustering.kmeans import k_means, nearest_centre
from tasks.decoding.run_context import RunContext
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.systems.insights.cluster_descriptions import SCHEMAS, Statements, describe, describe_statements, is_plain
from tasks.systems.insights.hierarchy import Keyword, Node, cluster_node, hierarchy
from tasks.systems.insights.private_units import Tools, as_text
from tasks.systems.simple_clio.parameters import ClioParameters
from tasks.values.plan import Plan
from tasks.values.results import Generated, Insight, Topic

SEED = 0


@dataclass(frozen=True)
class Members:
    """One cluster, by places in the list of all units that have a point.

    Attributes:
        inside: its units, in the keyed order of the corpus.
        nearest: units outside, the nearest to its centre first.
    """

    inside: NDArray[np.int64]
    nearest: NDArray[np.int64]


@dataclass(frozen=True)
class ClioRun:
    """State of a run; units are read on first use."""

    parameters: ClioParameters
    context: RunContext
    tools: Tools

    @classmethod
    def of(cls, parameters: ClioParameters, plan: Plan, context: RunContext) -> "ClioRun":
        """Build the run with its public models; a model that cannot do its part is refused here.

        Raises:
            ModelNotPulled, ContextTooLong, NoChatTemplate, TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall.
        """
        return cls(parameters, context, Tools.of(parameters, plan.blocks, context, SCHEMAS))

    def generated(self) -> Generated:
        """Return the insights, clusters and wider topics, each with its description as text."""
        insights = self._insights()
        replaced = sum(is_plain(insight.topic) for insight in insights)
        return Generated(
            tuple(as_text(insight, self.context) for insight in insights), {"descriptions_replaced": str(replaced)}
        )

    @cached_property
    def clusters(self) -> list[Members]:
        """Non-empty clusters, the largest first; among equals the one whose first unit comes first."""
        points = np.asarray(self.tools.units.points[self._units_with_point], np.float64)
        if not len(points):
            return []
        centres = k_means(points, min(len(points), self.parameters.clusters_of(len(points))), SEED)
        cluster = nearest_centre(points, centres)
        members = (self._members(points, centres[number], cluster == number) for number in range(len(centres)))
        return sorted(
            (group for group in members if len(group.inside)), key=lambda group: (-len(group.inside), group.inside[0])
        )

    def _members(self, points: NDArray[np.float64], centre: NDArray[np.float64], inside: NDArray[np.bool_]) -> Members:
        outside = np.flatnonzero(~inside)
        distances = ((points[outside] - centre) ** 2).sum(1)
        nearest = outside[np.argsort(distances, kind="stable")[: self.parameters.contrasting]]
        return Members(np.flatnonzero(inside), nearest)

    @cached_property
    def _units_with_point(self) -> NDArray[np.int64]:
        """Units that have a point; the others have no facets."""
        return np.flatnonzero(np.isfinite(self.tools.units.points).all(1))

    def cluster_nodes(self) -> list[Node]:
        """Return the clusters with their names and exact figures."""
        lists = [self._keywords(cluster.inside) for cluster in self.clusters]
        topics = self._topics([[keyword.word for keyword in own] for own in lists])
        sizes = (len(cluster.inside) for cluster in self.clusters)
        return [cluster_node(*node) for node in zip(range(len(lists)), topics, lists, sizes, strict=True)]

    def _insights(self) -> list[Insight]:
        return hierarchy(self.cluster_nodes(), partial(points_of, self.tools.embed), self.parameters.hierarchy)

    def _topics(self, keywords: Sequence[Sequence[str]]) -> list[Topic]:
        """Describe clusters from summaries; clusters without a usable answer, from their keywords."""
        # The keyed order of the corpus has nothing to do with what units say: the first units of a cluster are a
        # random sample of it.
        statements = [
            Statements(self._summaries(cluster.inside[: self.parameters.samples]), self._summaries(cluster.nearest))
            for cluster in self.clusters
        ]
        topics = describe_statements(self.tools.write, statements)
        missing = [number for number, topic in enumerate(topics) if is_plain(topic)]
        for number, topic in zip(missing, describe(self.tools.write, [keywords[n] for n in missing]), strict=True):
            topics[number] = topic
        return topics

    def _summaries(self, places: NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(self.tools.units.facets[number].summary for number in self._units_with_point[places])

    def _keywords(self, places: NDArray[np.int64]) -> tuple[Keyword, ...]:
        """Return the most frequent keywords, each counted once per unit; ties in the order of the alphabet."""
        counted = Counter(
            word for number in self._units_with_point[places] for word in set(self.tools.units.facets[number].keywords)
        )
        frequent = sorted(counted, key=lambda word: (-counted[word], word))
        return tuple(Keyword(word, counted[word]) for word in frequent[: self.parameters.keywords_of_a_cluster])
