"""What requests of insights say, whichever system makes them; all of it is public."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from models_db.values.requests import ExactDecimal, RequestModel
from tasks.analysis.facets.parameters import FacetSettings
from tasks.insights.hierarchy_parameters import HierarchySettings


class InsightParameters(RequestModel):
    """`parameters:` that every system of insights knows.

    Attributes:
        facets: what is extracted from each unit.
        embedder: the public model that puts units, keywords and descriptions into a space.
        hierarchy: what is above the clusters.
        max_new_tokens: tokens of a description with its name, as the model writes them.
        temperature, top_k: how public texts are drawn, the likeliest token each time where a request says nothing;
            nothing is charged for them.
    """

    facets: FacetSettings = FacetSettings()
    embedder: Annotated[str, Field(min_length=1, max_length=200)] = "all-minilm-l6-v2"
    hierarchy: HierarchySettings = HierarchySettings()
    max_new_tokens: Annotated[int, Field(ge=32, le=4_000)] = 160
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal("0.3")
    top_k: Annotated[int, Field(ge=0)] = 1
