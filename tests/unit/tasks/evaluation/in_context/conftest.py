"""A tiny model beside the network it was made of, and two small tasks."""

import copy
from dataclasses import dataclass
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch

from tasks.evaluation.in_context.demonstrations import Example, Task
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.adopt import wrap_network
from tests.tiny_model import tiny_network

WEATHER = Task("weather", "Name the weather.", "Note", "Weather", {"w": "Wet", "d": "Dry", "x": "Dry and cold"})
ANIMALS = Task("animals", "Copy the animal.", "Note", "Animal", answer_tokens=6)
NOTES = tuple(
    Example(f"{text} number {number}", label)
    for number in range(4)
    for text, label in (("rain again", "w"), ("sun all day", "d"), ("frost and sun", "x"))
)


@dataclass(frozen=True)
class Pair:
    """One set of weights twice: as transformers runs it, and as we do."""

    network: Any
    model: LanguageModel

    @torch.inference_mode()
    def log_probability(self, prompt: tuple[int, ...], answer: tuple[int, ...]) -> float:
        """log P(answer | prompt), the whole sequence in one pass of transformers."""
        scores = torch.log_softmax(self.network(torch.tensor([prompt + answer])).logits[0].double(), dim=-1)
        return sum(float(scores[len(prompt) + place - 1, token]) for place, token in enumerate(answer))

    @torch.inference_mode()
    def next_token(self, prompt: tuple[int, ...]) -> torch.Tensor:
        """P(token | prompt), float64 [V]."""
        return torch.softmax(self.network(torch.tensor([prompt])).logits[0, -1].double(), dim=-1)


@pytest.fixture(scope="session")
def pair() -> Pair:
    network, tokenizer = tiny_network(seed=11, spread=0.3)
    device = torch.device("cpu")
    model = wrap_network(copy.deepcopy(network), tokenizer, name="tiny", revision="1", digest="d", device=device)
    return Pair(network, model)
