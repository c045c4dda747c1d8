"""What is asked of products and attention whose rows must be independent of each other, on any device.

A question returns the problems that it found, so that a broken twin can be asked the same.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import Tensor

from tasks.inference.engine.attention import Attention
from tasks.inference.engine.isolation import FirstResults

ORDERS = 5
FAR, TWO_LAUNCHES, FROZEN = "far from the reference", "two launches differ", "an earlier call decides"


class Linear(Protocol):
    """x [R, K], weight [N, K] and bias [N] or None -> [R, N]."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, /) -> Tensor: ...


def numbers(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 1) -> Tensor:
    """Public numbers, the same on every device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def differing_counts(compute: Callable[[Tensor], Tensor], contents: int, counts: Iterable[int]) -> list[int]:
    """The numbers of rows at which some row came out with other bits than where it was computed first.

    Args:
        compute: contents int64 [R] -> results [R, ...].
        contents: how many there are; those of a pass are drawn anew for each order.
    """
    chance, witness, found = torch.Generator().manual_seed(5), FirstResults(contents), []
    for count in counts:
        for order in range(ORDERS):
            chosen = torch.arange(count) if order == 0 else torch.randperm(contents, generator=chance)[:count]
            witness.compare(chosen, compute(chosen))
        if not witness.holds:
            found.append(count)
            witness.holds = True
    return found


def linear_problems(
    linear: Linear,
    dtype: torch.dtype,
    device: str,
    counts: Iterable[int],
    *,
    inputs: int = 72,
    channels: int = 40,
    with_bias: bool = False,
) -> list[str]:
    """Questions to a linear layer: its results, every number of rows in five orders, and a second launch.

    Args:
        with_bias: only so; else without a bias, too.
    """
    counts = list(counts)
    contents = max(counts)
    deck = numbers(contents, inputs, dtype=dtype, device=device)
    deck[1] *= 100  # loud, beside quiet ones
    weight = numbers(channels, inputs, dtype=dtype, device=device, seed=2)
    bias = numbers(channels, dtype=dtype, device=device, seed=3)
    found = []
    if not all(
        _is_near(linear(deck, weight, some), deck, weight, some) for some in ((bias,) if with_bias else (None, bias))
    ):
        found.append(FAR)
    if not torch.equal(linear(deck, weight, bias), linear(deck, weight, bias)):
        found.append(TWO_LAUNCHES)
    differing = differing_counts(lambda chosen: linear(deck[chosen.to(device)], weight, bias), contents, counts)
    return found + [f"{count} rows" for count in differing]


def as_linear(linear_of_chosen: Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]) -> Linear:
    """A product with chosen rows of a weight as one with all of them, in an order that the row decides."""

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        turns = (x.float()[:, 0] * 100).long() % len(weight)
        chosen = (torch.arange(len(weight), device=x.device) + turns[:, None]) % len(weight)
        result = linear_of_chosen(x, weight, bias, chosen)
        return torch.empty_like(result).scatter_(1, chosen, result)

    return linear


def _is_near(result: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether only float32 sums, and one rounding of the result, lie between a product and its definition.

    Rounding errors of K sums are about sqrt(K) units; inputs in TF32 (10 bits) are several times farther off for K up
    to 256, and sums in bfloat16 for any K.
    """
    exact, size = x.double() @ weight.double().T, x.double().abs() @ weight.double().abs().T
    if bias is not None:
        exact, size = exact + bias.double(), size + bias.double().abs()
    rounding = 0.0 if x.dtype == torch.float32 else 2.0**-8 if x.is_cuda else 2.0**-7  # Triton's interpreter cuts off
    error = (result.double() - exact).abs()
    return bool((error <= 4 * x.shape[1] ** 0.5 * 2.0**-24 * size + rounding * exact.abs()).all())


def attention_problems(
    attention: Attention, dtype: torch.dtype, device: str, counts: Iterable[int], shape: "AttentionShape"
) -> list[str]:
    """Questions to attention: results with every option, companies, a second launch, and calls one after another."""
    counts = list(counts)
    contents, found = max(counts), []
    query, key, value, mask = shape.numbers(contents, dtype, device)
    everything: dict[str, Any] = {"scaling": 0.3, "softcap": 2.0}
    options: list[dict[str, Any]] = [{}, everything]
    for some in options:
        if not _attends(attention, query, key, value, mask, some):
            found.append(FAR)
            break
    another = mask.roll(1, 0)
    another[..., -1] = 0.0
    fewer = slice(0, shape.columns - 8)  # the same memory, seen in part
    calls = [(another, key, value), (mask[..., fewer], key[:, :, fewer], value[:, :, fewer])]
    if FAR not in found and not all(_attends(attention, query, k, v, m, {}) for m, k, v in calls):
        found.append(FROZEN)

    def compute(chosen: Tensor) -> Tensor:
        where = chosen.to(device)
        return attention(None, query[where], key[where], value[where], mask[where], **everything)[0]

    everyone = torch.arange(contents)
    if not torch.equal(compute(everyone), compute(everyone)):
        found.append(TWO_LAUNCHES)
    return found + [f"{count} rows" for count in differing_counts(compute, contents, counts)]


class AttentionShape:
    """A shape of attention: heads, key/value heads, queries, columns and numbers of a head."""

    def __init__(self, heads: int = 4, groups: int = 2, queries: int = 1, columns: int = 80, size: int = 16) -> None:
        self.heads, self.groups, self.queries, self.columns, self.size = heads, groups, queries, columns, size

    def numbers(self, rows: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value and mask, laid out as the engine's: columns of keys innermost, queries head by head."""
        each: dict[str, Any] = {"dtype": dtype, "device": device}
        query = numbers(rows, self.queries, self.heads, self.size, **each).transpose(1, 2)
        key = numbers(rows, self.groups, self.size, self.columns, seed=4, **each).transpose(2, 3)
        value = numbers(rows, self.groups, self.columns, self.size, seed=5, **each)
        mask = torch.zeros(rows, 1, self.queries, self.columns)
        for row in range(rows):
            mask[row, ..., : row * 7 % (self.columns - 8)] = -torch.inf  # whole blocks of some rows
        return query, key, value, mask.to(device)


def _attends(
    attention: Attention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, options: dict[str, Any]
) -> bool:
    """Whether the result is the definition's, computed in float64."""
    result, _ = attention(None, query, key, value, mask, **options)
    heads, size = query.shape[1], query.shape[3]
    repeated = [part.double().repeat_interleave(heads // key.shape[1], 1) for part in (key, value)]
    scores = query.double() @ repeated[0].transpose(2, 3) * float(options.get("scaling", size**-0.5))
    if cap := options.get("softcap"):
        scores = torch.tanh(scores / cap) * cap
    weights = (scores + mask).softmax(-1)
    tolerance = 1e-5 if query.dtype == torch.float32 else 2e-2
    exact = (weights @ repeated[1]).transpose(1, 2)
    return result.shape == exact.shape and torch.allclose(result.double(), exact, rtol=tolerance, atol=tolerance)
