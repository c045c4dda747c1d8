"""Roofline of a decoding step, and what one accelerator should write: calculated, nothing measured.

    python -m benchmarks.gpu.reports.roofline       prints the capacity of an H100

A step of G generations with B references each has 1 + B rows a generation. The engine reads public and private rows in
passes of their own, so the layers' weights are read twice. Each part of a step takes the longer of two times: its bytes
over the bandwidth, and its operations over the rate of products (Williams, Waterman, Patterson 2009, "Roofline"). Parts
follow each other:

    layers      2 P bytes; 2 P operations a row            P numbers in linear layers, bfloat16; once for G rows, once
                                                           for G B
    attention   keys and values of all columns seen        G B rows of references, G public ones
    heads       4 D bytes and 2 D operations a number      float32; V columns for G rows; G B rows of the candidates of
                                                           their own, which are read, written and read again

No torch: sizes follow from published shapes (tests compare them with transformers').
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tasks.inference.catalogue.model_check import layers_of_devices, usable_bytes

SECONDS_A_DAY: Final = 86_400


@dataclass(frozen=True)
class Shape:
    """A Llama.

    Attributes:
        tied: whether the head is the embeddings; the engine keeps its float32 copy in either case.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_size: int
    vocabulary: int
    tied: bool

    @property
    def linear_parameters(self) -> int:
        """P: numbers of the linear layers, without the head."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.key_value_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_parameters(self) -> int:
        """V D."""
        return self.vocabulary * self.hidden

    @property
    def weight_bytes(self) -> int:
        """Layers, norms and embeddings in bfloat16, the head in float32."""
        norms = (2 * self.layers + 1) * self.hidden
        return 2 * (self.linear_parameters + norms + self.head_parameters) + 4 * self.head_parameters

    @property
    def home_bytes(self) -> int:
        """Of them outside the layers: embeddings and head, which the first of several devices has."""
        return 6 * self.head_parameters

    @property
    def column_bytes(self) -> int:
        """Keys and values of one token of one row, in bfloat16."""
        return 2 * 2 * self.layers * self.key_value_heads * self.head_size


SMOLLM2: Final = Shape("SmolLM2-135M", 30, 576, 1536, 9, 3, 64, 49152, True)
LLAMA_1B: Final = Shape("Llama 3.2 1B", 16, 2048, 8192, 32, 8, 64, 128256, True)
LLAMA_8B: Final = Shape("Llama 3.1 8B", 32, 4096, 14336, 32, 8, 128, 128256, False)
LLAMA_70B: Final = Shape("Llama 3.1 70B", 80, 8192, 28672, 64, 8, 128, 128256, False)


@dataclass(frozen=True)
class Accelerator:
    """What a step may use.

    Attributes:
        memory: bytes; of several devices those that a model may take in all, with its layers spread over them.
        bandwidth: bytes a second of one device.
        bfloat16, float32: operations a second in products of one device.
    """

    name: str
    memory: float
    bandwidth: float
    bfloat16: float
    float32: float


H100: Final = Accelerator("H100", 80e9, 2.97e12, 783e12, 51.6e12)
"""H100 SXM5, 80 GB: bandwidth and products as `environment` measured them: not those of the data sheet."""
CANDIDATES: Final = 256
"""Columns of a generation's candidates: the smallest width of `candidate_head`."""
MEMORY_SHARE: Final = 0.75
"""Of what the weights leave free: `engine.memory` takes it for keys and values."""


@dataclass(frozen=True)
class Work:
    """The public sizes of a release.

    Attributes:
        prompt: tokens of a row's prompt without its reference.
        texts: of the release.
    """

    references: int
    reference_tokens: int = 256
    new_tokens: int = 256
    prompt: int = 80
    texts: int = 1000

    @property
    def rows(self) -> int:
        """Rows of a generation."""
        return 1 + self.references

    def columns(self, drawn: float) -> float:
        """Columns of all rows of a generation after `drawn` tokens."""
        return self.references * (self.prompt + self.reference_tokens + drawn) + self.prompt + drawn


def generations_that_fit(shape: Shape, device: Accelerator, work: Work) -> int:
    """Return how many generations the memory for keys and values holds; 0 where the weights do not fit."""
    free = device.memory - shape.weight_bytes
    return max(0, math.floor(free * MEMORY_SHARE / (shape.column_bytes * work.columns(work.new_tokens))))


def parts_of_step(shape: Shape, device: Accelerator, work: Work, generations: int, drawn: float) -> dict[str, float]:
    """Seconds of a step's parts on the device after `drawn` tokens."""
    private = generations * work.references

    def layers(rows: int) -> float:
        parameters = shape.linear_parameters
        return max(2 * parameters / device.bandwidth, 2 * parameters * rows / device.bfloat16)

    head = shape.hidden * shape.vocabulary
    gathered = private * CANDIDATES * shape.hidden

    return {
        "layers, public rows": layers(generations),
        "layers, private rows": layers(private) if private else 0.0,
        "attention": shape.column_bytes * work.columns(drawn) * generations / device.bandwidth,
        "head": max(4 * head / device.bandwidth, 2 * head * generations / device.float32),
        "candidates": max(12 * gathered / device.bandwidth, 2 * gathered / device.float32),
    }


def step_seconds(shape: Shape, device: Accelerator, work: Work, generations: int) -> float:
    """Return the seconds of a step in the middle of the texts."""
    return sum(parts_of_step(shape, device, work, generations, work.new_tokens / 2).values())


def prompt_seconds(shape: Shape, device: Accelerator, work: Work, generations: int) -> float:
    """Return the seconds of reading the prompts of so many generations."""
    return 2 * shape.linear_parameters * work.columns(0) * generations / device.bfloat16


def tokens_a_second(shape: Shape, device: Accelerator, work: Work, generations: int) -> float:
    """Return tokens of texts, prompts counted in."""
    seconds = prompt_seconds(shape, device, work, generations)
    seconds += work.new_tokens * step_seconds(shape, device, work, generations)
    return generations * work.new_tokens / seconds


def measured(folder: Path) -> Accelerator | None:
    """Return the device that the section `environment` measured; None where it did not.

    Args:
        folder: of the sections' records.
    """
    try:
        rows = {row["name"]: row for row in json.loads((folder / "environment.json").read_text())["rows"]}
        return Accelerator(
            "measured",
            math.inf,
            rows["bandwidth"]["bytes a second, read and written"],
            rows["product, bfloat16"]["operations a second"],
            rows["product, float32"]["operations a second"],
        )
    except (OSError, ValueError, KeyError):
        return None


def capacity_rows() -> Iterator[str]:
    """Yield the rows of docs/gpu.md's table."""
    four = spread(LLAMA_70B, 4)
    for shape, device in ((LLAMA_1B, H100), (LLAMA_8B, H100), (LLAMA_70B, H100), (LLAMA_70B, four)):
        fits = generations_that_fit(shape, device, Work(7)) > 0
        for references in (7, 15, 31, 63) if fits else (7,):
            yield capacity_row(shape, device, Work(references))


def spread(shape: Shape, count: int) -> Accelerator:
    """Return `count` H100 with the layers of a network spread over them; the fullest decides about memory."""
    memories = [int(H100.memory)] * count
    counts = layers_of_devices(shape.layers, shape.home_bytes, memories)
    memory = usable_bytes(counts, shape.home_bytes, memories)
    return replace(H100, name=f"{count} x H100, layers spread", memory=memory)


def capacity_row(shape: Shape, device: Accelerator, work: Work) -> str:
    """Return a row."""
    count = generations_that_fit(shape, device, work)
    begin = f"| {shape.name} | {device.name} | {work.references} |"
    if count == 0:
        weights = f"weights take {shape.weight_bytes / 1e9:.0f} of {device.memory / 1e9:.0f} GB"
        return f"{begin} 0 | {weights} | | |"
    rate = tokens_a_second(shape, device, work, count)
    step = step_seconds(shape, device, work, count) * 1000
    return f"{begin} {count} | {step:.0f} | {rate:,.0f} | {releases_a_day(shape, device, work):,.0f} |"


def releases_a_day(shape: Shape, device: Accelerator, work: Work) -> float:
    """Return how many releases a device, or a group of them, writes in a day."""
    rate = tokens_a_second(shape, device, work, generations_that_fit(shape, device, work))
    return SECONDS_A_DAY * rate / (work.texts * work.new_tokens)


HEAD: Final = "| model | device | references | generations at once | ms of a step | tokens/s | releases a day |"


def calculated_table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield HEAD
    yield "| --- | --- |" + " --- |" * 5
    yield from capacity_rows()


if __name__ == "__main__":
    print("\n".join(calculated_table()))
