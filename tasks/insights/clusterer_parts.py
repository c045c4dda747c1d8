"""What the clusterers share."""

from collections.abc import Mapping

import numpy as np

from tasks.insights.public_topics import PUBLIC_TOPICS, digest
from tasks.mechanisms.grid_points import GridPoints, Places, Reals
from tasks.mechanisms.kmeans import NO_BIN, KMeansRounds


def bins_of(units: GridPoints, centres: Reals) -> Places:
    """Which centre each unit is counted at, int64 [n]; a unit whose point is not finite is in no bin."""
    return np.where(units.usable, units.nearest(centres), NO_BIN)


def start_facts() -> Mapping[str, str]:
    """What a clusterer that starts from public points depends on beside the release's own keywords."""
    return {"public topics": f"{len(PUBLIC_TOPICS)}, SHA-256 {digest()}"}


def rounds_facts(count: int, rounds: KMeansRounds) -> Mapping[str, str]:
    """Public facts of a clustering."""
    return {
        "clusters k": str(count),
        "count rounds": str(rounds.count_rounds),
        "noise of a cluster's count": f"{float(rounds.count_sigma):.4g}",
        "sum rounds": str(rounds.sum_rounds),
        "noise of a sum's coordinate": f"{rounds.sum_sigma:.4g}",
        "norm of a unit's point": f"{float(rounds.vectors.clip_norm):.4g}",
    }
