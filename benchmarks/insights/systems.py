"""URANIA and SIMPLE-CLIO stage by stage, each stage with an epsilon of its own, on public data without a ledger.

The stages are those of a release (`tasks.systems.urania.run`, `clio_run`); what differs is who pays. The paper gives
each stage its own epsilon, and two readings of that are measured:

    matched   a stage gets rho_of(epsilon, 1e-6): it costs (epsilon, 1e-6), whatever mechanism it is
    paper     clustering gets that; the others, which in the paper are epsilon-DP, get what this platform would charge
              for their mechanism at that epsilon: epsilon tanh(epsilon/2k) for k = 5 keywords a unit, k = 1 for sizes

How keywords are selected is the default of a request (`KeywordSettings.selection`), whatever the reading. Selecting
keywords may fail with 1e-6 besides. `infinity` is the same pipeline with so much rho that noise is nothing.
"""

import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.controls import picked
from benchmarks.insights.data import Unit
from benchmarks.insights.metrics import known_coverage
from models_db.values.amounts import Amount
from tasks.accounting.zcdp import independent_coordinates, rho_of
from tasks.analysis.clustering.clusterers import clusterer_for
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.analysis.facets.extractor import Extractor
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.analysis.keywords.keyword_set import keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.decoding.structured_output import Write
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.mechanisms.core.rng import OperatingSystemRandom
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.mechanisms.counts.set_histogram import calibrate_set_histogram
from tasks.systems.insights.cluster_descriptions import plain_topic
from tasks.systems.insights.hierarchy import Keyword
from tasks.systems.insights.parameters import HierarchySettings
from tasks.systems.insights.private_units import Tools
from tasks.systems.simple_clio.parameters import ClioParameters
from tasks.systems.simple_clio.run import ClioRun
from tasks.systems.urania.run import UraniaRun
from tasks.systems.urania.stages import ChosenKeywords, Stages, UraniaParameters
from tasks.text.public_models import Embedder, Pieces
from tasks.values.results import Facets, Insight

DELTA = Decimal("1e-6")
LEVELS: Mapping[str, tuple[str, str]] = {
    "very low": ("10", "5"),
    "low": ("8", "4"),
    "medium": ("4", "2"),
    "high": ("2", "1"),
}
"""The paper's four privacy levels: epsilon of clustering and of the keyword histogram; sizes and keywords get 1."""
INFINITY = "infinity"
_NO_NOISE = 10**18  # rho in 1e-12: a million
_PAPERS_KEYWORDS = 5  # of a unit
_ONE_LEVEL = HierarchySettings(levels=1)


@dataclass(frozen=True)
class Asked:
    """What one cell of URANIA is made with.

    Attributes:
        level: one of LEVELS, or INFINITY.
        method: the clusterer.
        keywords: which keyword set.
        count: k, how many clusters.
        reading: how an epsilon becomes rho.
        evidence: which keywords describe a cluster.
    """

    level: str
    method: str
    keywords: KeywordSettings
    count: int
    reading: str = "matched"
    evidence: Literal["believed", "counts"] = "believed"

    @property
    def parameters(self) -> UraniaParameters:
        """As a request would say it."""
        clusters = ClusterSettings.model_validate({"method": self.method, "count": self.count})
        return UraniaParameters(
            clusters=clusters,
            keywords=self.keywords,
            keywords_of_a_unit=_PAPERS_KEYWORDS,
            hierarchy=_ONE_LEVEL,
            evidence=self.evidence,
        )

    @property
    def stages(self) -> Stages:
        """What the level's epsilons buy."""
        wanted, rho = self.parameters, self.rho
        bins = ChosenKeywords(self.count, self.keywords.size).bins
        return Stages(
            keyword_set_for(self.keywords, Amount(rho["keywords"], int(DELTA * 10**18))),
            clusterer_for(wanted.clusters, rho["clusters"]),
            calibrate_histogram(rho["sizes"], self.count),
            calibrate_set_histogram(rho["histogram"], bins, wanted.keywords_of_a_unit, wanted.noise),
        )

    @property
    def rho(self) -> dict[str, int]:
        """Of each stage, in units of 1e-12."""
        if self.level == INFINITY:
            return dict.fromkeys(("clusters", "histogram", "sizes", "keywords"), _NO_NOISE)
        clusters, histogram = LEVELS[self.level]
        epsilons = {"clusters": clusters, "histogram": histogram, "sizes": "1", "keywords": "1"}
        found = {name: rho_of(epsilon, DELTA) for name, epsilon in epsilons.items()}
        if self.reading == "paper":
            most = {"histogram": _PAPERS_KEYWORDS, "sizes": 1, "keywords": _PAPERS_KEYWORDS}
            found |= {name: independent_coordinates(epsilons[name], k).rho for name, k in most.items()}
        return found


@dataclass
class Clock:
    """Seconds of each stage, by the wall and of work."""

    wall: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, do: Callable[[], Any]) -> Any:
        """What `do` returns, and what it took."""
        started, work = time.monotonic(), time.process_time()
        made = do()
        self.wall[name] = round(self.wall.get(name, 0) + time.monotonic() - started, 3)
        self.work[name] = round(self.work.get(name, 0) + time.process_time() - work, 3)
        return made


@dataclass(frozen=True)
class InMemoryBench:
    """What the stages ask of a bench; each release goes through JSON, as in a journal, and is paid by nobody."""

    clock: Clock
    rng: Any = field(default_factory=OperatingSystemRandom)
    steps: Any = field(default_factory=lambda: SimpleNamespace(paid=True))

    def release(self, name: str, numbers: Sequence[int], prepare: Callable[[], Any], draw: Callable[[Any], Any]) -> Any:
        """As `RunContext.release`."""
        prepared = self.clock.time(f"{name} read", prepare)
        return json.loads(json.dumps(self.clock.time(f"{name} drawn", lambda: draw(prepared))))


@dataclass(frozen=True)
class Material:
    """Units with their facets and points, in place of `PrivateUnits`.

    Attributes:
        points: float32 [n, d], NaN where there is nothing to embed.
    """

    units: Sequence[Unit]
    facets: Sequence[Facets]
    points: NDArray[np.float32]

    @classmethod
    def of(cls, units: Sequence[Unit], extract: Extractor, embed: Embedder, clock: Clock) -> "Material":
        """Worked out of each unit by itself."""
        facets = clock.time("facets", lambda: extract([unit.text for unit in units]))
        points = clock.time("points", lambda: points_of(embed, [each.summary for each in facets]))
        points[[not each.summary.strip() for each in facets]] = np.nan
        return cls(units, facets, points)

    def sampled(self, share: Decimal) -> NDArray[np.bool_]:
        """All of them: nothing here asks for fewer."""
        if share != 1:
            raise ValueError("the benchmark lets all units choose keywords")
        return np.ones(len(self.units), bool)


@dataclass
class KeepingPoints:
    """An embedder that works out each public text once; for keywords and topics, not for units."""

    embed: Any
    known: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.embed.name)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if missing := [text for text in dict.fromkeys(texts) if text not in self.known]:
            self.known.update(zip(missing, self.embed(missing), strict=True))
        return np.stack([self.known[text] for text in texts]) if texts else self.embed([])

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        pieces: Sequence[Pieces] = self.embed.pieces(texts)
        return pieces


def urania(asked: Asked, material: Material, embed: Embedder, write: Write | None) -> dict[str, Any]:
    """One release: what it says, and what a benchmark may know besides.

    Args:
        write: the public model; None for descriptions in their plain form, a list of keywords.
    """
    clock = Clock()
    bench = InMemoryBench(clock)
    tools = Tools(embed, write or nobody, material)  # type: ignore[arg-type]  # they have what is asked of them
    stages = clock.time("planned", lambda: asked.stages)
    run = UraniaRun(asked.parameters, stages, None, bench, tools, IndexKeywordAssigner())  # type: ignore[arg-type]
    _ = run.keywords, run.centres, run.sizes, run.chosen
    found = clock.time("described", run._insights)
    members = [np.flatnonzero(run.clusters == number) for number in run.kept]
    by_chance = _by_chance(run)
    return {
        "insights": [_row(each) for each in sorted(found, key=lambda each: each.number)],
        "by_chance": [", ".join(own) for own in by_chance],
        "clusters": {
            "released": len(run.centres),
            "used": len(np.unique(run.clusters[run.clusters >= 0])),
            "kept": len(run.kept),
            "kept_with_units": sum(len(some) > 0 for some in members),
            "smallest": stages.smallest(asked.parameters),
            "units_kept": int(sum(map(len, members))),
        },
        "keywords": {"released": len(run.keywords), "closed": run.chosen[0]},
        "cost": _cost(material.points, run.clusters, run.centres.vectors),
        "known": _known_share(run, members, material, by_chance),
        "noise": {
            "keyword count": round(stages.histogram.variance() ** 0.5, 2),
            "size": round(float(stages.sizes.noise.sigma), 2),
        },
        "rho": {name: str(amount) for name, amount in asked.rho.items()},
        **_took(clock),
    }


def simple_clio(count: int, material: Material, embed: Embedder, write: Write | None) -> dict[str, Any]:
    """The reference without privacy; without a model its clusters are described by their most frequent keywords."""
    clock = Clock()
    wanted = ClioParameters(count=count, hierarchy=_ONE_LEVEL)
    tools = Tools(embed, write or nobody, material)  # type: ignore[arg-type]  # they have what is asked of them
    run = ClioRun(wanted, InMemoryBench(clock), tools)  # type: ignore[arg-type]
    members = clock.time("clusters", lambda: run.clusters)
    if write is None:
        keywords = [_words(run._keywords(some.inside)) for some in members]
        rows = [_topic(plain_topic(own), own, len(some.inside)) for own, some in zip(keywords, members, strict=True)]
    else:
        rows = [_row(each) for each in clock.time("described", run._insights)]
    labels = np.full(len(material.units), -1)
    for number, some in enumerate(members):
        labels[run._units_with_point[some.inside]] = number
    kept = [
        (row["keywords"], _topics_of(material, run._units_with_point[some.inside]))
        for row, some in zip(rows, members, strict=write is None)
    ]
    kept = kept if write is None else []  # the model's are in another order, and those of one name are one
    centres = np.stack([material.points[labels == number].mean(0) for number in range(len(members))])
    return {
        "insights": rows,
        "clusters": {name: len(members) for name in ("released", "used", "kept", "kept_with_units")},
        "cost": _cost(material.points, labels, centres),
        "known": known_coverage(kept) if kept and material.units[0].topic else None,
        **_took(clock),
    }


def nobody(prompts: Sequence[str], schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A model that never says anything: every description has its plain form."""
    return [{} for _ in prompts]


def _row(insight: Insight) -> dict[str, Any]:
    return _topic(insight.topic, insight.keywords, insight.size) | {"clusters": insight.clusters}


def _topic(topic: Any, keywords: Sequence[str], size: int | None) -> dict[str, Any]:
    plain = bool(getattr(topic, "plain", False))
    text = ", ".join(keywords) if plain else f"{topic.name}. {topic.description}"
    return {"text": text, "plain": plain, "keywords": list(keywords), "size": size}


def _by_chance(run: UraniaRun) -> list[list[str]]:
    """As many lists of keywords as there are insights, as long as theirs, drawn at random from the same set."""
    named = list(run.chosen[0])
    return [picked(named, len(own), place) for place, own in enumerate(run.keyword_lists)]


def _known_share(
    run: UraniaRun, members: Sequence[NDArray[np.int64]], material: Material, by_chance: Sequence[Sequence[str]]
) -> dict[str, float] | None:
    """Which known topics are told about; `named_by_chance` is the control, by the same number of random keywords."""
    if not material.units or material.units[0].topic is None:
        return None
    topics = [_topics_of(material, some) for some in members]
    control = known_coverage(list(zip(by_chance, topics, strict=True)))["named"]
    return {
        **known_coverage(list(zip(map(_words, run.keyword_lists), topics, strict=True))),
        "named_by_chance": control,
    }


def _words(keywords: Sequence[Keyword]) -> list[str]:
    return [keyword.word for keyword in keywords]


def _topics_of(material: Material, some: NDArray[np.int64]) -> list[str | None]:
    return [material.units[place].topic for place in some]


def _cost(points: NDArray[np.float32], labels: NDArray[np.int64], centres: NDArray[np.float32]) -> float | None:
    """Mean squared distance of units with their own centre."""
    placed = labels >= 0
    if not placed.any():
        return None
    gaps = points[placed].astype(np.float64) - centres[labels[placed]]
    return float((gaps**2).sum(1).mean())


def _took(clock: Clock) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": clock.wall, "work": clock.work, "peak_mib": round(peak)}
