"""Memory that a session takes on an accelerator beside its keys and values, counted from public numbers.

Three parts count: what lies between the kernels of a pass, which recorded passes share in one pool
(`recorded_passes.CudaGraphs`); the outputs that recorded passes keep, one for each shape; and logits, with the rows of
the head that are gathered for them (`candidate_head`). Each is the most that any system may ask for. On a CPU nothing
is counted: half of its memory is left free for that.
"""

from torch import Tensor, nn

from tasks.inference.engine.ring_buffer import visible_counts
from tasks.inference.engine.row_batch import blocks, prefill_shape
from tasks.inference.network.attention import aligned, attention_of, grouped_attention
from tasks.inference.network.candidate_head import GATHERED
from tasks.inference.network.language_model import LanguageModel

_FLOAT = 4
_STATES, _WIDE, _SCORES = 8, 4, 4
"""Tensors of a layer that are there at one time: hidden states, the widest products, scores of all columns."""
_PUBLIC_LOGITS, _PRIVATE_LOGITS = 6, 3
"""Copies of the logits of all rows: what a rule computes from public ones, and chunks that are joined and chosen."""


def working_bytes(
    model: LanguageModel, public_rows: int, private_rows: int, rows: int, public_columns: int, private_columns: int
) -> int:
    """Return the bytes beside keys and values; 0 on a CPU.

    Args:
        public_rows, private_rows: rows of all passes together.
        rows: of the largest pass over one token of each row.
        public_columns, private_columns: of their caches.
    """
    if model.device.type == "cpu":
        return 0
    height, width = prefill_shape(model.device)
    columns = aligned(max(public_columns, private_columns))
    between = max(pass_bytes(model, rows, 1, columns), pass_bytes(model, height, width, columns))
    steps = len(visible_counts(1, columns, model.device))
    kept = steps * (public_rows + private_rows) + len(blocks(columns, width)) * height * width
    logits = _PUBLIC_LOGITS * public_rows + _PRIVATE_LOGITS * private_rows
    return between + _FLOAT * (kept * model.width + logits * model.vocabulary + GATHERED)


def pass_bytes(model: LanguageModel, rows: int, queries: int, columns: int) -> int:
    """Return the bytes between the kernels of a pass over `queries` tokens of `rows` rows; float32 numbers throughout.

    Scores of all columns lie in memory where attention is torch's (`grouped_attention`); masks do in any case.
    """
    scores = _SCORES * model.heads if attention_of(model.kernels) is grouped_attention else 0
    return _FLOAT * rows * queries * (_STATES * model.width + _WIDE * _widest(model) + (_SCORES + scores) * columns)


def _widest(model: LanguageModel) -> int:
    """Return the largest number of outputs of a layer's weight."""
    tables = {id(module.weight) for module in model.decoder.modules() if isinstance(module, nn.Embedding)}
    weights: list[Tensor] = [weight for weight in model.decoder.parameters() if id(weight) not in tables]
    return max((max(weight.shape[-2:]) for weight in weights), default=model.width)
