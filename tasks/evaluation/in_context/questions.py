"""Questions to a model after one shared prompt: likelihoods of words, contextual calibration, predictions.

Shared prompt of many questions, read once: its keys and values are copied to each row. Rows share padded passes of
changing shape: a measurement on public texts, never part of a private draw.

Contextual calibration (Zhao et al., "Calibrate Before Use", ICML 2021, section 4.2): the model's answer to a text
without content is its bias, which is removed from its answers to texts. An affine map of the answer probabilities, W p
+ b. Classification: W = diag(p_cf)^-1, b = 0. The first token of free text: W = identity, b = -p_cf, which the paper
(footnote 7) found better where p has as many parts as the vocabulary: a quotient would let the rarest tokens win. Here
p_cf is over the whole vocabulary and averaged over the texts without content, in both.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.likelihood import next_token_scores
from tasks.inference.engine.rows import RowBatch, left_padded

MEMORY = 2**29
"""Bytes that keys and values of the rows of one pass may take."""

# Tokens of a pass, padding included: more at a time gain nothing on a processor.
_TOKENS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class ReadQuestions:
    """Questions that the model has read behind a shared prompt.

    Attributes:
        numbers: which questions, in the order of the rows.
        rows: their keys and values, the shared prompt's before them.
        hidden: float32 [R, D], the states after the last token of each.
    """

    numbers: tuple[int, ...]
    rows: RowBatch
    hidden: Tensor


@torch.inference_mode()
def read_prompt(model: LanguageModel, tokens: Sequence[int]) -> RowBatch:
    """Return a batch of one row that has read `tokens`."""
    row = RowBatch(model, 1, len(tokens))
    row.read([tokens], len(tokens))
    return row


def ask(
    prompt: RowBatch, questions: Sequence[Sequence[int]], copies: int = 1, more: int = 0
) -> Iterator[ReadQuestions]:
    """Read every question after `prompt`, questions of similar length together.

    Args:
        copies: rows that will be made of each row afterwards, with `more` columns; they too must fit the memory.
    """
    model = prompt.model
    longest_first = sorted(range(len(questions)), key=lambda number: -len(questions[number]))
    while longest_first:
        width = len(questions[longest_first[0]])
        count = _questions_per_pass(model, prompt.filled + width + more, width, copies)
        numbers, longest_first = tuple(longest_first[:count]), longest_first[count:]
        yield _read_questions(prompt, numbers, [questions[number] for number in numbers], width)


@torch.inference_mode()
def _read_questions(
    prompt: RowBatch, numbers: tuple[int, ...], questions: Sequence[Sequence[int]], width: int
) -> ReadQuestions:
    rows = RowBatch(prompt.model, len(numbers), prompt.filled + width)
    rows.begin_with(prompt, [0] * len(numbers))
    return ReadQuestions(numbers, rows, rows.read(questions, width))


def _questions_per_pass(model: LanguageModel, columns: int, width: int, copies: int) -> int:
    """Return how many questions a pass takes; at least one."""
    column = 2 * 4 * model.layers * model.key_value_heads * model.head_size  # key and value, four bytes each
    return max(1, min(_TOKENS_AT_ONCE // width, MEMORY // (column * columns * (1 + copies))))


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


@torch.inference_mode()
def label_scores(prompt: RowBatch, questions: Sequence[Sequence[int]], words: Sequence[Sequence[int]]) -> Tensor:
    """log P(word | prompt, question) in nats, summed over the tokens of a word: float64 [N, L].

    The first tokens of all words are read off one state; only words of more tokens need rows of their own.
    """
    log_probabilities = torch.zeros((len(questions), len(words)), dtype=torch.float64)
    longer = [place for place, word in enumerate(words) if len(word) > 1]
    more = max(map(len, words)) - 1
    firsts = torch.tensor([word[0] for word in words], device=prompt.model.device)
    for answer in ask(prompt, questions, copies=len(longer), more=more):
        first = torch.log_softmax(prompt.model.logits(answer.hidden), dim=-1)
        scores = first[:, firsts].double()
        if longer:
            scores[:, longer] += _continuation_scores(answer, [words[place] for place in longer])
        log_probabilities[list(answer.numbers)] = scores.cpu()
    return log_probabilities


def _continuation_scores(questions: ReadQuestions, words: Sequence[Sequence[int]]) -> Tensor:
    """log P of all tokens of each word after its first: float64 [R, words]."""
    model, width, count = questions.rows.model, max(map(len, words)) - 1, questions.rows.rows
    rows = RowBatch(model, count * len(words), questions.rows.filled + width)
    rows.begin_with(questions.rows, [row for row in range(count) for _ in words])
    hidden = rows.read_all([word[:-1] for word in words] * count, width)
    following, real = left_padded([word[1:] for word in words] * count, width)
    following, real = following.to(model.device), real.to(model.device)
    gains = torch.zeros(real.shape, dtype=torch.float64, device=model.device)
    gains[real] = next_token_scores(model, hidden[real], following[real]).double()
    return gains.sum(1).view(count, len(words))


@torch.inference_mode()
def first_token_bias(prompt: RowBatch, questions: Sequence[Sequence[int]]) -> Tensor:
    """p_cf over the vocabulary: the mean over the `questions`, which have no content; float32 [V]."""
    parts = [torch.softmax(prompt.model.logits(batch.hidden), dim=-1) for batch in ask(prompt, questions)]
    return torch.cat(parts).mean(0)


@torch.inference_mode()
def greedy_answers(
    prompt: RowBatch, questions: Sequence[Sequence[int]], most: int, bias: Tensor
) -> tuple[list[str], list[str]]:
    """Return the first line of the likeliest continuation of each question, token by token, at most `most` tokens.

    Args:
        bias: p_cf, float32 [V]; only the first token is calibrated by it (Zhao et al., 2021, section 4.2).

    Returns:
        the answers as they are, and calibrated. Where both begin alike they are one continuation.
    """
    raw, calibrated = [""] * len(questions), [""] * len(questions)
    for answer in ask(prompt, questions, copies=2, more=most):
        first = torch.softmax(prompt.model.logits(answer.hidden), dim=-1)
        begun = list(enumerate(first.argmax(1).tolist()))
        better = list(enumerate(calibrated_first_token(first, bias).argmax(1).tolist()))
        distinct = list(dict.fromkeys(begun + better))
        texts = dict(zip(distinct, _continuations(answer, distinct, most), strict=True))
        for number, one, other in zip(answer.numbers, begun, better, strict=True):
            raw[number], calibrated[number] = texts[one], texts[other]
    return raw, calibrated


def _continuations(questions: ReadQuestions, begun: Sequence[tuple[int, int]], most: int) -> list[str]:
    """Return the likeliest continuations of (row, first token)."""
    model = questions.rows.model
    rows = RowBatch(model, len(begun), questions.rows.filled + most)
    rows.begin_with(questions.rows, [row for row, _ in begun])
    drawn: list[list[int]] = [[] for _ in begun]
    tokens = torch.tensor([token for _, token in begun], device=model.device)
    running = set(range(len(begun)))
    for step in range(most):
        for row in sorted(running):
            drawn[row].append(int(tokens[row]))
            if _is_end_token(model, drawn[row][-1]):
                running.remove(row)
        if not running or step + 1 == most:
            break
        tokens = model.logits(rows.step(tokens)).argmax(1)
    return [_first_line(model, ids) for ids in drawn]


def _is_end_token(model: LanguageModel, token: int) -> bool:
    return token in model.stop_tokens or "\n" in model.tokenizer.decode([token])


def _first_line(model: LanguageModel, ids: Sequence[int]) -> str:
    text: str = model.tokenizer.decode([token for token in ids if token not in model.stop_tokens])
    return text.split("\n", 1)[0].strip()
