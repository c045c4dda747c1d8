"""Contextual calibration against what one works out by hand."""

import math

import pytest
import torch
from torch import Tensor

from tasks.evaluation.in_context.questions import calibrated_first_token, calibrated_labels, content_free


def logs(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def test_the_bias_is_the_mean_over_the_texts_without_content() -> None:
    bias = content_free(logs((0.8, 0.2), (0.6, 0.4)))
    assert bias.exp().tolist() == pytest.approx([0.7, 0.3])


def test_label_words_need_not_be_the_whole_vocabulary() -> None:
    """Words with a tenth and a hundredth of the probability count alike: each text is scaled to one first."""
    bias = content_free(logs((0.08, 0.02), (0.006, 0.004)))
    assert bias.exp().tolist() == pytest.approx([0.7, 0.3])


def test_a_label_wins_by_what_it_gains_over_the_bias() -> None:
    """0.6/0.7 = 0.857 and 0.4/0.3 = 1.333; scaled to one 0.391 and 0.609."""
    found = calibrated_labels(logs((0.6, 0.4), (0.9, 0.1)), content_free(logs((0.8, 0.2), (0.6, 0.4))))
    assert found[0].tolist() == pytest.approx([0.3913, 0.6087], abs=1e-4)
    assert found[1].tolist() == pytest.approx([0.7941, 0.2059], abs=1e-4)
    assert found.argmax(1).tolist() == [1, 0]


def test_a_text_without_content_gets_every_label_alike() -> None:
    empty = logs((0.05, 0.3, 0.001))
    assert calibrated_labels(empty, content_free(empty))[0].tolist() == pytest.approx([1 / 3] * 3)


def test_words_too_unlikely_for_a_float_are_still_compared() -> None:
    scores = torch.tensor([[-2000.0, -2001.0]], dtype=torch.float64)
    bias = content_free(torch.tensor([[-1500.0, -1503.0]], dtype=torch.float64))
    expected = 1 / (1 + math.exp(2))
    assert calibrated_labels(scores, bias)[0].tolist() == pytest.approx([expected, 1 - expected])


def test_a_first_token_wins_by_the_difference_not_by_the_quotient() -> None:
    """By quotient the rarest token would win: 1e-6 / 1e-9 = 1000 against 0.5 / 0.2."""
    p, bias = torch.tensor([[0.5, 0.499999, 1e-6]]), torch.tensor([0.2, 0.7, 1e-9])
    found = calibrated_first_token(p, bias)
    assert found[0].tolist() == pytest.approx([0.3, -0.200001, 1e-6 - 1e-9])
    assert (p / bias).argmax() == 2
    assert found.argmax() == 0
