"""Predictions of a model: the likelihood of each label's word, or a free text of the likeliest tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.evaluation.in_context.calibration import calibrated_first_token
from tasks.evaluation.in_context.shared_prompt import ReadQuestions, ask
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.likelihood import next_token_scores
from tasks.inference.engine.rows import RowBatch, left_padded


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
