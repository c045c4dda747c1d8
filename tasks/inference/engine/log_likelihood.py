"""Log-likelihood of texts under a model; for evaluation, on texts that are public or paid for.

Rows here share padded passes of changing shape, so their bits may depend on each other by about 1e-5: this is a
measurement, never part of a private draw.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tasks.inference.engine.row_batch import RowBatch, left_padded
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import reference_tokens

# Tokens of a pass, padding included, unless one text alone is longer; and tokens whose logits exist at one time.
_TOKENS_AT_ONCE = 1024


def log_likelihoods(
    model: LanguageModel, texts: Sequence[str], progress: Callable[[int, int], None] = lambda done, of: None
) -> list[tuple[float, int]]:
    """Return for each text the sum of its tokens' log-probabilities (nats) and the number of these tokens.

    Each token is scored given those before it; the first has none before it and is not scored, so a text of one
    token, or none, gives (0.0, 0). Text beyond the model's context is not read.

    Args:
        progress: called with the number of texts done and their total.
    """
    sequences = [reference_tokens(model.tokenizer, text, model.positions) for text in texts]
    scores: list[tuple[float, int]] = [(0.0, 0)] * len(texts)
    done = 0
    for group in _groups(sequences):
        for index, score in zip(group, _score(model, [sequences[index] for index in group]), strict=True):
            scores[index] = score
        progress(done := done + len(group), len(texts))
    return scores


def _groups(sequences: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return groups of indices of texts of similar length, each as large as a pass may hold."""
    groups: list[list[int]] = []
    for index in sorted(range(len(sequences)), key=lambda index: len(sequences[index])):
        if groups and (len(groups[-1]) + 1) * len(sequences[index]) <= _TOKENS_AT_ONCE:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


@torch.inference_mode()
def _score(model: LanguageModel, sequences: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    longest = max(len(sequence) for sequence in sequences)
    if longest < 2:
        return [(0.0, 0)] * len(sequences)
    hidden = RowBatch(model, len(sequences), longest).read_all(sequences, longest)
    tokens, real = (part.to(model.device) for part in left_padded(sequences, longest))
    scored = real[:, :-1]
    gains = torch.zeros(scored.shape, dtype=torch.float64, device=model.device)
    gains[scored] = next_token_scores(model, hidden[:, :-1][scored], tokens[:, 1:][scored]).double()
    return list(zip(gains.sum(1).tolist(), scored.sum(1).tolist(), strict=True))


def next_token_scores(model: LanguageModel, hidden: Tensor, following: Tensor) -> Tensor:
    """log P(following | hidden), [N, D] and int64 [N] -> float32 [N]."""
    parts = []
    for start in range(0, len(following), _TOKENS_AT_ONCE):
        some = slice(start, start + _TOKENS_AT_ONCE)
        logits = model.logits(hidden[some])
        parts.append(-torch.nn.functional.cross_entropy(logits, following[some], reduction="none"))
    return torch.cat(parts)
