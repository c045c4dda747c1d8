"""Run of URANIA's stages: the input, the release and the post-processing of each.

Everything after a release is a function of its JSON in the journal and of public values, so a run that continues after
a kill computes it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from models_db.values.canonical_json import Json
from tasks.analysis.clustering.coreset import Centroids
from tasks.analysis.keywords.assign import IndexKeywordAssigner, KeywordAssigner
from tasks.analysis.keywords.assign_with_model import ModelKeywordAssigner
from tasks.analysis.keywords.denoise import closeness_of, estimated
from tasks.analysis.keywords.keyword_set import KEEP_SCHEMA, by_coverage, refiner_for
from tasks.common.array_encoding import array_of, text_of
from tasks.decoding.run_context import PlannedStageBudget, RunContext
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.mechanisms.counts.set_histogram import bound_contributions
from tasks.systems.insights.cluster_descriptions import SCHEMAS, describe, is_plain
from tasks.systems.insights.hierarchy import Keyword, Node, cluster_node, hierarchy
from tasks.systems.insights.private_units import PrivateUnits, Tools, as_text
from tasks.systems.urania.stages import ChosenKeywords, Stages, UraniaParameters, in_turn, supported
from tasks.text.public_topics import PUBLIC_TOPICS, topic_words
from tasks.text.words import roots
from tasks.values.plan import Plan
from tasks.values.results import Facets, Generated, Insight, Origin


@dataclass(frozen=True)
class UraniaRun:
    """The stages, computed on first use and released once."""

    parameters: UraniaParameters
    stages: Stages
    plan: Plan
    context: RunContext
    tools: Tools
    choose: KeywordAssigner

    @classmethod
    def of(cls, parameters: UraniaParameters, stages: Stages, plan: Plan, context: RunContext) -> "UraniaRun":
        """Build the run; nothing is read or spent yet.

        Raises:
            As `Tools.of`.
        """
        tools = Tools.of(parameters, plan.blocks, context, (*SCHEMAS, KEEP_SCHEMA))
        return cls(parameters, stages, plan, context, tools, _keyword_assigner(parameters, context))

    @property
    def units(self) -> PrivateUnits:
        """The units. PRIVATE."""
        return self.tools.units

    def generated(self) -> Generated:
        """Run all stages and return the insights, parents before their children.

        Raises:
            StepLost: an interrupted run has paid for a stage and lost it.
        """
        self.context.begin_steps(self.plan)
        # Every stage takes place, for any released values before it: the armed amounts are public.
        _ = self.keywords, self.centres, self.sizes, self.chosen
        insights = self._insights()
        figures = {
            "clusters_released": len(self.centres),
            "clusters_kept": len(self.kept),
            "descriptions_replaced": sum(is_plain(node.topic) for node in insights),
            "clusters_unnamed": sum(node.clusters for node in insights if not node.level and not node.keywords),
        }
        if self.parameters.keywords.charged:
            figures["keywords_released"] = len(self.keywords)
            figures["public_topics_added"] = len(self.chosen[0]) - len(self.keywords)
        texts = tuple(as_text(insight, self.context) for insight in insights)
        return Generated(texts, {name: str(value) for name, value in figures.items()})

    @cached_property
    def keywords(self) -> list[str]:
        """The closed set, in its public order; empty if nothing could be released."""
        refine = refiner_for(self.parameters.keywords, self.tools.write, self.tools.embed)
        return self.stages.keywords.draw(self._stage_budget("keywords", 0), self._facets, self.context.rng, refine)

    @cached_property
    def closed(self) -> list[str]:
        """The keywords that units choose from: the released set, filled up with public words where it is too small.

        The words are those of the public topics that are nearest to the released centres of kept clusters, of each
        centre in turn; without any such centre they are those that represent all public words. Either way they are a
        function of released values.
        """
        missing = self.parameters.keywords.size - len(self.keywords) if self.parameters.keywords.charged else 0
        released = frozenset[str]().union(*map(roots, self.keywords))
        unused = [word for word in topic_words() if not roots(word) <= released]
        if missing <= 0 or not self.kept:
            return [*self.keywords, *(by_coverage(self.tools.embed)(unused, missing) if missing > 0 else [])]
        closeness = closeness_of(self.centres.vectors[self.kept], points_of(self.tools.embed, unused))
        return [*self.keywords, *(unused[number] for number in in_turn(closeness, missing))]

    @cached_property
    def centres(self) -> Centroids:
        """The released centres."""
        clusterer, rng = self.stages.clusterer, self.context.rng
        public = points_of(self.tools.embed, [*self.keywords, *PUBLIC_TOPICS])

        def draw(points: NDArray[np.float32]) -> Json:
            # The centres are stored, not the draw: they would differ where public points have other bits.
            vectors = clusterer.centres(clusterer.draw(points, public, rng), public).vectors
            return {"width": vectors.shape[1], "vectors": text_of(vectors, "<f4")}

        first = len(self.stages.keywords.events)
        released = self._stage_budget("clusters", first).release(0, lambda: self.units.points, draw)
        fields = cast("dict[str, Any]", released)
        return Centroids(array_of(fields["vectors"], "<f4").reshape(-1, fields["width"]))

    @cached_property
    def clusters(self) -> NDArray[np.int64]:
        """The cluster of each unit, int64 [units], -1 for a unit without a point. PRIVATE."""
        points = self.units.points
        return np.where(np.isfinite(points).all(axis=1), self.centres.assign(points), -1)

    @cached_property
    def sizes(self) -> list[int]:
        """The noisy number of units of each planned cluster."""
        histogram = self.stages.sizes
        released = self._stage_budget("sizes", len(self.stages.events) - 2).release(
            0, self._counts, lambda counts: _counts_to_json(histogram.draw(counts, self.context.rng))
        )
        return cast("list[int]", released)

    @cached_property
    def chosen(self) -> tuple[list[str], list[int]]:
        """The offered keywords, and the noisy number of units of each planned cluster that chose each of them."""
        histogram = self.stages.histogram

        def draw(counts: list[int]) -> Json:
            return {"keywords": list(self.closed), "counts": _counts_to_json(histogram.draw(counts, self.context.rng))}

        released = self._stage_budget("histogram", len(self.stages.events) - 1).release(0, self._choices, draw)
        fields = cast("dict[str, Any]", released)
        return fields["keywords"], fields["counts"]

    @property
    def kept(self) -> list[int]:
        """Numbers of the clusters that are large enough, by their noisy sizes."""
        least = self.stages.smallest(self.parameters)
        return [number for number in range(len(self.centres)) if self.sizes[number] >= least]

    @property
    def _bins(self) -> ChosenKeywords:
        return ChosenKeywords(self.parameters.clusters.count, self.parameters.keywords.size)

    @property
    def keyword_lists(self) -> list[list[Keyword]]:
        """The supported keywords of each kept cluster, those with the best evidence first."""
        words, counts = self.chosen
        noisy = self._bins.table(counts, len(words))[self.kept]
        ranking = noisy if self.parameters.evidence == "counts" else self._denoise_counts(noisy, words)
        rule, most = self.stages.support(self.parameters), self.parameters.keywords_of_a_cluster
        return [
            [
                Keyword(words[number], int(row[number]), self._keyword_origin(words[number]))
                for number in supported(row, ranks, self.sizes[cluster], rule, words)[:most]
            ]
            for cluster, row, ranks in zip(self.kept, noisy, ranking, strict=True)
        ]

    def _keyword_origin(self, word: str) -> Origin:
        """Return where a keyword comes from; a released one that the request has, too, is the request's."""
        if word in self.parameters.keywords.words:
            return "request"
        return "selected" if word in self.keywords else "built_in"

    def _denoise_counts(self, noisy: NDArray[np.float64], keywords: Sequence[str]) -> NDArray[np.float64]:
        sizes = np.array([self.sizes[number] for number in self.kept], np.float64)
        closeness = closeness_of(self.centres.vectors[self.kept], points_of(self.tools.embed, keywords))
        return estimated(noisy, sizes, closeness, self.stages.histogram.variance())

    def cluster_nodes(self) -> list[Node]:
        """Return the kept clusters with their names; their numbers are places among the kept ones."""
        lists = self.keyword_lists
        topics = describe(self.tools.write, [[keyword.word for keyword in own] for own in lists])
        sizes = (self.sizes[number] for number in self.kept)
        return [cluster_node(*node) for node in zip(range(len(lists)), topics, lists, sizes, strict=True)]

    def _insights(self) -> list[Insight]:
        rule = self.stages.support(self.parameters)
        return hierarchy(self.cluster_nodes(), self.tools.embed, self.parameters.hierarchy, rule)

    def _counts(self) -> list[int]:
        """Count the units of each planned cluster. PRIVATE."""
        clusters = self.clusters
        counts: list[int] = np.bincount(clusters[clusters >= 0], minlength=self.parameters.clusters.count).tolist()
        return counts

    def _choices(self) -> list[int]:
        """Count the units that chose each keyword in each cluster. PRIVATE."""
        sampled = np.flatnonzero(self.units.sampled(self.parameters.sampled) & (self.clusters >= 0))
        chosen = self.choose(
            [self.units.facets[number] for number in sampled],
            self.units.points[sampled],
            self.closed,
            points_of(self.tools.embed, self.closed),
            self.parameters.keywords_of_a_unit,
        )
        # For any assigner, the noise covers this many keywords of a unit.
        bounded = [bound_contributions(choice, self.parameters.keywords_of_a_unit) for choice in chosen]
        return self._bins.counts(self.clusters[sampled], bounded)

    def _facets(self) -> Sequence[Facets]:
        return self.units.facets

    def _stage_budget(self, name: str, first: int) -> PlannedStageBudget:
        return PlannedStageBudget(self.context, name, first)


def _counts_to_json(counts: list[int]) -> Json:
    return list(counts)


def _keyword_assigner(parameters: UraniaParameters, context: RunContext) -> KeywordAssigner:
    if parameters.choice == "embedding":
        return IndexKeywordAssigner()
    return ModelKeywordAssigner.of(
        context.engine, context.in_tenths("choosing keywords"), parameters.keywords_of_a_unit
    )
