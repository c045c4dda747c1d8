"""Audits of a whole release of insights (PRIVACY §8): all stages together tell no more of a unit than is claimed.

Every stage is run as in a release, over a corpus with one person more and one less, and everything that it writes down
is weighed into one figure: whether that person's word was released, how near a centre came, and the noisy counts of the
cluster and of the keywords that the person is in, each by how little noise it has. Mechanisms by themselves, and each
broken in its own way, are audited in the files beside this one; here it is what lies between them. The broken twin
counts a person once for each document, as a pipeline does that looks at records.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from models_db.home import ProjectHome
from models_db.values.amounts import DELTA_UNIT, Amount, total_amount
from tasks.accounting.zcdp import epsilon_of, release_amount
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.corpus.store import Lot, PlacedUnit, UnitDocuments
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.systems.insights.private_units import PrivateUnits, Tools
from tasks.systems.urania import Urania
from tasks.systems.urania import run as urania_run
from tasks.systems.urania.run import UraniaRun
from tasks.systems.urania.stages import Stages, UraniaParameters
from tasks.values.plan import Plan, PlanInputs
from tests.tiny_embedder import KeepingLetters
from tests.unit.tasks.systems.workshop import Workshop, store

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

CONFIDENCE, DELTA, TRIALS = 0.9999, 0.03, 2000
CLAIM = 1.0
OWN = tuple(" ".join(["zebra"] * times) for times in range(1, 13))
"""What the person has said, one document each."""
PUBLIC = {"method": "public", "words": ["kettle", "violin", "zebra", "tomato"], "size": 4}
PRIVATE = {"method": "tfidf", "size": 4, "per_unit": 1, "tokens_per_unit": 2}


class RowADocument(PrivateUnits):
    """Broken: whoever has said twelve things is twelve rows."""

    def lots(self) -> Iterator[Lot]:
        for lot in super().lots():
            yield replace(lot, units=[own for placed in lot.units for own in self._documents(placed)])

    @staticmethod
    def _documents(placed: PlacedUnit) -> list[PlacedUnit]:
        row = placed.unit
        return [replace(placed, unit=UnitDocuments(row.unit, text)) for text in row.text.split("\n\n")]


@dataclass(frozen=True)
class Release:
    """A request of insights, and the stages that its budget buys."""

    wanted: UraniaParameters
    plan: Plan
    stages: Stages

    @classmethod
    def of(cls, keywords: dict[str, Any], method: str) -> "Release":
        clusters = {"count": 3, "method": method, **({"depth": 3} if method == "lsh_tree" else {})}
        wanted = UraniaParameters.model_validate(
            {"keywords": keywords, "clusters": clusters, "keywords_of_a_unit": 2, "delta_share": "0.3"}
        )
        amount = release_amount("1", str(DELTA), Urania().failure_delta_share(wanted))
        plan = Urania().plan(PlanInputs(amount, wanted, 1, None, governed=True))
        return cls(wanted, plan, Stages.of(wanted, plan.amount))

    def samples(self, units: PrivateUnits, own: PrivateUnits, trials: int) -> list[float]:
        """What an attacker who knows the person makes of each release."""
        seen: list[tuple[int, int]] = []
        context = Workshop(units.context.corpus).context(OS_RANDOM, arm=lambda *step: seen.append(step))
        tools = Tools(units.embed, None, units)  # type: ignore[arg-type]
        found = [
            self._weighed(UraniaRun(self.wanted, self.stages, self.plan, context, tools, IndexKeywordAssigner()), own)
            for _ in range(trials)
        ]
        assert seen == [(number, 0) for number in range(len(self.stages.events))] * trials
        return found

    def _weighed(self, run: UraniaRun, own: PrivateUnits) -> float:
        _ = run.keywords, run.centres, run.sizes, run.chosen  # in the order in which they are paid for
        point = own.points[:1]
        (place,) = run.centres.assign(point)
        named, counts = run.chosen
        near = points_of(own.embed, named)
        (chosen,) = IndexKeywordAssigner()(own.facets[:1], point, named, near, self.wanted.keywords_of_a_unit)
        bins = [counts[place * self.wanted.keywords.size + number] for number in chosen]
        sizes = run.sizes[place] / self.stages.sizes.noise.sigma
        return (
            0.5 * ("zebra" in run.keywords if self.wanted.keywords.charged else 0)
            + 0.1 * float((run.centres.vectors @ point[0]).max())
            + float(sizes / self.stages.sizes.noise.sigma)
            + sum(bins) / self.stages.histogram.variance()
        )


@pytest.fixture
def units_of(tmp_path: Path) -> Callable[..., PrivateUnits]:
    """The units of a corpus of people who say these things."""
    embed, extract = KeepingLetters(), extractor_for(FacetSettings())

    def made(people: list[tuple[str, ...]], kind: type[PrivateUnits] = PrivateUnits) -> PrivateUnits:
        notes = [{"patient_id": f"unit {number}", "text": text} for number, said in enumerate(people) for text in said]
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        corpus = store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes)
        return kind(Workshop(corpus).context(OS_RANDOM), (0,), extract, embed)

    return made


@pytest.fixture(autouse=True)
def few_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clusterer that starts from hundreds of public points takes longer, and tells no more."""
    topics = ("kettle", "violin", "zebra", "oven", "music", "animal", "tax")
    monkeypatch.setattr(urania_run, "PUBLIC_TOPICS", topics)
    monkeypatch.setattr(urania_run, "topic_words", lambda: list(topics))


def bound(
    release: Release, others: list[tuple[str, ...]], units_of: Any, kind: type[PrivateUnits] = PrivateUnits
) -> float:
    own = units_of([OWN])
    seen, unseen = (release.samples(units_of(people, kind), own, TRIALS) for people in ([*others, OWN], others))
    return epsilon_lower_bound(seen, unseen, DELTA, CONFIDENCE).epsilon


def crowd(release: Release) -> list[tuple[str, ...]]:
    """Others of whom some say the same, so many that one more decides whether their word is released."""
    selecting = release.stages.keywords.selecting
    alike = selecting.selection.even_count() - 1 if selecting else 0
    return [("kettle kettle",)] * 12 + [("violin",)] * 12 + [("zebra zebra",)] * alike


@pytest.mark.parametrize(
    ("keywords", "method"),
    [(PUBLIC, "anchored"), (PUBLIC, "lsh_tree"), (PUBLIC, "lloyd"), (PRIVATE, "anchored")],
    ids=["anchored", "lsh_tree", "lloyd", "tfidf"],
)
def test_a_release_tells_no_more_of_a_person_than_is_claimed(units_of, keywords, method):
    release = Release.of(keywords, method)
    spent: Amount = total_amount([event.loss for event in release.stages.events])
    assert epsilon_of(spent.rho, str(DELTA - spent.delta / DELTA_UNIT)) <= CLAIM
    assert bound(release, crowd(release), units_of) < CLAIM


def test_a_person_who_counts_once_for_each_document_exceeds_the_claim(units_of):
    release = Release.of(PUBLIC, "anchored")
    assert bound(release, crowd(release), units_of, RowADocument) > CLAIM
