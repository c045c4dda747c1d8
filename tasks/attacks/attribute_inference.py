"""Attribute inference: a guess about a person from the released texts nearest to that person.

The attacker knows a part of somebody's text, a public set of people whose attribute is known, and the release. It finds
the released texts nearest to what it knows, lets each vote by its nearest public people, and takes the winner. If a
release carries over more of a person than what everybody of that kind has in common, the guess is right more often for
people of the corpus than for people who were held out. The guess at held-out people is the level to compare with: what
can be inferred about anybody is no leak (Jayaraman and Evans, "Are Attribute Inference Attacks Just Imputation?",
CCS 2022). The share of the commonest value stands beside both.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.attacks.extraction import Extracted
from tasks.text.public_models import Embedder

NEAREST_TEXTS = 3


NEAREST_PEOPLE = 5


@dataclass(frozen=True)
class Person:
    """Target of an attribute inference.

    Attributes:
        known_text: the part of their text that the attacker knows.
        value: the attribute.
    """

    known_text: str
    value: str


@dataclass(frozen=True)
class Inference:
    """Counts of correct guesses of the attribute.

    Attributes:
        members, held_out: correct guesses about people of the corpus, and about held-out people.
        commonest: correct guesses by the baseline, which always guesses the most common value of the public people.
    """

    members: Extracted
    held_out: Extracted
    commonest: Extracted


def infer(
    embed: Embedder,
    released: Sequence[str],
    public: Sequence[Person],
    members: Sequence[Person],
    held_out: Sequence[Person],
) -> Inference | None:
    """Guess for members and for held-out people; None if nothing was released or nobody public is known."""
    if not released or not public:
        return None
    answers = _votes(embed, released, public)
    people = [*members, *held_out]
    right = [False] * len(people)
    if people:
        near = _nearest(embed([person.known_text for person in people]), embed(released), NEAREST_TEXTS)
        right = [
            _winner([answers[place] for place in places]) == person.value
            for places, person in zip(near, people, strict=True)
        ]
    guess = _winner([Counter(person.value for person in public)])
    return Inference(
        members=Extracted(sum(right[: len(members)]), len(members)),
        held_out=Extracted(sum(right[len(members) :]), len(held_out)),
        commonest=Extracted(sum(person.value == guess for person in people), len(people)),
    )


def _votes(embed: Embedder, released: Sequence[str], public: Sequence[Person]) -> list[Counter[str]]:
    """Return for each released text the values of the public people nearest to it."""
    near = _nearest(embed(released), embed([person.known_text for person in public]), NEAREST_PEOPLE)
    return [Counter(public[place].value for place in places) for places in near]


def _winner(votes: Sequence[Counter[str]]) -> str:
    """Return the value with most votes; of several, the first by name."""
    total: Counter[str] = sum(votes, Counter())
    return min(total, key=lambda value: (-total[value], value))


def _nearest(points: NDArray[np.float32], others: NDArray[np.float32], most: int) -> list[list[int]]:
    """Return for each point the places of the nearest others by cosine, nearest first."""
    ours, theirs = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (points, others))
    order: list[list[int]] = np.argsort(-(ours @ theirs.T), axis=1, kind="stable")[:, :most].tolist()
    return order
