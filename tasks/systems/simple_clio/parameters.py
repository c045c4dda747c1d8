"""Parameters of a SIMPLE-CLIO request; all of them are public."""

from typing import Annotated

from pydantic import Field

from tasks.systems.insights.parameters import InsightParameters


class ClioParameters(InsightParameters):
    """`parameters:` of a request.

    Attributes:
        count: how many clusters; None for one for about every `per_cluster` units.
        per_cluster: the paper's figure is 150.
        samples: random units of a cluster whose summaries the model reads; small models do better with six than with
            the paper's ten.
        contrasting: units outside a cluster, the nearest to its centre, whose summaries the model reads.
        keywords_of_a_cluster: how many of the most frequent keywords of its units are listed.
    """

    count: Annotated[int, Field(ge=1, le=100_000)] | None = None
    per_cluster: Annotated[int, Field(ge=1, le=1_000_000)] = 150
    samples: Annotated[int, Field(ge=1, le=100)] = 6
    contrasting: Annotated[int, Field(ge=0, le=100)] = 3
    keywords_of_a_cluster: Annotated[int, Field(ge=1, le=50)] = 10

    def clusters_of(self, units: int) -> int:
        """Return the number of clusters for a number of units; at least one."""
        return self.count or max(1, round(units / self.per_cluster))
