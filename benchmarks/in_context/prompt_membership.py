"""Membership in the prompts of in-context learning: is a labelled text among the demonstrations that a model reads?

The experiment of Bhusal et al. ("Private ICL", after Duan et al., "Flocks of Stochastic Parrots", NeurIPS 2023): a
model that has just read a text with its label gives that label to the same text more readily. With the real texts in
the prompt the attack wins (their AUC is 94.20), with released ones made from them it should not (51.78 at epsilon 4).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from tasks.attacks.roc import Separation, separation
from tasks.evaluation.in_context.demonstrations import Example, require_labels
from tasks.evaluation.in_context.measure import MAX_TEXT_TOKENS
from tasks.evaluation.in_context.predictions import label_scores
from tasks.evaluation.in_context.prompts import PromptWriter
from tasks.evaluation.in_context.shared_prompt import read_prompt
from tasks.evaluation.in_context.task_definitions import Task
from tasks.inference.network.language_model import LanguageModel

Answerer: TypeAlias = Callable[[Sequence[Example], Sequence[Example]], Sequence[float]]
"""(demonstrations in the prompt, items) -> for each item the log-probability that the model gives its right label."""


@dataclass(frozen=True)
class PromptRound:
    """One prompt, and the items that the attacker asks about.

    Attributes:
        shown: the demonstrations in the prompt: the members themselves, or what was released instead of them.
        members: items that are, or stand behind, the demonstrations.
        nonmembers: other items of the same kind.
    """

    shown: Sequence[Example]
    members: Sequence[Example]
    nonmembers: Sequence[Example]


def few_shot_membership(answer: Answerer, rounds: Sequence[PromptRound]) -> Separation:
    """The separation of members and non-members over all prompts together, with one threshold for all of them.

    Without a round, members or non-members nothing is measured.
    """
    inside: list[float] = []
    outside: list[float] = []
    for each in rounds:
        items = [*each.members, *each.nonmembers]
        if not items:
            continue
        scores = list(answer(each.shown, items))
        inside += scores[: len(each.members)]
        outside += scores[len(each.members) :]
    return separation(inside, outside)


def right_answers(
    model: LanguageModel, task: Task, max_text_tokens: int = MAX_TEXT_TOKENS
) -> Callable[[Sequence[Example], Sequence[Example]], list[float]]:
    """(demonstrations, items) -> for each item log P(its label | prompt, text) among the labels, nats.

    What the attack reads of a model. Demonstrations that do not fit into its context are left out, the earliest first.

    Raises:
        ValueError: a task of slot filling, which has no labels to choose among.
        UnknownLabel, PromptTooLong: when it is called.
    """
    if task.fills_slots:
        raise ValueError(f"the task {task.name} has no labels to be sure of")
    writer = PromptWriter(task, model.tokenizer, max_text_tokens)
    words = writer.label_words()

    def answer(shown: Sequence[Example], items: Sequence[Example]) -> list[float]:
        require_labels(task, [*shown, *items])
        if not items:
            return []
        questions = [writer.question(item.text)[0] for item in items]
        room = model.positions - max(map(len, questions)) - max(map(len, words))
        prompt = read_prompt(model, writer.shared(shown, room).tokens)
        scores = torch.log_softmax(label_scores(prompt, questions, words), dim=1)
        right: list[float] = scores[range(len(items)), [task.labels.index(item.label) for item in items]].tolist()
        return right

    return answer
