"""Contextual calibration (Zhao et al., "Calibrate Before Use", ICML 2021, section 4.2): the model's answer to
a text without content is its bias, which is removed from its answers to texts.

An affine map of the answer probabilities, W p + b. Classification: W = diag(p_cf)^-1, b = 0. The first token of free
text: W = identity, b = -p_cf, which the paper (footnote 7) found better where p has as many parts as the vocabulary:
a quotient would let the rarest tokens win. Here p_cf is over the whole vocabulary and averaged over the texts without
content, in both.
"""

import math

import torch
from torch import Tensor


def content_free(scores: Tensor) -> Tensor:
    """log p_cf of the answers: float64 [M, L] log-likelihoods for M texts without content -> float64 [L].

    Each text's likelihoods are made to add up to one over the answers; then the mean over the texts is taken.
    """
    return torch.logsumexp(torch.log_softmax(scores, dim=1), dim=0) - math.log(scores.shape[0])


def calibrated_labels(scores: Tensor, bias: Tensor) -> Tensor:
    """Calibrated probabilities of the labels.

    Args:
        scores: float64 [N, L], log-likelihoods of the answers.
        bias: float64 [L], log p_cf.

    Returns:
        float64 [N, L], diag(p_cf)^-1 p, scaled to add up to one.
    """
    return torch.softmax(scores - bias, dim=1)


def calibrated_first_token(probabilities: Tensor, bias: Tensor) -> Tensor:
    """Return p - p_cf, the scores of first tokens (no probabilities): float [N, V] and [V] -> [N, V]."""
    return probabilities - bias
