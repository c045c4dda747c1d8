"""Frozen language model for training: differentiable with respect to its inputs.

The engine's model is not differentiable: its linear layers are oneDNN products without a derivative. Here the same
weights are packed twice, plain and transposed, so a step back is one packed product, too (two cores with bfloat16
arithmetic, a batch of 8 x 110 tokens of SmolLM2-135M, busy machine: 19 s with plain float32 layers, 11 s packed, 4 s
packed in bfloat16). Nothing private is ever read with it, so rows need no isolation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from tasks.inference.catalogue.devices import CPU, can_pack, choose_device, use_full_precision
from tasks.inference.catalogue.model_store import open_model
from tasks.inference.catalogue.registry import find
from tasks.inference.engine.linear_layers import widened
from tasks.inference.loading.load_model import located, read_network
from tasks.inference.prompt_rendering import PromptPieces

_ROWS_HINT = 1024


@dataclass(frozen=True)
class Line:
    """One training target: the prompt around the soft tokens, and the summary after it.

    Attributes:
        target: the summary's tokens, and the token that ends a text unless the summary was cut.
    """

    pieces: PromptPieces
    target: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """A causal language model whose weights stay as they are.

    Attributes:
        network: transformers' model; its linear layers are replaced in place.
        dtype: of its computation.
    """

    network: Any
    device: torch.device
    dtype: torch.dtype

    @property
    def embeddings(self) -> Tensor:
        """Input embeddings, [V, D]."""
        weight: Tensor = self.network.get_input_embeddings().weight
        return weight

    def loss(self, soft: Tensor, lines: Sequence[Line]) -> tuple[Tensor, int]:
        """Return the loss of all targets together in nats, and their number of tokens.

        Args:
            soft: float32 [B, m, D], the soft tokens of each line.
        """
        rows = [self._row(soft_tokens, line) for soft_tokens, line in zip(soft, lines, strict=True)]
        longest = max(len(row) for row in rows)
        padded = torch.stack([nn.functional.pad(row, (0, 0, 0, longest - len(row))) for row in rows])
        hidden = self.network.base_model(inputs_embeds=padded, use_cache=False).last_hidden_state
        # The state before each target token; the padding comes after all tokens and affects none.
        spans = [slice(len(row) - len(line.target), len(row)) for row, line in zip(rows, lines, strict=True)]
        before = torch.cat([hidden[number, span] for number, span in enumerate(spans)])
        targets = torch.tensor([token for line in lines for token in line.target], device=self.device)
        logits = self.network.get_output_embeddings()(before).float()
        return nn.functional.cross_entropy(logits, targets, reduction="sum"), len(targets)

    def _row(self, soft: Tensor, line: Line) -> Tensor:
        """Return [tokens, D]: the prompt with its soft tokens and the target, whose last token is not read."""
        prefix, suffix = line.pieces.prefix, (*line.pieces.suffix, *line.target[:-1])
        before, after = (self.embeddings[torch.tensor(part, device=self.device)] for part in (prefix, suffix))
        return torch.cat([before, soft.to(self.device, self.dtype), after])


def load_frozen(name: str, device: str, dtype: torch.dtype) -> FrozenNetwork:
    """Load a pulled model to train through; errors as `tasks.inference.loading.load_model.load`."""
    with open_model(name, *located(find(name))) as (_, folder):
        network, _ = read_network(name, folder, AutoModelForCausalLM)
    return freeze(network, choose_device(device), dtype)


def freeze(network: Any, device: torch.device, dtype: torch.dtype) -> FrozenNetwork:
    """Freeze a transformers model, which is changed in place."""
    use_full_precision()
    network.eval().requires_grad_(False)
    # Parameters only: tables of angles stay in float32.
    for parameter in network.parameters():
        parameter.data = parameter.data.to(dtype)
    if can_pack(device):
        _replace(network)
    return FrozenNetwork(network.to(device), device, dtype)


class _PackedProduct(torch.autograd.Function):
    """x @ W.T and its derivative, both with packed weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, transposed: Tensor, bias: Tensor | None) -> Tensor:
        """Map [..., K] -> [..., N]."""
        ctx.transposed = transposed
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return product

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        """Map [..., N] -> [..., K]; the weights are frozen."""
        back = torch.ops.mkldnn._linear_pointwise(slopes[0].contiguous(), ctx.transposed, None, "none", [], "")
        return back, None, None, None


class FrozenLinear(nn.Module):
    """A linear layer that is differentiable with respect to its input alone (CPU).

    Where products of its type do not work, it is float32 inside (`packed_linear.WidenedLinear`).
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        linear = linear if can_pack(CPU, linear.weight.dtype) else widened(linear)
        weight = linear.weight.detach()
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
        self._transposed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous(), _ROWS_HINT)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in features] -> [..., out features], of the input's type."""
        product: Tensor = _PackedProduct.apply(  # type: ignore[no-untyped-call]  # torch's own gap
            x.to(self._weight.dtype), self._weight, self._transposed, self._bias
        )
        return product.to(x.dtype)


def _replace(network: nn.Module) -> None:
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, FrozenLinear(child))
