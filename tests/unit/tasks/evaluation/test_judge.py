"""Judges that can, cannot, and only follow the order; what a real network is asked."""

import copy
from collections.abc import Sequence

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.in_context.learner import SYSTEM, ModelJudge
from tasks.evaluation.model_based import (
    JUDGE_PROBES,
    RATINGS,
    JudgeTrial,
    judge,
    judge_preference,
    preference_trial,
    preferred,
    rated,
)
from tasks.inference.loading.adopt import wrap_network
from tests.tiny_model import tiny_network
from tests.unit.tasks.evaluation.subjects import texts

FLUENT = {each.text for each in JUDGE_PROBES}
TOPICS = {each.text: each.topic for each in JUDGE_PROBES}


class Fake:
    """A judge that gives each text a worth, and to the text that comes first something on top."""

    name = "fake 1"

    def __init__(self, worth, first: float = 0.0) -> None:
        self.worth, self.first, self.asked = worth, first, 0

    def __call__(
        self, instruction: str, contents: Sequence[str], question: str, answers: Sequence[str]
    ) -> NDArray[np.float64]:
        self.asked += len(contents)
        return np.array([self.scores(content, len(answers)) for content in contents])

    def scores(self, content: str, answers: int) -> list[float]:
        if answers == 5:
            rating = self.worth(content.removeprefix("Text:\n"), None)
            return [-10 * abs(rating - place) for place in range(1, 6)]
        head, _, pair = content.rpartition("Text A:\n")
        topic = head.removeprefix("Topic: ").strip() or None
        a, b = pair.split("\n\nText B:\n")
        return [self.worth(a, topic) + self.first, self.worth(b, topic)]


def good(text: str, topic: str | None) -> float:
    """5 for a planted fluent text on the topic, 4 for any text that begins with `good`, else 2."""
    if text in FLUENT:
        return 5.0 if topic in (None, TOPICS[text]) else 3.0
    return 4.0 if text.startswith("good") else 2.0


def test_a_good_judge_rates_the_texts():
    found = judge(EvaluationInput(texts("good one", "bad one", "good two", "", " "), judge=Fake(good)))
    assert found.values["planted_right"] == "1.0000"
    assert (found.values["judged"], found.values["rating"]) == (3, "3.333")  # 4, 2 and 4
    assert (found.values["rating_low"], found.values["rating_high"]) == ("2.000", "4.000")
    assert found.line == "rated 3.33 of 5"
    assert "fake 1" in found.method


def test_ratings_are_means_by_probability():
    """Answers with probabilities 1/4 for a 2 and 3/4 for a 4: 3.5."""

    def asked(instruction, contents, question, answers):
        assert answers == RATINGS
        return np.log([[1e-300, 0.1, 1e-300, 0.3, 1e-300]])

    asked.name = "by hand"
    assert rated(asked, ["x"]) == pytest.approx([3.5])


def test_a_good_judge_prefers():
    subject = EvaluationInput(texts("good a", "good b", "bad c"), documents=lambda: ["bad"] * 9, judge=Fake(good))
    values = judge_preference(subject).values
    assert (values["judged"], values["draws"], values["preferred"]) == (3, 1, "0.8333")  # two wins and a draw of equals
    assert (values["planted_pairs"], values["planted_swayed"], values["planted_right"]) == (32, 0, "1.0000")


def test_the_order_alone_is_a_draw():
    assert preferred(Fake(good, first=1.0), [("bad", "bad"), ("good", "bad")]).tolist() == [0.5, 1.0]
    assert preferred(Fake(good, first=9.0), [("good", "bad"), ("bad", "good")]).tolist() == [0.5, 0.5]
    assert preferred(Fake(good), [("bad", "good")]).tolist() == [0.0]


@pytest.mark.parametrize(
    "unfit",
    [Fake(lambda text, topic: 3.0), Fake(lambda text, topic: float(len(text) % 5)), Fake(lambda text, topic: 1.0, 9.0)],
    ids=["indifferent", "arbitrary", "the first"],
)
def test_a_judge_that_cannot_gives_no_figure(unfit):
    subject = EvaluationInput(texts("a b", "c d"), documents=lambda: ["e"] * 5, judge=unfit)
    for found, figure in ((judge(subject), "rating"), (judge_preference(subject), "preferred")):
        assert {found.values[figure], found.values[f"{figure}_low"], found.values[f"{figure}_high"]} == {None}
        assert found.values["judged"] == 0
        assert found.values["planted_pairs"] in (16, 32)
        assert "cannot judge" in found.line


def test_texts_are_not_shown_to_a_judge_that_cannot():
    unfit = Fake(lambda text, topic: 3.0)
    judge(EvaluationInput(texts(*["a"] * 50), judge=unfit))
    assert unfit.asked == 2 * len(JUDGE_PROBES)


def test_a_judge_who_follows_the_order_is_found_out():
    trial = preference_trial(Fake(good, first=9.0))
    assert (trial.right, trial.swayed, trial.pairs) == (32, 32, 32)
    assert not trial.passed


@pytest.mark.parametrize(
    ("trial", "able"),
    [
        (JudgeTrial(64, 44, 32), True),  # 22 of 32: from 0.514
        (JudgeTrial(64, 42, 32), False),  # 21 of 32: from 0.483
        (JudgeTrial(64, 48, 32, swayed=16), True),
        (JudgeTrial(64, 48, 32, swayed=17), False),
        (JudgeTrial(16, 13, 16), True),  # from 0.570
        (JudgeTrial(16, 11, 16), False),  # from 0.444
    ],
)
def test_who_can_judge(trial, able):
    assert trial.passed is able


@pytest.mark.parametrize("given", [[], ["", " "]])
def test_without_texts_no_judge_is_asked(given):
    def documents():
        return ["a"]

    for found in (
        judge(EvaluationInput(texts(*given))),
        judge_preference(EvaluationInput(texts(*given), documents=documents)),
    ):
        assert found.values["planted_right"] is None
        assert found.values["judged"] == 0
        assert found.line == "nothing to judge"


def test_without_documents_nothing_is_preferred():
    assert judge_preference(EvaluationInput(texts("a"), documents=list)).line == "nothing to judge"


def test_a_model_is_missed_where_there_is_something_to_judge():
    with pytest.raises(ValueError, match="needs a public model"):
        judge(EvaluationInput(texts("a")))


def test_planted_texts_are_sixteen_and_their_shuffles_lose_no_word():
    assert len(JUDGE_PROBES) == len(FLUENT) == len(set(TOPICS.values())) == 16
    for each in JUDGE_PROBES:
        assert sorted(each.shuffled.split()) == sorted(each.text.split())
        same_place = sum(a == b for a, b in zip(each.shuffled.split(), each.text.split(), strict=True))
        assert same_place < len(each.text.split()) / 4


@pytest.fixture(scope="module")
def network_and_judge():
    network, tokenizer = tiny_network(seed=11, spread=0.3)
    model = wrap_network(
        copy.deepcopy(network), tokenizer, name="tiny", revision="1", digest="d", device=torch.device("cpu")
    )
    return network, ModelJudge(model)


def test_a_network_is_asked_in_its_own_template(network_and_judge):
    """Likelihoods of whole conversations in one pass of transformers, answers of one and of several tokens."""
    network, asked = network_and_judge
    tokenizer = asked.model.tokenizer
    contents, answers = ["rain again", "sun", "a longer text about frost and sun"], ("1", "dry and cold")
    found = asked("Rate it.", contents, "Rating:", answers)
    for row, content in enumerate(contents):
        turns = [("system", SYSTEM), ("user", f"Rate it.\n\n{content}\n\nRating:")]
        messages = [{"role": role, "content": said} for role, said in turns]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        before, _, after = text.partition(content)
        prompt = [token for part in (before, content, after) for token in _plain(tokenizer, part)]
        for column, answer in enumerate(answers):
            assert found[row, column] == pytest.approx(
                _log_probability(network, prompt, _plain(tokenizer, answer)), abs=1e-3
            )
    assert asked.name == "tiny 1"


def test_a_very_long_text_and_control_tokens_are_read_as_text(network_and_judge):
    _, asked = network_and_judge
    control = asked.model.tokenizer.all_special_tokens[0]
    found = asked("Rate it.", ["sun " * 5000, f"{control} sun", ""], "Rating:", ("1", "2"))
    assert np.isfinite(found).all()


def test_a_tiny_random_network_cannot_judge(network_and_judge):
    _, asked = network_and_judge
    found = judge(EvaluationInput(texts("rain again"), judge=asked))
    assert found.values["rating"] is None
    assert "cannot judge" in found.line


def _plain(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.inference_mode()
def _log_probability(network, prompt: list[int], answer: list[int]) -> float:
    scores = torch.log_softmax(network(torch.tensor([prompt + answer])).logits[0].double(), dim=-1)
    return sum(float(scores[len(prompt) + place - 1, token]) for place, token in enumerate(answer))
