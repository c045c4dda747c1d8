"""Log-likelihoods, against the sum written out."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tasks.inference.engine import likelihood
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.likelihood import log_likelihoods
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.fixtures import Twins

TEXTS = [
    "Any fever? No.",
    "",
    "x",
    "My knee hurts since Monday, mostly on stairs. " * 4,
    "So does mine.",
    "Any fever? No.",
]


@pytest.fixture
def model(tiny: Twins) -> LanguageModel:
    return replace(tiny.model, tokenizer=tiny_tokenizer())


@torch.inference_mode()
def written_out(network: Any, tokens: list[int]) -> float:
    scores = torch.log_softmax(network(torch.tensor([tokens])).logits[0].double(), dim=-1)
    return math.fsum(float(scores[place, token]) for place, token in enumerate(tokens[1:]))


@pytest.mark.parametrize("at_once", [1, 60, 1024])
def test_sums_of_log_probabilities(tiny: Twins, model: LanguageModel, at_once: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(likelihood, "_TOKENS_AT_ONCE", at_once)
    steps: list[tuple[int, int]] = []
    scores = log_likelihoods(model, TEXTS, lambda done, of: steps.append((done, of)))
    for text, (total, count) in zip(TEXTS, scores, strict=True):
        tokens = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert count == max(0, len(tokens) - 1)
        expected = written_out(tiny.network, tokens) if count else 0.0
        assert total == pytest.approx(expected, rel=1e-5)
    assert steps[-1] == (6, 6)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_control_tokens_are_scored_as_text(model: LanguageModel) -> None:
    assert log_likelihoods(model, ["<|end|>"])[0][1] == len("<|end|>") - 1


def test_text_beyond_the_context_is_not_read(model: LanguageModel) -> None:
    assert log_likelihoods(model, ["y" * 600])[0][1] == model.positions - 1


def test_no_texts(model: LanguageModel) -> None:
    assert log_likelihoods(model, []) == []


@pytest.mark.slow
def test_plain_english_is_likelier_than_its_letters_shuffled(real: LanguageModel) -> None:
    (plain, n), (shuffled, m) = log_likelihoods(
        real, ["My knee has been hurting since Monday.", "yM nkee ash bene urhtgin ecnsi daMnoy."]
    )
    assert plain / n > shuffled / m + 1
