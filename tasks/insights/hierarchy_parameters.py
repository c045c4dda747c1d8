"""How clusters are put under wider topics; all of it is public."""

from typing import Annotated

from pydantic import Field

from models_db.values.requests import RequestModel


class HierarchySettings(RequestModel):
    """`hierarchy:` of a request.

    Attributes:
        levels: how many there are, the clusters among them; 1 leaves them as they are. A level that would have one
            group alone, or a group for each of its nodes, is not made.
        branching: about how many nodes a group holds.
    """

    levels: Annotated[int, Field(ge=1, le=6)] = 2
    branching: Annotated[int, Field(ge=2, le=1000)] = 10
