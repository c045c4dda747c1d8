"""Rehearsal of a request on a public twin: makes its texts and those of both references, and compares them.

Never on governed data (PRIVACY §7).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from models_db.errors import EnvironmentProblem
from tasks.common.progress import report, tell
from tasks.evaluate import embedder
from tasks.evaluation.evaluation_input import Scorer
from tasks.prefect_task import private_task
from tasks.rehearsal.measures import (
    FEWEST_MEASURED,
    RELEASES,
    Measure,
    PerplexityGap,
    cut_documents,
    embedded_measures,
    measure_share,
)
from tasks.rehearsal.result import METRIC_NAMES, MetricShare
from tasks.rehearsal.split import RehearsalSplit

if TYPE_CHECKING:
    from tasks.inference.engine.language_model import LanguageModel
    from tasks.text.public_models import Embedder


def embedder_at_hand(model: "LanguageModel") -> "Embedder | None":
    """Return the embedder; None if it is not on this machine, which is reported."""
    try:
        return embedder(model)
    except EnvironmentProblem as problem:
        tell(f"Without metrics by embeddings: {problem.message} {problem.advice}")
        return None


@private_task
def compare_releases(
    texts_by_release: Mapping[str, Sequence[str]],
    labels: Sequence[str | None],
    split: RehearsalSplit,
    score: Scorer,
    embed: "Embedder | None",
) -> tuple[tuple[MetricShare, ...], tuple[str, ...]]:
    """Return the share of the way by each metric, and the metrics that are left out with the reason.

    Args:
        texts_by_release: the texts of `RELEASES`.
        labels: the labels of each release's texts, in their order.
        score: scores texts under the public model.
        embed: the public embedder; None if there is none.
    """
    releases = [texts_by_release[name] for name in RELEASES]
    held_out = cut_documents([one.text for one in split.held_out], releases)
    measures: list[Measure] = []
    left_out = []
    if min(map(len, releases)) < FEWEST_MEASURED:
        return (), ("all metrics: a release has fewer than two texts",)
    if embed is None:
        left_out.append(f"{METRIC_NAMES['mauve']} and {METRIC_NAMES['coverage']}: the embedder is not installed")
    else:
        measures += embedded_measures(releases, held_out, labels, [one.label for one in split.held_out], embed)
        if any(len(texts) < len(labels) for texts in releases) and len(set(labels)) > 1:
            left_out.append(f"{METRIC_NAMES['accuracy']}: the twin has fewer people of a label than texts are compared")
    gap = PerplexityGap.of(releases, held_out, score)
    if gap is None:
        left_out.append(f"{METRIC_NAMES['perplexity_gap']}: too few texts can be scored")
    else:
        measures.append(gap)
    shares = []
    for number, measure in enumerate(measures):
        report("comparing", number, len(measures))
        shares.append(measure_share(measure))
    report("comparing", len(measures), len(measures))
    return tuple(shares), tuple(left_out)
