"""Fixed public tokens that a model is tried on when it is taken over, and how far two models then are apart."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Whatever models are asked to write about: people, numbers, law, medicine, food, weather, code.
PUBLIC_TEXT = (
    "The committee met on Tuesday to review the budget. Mrs. Lowell asked why the library had closed early in March; "
    'nobody knew. "We can open again on the 14th," said the director, "if the heating works." Revenue rose by 3.2 % to '
    "$41,500, costs fell. Patients should take two tablets after meals and call the surgery if the pain returns. "
    "def area(r): return 3.14159 * r ** 2. The court finds that the applicant was not informed of her rights. I loved "
    "this place: the pizza was hot, the staff were kind, and we paid less than £20. Rain is expected in the north; in "
    "the south it stays dry."
)

LONGEST_EXAMPLE = 192
"""Tokens of the public text that are looked at."""


def probes(vocabulary: int) -> list[list[int]]:
    """Two fixed sequences of tokens from all over the vocabulary, of different length."""
    return [[(step * index + 3) % vocabulary for index in range(length)] for step, length in ((7, 12), (7919, 48))]


@contextmanager
def largest_inputs(network: nn.Module) -> Iterator[dict[nn.Module, Tensor]]:
    """Fill a dictionary, while the block runs, with the largest magnitude of each input channel of each linear layer.

    Yields:
        linear layer -> float32 [in features].
    """
    largest: dict[nn.Module, Tensor] = {}

    def record_magnitudes(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        magnitudes = inputs[0].reshape(-1, inputs[0].shape[-1]).abs().amax(0)
        largest[layer] = torch.maximum(largest[layer], magnitudes) if layer in largest else magnitudes

    hooks = [
        layer.register_forward_pre_hook(record_magnitudes) for layer in network.modules() if type(layer) is nn.Linear
    ]
    try:
        yield largest
    finally:
        for hook in hooks:
            hook.remove()


def mean_divergence(own: Sequence[Tensor], ours: Sequence[Tensor]) -> float:
    """Return the mean over all positions of KL(own || ours) of the next token, in nats.

    Args:
        own, ours: float32 [tokens, V] logits, one for each sequence.
    """
    theirs = torch.log_softmax(torch.cat(list(own)), -1)
    log_probabilities = torch.log_softmax(torch.cat(list(ours)).to(theirs.device), -1)
    return float((theirs.exp() * (theirs - log_probabilities)).sum(-1).mean())
