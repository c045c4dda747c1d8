"""How sure a model is of the right label of each item, after a prompt of demonstrations: what membership attacks on
few-shot prompts read (`tasks.attacks.few_shot`)."""

from collections.abc import Callable, Sequence

import torch

from tasks.evaluation.in_context.answers import label_scores
from tasks.evaluation.in_context.definitions import Task
from tasks.evaluation.in_context.demonstrations import Example, require_labels
from tasks.evaluation.in_context.measure import MAX_TEXT_TOKENS
from tasks.evaluation.in_context.prompts import PromptWriter
from tasks.evaluation.in_context.reading import read_prompt
from tasks.inference.language_model import LanguageModel


def right_answers(
    model: LanguageModel, task: Task, max_text_tokens: int = MAX_TEXT_TOKENS
) -> Callable[[Sequence[Example], Sequence[Example]], list[float]]:
    """(demonstrations, items) -> for each item log P(its label | prompt, text) among the labels, nats.

    Demonstrations that do not fit into the model's context are left out, the earliest first.

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
