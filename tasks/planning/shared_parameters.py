"""Parameters that several systems share: precision, completion of cut sentences, texts from an earlier release."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BaseModel, Field, StringConstraints

from models_db.values.amounts import total_amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import RequestModel
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.structured_output.form import form_of
from tasks.inference.structured_output.json_schema import schema_of
from tasks.mechanisms.core.uncharged import PostProcessing

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


class PrecisionParameters(RequestModel):
    """Precision of the model's arithmetic in a system's `parameters:`; public."""

    precision: Precision = "float32"


def precision_of(parameters: BaseModel) -> Precision:
    """Return the precision in a system's parameters; float32 where they have none."""
    return parameters.precision if isinstance(parameters, PrecisionParameters) else "float32"


def precision_facts(parameters: PrecisionParameters) -> dict[str, str]:
    """Return the fact about a precision below float32 that a plan shows."""
    return {} if parameters.precision == "float32" else {"precision": parameters.precision}


def require_precision(parameters: BaseModel, *, external: bool) -> None:
    """Check that a device of this machine can compute as `parameters` ask for; float32 can be had anywhere.

    Args:
        external: whether the model is behind an API, where nothing is computed here.

    Raises:
        PrecisionMissing: no device can.
    """
    if precision_of(parameters) != "float32" and not external:
        from tasks.inference.catalogue.devices import require_available

        require_available(precision_of(parameters))


COMPLETION_TOKENS: Final = 24
"""Tokens of the public model that finish a cut sentence at most, beyond `max_new_tokens` and uncharged."""


class SentenceCompletionParameters(RequestModel):
    """Parameters of texts that `decoding.sentence_completion` finishes; no request sets how."""

    @property
    def reproduces_paper(self) -> bool:
        """Whether texts end with their last draw, as those of the paper that the parameters reproduce."""
        return False

    @property
    def completion_tokens(self) -> int:
        """N; 0 where no sentence is completed: a form or a schema ends its texts itself."""
        in_grammar = form_of(self) is not None or schema_of(self) is not None
        return 0 if in_grammar or self.reproduces_paper else COMPLETION_TOKENS


def completion_facts(settings: SentenceCompletionParameters) -> dict[str, str]:
    """Return the fact about the completion of sentences, for people."""
    if not settings.completion_tokens:
        return {}
    most = settings.completion_tokens
    return {"cut sentences": f"are finished with at most {most} more tokens of the public model, which cost nothing"}
