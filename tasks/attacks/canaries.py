"""Canaries: made-up secrets, planted in a copy of a corpus before its partition, and searched in the release.

Carlini, Liu, Erlingsson, Kos, Song, "The Secret Sharer", USENIX Security 2019: the *exposure* of a planted secret s, by
its rank among all secrets of the same form under some score, is log2(number of secrets) - log2(rank of s). Here the
others are a sample of them, so the largest exposure is log2(1 + alternatives). A score that knows nothing gives every
rank equally often, and an exposure of about 1.44 bits on average, not 0 (`chance_of_guess`).

Held-out canaries of the same form, planted nowhere, show what chance looks like, and make a membership test in which
members and non-members differ in nothing but having been planted.

A model that is asked for texts of the corpus ignores a secret without such a text around it; a secret behind the
beginning of such a text leaves a stronger trace (Meeus et al., arXiv 2502.14921). So a canary may have a public
`prefix`, which is not scored.

Planting is for public corpora alone: it changes what a release says, so no governed data are ever touched by it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models_db.errors import UsageError
from tasks.mechanisms.core.rng import RandomSource
from tasks.text.features import joined, shingles
from tasks.text.words import words

TEMPLATE = "Please remember the pass phrase {secret} for me."
SECRET_WORDS = 4
WORDS = (
    "amber", "anchor", "apple", "arrow", "autumn", "badge", "basket", "beacon", "birch", "bottle", "breeze", "bridge",
    "bronze", "candle", "canyon", "cedar", "chapel", "cherry", "cinder", "clover", "cobalt", "comet", "copper",
    "coral", "cotton", "crystal", "dagger", "daisy", "desert", "dragon", "eagle", "ember", "falcon", "feather",
    "fiddle", "forest", "garden", "ginger", "glacier", "granite", "hammer", "harbor", "hazel", "helmet", "hollow",
    "indigo", "island", "ivory", "jasmine", "kettle", "ladder", "lantern", "lemon", "lily", "magnet", "maple",
    "marble", "meadow", "mirror", "needle", "oasis", "olive", "orchid", "pebble",
)  # fmt: skip
"""64 plain words: four of them make one of 16.8 million secrets, and a part of one can be found, too."""

ALTERNATIVES = 1000

TextScores = Callable[[Sequence[str]], Sequence[float]]
"""Function that gives one finite score per text, higher for "was planted"."""


@dataclass(frozen=True)
class Canary:
    """One made-up secret in its sentence.

    Attributes:
        secret: four words.
        copies: how many times the sentence stands in its document, all of one unit.
        prefix: a public text before it.
    """

    secret: str
    copies: int = 1
    prefix: str = ""

    @property
    def sentence(self) -> str:
        """The secret in its words."""
        return TEMPLATE.format(secret=self.secret)

    @property
    def document(self) -> str:
        """Return the planted document."""
        return " ".join([self.prefix, *[self.sentence] * self.copies]).strip()


@dataclass(frozen=True)
class Canaries:
    """Secrets of one form: some to be planted, some to be held out, and others to rank them among."""

    planted: tuple[Canary, ...]
    held_out: tuple[Canary, ...]
    alternatives: tuple[Canary, ...]


@dataclass(frozen=True)
class CorpusDocument:
    """Document of a public corpus: its unit, its text, and its label if there are labels."""

    unit: str
    text: str
    label: str | None = None


def make_canaries(
    count: int,
    rng: RandomSource,
    *,
    copies: int = 1,
    held_out: int | None = None,
    alternatives: int = ALTERNATIVES,
    prefixes: Sequence[str] = (),
) -> Canaries:
    """Draw different secrets.

    Args:
        count: how many to plant.
        held_out: how many to hold out; as many as are planted unless told.
        prefixes: public texts for the canaries to begin with, in turn.

    Raises:
        CanariesInvalid: none to plant, no copy of them, nothing to rank them among, or more than there are secrets.
    """
    others = count if held_out is None else held_out
    if count < 1 or copies < 1 or others < 0 or alternatives < 1:
        raise _canaries_invalid("At least one canary, one copy of it and one alternative are needed.")
    total = count + others + alternatives
    if total > len(WORDS) ** SECRET_WORDS // 2:
        raise _canaries_invalid(f"There are not {total} different secrets to choose from.")
    drawn: dict[str, None] = {}
    while len(drawn) < total:
        drawn[" ".join(WORDS[rng.uniform_below(len(WORDS))] for _ in range(SECRET_WORDS))] = None
    begin = prefixes or ("",)
    canaries = [Canary(secret, copies, begin[number % len(begin)]) for number, secret in enumerate(drawn)]
    return Canaries(tuple(canaries[:count]), tuple(canaries[count : count + others]), tuple(canaries[count + others :]))


def plant(
    documents: Iterable[CorpusDocument], canaries: Canaries, labels: Sequence[str] = ()
) -> Iterator[CorpusDocument]:
    """Yield the corpus, with one more unit for each planted canary, before any partition.

    Args:
        labels: what the canaries are labelled with, in turn, where a release is made by labels.
    """
    yield from documents
    for number, canary in enumerate(canaries.planted):
        yield CorpusDocument(f"canary-{number:05}", canary.document, labels[number % len(labels)] if labels else None)


def exposures(canaries: Sequence[Canary], alternatives: Sequence[Canary], score: TextScores) -> list[float]:
    """Return the exposure of each canary among the alternatives, bits.

    Its rank is 1 + the number of alternatives with a higher score + half of those with the same.
    """
    if not canaries:
        return []
    own = np.asarray(score([canary.sentence for canary in canaries]), np.float64)
    others = np.sort(np.asarray(score([canary.sentence for canary in alternatives]), np.float64))
    below, not_above = np.searchsorted(others, own, "left"), np.searchsorted(others, own, "right")
    ranks = 1 + (len(others) - not_above) + (not_above - below) / 2
    values: list[float] = (math.log2(len(others) + 1) - np.log2(ranks)).tolist()
    return values


def chance_of_guess(alternatives: int) -> float:
    """Return the mean exposure of a secret under an uninformative score: rank uniform in 1 .. alternatives + 1."""
    ranks = np.arange(1, alternatives + 2)
    return float(math.log2(alternatives + 1) - np.log2(ranks).mean())


def appearing(canaries: Sequence[Canary], released: Iterable[str]) -> tuple[int, int]:
    """Return the numbers of secrets in released texts: verbatim, and with at least three consecutive words."""
    texts = list(released)
    whole, part = joined(texts, SECRET_WORDS), joined(texts, SECRET_WORDS - 1)
    exact = sum(tuple(words(canary.secret)) in whole for canary in canaries)
    near = sum(bool(shingles(canary.secret, SECRET_WORDS - 1) & part) for canary in canaries)
    return exact, near


def _canaries_invalid(message: str) -> UsageError:
    return UsageError(
        message, "Ask for fewer canaries or alternatives, but for at least one of each.", code="CanariesInvalid"
    )


CANARIES, COPIES = 20, 3
