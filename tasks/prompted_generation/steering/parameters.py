"""Parameters of a steering vector request (EPSVec, arXiv 2602.21218); all of them are public.

Nothing here imports a model.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from models_db.values.requests import ExactDecimal
from tasks.planning.further_texts import Extended
from tasks.planning.label_allocation import LabelAllocationParameters
from tasks.planning.precision_parameters import PrecisionParameters
from tasks.planning.sentence_completion_parameters import SentenceCompletionParameters

USUAL_TOKENS = 256

CLEAR_VECTORS: Final = "vectors_clear_of_noise"
"""Released figure: how many vectors are not shrunk to zero; at most one for each label."""


class SteeringParameters(SentenceCompletionParameters, PrecisionParameters, LabelAllocationParameters):
    """`parameters:` of a request.

    Attributes:
        samples: how many texts.
        references: n, the public, expected number of units of a label, by which the sum of their vectors is divided.
        labels: the public label set; a unit is read under one of those that its documents carry, and each label has a
            vector.
        max_new_tokens, temperature, top_k: sampling of texts and of public draws; nothing is charged for it.
        max_reference_tokens: a unit's documents are joined and cut to this many tokens; by default to `max_new_tokens`,
            as long as the public draws, because hidden states change along a text: a mean over longer texts would
            differ from the origin by that as well.
        depth: the part of the model's layers behind which hidden states are read and the vector is added.
        clip_norm: C, the most that one unit's vector may differ from the mean of the public draws, in multiples of
            their own spread.
        strength: the multiple of the vector that is added; 1 moves the mean of hidden states as far as units' texts
            are from the public draws.
        public_draws: texts of the public model for each label, whose hidden states are the origin and the unit.
        extends: the release whose vector is reused; then nothing is read and nothing is charged.
    """

    samples: Annotated[int, Field(ge=1, le=1_000_000)]
    references: Annotated[int, Field(ge=1, le=10**9)]
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] = USUAL_TOKENS
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal(1)
    top_k: Annotated[int, Field(ge=0)] = 100
    max_reference_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = USUAL_TOKENS
    depth: Annotated[ExactDecimal, Field(gt=0, le=1)] = Decimal("0.7")
    clip_norm: Annotated[ExactDecimal, Field(gt=0, le=1000)] = Decimal(1)
    strength: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal(2)
    public_draws: Annotated[int, Field(ge=2, le=1000)] = 32
    extends: Extended | None = None

    @property
    def parts(self) -> int:
        """G, the number of vectors: one for each label; 1 without labels."""
        return max(1, len(self.labels))

    @model_validator(mode="before")
    @classmethod
    def _as_long_as_public_draws(cls, fields: Any) -> Any:
        if isinstance(fields, Mapping) and "max_reference_tokens" not in fields:
            return {**fields, "max_reference_tokens": fields.get("max_new_tokens", USUAL_TOKENS)}
        return fields

    @property
    def tokens_per_text(self) -> int:
        """The most tokens of a text."""
        return self.max_new_tokens + self.completion_tokens

    @property
    def row_tokens(self) -> int:
        """The most tokens of a row beside its prompt: a row reads a text or writes one."""
        return max(self.max_reference_tokens, self.tokens_per_text)

    def layer_of(self, layers: int) -> int:
        """Return how many of a model's layers come before the place of the vector, at least 1."""
        return max(1, round(self.depth * layers))
