"""Expert layers (mixtures of experts) in which a row meets no other row.

A library multiplies an expert with the tokens that were sent to it. How many those are follows from the texts of all
rows, and products of other sizes add in another order, so one row moves the last bits of the others, and through a
near tie of the router a whole expert. Here every expert is multiplied with every token of a pass, in products whose
size is public, and a token then takes the results of its own experts:

    y_t = sum over e = 1..E, ascending, of p_te f_e(x_t) where token t chose e, and 0 if it did not

What a token chose is a function of its own router logits. So the layer is row-wise exactly as far as linear layers
are, which the device is asked about (`tasks.inference.isolation`). The price is E / k times the products that a
library computes, for k experts of a token.
"""

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn

from tasks.inference.network.packed_linear import frozen_linear

_GPT_OSS: Final = "transformers.models.gpt_oss.modeling_gpt_oss.GptOssMLP"


class RowWiseExperts(nn.Module):
    """The expert layer of gpt-oss (OpenAI 2025, arXiv 2508.10925, section 2): its router, and gated experts.

    f(x) = W2 ((min(g, L) sigmoid(a min(g, L))) (clip(u, -L, L) + 1)) + b2, where W1 x + b1 holds g and u by turns.

    Args:
        router: [D] -> [E].
        inner, outer: W1, b1 and W2, b2 of each expert: [D] -> [2 I] and [I] -> [D].
        chosen: k, the experts of a token.
        gain, limit: a and L.
    """

    def __init__(
        self,
        router: nn.Linear,
        inner: Iterable[nn.Linear],
        outer: Iterable[nn.Linear],
        chosen: int,
        gain: float,
        limit: float,
    ) -> None:
        super().__init__()
        self.router, self.inner, self.outer = router, nn.ModuleList(inner), nn.ModuleList(outer)
        self.chosen, self.gain, self.limit = chosen, gain, limit

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x`: float32 or bfloat16 [R, Q, D] -> the same, and the weights of the experts [R, Q, k]."""
        logits, experts = self.router(x).topk(self.chosen, dim=-1)
        weights = torch.softmax(logits, dim=-1)
        mixed = torch.zeros_like(x)
        for number, (inner, outer) in enumerate(zip(self.inner, self.outer, strict=True)):
            takes = experts == number
            weight = weights.masked_fill(~takes, 0.0).sum(-1, keepdim=True)  # of one number and zeros: exact
            result = outer(self._gated(inner(x))) * weight
            mixed = mixed + result.masked_fill(~takes.any(-1, keepdim=True), 0.0)
        return mixed, weights

    def _gated(self, both: Tensor) -> Tensor:
        gate, up = both[..., ::2].clamp(max=self.limit), both[..., 1::2].clamp(-self.limit, self.limit)
        return (up + 1) * (gate * torch.sigmoid(gate * self.gain))


def has_row_wise_form(module: nn.Module) -> bool:
    """Return whether `replace_experts` knows a row-wise form of this module."""
    return f"{type(module).__module__}.{type(module).__qualname__}" == _GPT_OSS


def replace_experts(network: nn.Module) -> None:
    """Give each known expert layer of a network its row-wise form, in place; the weights are shared, not copied.

    Other mixtures of experts stay as they are, and are refused (`row_wise_modules`).
    """
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if has_row_wise_form(child):
                setattr(parent, name, _row_wise(child))


def _row_wise(layer: Any) -> RowWiseExperts:
    router, experts = layer.router, layer.experts
    return RowWiseExperts(
        frozen_linear(router.weight.detach(), router.bias.detach()),
        _linears(experts.gate_up_proj, experts.gate_up_proj_bias),
        _linears(experts.down_proj, experts.down_proj_bias),
        router.top_k,
        experts.alpha,
        experts.limit,
    )


def _linears(weights: Tensor, biases: Tensor) -> Iterable[nn.Linear]:
    """Yield a layer for each expert: [E, in, out] and [E, out]."""
    for weight, bias in zip(weights.detach().unbind(), biases.detach().unbind(), strict=True):
        yield frozen_linear(weight.T, bias)
