"""Membership in the prompts of in-context learning: is a labelled text among the demonstrations that a model reads?

The experiment of Bhusal et al. ("Private ICL", after Duan et al., "Flocks of Stochastic Parrots", NeurIPS 2023): a
model that has just read a text with its label gives that label to the same text more readily. With the real texts in
the prompt the attack wins (their AUC is 94.20), with released ones made from them it should not (51.78 at epsilon 4).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tasks.attacks.roc import Separation, separation
from tasks.evaluation.in_context.demonstrations import Example

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
