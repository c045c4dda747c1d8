"""Settings of the hierarchy above clusters; all of them are public."""

from typing import Annotated

from pydantic import Field

from models_db.values.requests import RequestModel


class HierarchySettings(RequestModel):
    """`hierarchy:` of a request.

    Attributes:
        levels: number of levels, the clusters included; 1 adds none. A level that would have a single group, or a group
            for each of its nodes, is left out.
        branching: approximate number of nodes per group.
    """

    levels: Annotated[int, Field(ge=1, le=6)] = 2
    branching: Annotated[int, Field(ge=2, le=1000)] = 10
