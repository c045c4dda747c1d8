"""Adapter metadata without tensors: enough to price a request, and to state on a card how the adapter was made.

Nothing here imports torch. The meta data is in the header of the adapter's safetensors file, so the file's SHA-256,
which is the adapter's name in requests, covers all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from models_db.values.requests import ExactDecimal, RequestModel
from tasks.inference.prompt_spec import LABEL, PromptSpec, Template

FORMAT: Final = "almoner-adapter-1"

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Positive = Annotated[int, Field(ge=1)]
Size = Annotated[ExactDecimal, Field(ge=0)]

AdapterName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,63}$")]
"""Small letters, digits, dots, hyphens and underscores: it is part of a path."""


class AdapterWording(RequestModel):
    """Prompts of the model for reading a document for the adapter, and for writing from soft tokens.

    Attributes:
        description: of the text to write, such as "a short summary".
        system, private: of the prompt with the soft tokens in place of a document; `private` has
            `{reference}`.
        reading_system, reading_private: of the prompt in which a document is read.
        reading_opening: the first words of the model's answer to it; the hidden state of the last of them
            represents the document.
    """

    description: str
    system: str
    private: str
    reading_system: str
    reading_private: str
    reading_opening: str

    def writing_spec(self) -> PromptSpec:
        """Return the prompt around the soft tokens.

        Raises:
            `bad_template`.
        """
        return _spec(self.description, self.system, self.private)

    def reading_spec(self) -> PromptSpec:
        """Return the prompt around a document.

        Raises:
            `bad_template`.
        """
        return _spec(self.description, self.reading_system, self.reading_private)

    @property
    def labelled(self) -> bool:
        """Return whether a prompt has a placeholder for the subject of the group."""
        return any(LABEL in _places(spec) for spec in (self.writing_spec(), self.reading_spec()))


def _spec(description: str, system: str, private: str) -> PromptSpec:
    """Build a prompt of one turn; public rows are unused, so their template is minimal."""
    spec = PromptSpec(description=description, system=system, public="{description}", private=private)
    _places(spec)
    return spec


def _places(spec: PromptSpec) -> Sequence[str]:
    return [place for name, text in spec.templates.items() for place in Template.read(name, text).places]


class TrainingSet(RequestModel):
    """Training data of an adapter. It must be public: it is not charged, and the adapter may repeat it.

    Attributes:
        learned_groups, held_out_groups: numbers of groups for training and for early stopping.
    """

    file: str
    sha256: Digest
    licence: str
    examples: Positive
    documents: Positive
    learned_groups: Positive
    held_out_groups: Positive


class Fit(RequestModel):
    """Results of a training; losses are nats per token on the held-out groups.

    Attributes:
        steps, best_step: number of steps, and the step after which the adapter was kept.
        first_loss: with the initial soft tokens.
        best_loss: of the adapter, over means without noise and with it.
        clean_loss: of the adapter, over means without noise.
        blind_loss: of the adapter with the mean of all groups instead of the group's: the value of the group's own mean
            is `blind_loss - clean_loss`.
    """

    steps: Positive
    best_step: Annotated[int, Field(ge=0)]
    first_loss: Size
    best_loss: Size
    clean_loss: Size
    blind_loss: Size


class AdapterMeta(RequestModel):
    """An adapter without its tensors.

    Attributes:
        model, model_revision, model_digest: the model of its hidden states and soft tokens.
        width: D, the size of a hidden state.
        dimensions: r, of the space into which hidden states are projected.
        centres: c; a unit's vector has c * r entries, of which at most r are not zero.
        soft_tokens: m, their number.
        words: number of soft tokens that are embeddings of words for the mean; they are the last ones.
        hidden_units: of its middle layer.
        clip_norm: the suggested L2 bound C of a unit's vector: a quantile of the norms of public documents.
        noise_least, noise_most: the range of noise it was trained with, as the standard deviation of each entry of the
            mean in clip norms; both 0 for a training without noise (as in the paper).
        max_reference_tokens: length in tokens at which documents were cut.
    """

    format: Literal["almoner-adapter-1"] = FORMAT
    name: AdapterName
    model: Annotated[str, Field(min_length=1, max_length=200)]
    model_revision: str
    model_digest: Digest
    width: Positive
    dimensions: Positive
    centres: Positive
    soft_tokens: Positive
    words: Annotated[int, Field(ge=0)] = 0
    hidden_units: Positive
    clip_norm: Annotated[ExactDecimal, Field(gt=0)]
    noise_least: Size
    noise_most: Size
    max_reference_tokens: Positive
    wording: AdapterWording
    training: TrainingSet
    seed: Annotated[int, Field(ge=0)]
    fit: Fit

    @model_validator(mode="after")
    def _some_are_learned(self) -> Self:
        if self.words >= self.soft_tokens:
            raise ValueError("at least one soft token must be learned")
        return self

    @property
    def vector_width(self) -> int:
        """c * r, the number of entries of a unit's vector, each of which gets noise."""
        return self.centres * self.dimensions


@dataclass(frozen=True)
class KnownAdapter:
    """An adapter of this machine.

    Attributes:
        digest: SHA-256 of its safetensors file, its name in requests.
    """

    digest: str
    meta: AdapterMeta


def figure(value: float, places: int = 4) -> Decimal:
    """Round a measurement for people and for canonical JSON, which has no binary floats."""
    return Decimal(f"{value:.{places}f}")


WHOLE: Final = 0
"""`dimensions: 0`: whole hidden states, neither centred nor projected, as in the paper."""
