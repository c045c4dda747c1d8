"""Settings of an adapter training. Nothing here imports torch."""

from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from models_db.values.canonical_json import digest
from models_db.values.requests import ExactDecimal, RequestModel, model_to_json
from tasks.adapters.metadata import AdapterName, AdapterWording

DESCRIPTION: Final = "one short summary of what they say"

_SYSTEM = "You summarise what many people wrote. Reply with the summary alone."
_LABELLED = (
    "Many people wrote about this: {label}\nWords that stand for what they wrote: {reference}\n\nWrite {description}."
)
_PLAIN = "Many people wrote about one thing.\nWords that stand for what they wrote: {reference}\n\nWrite {description}."


def default_wording(description: str = DESCRIPTION, *, labelled: bool) -> AdapterWording:
    """Return the default wording.

    Documents are read for a title and without their public metadata: a state that repeats the public part spends the
    clip norm on it.
    """
    return AdapterWording(
        description=description,
        system=_SYSTEM,
        private=_LABELLED if labelled else _PLAIN,
        reading_system="You give titles to texts.",
        reading_private="{reference}\n\nGive this text a title.",
        reading_opening="Title:",
    )


class TrainingSettings(RequestModel):
    """Sizes of an adapter, and options of its training.

    Attributes:
        soft_tokens: m.
        words: number of soft tokens that are words for the mean.
        dimensions: r, or WHOLE.
        steps: most steps; early stopping may end before.
        batch: examples of a step.
        noise_least, noise_most: the range of the noise in training, as the standard deviation of each entry of a mean
            in clip norms; both 0 for none.
        check_every: steps between checks on the held-out groups, each with a checkpoint.
        patience: checks without a lower loss that end the training.
        held_out: the share of groups that are held out, at least one.
        max_reference_tokens, max_summary_tokens: length in tokens at which documents and summaries are cut.
        seed: of the order of examples, the subsets, the noise and the first weights. The data are public, so nothing
            is protected by their randomness, and a training can be repeated.
        precision: of the frozen model during training.
    """

    soft_tokens: Annotated[int, Field(ge=1, le=256)] = 16
    words: Annotated[int, Field(ge=0, le=255)] = 8
    dimensions: Annotated[int, Field(ge=0)] = 64
    centres: Annotated[int, Field(ge=1, le=64)] = 1
    hidden_units: Annotated[int, Field(ge=1, le=65536)] = 64
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 300
    batch: Annotated[int, Field(ge=1, le=4096)] = 8
    learning_rate: Annotated[ExactDecimal, Field(gt=0, le=1)] = Decimal("0.003")
    weight_decay: Annotated[ExactDecimal, Field(ge=0, le=1)] = Decimal("0.01")
    noise_least: Annotated[ExactDecimal, Field(ge=0, le=100)] = Decimal("0.01")
    noise_most: Annotated[ExactDecimal, Field(ge=0, le=100)] = Decimal(1)
    check_every: Annotated[int, Field(ge=1)] = 20
    patience: Annotated[int, Field(ge=1)] = 4
    held_out: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.2")
    max_reference_tokens: Annotated[int, Field(ge=1)] = 160
    max_summary_tokens: Annotated[int, Field(ge=1)] = 128
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    precision: Literal["float32", "bfloat16"] = "bfloat16"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.noise_least > self.noise_most or (self.noise_most > 0 and self.noise_least == 0):
            raise ValueError("noise_least must be at most noise_most, and above 0 unless both are 0")
        if self.words >= self.soft_tokens:
            raise ValueError("words must be fewer than soft_tokens: at least one is learned")
        return self

    @property
    def noisy(self) -> bool:
        """Return whether training uses noise."""
        return self.noise_most > 0


class Called(RequestModel):
    """A person's statements on an adapter to train.

    Attributes:
        licence: of the training data, in words.
    """

    name: AdapterName
    licence: Annotated[str, Field(min_length=1, max_length=300)]


class Order(Called):
    """Complete description of a training: settings, model and data.

    Attributes:
        model_digest, data_sha256: of the model's files and of the training file.
    """

    model: str
    model_digest: str
    data_sha256: str
    wording: AdapterWording
    settings: TrainingSettings

    @property
    def digest(self) -> str:
        """Digest that binds a checkpoint to this order."""
        return digest(model_to_json(self))
