"""Check of a model: precisions, sizes, whether it can be used here, and its memory. Imports no torch.

The figures come from the model's config.json and a network of its shape without weights, so they are known before the
weights are fetched (`tasks.inference.loading.check_model`). Requests name the precision of the layers:

| name | weights and activations of the layers | keys and values | head |
| --- | --- | --- | --- |
| float32 | float32 | float32 | float32 |
| bfloat16 | bfloat16, sums in float32 | bfloat16 | float32 |
| int8 | int8, exact integer sums; float32 between layers | bfloat16 | float32 |

Logits are float32 always.

Layers may lie on several devices of one machine, in their order. The first device, home, holds everything but the
layers too: embeddings, final norm, head, and the tensors of a session that are not keys and values. Device d then has a
room r_d: its memory without those weights. With n_d layers on it, every one of them and its keys and values can take
r_d / n_d bytes, so the smallest of these quotients decides whether a model fits and how many rows it has memory for.
`layers_of_devices` maximises that smallest quotient. The layout depends on the shape, the precision and the total
memory of the devices, which are public, and not on what is free at the time: a release that goes on has the layout with
which it began (PRIVACY §4.2 point 1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from models_db.errors import EnvironmentProblem, UsageError

Precision = Literal["float32", "bfloat16", "int8"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class PrecisionMissing(EnvironmentProblem):
    """This device cannot compute in that precision as the privacy contract needs it."""

    def __init__(self, precision: Precision, device: str, reason: str) -> None:
        others = " or ".join(name for name in PRECISIONS if name != precision)
        super().__init__(
            f"On {device}, layers cannot compute in {precision}: {reason}.",
            f"Request precision {others}.",
            {"precision": precision, "device": device},
        )


class MoreDevicesThanLayers(UsageError):
    """A model with fewer layers than devices."""

    def __init__(self, layers: int, devices: int) -> None:
        super().__init__(
            f"The model has {layers} layers, which cannot be spread over {devices} devices.",
            "Name fewer devices, such as cuda:0-1, or one.",
            {"layers": layers, "devices": devices},
        )


def layers_of_devices(layers: int, home: int, memories: Sequence[int]) -> tuple[int, ...]:
    """Return how many layers each device has; every device but home has one at least.

    Each layer in turn goes to the device whose room would allow the most for each of its layers, the first of equals
    (the method of D'Hondt). No other layout has a larger smallest quotient q = r_d / n_d: when device d got its last
    layer, r_e / (n_e + 1) was at most q for every e. A layout that differs gives some e at least n_e + 1 layers.

    Args:
        home: bytes of the weights outside the layers.
        memories: bytes of each device; the first is home.

    Raises:
        MoreDevicesThanLayers.
    """
    if layers < len(memories):
        raise MoreDevicesThanLayers(layers, len(memories))
    rooms = [memories[0] - home, *memories[1:]]
    counts = [0 if len(memories) > 1 else 1, *(1 for _ in memories[1:])]
    for _ in range(layers - sum(counts)):
        counts[max(range(len(rooms)), key=lambda d: (rooms[d] / (counts[d] + 1), -d))] += 1
    return tuple(counts)


def usable_bytes(counts: Sequence[int], home: int, memories: Sequence[int]) -> int:
    """Return the most bytes that a model may take in all, its keys and values included, so that every device holds its
    part: of one device its memory, of several what the fullest allows.

    Args:
        counts: layers of each device; `home`, `memories` as in `layers_of_devices`.
    """
    rooms = [memories[0] - home, *memories[1:]]
    if rooms[0] < 0:
        return memories[0]  # less than what home alone has to hold
    return home + min(room * sum(counts) // count for room, count in zip(rooms, counts, strict=True) if count)


MEMINFO: Final = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Return the bytes that programs can have now; None where the system does not tell."""
    return _read_meminfo("MemAvailable")


def total_memory() -> int | None:
    """Return the bytes of memory that the machine has; None where the system does not tell."""
    return _read_meminfo("MemTotal")


def _read_meminfo(field: str) -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


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
        stored_bytes_per_number: 4 or 2, by the type that its files are said to have.
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
    stored_bytes_per_number: int = Field(default=4, gt=0)

    def weight_bytes(self, precision: Precision, *, packed: bool, widened: bool = False) -> int:
        """Return the bytes of the weights once they are loaded.

        Args:
            packed: whether the head is kept a second time in the processor's own order (on a CPU).
            widened: whether bfloat16 layers are kept in float32 (on a CPU without products of bfloat16).
        """
        head = 4 * self.head_parameters * (2 if packed else 1)  # float32 in every precision
        # Tied embeddings are the head's own numbers, but for their copy in bfloat16.
        shared = 0 if self.tied and precision == "bfloat16" else self.head_parameters
        others = self.parameters - shared - self.linear_parameters
        linear = {"float32": 4, "bfloat16": 4 if widened else 2, "int8": 1}[precision]
        return head + (2 if precision == "bfloat16" else 4) * others + linear * self.linear_parameters

    def home_bytes(self, precision: Precision, *, packed: bool = False) -> int:
        """Return the bytes of the weights outside the layers: the head, and the embeddings where they are others."""
        embeddings = self.head_parameters if precision == "bfloat16" or not self.tied else 0
        return 4 * self.head_parameters * (2 if packed else 1) + (2 if precision == "bfloat16" else 4) * embeddings

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


@dataclass(frozen=True)
class RowSizes:
    """The public sizes of a generation's rows: private references, their tokens at most, and new tokens."""

    references: int = 7
    reference_tokens: int = 256
    new_tokens: int = 128

    @classmethod
    def of(cls, parameters: Mapping[str, object], absent: "RowSizes | None" = None) -> "RowSizes":
        """Return the sizes in a request's parameters; those of `absent` (by default the usual ones) for the rest."""
        sizes = asdict(absent or cls())
        for name in ("references", "max_reference_tokens", "max_new_tokens"):
            value = parameters.get(name)
            if type(value) is int:
                sizes[name.removeprefix("max_")] = max(0, value)
        return cls(**sizes)

    def __str__(self) -> str:
        return f"{self.references} references of {self.reference_tokens} tokens, {self.new_tokens} new tokens"


class Machine(BaseModel):
    """What decides the memory of models on one device of this machine, or on a group of them.

    Attributes:
        device: its name.
        accelerators: bytes of each accelerator; none of a processor, whose memory is asked for when it is needed.
        packed, widened: as in `NetworkShape.weight_bytes`.
        precisions: those that the device computes in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    precisions: tuple[Precision, ...] = PRECISIONS
    accelerators: tuple[int, ...] = ()
    packed: bool
    widened: bool

    @property
    def remark(self) -> str:
        """Return which device it is, to stand behind the name of the machine; empty if there is only one kind."""
        return f" ({self.device})" if self.accelerators else ""

    def memory_for(self, shape: NetworkShape, precision: Precision) -> int | None:
        """Return the bytes of memory that a model may take, in use or free; None where the system does not tell.

        Of several accelerators that is less than their sum: the fullest of them decides (`layer_layout`). It is 0 where
        the model has fewer layers than there are accelerators.
        """
        if not self.accelerators:
            return total_memory()
        home = shape.home_bytes(precision, packed=self.packed)
        try:
            counts = layers_of_devices(shape.layers, home, self.accelerators)
        except MoreDevicesThanLayers:
            return 0
        return usable_bytes(counts, home, self.accelerators)

    def needed(self, shape: NetworkShape, precision: Precision, sizes: RowSizes) -> int:
        """Return the bytes of the weights and of the keys and values of one text."""
        weights = shape.weight_bytes(precision, packed=self.packed, widened=self.widened)
        return weights + shape.generation_bytes(precision, *astuple(sizes), widened=self.widened)


@dataclass(frozen=True)
class Shortage:
    """Bytes that a model and one text need in `precision`, and the smaller memory of a machine."""

    precision: Precision
    needed: int
    memory: int

    @property
    def needed_text(self) -> str:
        """Return `needed` in GiB, rounded up."""
        return f"{math.ceil(self.needed / 2**30 * 10) / 10:.1f} GiB"

    @property
    def memory_text(self) -> str:
        """Return `memory` in GiB, rounded down."""
        return f"{math.floor(self.memory / 2**30 * 10) / 10:.1f} GiB"


class ModelCheck(BaseModel):
    """Result of checking whether a model can be used on this machine.

    Attributes:
        name: as requests write it.
        problem: why the engine cannot read it; empty if it can.
        template_problem: why it cannot be prompted in a conversation, only in completion form; empty if it can.
        conversation_tokens: tokens that its chat template adds to the words of a prompt, at least.
        missing: for each precision that this machine cannot compute, the reason.
        shape: its sizes; None if they cannot be known because of `problem`.
        machine: the device that would run it here, if none is named.
        group: all accelerators of this machine together, where it has several.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    problem: str = ""
    template_problem: str = ""
    conversation_tokens: int = Field(default=0, ge=0)
    missing: Mapping[Precision, str] = Field(default_factory=dict)
    shape: NetworkShape | None = None
    machine: Machine | None = None
    group: Machine | None = None

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Return the precisions that this machine computes the model in; none if it cannot be used."""
        return () if self.problem else tuple(name for name in PRECISIONS if name not in self.missing)

    @property
    def usable(self) -> bool:
        """Return whether the engine can read the model; without a chat template in completion form alone."""
        return not self.problem

    @property
    def fits_here(self) -> bool:
        """Return whether this machine's memory holds the weights and one text of the usual sizes in some precision.

        That of one device, or of all its accelerators together.
        """
        shortage = self.shortage(self.machine, RowSizes(), self.precisions)
        return shortage is None or bool(self.group_for(RowSizes(), self.precisions))

    @property
    def verdict(self) -> str:
        """Return as text whether the model can be used here, and in which precisions."""
        return self.verdict_on(self.machine, RowSizes())

    def verdict_on(self, machine: Machine | None, sizes: RowSizes) -> str:
        """Return the verdict for texts of these sizes on `machine`."""
        if not self.usable:
            return f"not usable: {self.problem}"
        limits = [f"in {' and '.join(self.precisions)} only"] if self.missing else []
        if self.template_problem:
            limits.append(f"with `prompt.form: completion` only ({self.template_problem})")
        verdict = " ".join(["usable", ", ".join(limits)]).strip()
        shortage = self.shortage(machine, sizes, self.precisions)
        if machine is None or shortage is None:
            return verdict
        needs = f"needs {shortage.needed_text} in {shortage.precision}, has {shortage.memory_text}"
        return f"{verdict}, but not on this machine{machine.remark}: {needs}{self._on_group(machine, sizes)}"

    def _on_group(self, machine: Machine, sizes: RowSizes) -> str:
        """Return whether the model fits on all accelerators together, as the end of a verdict on another machine."""
        if self.group is None or machine.device == self.group.device:
            return ""
        if self.group_for(sizes, self.precisions):
            return f"; with its layers spread it fits: --device {self.group.device}"
        shortage = self.shortage(self.group, sizes, self.precisions)
        return f"; {self.group.device} have {shortage.memory_text} for it" if shortage else ""

    def group_for(self, sizes: RowSizes, precisions: Sequence[Precision]) -> str:
        """Return the name of all accelerators of this machine, where the model fits with its layers spread over them.

        In one of `precisions`; else an empty text.
        """
        if self.group is None or not set(precisions) & set(self.group.precisions):
            return ""
        return "" if self.shortage(self.group, sizes, precisions) else self.group.device

    def shortage(self, machine: Machine | None, sizes: RowSizes, precisions: Sequence[Precision]) -> "Shortage | None":
        """Return by how much the memory of `machine` is too small for the weights and one text in all of `precisions`.

        None where it suffices in one of them, where a size is not known, and where the device computes in none.
        """
        if machine is None or self.shape is None:
            return None
        needed: dict[Precision, int] = {}
        memory: dict[Precision, int] = {}
        for precision in precisions:
            if precision in machine.precisions and (room := machine.memory_for(self.shape, precision)) is not None:
                needed[precision], memory[precision] = machine.needed(self.shape, precision, sizes), room
        if not needed or any(needed[precision] <= memory[precision] for precision in needed):
            return None
        least = min(needed, key=lambda precision: needed[precision])
        return Shortage(least, needed[least], memory[least])

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
        return {**self.model_dump(mode="json"), "usable": self.usable, "fits": self.fits_here,
                "precisions": list(self.precisions), "verdict": self.verdict}  # fmt: skip
