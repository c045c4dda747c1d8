"""Result of checking a model: its sizes, whether it can be used here, and its memory. Imports no torch.

The figures come from the model's config.json and a network of its shape without weights, so they are known before the
weights are fetched (`tasks.inference.loading.check_model`).
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from models_db.errors import UsageError
from tasks.inference.catalogue.precision import PRECISIONS, Precision

CACHE_BYTES: Mapping[Precision, int] = {"float32": 4, "bfloat16": 2, "int8": 2}
"""Bytes of one number of the keys and values, where the device multiplies bfloat16; elsewhere 4."""


class ContextTooLong(UsageError):
    """Prompt, reference limit and new tokens exceed the model's context."""

    def __init__(self, needed: int, possible: int) -> None:
        super().__init__(
            f"Prompt, reference and new tokens need {needed} positions; the model has {possible}.",
            "Lower max_reference_tokens or max_new_tokens.",
            {"needed": needed, "possible": possible},
        )


class NetworkShape(BaseModel):
    """Sizes of a network, all public.

    Attributes:
        architecture: transformers' name of its class.
        attention, rotary: which columns its layers see, and how positions enter, in words.
        layers, hidden, heads, key_value_heads, head_size, vocabulary: as in config.json.
        context: tokens of a row that the engine reads at most.
        parameters: numbers of the whole network, shared ones counted once.
        head_parameters: numbers of the head; `tied` if the word embeddings are the same numbers.
        stored_bytes_per_number: 4 or 2, by the type that its files are said to have; less where they are MXFP4.
        linear_parameters: numbers of the linear layers without the head, which alone become int8.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    attention: str
    rotary: str
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    key_value_heads: int = Field(ge=1)
    head_size: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    context: int = Field(ge=1)
    parameters: int = Field(ge=1)
    head_parameters: int = Field(ge=0)
    linear_parameters: int = Field(ge=0)
    tied: bool
    stored_bytes_per_number: float = Field(default=4, gt=0)

    def weight_bytes(self, precision: Precision, *, packed: bool, widened: bool = False) -> int:
        """Return the bytes of the weights once they are loaded.

        Args:
            packed: whether the head is kept a second time in the processor's own order (on a CPU).
            widened: whether bfloat16 layers are kept in float32 (on a CPU without products of bfloat16).
        """
        head = 4 * self.head_parameters * (2 if packed else 1)  # float32 in every precision (docs/decisions/0018)
        # Tied embeddings are the head's own numbers, but for their copy in bfloat16.
        shared = 0 if self.tied and precision == "bfloat16" else self.head_parameters
        others = self.parameters - shared - self.linear_parameters
        linear = {"float32": 4, "bfloat16": 4 if widened else 2, "int8": 1}[precision]
        return head + (2 if precision == "bfloat16" else 4) * others + linear * self.linear_parameters

    def column_bytes(self, precision: Precision, *, widened: bool = False) -> int:
        """Return the bytes of keys and values of one token of one row; `widened` as in `weight_bytes`."""
        number = CACHE_BYTES["float32" if widened else precision]
        return 2 * number * self.layers * self.key_value_heads * self.head_size

    def generation_bytes(
        self, precision: Precision, references: int, reference_tokens: int, new_tokens: int, *, widened: bool = False
    ) -> int:
        """Return about how many bytes the keys and values of one generation take: its private rows and its public row.

        Prompts are left out: the engine's exact sizes follow from them (`tasks.inference.engine.shapes`).
        """
        columns = references * (reference_tokens + new_tokens) + new_tokens
        return self.column_bytes(precision, widened=widened) * columns


class ModelCheck(BaseModel):
    """Result of checking whether a model can be used on this machine.

    Attributes:
        name: as requests write it.
        problem: why the engine cannot read it; empty if it can.
        template_problem: why it cannot be prompted in a conversation, only in completion form; empty if it can.
        conversation_tokens: tokens that its chat template adds to the words of a prompt, at least.
        missing: for each precision that this machine cannot compute, the reason.
        shape: its sizes; None if they cannot be known because of `problem`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    problem: str = ""
    template_problem: str = ""
    conversation_tokens: int = Field(default=0, ge=0)
    missing: Mapping[Precision, str] = Field(default_factory=dict)
    shape: NetworkShape | None = None

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Return the precisions that this machine computes the model in; none if it cannot be used."""
        return () if self.problem else tuple(name for name in PRECISIONS if name not in self.missing)

    @property
    def usable(self) -> bool:
        """Return whether the engine can read the model; without a chat template in completion form alone."""
        return not self.problem

    @property
    def verdict(self) -> str:
        """Return as text whether the model can be used here, and in which precisions."""
        if not self.usable:
            return f"not usable: {self.problem}"
        limits = [f"in {' and '.join(self.precisions)} only"] if self.missing else []
        if self.template_problem:
            limits.append(f"with `prompt.form: completion` only ({self.template_problem})")
        return " ".join(["usable", ", ".join(limits)]).strip()

    def require_context(self, row_tokens: int, prompt_tokens: int | None = None) -> None:
        """Check that the context holds a row of `row_tokens` tokens and the prompt around them.

        Args:
            prompt_tokens: tokens of the prompt; None if it is not known, and a conversation without a word counts.

        Raises:
            ContextTooLong: the prompt is too long, or even one without a word.
        """
        needed = row_tokens + (self.conversation_tokens if prompt_tokens is None else prompt_tokens)
        if self.shape is not None and needed > self.shape.context:
            raise ContextTooLong(needed, self.shape.context)

    def to_json(self) -> dict[str, JsonValue]:
        """Return it as JSON, with its verdict."""
        return {**self.model_dump(mode="json"), "usable": self.usable,
                "precisions": list(self.precisions), "verdict": self.verdict}  # fmt: skip
