"""Shared reading gives what reading everything anew gives; greedy answers are the likeliest tokens."""

import pytest
import torch

from tasks.evaluation.in_context import questions as predictions
from tasks.evaluation.in_context import questions as shared_prompt
from tasks.evaluation.in_context.demonstrations import PromptWriter
from tasks.evaluation.in_context.questions import first_token_bias, greedy_answers, label_scores, read_prompt
from tasks.inference.engine.language_model import LanguageModel
from tests.unit.tasks.evaluation.in_context.conftest import ANIMALS, NOTES, WEATHER, Pair

TEXTS = ["rain", "", "not a cloud since the early morning, and none expected", "frost " * 9]


def written(pair: Pair, task=WEATHER):
    writer = PromptWriter(task, pair.model.tokenizer, most=64)
    shared = writer.shared(NOTES[:3], 900)
    return writer, shared.tokens, [writer.question(text)[0] for text in TEXTS]


@pytest.mark.parametrize("memory", [1, 2**29])
def test_a_prompt_that_is_read_once_gives_the_same_likelihoods(pair: Pair, memory: int, monkeypatch) -> None:
    """Against transformers, every prompt, question and word in a pass of its own; also where each has its own group."""
    monkeypatch.setattr(shared_prompt, "MEMORY", memory)
    writer, prompt, questions = written(pair)
    words = writer.label_words()
    found = label_scores(read_prompt(pair.model, prompt), questions, words)
    assert found.shape == (4, 3)
    for row, question in enumerate(questions):
        for column, word in enumerate(words):
            assert float(found[row, column]) == pytest.approx(pair.log_probability(prompt + question, word), abs=1e-4)


def test_the_shared_prompt_is_read_once(pair: Pair, monkeypatch) -> None:
    """Padding included, fewer tokens are read than two questions would need that each read it anew."""
    read: list[int] = []
    plain = LanguageModel.hidden

    def counted(self: LanguageModel, tokens: torch.Tensor, *rest: object) -> torch.Tensor:
        read.append(tokens.numel())
        return plain(self, tokens, *rest)

    monkeypatch.setattr(LanguageModel, "hidden", counted)
    writer = PromptWriter(WEATHER, pair.model.tokenizer, most=64)
    prompt = writer.shared(NOTES, 900).tokens
    questions = [writer.question(text)[0] for text in ("fog", "hail")]
    label_scores(read_prompt(pair.model, prompt), questions, [(30,), (31,)])
    assert sum(read) == len(prompt) + 2 * len(questions[1])


def test_words_of_one_token_need_no_rows_of_their_own(pair: Pair, monkeypatch) -> None:
    _, prompt, questions = written(pair)
    words = [(30,), (31,), (32,)]
    expected = [[pair.log_probability(prompt + question, word) for word in words] for question in questions]
    monkeypatch.setattr(predictions, "_continuation_scores", None)
    found = label_scores(read_prompt(pair.model, prompt), questions, words)
    assert found.tolist() == [pytest.approx(row, abs=1e-4) for row in expected]


def test_words_of_one_and_of_many_tokens_together(pair: Pair) -> None:
    _, prompt, questions = written(pair)
    words = [(30, 40, 50, 60), (31,), (30, 40)]
    found = label_scores(read_prompt(pair.model, prompt), questions[:1], words)
    expected = [pair.log_probability(prompt + questions[0], word) for word in words]
    assert found[0].tolist() == pytest.approx(expected, abs=1e-4)


def test_the_first_token_bias_is_the_mean_distribution(pair: Pair) -> None:
    _, prompt, questions = written(pair)
    found = first_token_bias(read_prompt(pair.model, prompt), questions)
    expected = torch.stack([pair.next_token(prompt + question) for question in questions]).mean(0)
    assert torch.allclose(found.double(), expected, atol=1e-5)


def greedy(pair: Pair, prompt: tuple[int, ...], most: int, bias: torch.Tensor) -> str:
    """Token by token through transformers, everything read anew each time."""
    drawn: tuple[int, ...] = ()
    for step in range(most):
        scores = pair.next_token(prompt + drawn) - (bias if step == 0 else 0)
        drawn += (int(scores.argmax()),)
        if drawn[-1] in pair.model.stop_tokens or "\n" in pair.model.tokenizer.decode([drawn[-1]]):
            break
    kept = [token for token in drawn if token not in pair.model.stop_tokens]
    return pair.model.tokenizer.decode(kept).split("\n")[0].strip()


@pytest.mark.parametrize("memory", [1, 2**29])
def test_greedy_answers_are_the_likeliest_tokens(pair: Pair, memory: int, monkeypatch) -> None:
    monkeypatch.setattr(shared_prompt, "MEMORY", memory)
    _, prompt, questions = written(pair, ANIMALS)
    none = torch.zeros(pair.model.vocabulary, dtype=torch.float64)
    # a bias that forbids what the first question would begin with, and nothing else
    bias = none.clone()
    bias[int(pair.next_token(prompt + questions[0]).argmax())] = 1.0
    raw, calibrated = greedy_answers(read_prompt(pair.model, prompt), questions, 6, bias.float())
    assert raw == [greedy(pair, prompt + question, 6, none) for question in questions]
    assert calibrated == [greedy(pair, prompt + question, 6, bias) for question in questions]
    assert raw[0] != calibrated[0]


def test_an_answer_ends_with_its_line(pair: Pair, monkeypatch) -> None:
    """The likeliest first token becomes one that contains a line's end: nothing is left of the answer."""
    _, prompt, questions = written(pair, ANIMALS)
    newline = pair.model.tokenizer("\n", add_special_tokens=False)["input_ids"][0]
    bias = torch.zeros(pair.model.vocabulary)
    bias[newline] = -2.0
    _, calibrated = greedy_answers(read_prompt(pair.model, prompt), questions, 6, bias)
    assert calibrated == ["", "", "", ""]
