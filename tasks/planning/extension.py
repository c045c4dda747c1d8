"""Extension parameters of a request for more texts from an earlier release's values."""

from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from models_db.values.requests import RequestModel

Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class Extended(RequestModel):
    """Parent release of an extension, identified by digests.

    Attributes:
        release: its number, of the same dataset.
        artifact: the digest of its files, as the publish gate knows it.
        values: SHA-256 of the canonical JSON of the values that its mechanisms released.
    """

    release: Annotated[int, Field(ge=1)]
    artifact: Sha256
    values: Sha256


def extended_of(parameters: BaseModel) -> Extended | None:
    """Return the release that a request extends; None if it extends none."""
    extension = getattr(parameters, "extends", None)
    return extension if isinstance(extension, Extended) else None
