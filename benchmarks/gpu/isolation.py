"""Sections `sweep` and `isolation`: whether a row's bits depend on its place, its company, or their number."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.networks import LLAMA_1B, LLAMA_8B, SMOLLM2, memory_returned, random_model
from benchmarks.gpu.section import Bench
from tasks.inference.catalogue.model_check import PRECISIONS, Precision, PrecisionMissing
from tasks.inference.engine.attention import ALIGNMENT
from tasks.inference.engine.isolation import FirstResults, IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import LanguageModel, head_widths
from tasks.inference.engine.rows import RowBatch, prefill_shape

ORDERS = 5
"""Passes for each number of rows: the same rows in other places, so that each is launched again, too."""
LAYERS = 2
"""All layers have the same shapes."""
_COLUMNS = 640
_LONGEST = 24


def sweep(bench: Bench) -> None:
    """Every number of rows: a difference at 44 and 45 rows alone has been seen elsewhere."""
    most = 6 if bench.small else 64
    for precision in _precisions(bench, "sweep"):
        with memory_returned():
            model = random_model(LLAMA_1B, bench.device, precision, small=bench.small, layers=LAYERS)
            alone: dict[int, Tensor] = {}
            for rows in range(1, most + 1):
                bench.row(f"{precision}, {rows} rows", partial(_swept, model, rows, alone))


def _swept(model: LanguageModel, rows: int, first: dict[int, Tensor]) -> Mapping[str, Any]:
    """Logits of `rows` rows in several orders; `first` has those of the least number of rows that had the row.

    That a row has the same bits at another number of rows is not needed for isolation, whose passes have a fixed shape;
    it is what kernels that do not depend on the batch promise.
    """
    witness, chance = FirstResults(rows), torch.Generator().manual_seed(rows)
    same = True
    for number in range(ORDERS):
        order = torch.arange(rows) if number == 0 else torch.randperm(rows, generator=chance)
        logits = _logits(model, [_text(int(place), model.vocabulary) for place in order])
        witness.compare(order, logits)
        if number == 0:
            for row in range(rows):
                same &= torch.equal(first.setdefault(row, logits[row]), logits[row])
    found: dict[str, Any] = {"passed": witness.holds}
    return found if same else found | {"other bits than with fewer rows": True}


@torch.inference_mode()
def _logits(model: LanguageModel, rows: Sequence[Sequence[int]]) -> Tensor:
    """float32 [R, V] after a prompt and one step."""
    batch = RowBatch(model, len(rows), _LONGEST + 1)
    batch.read_all([row[:-1] for row in rows], _LONGEST)
    return model.logits(batch.step(torch.tensor([row[-1] for row in rows], device=model.device)))


def _text(number: int, vocabulary: int) -> list[int]:
    length = 3 + number * 7 % (_LONGEST - 2)
    return [(number * 61 + 17 * place * place + 5 * place) % (vocabulary - 10) + 8 for place in range(length)]


@dataclass(frozen=True)
class Question:
    """One question to the device, by its name."""

    name: str
    ask: Any


def shapes(bench: Bench) -> None:
    """The engine's own question about every part of a pass (`tasks.inference.engine.isolation`)."""
    for precision in _precisions(bench, "isolation"):
        for name in (SMOLLM2,) if bench.small else (LLAMA_8B, SMOLLM2, LLAMA_1B):
            with memory_returned():
                model = random_model(name, bench.device, precision, small=bench.small, layers=LAYERS)
                check = IsolationCheck(model)
                for question in _questions(model, check, (4, 8) if bench.small else (8, 64, 256)):
                    bench.row(f"{name}, {precision}, {question.name}", partial(_verdict, question))


def _questions(model: LanguageModel, check: IsolationCheck, row_counts: Sequence[int]) -> Iterator[Question]:
    few, many = prefill_shape(model.device)
    columns = list(range(4 * ALIGNMENT, _COLUMNS + 1, 4 * ALIGNMENT))
    yield Question(f"prompts of {few} x {many}: layers", partial(check.layers, few, many))
    prompts = [count for count in (many, 2 * many, 4 * many) if count <= _COLUMNS]
    yield Question(f"prompts of {few} x {many}: attention", partial(check.attention, few, many, prompts, _COLUMNS))
    for rows in row_counts:
        yield Question(f"{rows} rows: layers", partial(check.layers, rows, 1))
        yield Question(f"{rows} rows: attention", partial(check.attention, rows, 1, columns, _COLUMNS))
        yield Question(f"{rows} rows: head", partial(check.head, rows))
        for width in head_widths(model.vocabulary):
            if width <= 8192:
                yield Question(f"{rows} rows: {width} candidates", partial(check.candidates, rows, width))


def _verdict(question: Question) -> Mapping[str, Any]:
    try:
        question.ask()
    except RowsNotIsolated as refusal:
        return {"passed": False, "not isolated": refusal.facts["shape"]}
    return {"passed": True}


def _precisions(bench: Bench, what: str) -> Iterator[Precision]:
    """The precisions of this device; each other is a row that says by which reason it is refused."""
    for precision in PRECISIONS:
        try:
            random_model(SMOLLM2, bench.device, precision, small=True)
        except PrecisionMissing as refusal:
            bench.row(f"{what}, {precision}", lambda refusal=refusal: {"passed": True, "refused": refusal.message})
            continue
        yield precision
