"""Further texts of a release: parameters of a request that draws them from an earlier release's values."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from models_db.values.amounts import total_amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import RequestModel
from tasks.mechanisms.core.post_processing import PostProcessing

Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class Extended(RequestModel):
    """Release whose further texts are drawn, identified by digests.

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
    extends = getattr(parameters, "extends", None)
    return extends if isinstance(extends, Extended) else None


def events_of(extends: Extended | None, charged: Sequence[PrivacyEvent]) -> tuple[PrivacyEvent, ...]:
    """Return the invoked events: those that are charged, or post-processing of the release that has paid for them."""
    if extends is None:
        return tuple(charged)
    return (PostProcessing(extends.release, total_amount([event.loss for event in charged])).event(),)


def parent_facts(extends: Extended | None) -> Mapping[str, str]:
    """Return the fact about the extended release that a plan shows."""
    if extends is None:
        return {}
    return {"extends": f"release {extends.release}, artifact {extends.artifact}; no private text is read"}
