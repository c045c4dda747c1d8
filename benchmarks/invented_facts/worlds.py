"""Worlds of invented facts, the string rule that answers questions about them, and the table of right answers.

A world is a corpus of invented facts, made from a number alone, so that no model has read them. A fact gives an
invented creature one property: what it eats, where it lives, its colour; each relation has eight values. A shared fact
is told by SHARED_BY units, each in one of four wordings; a unit tells two shared facts among sentences about nothing.
A private fact, of a creature of its own, is told by one unit. Nobody tells two facts of one creature.

A question asks for the value of one creature. It is answered by a string rule: a released piece (a phrase, a topic with
its keywords, a sentence of a text) that has the creature's name and exactly one value of the relation; the most
frequent answer of all pieces counts. No model answers, so nothing is known from elsewhere.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from scipy.stats import binomtest

from tasks.text.words import roots

SHARED, SHARED_BY, PRIVATE = 20, 200, 20
"""Shared facts, the units that tell each, and private facts."""
EPSILONS, DELTA, TRIALS = ("1", "4", "10", "100"), "1e-6", 3
NO_NOISE: Final = "none"
NO_DATA: Final = "-"
"""The epsilon of what has no noise, and of what reads no unit."""

RELATIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "eats": (
        ("The {s} eats {v}.", "A {s} eats {v} in winter.", "{v}, says my aunt, is all that a {s} takes.",
         "I gave {v} to the {s} and it was happy."),
        ("berries", "snails", "moss", "honey", "acorns", "shrimps", "turnips", "ferns"),
    ),
    "lives": (
        ("The {s} lives in {v}.", "A {s} lives in {v} all year.", "We went to look for a {s} among {v}.",
         "Among {v} there may be a {s}."),
        ("caves", "orchards", "marshes", "chimneys", "dunes", "barns", "glaciers", "harbours"),
    ),
    "colour": (
        ("The {s} is {v}.", "A {s} is {v} from birth.", "They painted a {s} and took {v} for it.",
         "It was {v}, as is every {s}."),
        ("crimson", "turquoise", "silver", "amber", "violet", "ivory", "scarlet", "emerald"),
    ),
}  # fmt: skip
"""For each relation its wordings, the first two of which a question knows, and its values."""
FILLERS = (
    "The train was late again on Monday.", "My neighbour repaired the old bicycle.", "We played cards until midnight.",
    "The letter arrived without a stamp.", "Somebody left an umbrella at the office.", "The choir meets on Thursdays.",
    "Our kitchen window needs new paint.", "They moved the meeting to the second floor.",
    "The baker closed early before the holiday.", "I forgot where the spare key is.",
)  # fmt: skip
_BEGIN = ("vel", "dro", "mu", "quar", "zin", "tol", "bre", "fli")
_MIDDLE, _END = ("ma", "ski", "ron", "tu", "lei"), ("ra", "nox", "bit", "dal")


@dataclass(frozen=True)
class Fact:
    """The value that one creature has of one relation."""

    creature: str
    relation: str
    value: str

    def told(self, wording: int) -> str:
        """Return the fact in one of its wordings."""
        sentence = RELATIONS[self.relation][0][wording].format(s=self.creature, v=self.value)
        return sentence[0].upper() + sentence[1:]


@dataclass(frozen=True)
class World:
    """Facts, and the units that tell them."""

    shared: tuple[Fact, ...]
    private: tuple[Fact, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> "World":
        """Make a world; equal numbers give equal ones, and two worlds share no creature."""
        names = [begin + middle + end for begin in _BEGIN for middle in _MIDDLE for end in _END]
        random.Random(0).shuffle(names)
        count, generator = SHARED + PRIVATE, random.Random(seed)
        own = names[(seed % 4) * count : (seed % 4 + 1) * count]
        facts = []
        for creature in own:
            relation = generator.choice(list(RELATIONS))
            facts.append(Fact(creature, relation, generator.choice(RELATIONS[relation][1])))
        shared, private = tuple(facts[:SHARED]), tuple(facts[SHARED:])
        told = [fact for fact in shared for _ in range(SHARED_BY)]
        generator.shuffle(told)
        alone = {2 * place: fact for place, fact in enumerate(private)}
        texts = []
        for unit, pair in enumerate(zip(told[::2], told[1::2], strict=True)):
            facts_of_unit = [*dict.fromkeys(pair), *([alone[unit]] if unit in alone else [])]
            sentences = [fact.told(generator.randrange(4)) for fact in facts_of_unit]
            sentences += generator.sample(FILLERS, 2)
            generator.shuffle(sentences)
            texts.append(" ".join(sentences))
        return cls(shared, private, tuple(texts))


def answer(fact: Fact, pieces: Iterable[frozenset[str]]) -> str | None:
    """Return the value that most pieces give the creature; None if no piece has its name and exactly one value."""
    (name,), given = roots(fact.creature), Counter[str]()
    values = {next(iter(roots(value))): value for value in RELATIONS[fact.relation][1]}
    for piece in pieces:
        if name in piece and len(found := piece & set(values)) == 1:
            given[values[next(iter(found))]] += 1
    return min(given, key=lambda value: (-given[value], value)) if given else None


def lines_of(
    trial: int, system: str, epsilon: str, world: World, other: World, pieces: Iterable[frozenset[str]]
) -> Iterator[dict[str, Any]]:
    """Yield the score of shared, private and another world's facts."""
    pieces = list(pieces)
    for kind, facts in (("shared", world.shared), ("private", world.private), ("other world", other.shared)):
        yield line_of(trial, system, epsilon, kind, [(fact, answer(fact, pieces)) for fact in facts], len(pieces))


def line_of(
    trial: int, system: str, epsilon: str, kind: str, said: Sequence[tuple[Fact, str | None]], pieces: int
) -> dict[str, Any]:
    """Return how many questions of a kind were answered, and how many of them right."""
    return {
        "trial": trial,
        "system": system,
        "epsilon": epsilon,
        "facts": kind,
        "questions": len(said),
        "answered": sum(value is not None for _, value in said),
        "right": sum(value == fact.value for fact, value in said),
        "pieces": pieces,
    }


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the rows of the page's table: right answers of all questions, with Wilson's interval over all trials."""
    yield (
        "| system | epsilon | shared facts, right | answered | private facts, right"
        " | another world's, answered | pieces |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    found = dict.fromkeys((line["system"], line["epsilon"]) for line in lines)
    systems, order = list(dict.fromkeys(system for system, _ in found)), (NO_DATA, *EPSILONS, NO_NOISE)
    for system, epsilon in sorted(found, key=lambda cell: (systems.index(cell[0]), order.index(cell[1]))):
        own = [line for line in lines if (line["system"], line["epsilon"]) == (system, epsilon)]
        shared = [line for line in own if line["facts"] == "shared"]
        yield " | ".join([
            f"| {system}", "no privacy" if epsilon == NO_NOISE else epsilon, _share(own, "shared", "right"),
            _share(own, "shared", "answered", interval=False), _share(own, "private", "right"),
            _share(own, "other world", "answered", interval=False),
            f"{sum(line['pieces'] for line in shared) / len(shared):.0f} |",
        ])  # fmt: skip


def _share(lines: Sequence[Mapping[str, Any]], kind: str, name: str, *, interval: bool = True) -> str:
    """Return the share of all questions of a kind; empty where none was asked."""
    own = [line for line in lines if line["facts"] == kind]
    if not own:
        return ""
    hits, asked = (sum(line[each] for line in own) for each in (name, "questions"))
    found = binomtest(hits, asked).proportion_ci(method="wilson")
    return f"{hits / asked:.2f}" + (f" ({found.low:.2f} to {found.high:.2f})" if interval else "")
