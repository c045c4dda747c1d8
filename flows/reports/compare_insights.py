"""Comparison of two published releases of insights: bundles, or releases of this home by the number of their request.

Post-processing: released rows and public facts are read, no corpus; nothing is charged and nothing is recorded.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from flows.releases.publish import find_artifact
from flows.releases.release_texts import not_insights
from flows.workspace.object_stores import open_bundle_folder
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import datasets, proposals, requests
from models_db.services.audit.stored_text import files_of, request_body
from models_db.services.queries import lists
from models_db.tables import Artifact
from models_db.values.request_state import RequestState
from models_db.values.standing_terms import differing_fields
from models_db.values.untrusted_text import escape_controls, parse_digits
from tasks.common.files import FileUnfit, read_document
from tasks.common.published_values import read_as
from tasks.object_storage.address import parse_place
from tasks.publishing.draft import rehash
from tasks.publishing.verify import open_unaltered
from tasks.release.approved_request import ApprovedRequest
from tasks.release.bundle_format import RECORD, read_insights
from tasks.release.description import wording_of
from tasks.release.record import ReleaseRecord
from tasks.release.signatures.publisher_statements import Retracted
from tasks.systems.insights.compare import (
    LEAST_PAIRS,
    InsightsComparison,
    ReleasedTopics,
    SizedTopic,
    TopicChange,
    Verdict,
    compare,
)
from tasks.systems.insights.wording import deviation_of, threshold_of
from tasks.values.results import SIZE_DEVIATION, SMALLEST_CLUSTER, Insight, ReleaseKind

_LARGEST_FIGURE: Final = 2**53
_COMPARED_FIELDS: Final = ("dataset", "mechanism", "model", "prompt", "cohorts")
"""Fields of a request that affect its topics, beside its parameters."""


@dataclass(frozen=True)
class InsightsRelease:
    """A published release of insights, as its record and rows state it.

    Attributes:
        place: the bundle, or the number of the request, as it was named.
        artifact: the digest that the publish gate approved.
        publisher: the public key of the bundle's seal; None for a release of this home.
        retracted: digests of artifacts that its publisher has retracted.
        deviation: standard deviation of a cluster's size in units; 0 if sizes are exact, None if the record does
            not state it.
        threshold: the noisy size below which clusters were left out; None if there is no threshold.
    """

    place: str
    record: ReleaseRecord
    request: ApprovedRequest
    insights: tuple[Insight, ...]
    artifact: str
    publisher: str | None
    retracted: frozenset[str]
    deviation: float | None
    threshold: int | None

    @property
    def topics(self) -> ReleasedTopics:
        """Topics to compare."""
        return ReleasedTopics(self.insights, self.deviation, self.request.population)

    def to_json(self) -> dict[str, object]:
        """Return the facts of the release that a comparison rests on."""
        return {
            "place": self.place,
            "dataset": self.record.dataset.name,
            "release": self.record.release,
            "unit": self.record.dataset.unit,
            "artifact_sha256": self.artifact,
            "topics": sum(node.level == 0 for node in self.insights),
            "size_deviation": self.deviation,
            "smallest_cluster": self.threshold,
            "population": self.request.population,
        }


@dataclass(frozen=True)
class ReleaseComparison:
    """Two releases, their differences, and notes for the reader."""

    old: InsightsRelease
    new: InsightsRelease
    result: InsightsComparison

    @cached_property
    def cautions(self) -> tuple[str, ...]:
        """Return sentences on the limits of the comparison."""
        return tuple(_cautions(self))

    def to_json(self) -> dict[str, object]:
        """Return the comparison as programs read it; figures have six significant digits."""
        result = self.result
        return {
            "old": self.old.to_json(),
            "new": self.new.to_json(),
            "levels": list(result.levels),
            "redrawn_spread": _round_figure(result.spread),
            "changes": [_change_json(change) for change in result.changes],
            "new_topics": [_topic_json(topic) for topic in result.new],
            "gone_topics": [_topic_json(topic) for topic in result.gone],
            "cautions": list(self.cautions),
        }


def compare_insights(home: ProjectHome, old: str, new: str) -> ReleaseComparison:
    """Compare two published releases of insights.

    Args:
        old, new: a bundle (a folder or s3://bucket/key), or the number of a request of this home.

    Raises:
        NoBundle, BundleAltered, ArtifactChanged, FileUnfit: a release is not here, or not as it was approved.
        RequestUnknown, WrongState: there is no such request, or it is not published.
        NotInsights, SameRelease, UnitsDiffer, Retracted: these two cannot be compared.
    """
    reader = _Reader(home)
    before, after = reader.read(old), reader.read(new)
    _require_comparable(before, after)
    return ReleaseComparison(before, after, compare(before.topics, after.topics))


def last_two(home: ProjectHome, dataset: str) -> tuple[str, str]:
    """Return the numbers of the two newest published releases of insights of a dataset, the older one first.

    Raises:
        DatasetUnknown: there is no such dataset.
        TooFewReleases: it has not two published releases of insights that are not retracted.
    """
    with open_workspace(home).database.read() as session:
        published = lists.published_requests(session, datasets.find_dataset(session, dataset).id)
        numbers = [request.id for request in published if request_body(request).get("kind") == ReleaseKind.INSIGHTS]
    if len(numbers) < 2:
        raise Refused(
            f"The dataset {dataset!r} has {len(numbers)} published release{'' if len(numbers) == 1 else 's'} of"
            " insights; a comparison needs two.",
            "`almoner release list` shows what is published and what waits at a gate.",
            {"dataset": dataset, "published": len(numbers)},
            code="TooFewReleases",
        )
    return str(numbers[1]), str(numbers[0])


@dataclass(frozen=True)
class _Reader:
    """Reads releases by their bundle or number; the ledger is opened for numbers alone, and once."""

    home: ProjectHome

    @cached_property
    def _workspace(self) -> Workspace:
        return open_workspace(self.home)

    def read(self, place: str) -> InsightsRelease:
        number = parse_digits(place)
        return self._read_bundle(place) if number is None else self._read_request(place, number)

    def _read_bundle(self, place: str) -> InsightsRelease:
        with open_bundle_folder(self.home, parse_place(place)) as folder:
            bundle = open_unaltered(folder, place)
            _require_insights(place, bundle.record)
            return _insights_release(
                place,
                bundle.record,
                bundle.insights,
                bundle.artifact,
                publisher=bundle.seal.public_key,
                retracted=bundle.revocations.revoked,
            )

    def _read_request(self, place: str, number: int) -> InsightsRelease:
        artifact = find_artifact(self._workspace, number)
        retracted = self._require_published(number, artifact)
        draft = self._workspace.home.draft(artifact.request_id, artifact.attempt)
        rehash(draft, files_of(artifact))
        record = ReleaseRecord.from_bytes(read_document(draft / RECORD))
        _require_insights(place, record)
        return _insights_release(
            place, record, tuple(read_insights(draft)), artifact.digest, publisher=None, retracted=retracted
        )

    def _require_published(self, number: int, artifact: Artifact) -> Sequence[str]:
        """Check that a release is out, and return the digests of all retracted artifacts of this ledger.

        Raises:
            Retracted, WrongState: it is not.
        """
        with self._workspace.database.read() as session:
            state, retracted = requests.state_of(session, number), proposals.retracted_artifacts(session)
        if artifact.digest in retracted:
            raise Retracted(artifact.digest)
        if state != RequestState.PUBLISHED:
            raise requests.WrongState(number, state, RequestState.PUBLISHED)
        return retracted


def _insights_release(
    place: str,
    record: ReleaseRecord,
    insights: Sequence[Insight],
    artifact: str,
    *,
    publisher: str | None,
    retracted: Collection[str],
) -> InsightsRelease:
    return InsightsRelease(
        place=place,
        record=record,
        request=read_as(ApprovedRequest, record.request, RECORD),
        insights=tuple(insights),
        artifact=artifact,
        publisher=publisher,
        retracted=frozenset(retracted),
        deviation=stated_deviation(record),
        threshold=stated_threshold(record),
    )


def stated_deviation(record: ReleaseRecord) -> float | None:
    """Return the standard deviation of a cluster's size; 0 if the release claims nothing and its sizes are exact.

    Raises:
        FileUnfit: the record states something else.
    """
    if record.claim is None:
        return 0.0
    try:
        stated = deviation_of(record)
        deviation = None if stated is None else float(stated)
    except (ArithmeticError, ValueError):
        raise FileUnfit(RECORD, f"states a {SIZE_DEVIATION} that is not a number") from None
    if deviation is not None and not 0 <= deviation < _LARGEST_FIGURE:
        raise FileUnfit(RECORD, f"states a {SIZE_DEVIATION} that is out of range")
    return deviation


def stated_threshold(record: ReleaseRecord) -> int | None:
    """Return the noisy size below which clusters were left out.

    Raises:
        FileUnfit: the record states something else.
    """
    try:
        return threshold_of(record)
    except (TypeError, ValueError):
        raise FileUnfit(RECORD, f"states a {SMALLEST_CLUSTER} that is not a number") from None


def _require_insights(place: str, record: ReleaseRecord) -> None:
    if record.kind != ReleaseKind.INSIGHTS:
        raise not_insights(place, record.kind)
    if not wording_of(record).comparable:
        raise UsageError(
            f"{escape_controls(place)} has counted answers, not topics.",
            "Compare the counts of one answer to one question in both releases: the margin of error of their difference"
            " is the root of the sum of both squares.",
            {"place": place},
            code="CountsNotMatched",
        )


def _require_comparable(old: InsightsRelease, new: InsightsRelease) -> None:
    """Check that two releases are two, count the same kind of unit, and that neither was retracted.

    Raises:
        SameRelease, UnitsDiffer, Retracted.
    """
    if old.artifact == new.artifact:
        raise UsageError(
            f"{escape_controls(old.place)} and {escape_controls(new.place)} are the same release.",
            "Name two different releases of insights.",
            {"old": old.place, "new": new.place},
            code="SameRelease",
        )
    for release in (old, new):
        if release.artifact in old.retracted | new.retracted:
            raise Retracted(release.artifact)
    units = old.record.dataset.unit, new.record.dataset.unit
    if units[0] != units[1]:
        raise UsageError(
            f"The sizes of the releases count different units: {units[0]!r} and {units[1]!r}.",
            "Compare releases of one unit of privacy.",
            {"old": units[0], "new": units[1]},
            code="UnitsDiffer",
        )


def _cautions(comparison: ReleaseComparison) -> Iterator[str]:
    old, new, result = comparison.old, comparison.new, comparison.result
    yield from _noise_cautions(comparison)
    if result.new or result.gone:
        yield (
            "A topic is new or gone if the other release has none that is like it. Clusters below"
            f" {_threshold_words(old)} (old) and {_threshold_words(new)} (new) are left out, and clusters are drawn"
            " anew: a new topic passed the threshold, and may have been in the corpus before."
        )
    if result.uncompared:
        yield f"Only one of the releases has level {', '.join(map(str, result.uncompared))}; it is not compared."
    if differing := _differing_requests(old, new):
        yield f"The requests differ in {', '.join(differing)}; topics may differ for that reason."
    if old.publisher and new.publisher and old.publisher != new.publisher:
        yield "The bundles are signed by different keys."


def _noise_cautions(comparison: ReleaseComparison) -> Iterator[str]:
    sides = (("old", comparison.old), ("new", comparison.new))
    unstated = [side for side, release in sides if release.deviation is None]
    if unstated:
        yield f"The {' and the '.join(unstated)} release does not state the noise of its sizes: there are no verdicts."
    elif comparison.result.spread is None:
        yield f"Fewer than {LEAST_PAIRS} topics with sizes are matched: too few to tell a change from redrawn clusters."
    elif any(change.verdict is Verdict.REDRAWN for change in comparison.result.changes):
        factor = math.exp(comparison.result.spread)
        yield (
            "Each release draws its clusters anew. Beyond noise, sizes of matched topics differ by a factor of about"
            f" {factor:.2f} in these two; for topics that {Verdict.REDRAWN} that is enough."
        )


def _threshold_words(release: InsightsRelease) -> str:
    return "no threshold" if release.threshold is None else str(release.threshold)


def _differing_requests(old: InsightsRelease, new: InsightsRelease) -> list[str]:
    """Return the names of the fields that differ between two requests and affect topics."""
    parameters = differing_fields(old.request.parameters, new.request.parameters)
    fields = [_topic_fields(release.request) for release in (old, new)]
    return [*differing_fields(*fields), *(f"parameters.{name}" for name in parameters)]


def _topic_fields(request: ApprovedRequest) -> Mapping[str, Any]:
    stated = request.model_dump(include=set(_COMPARED_FIELDS))
    return {**stated, "dataset": request.dataset.name}


def _change_json(change: TopicChange) -> dict[str, object]:
    shares = change.shares
    return {
        "level": change.old.insight.level,
        "old": _topic_json(change.old),
        "new": _topic_json(change.new),
        "likeness": _round_figure(change.likeness),
        "difference": change.difference,
        "difference_deviation": _round_figure(change.deviation),
        "z": _round_figure(change.z),
        "p_value": _round_figure(change.p_value),
        "redrawn_p_value": _round_figure(change.redrawn_p_value),
        "verdict": None if change.verdict is None else str(change.verdict),
        "shares": None
        if shares is None
        else {
            "old": _round_figure(shares.old),
            "new": _round_figure(shares.new),
            "old_deviation": _round_figure(shares.old_deviation),
            "new_deviation": _round_figure(shares.new_deviation),
        },
    }


def _topic_json(topic: SizedTopic) -> dict[str, object]:
    node = topic.insight
    return {
        "id": node.number,
        "level": node.level,
        "name": node.topic.name,
        "keywords": list(node.keywords),
        "size": node.size,
        "size_deviation": _round_figure(topic.deviation),
    }


def _round_figure(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
