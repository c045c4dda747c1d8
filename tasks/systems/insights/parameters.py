"""Parameters common to all insights systems; all of them are public."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from models_db.values.requests import ExactDecimal, RequestModel
from tasks.analysis.facets.facet_settings import FacetSettings


class HierarchySettings(RequestModel):
    """`hierarchy:` of a request: the groups above clusters.

    Attributes:
        levels: number of levels, the clusters included; 1 adds none. A level that would have a single group, or a group
            for each of its nodes, is left out.
        branching: approximate number of nodes per group.
    """

    levels: Annotated[int, Field(ge=1, le=6)] = 2
    branching: Annotated[int, Field(ge=2, le=1000)] = 10


class InsightParameters(RequestModel):
    """`parameters:` of every system of insights.

    Attributes:
        facets: extracted from each unit.
        embedder: the public model that embeds units, keywords and descriptions.
        hierarchy: the groups above the clusters.
        max_new_tokens: most tokens of a description with its name.
        temperature, top_k: sampling of public texts, the likeliest token each time by default; nothing is charged for
            them.
    """

    facets: FacetSettings = FacetSettings()
    embedder: Annotated[str, Field(min_length=1, max_length=200)] = "all-minilm-l6-v2"
    hierarchy: HierarchySettings = HierarchySettings()
    max_new_tokens: Annotated[int, Field(ge=32, le=4_000)] = 160
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal("0.3")
    top_k: Annotated[int, Field(ge=0)] = 1
