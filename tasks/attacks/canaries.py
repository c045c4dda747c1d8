"""Data of attacks: canaries planted in a copy of a corpus, and a public twin split into members and non-members.

Canaries: made-up secrets, planted in a copy of a corpus before its partition, and searched in the release. Carlini,
Liu, Erlingsson, Kos, Song, "The Secret Sharer", USENIX Security 2019: the *exposure* of a planted secret s, by its rank
among all secrets of the same form under some score, is log2(number of secrets) - log2(rank of s). Here the others are a
sample of them, so the largest exposure is log2(1 + alternatives). A score that knows nothing gives every rank equally
often, and an exposure of about 1.44 bits on average, not 0 (`chance`).

Held-out canaries of the same form, planted nowhere, show what chance looks like, and make a membership test in which
members and non-members differ in nothing but having been planted.

A model that is asked for texts of the corpus ignores a secret without such a text around it; a secret behind the
beginning of such a text leaves a stronger trace (Meeus et al., arXiv 2502.14921). So a canary may have a public
`prefix`, which is not scored.

Planting is for public corpora alone: it changes what a release says, so no governed data are ever touched by it.

Public twin: a public corpus split at random into members and non-members. The members, with canaries among them, are
what a release is made from; the others are people of the same kind that it cannot have seen. Nothing but chance tells
them apart, so whatever an attack finds comes from the release.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from tasks.evaluation.subject import Scorer
from tasks.mechanisms.core.rng import RandomSource
from tasks.text.features import joined, shingles
from tasks.text.public_models import Embedder, Tagger
from tasks.text.words import words
from tasks.values.results import Exposure

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


@dataclass(frozen=True)
class AttackInput:
    """A release, the public tools of an attacker, and the truth.

    Attributes:
        released: the released texts; empty ones count as texts.
        members: one text for each unit that the release was made from, canaries apart.
        nonmembers: texts of the same kind that it was not made from, chosen at random with the members.
        exposure: what results are marked: `public` only where the members are.
        canaries: what was planted, and what was held out; None if nothing was planted.
        member_labels, nonmember_labels: an attribute of each, in the same order; empty if there is none.
        score: a public model's log-likelihood; None if no model is at hand.
        embed: a public embedder; None if none is at hand.
        tag: a public tagger that finds names; None if none is at hand.
    """

    released: Sequence[str] = field(repr=False)
    members: Sequence[str] = field(repr=False)
    nonmembers: Sequence[str] = field(repr=False)
    exposure: Exposure = "internal"
    canaries: Canaries | None = None
    member_labels: Sequence[str] = field(default=(), repr=False)
    nonmember_labels: Sequence[str] = field(default=(), repr=False)
    score: Scorer | None = None
    embed: Embedder | None = None
    tag: Tagger | None = None

    @property
    def texts(self) -> list[str]:
        """The released texts that are not empty."""
        return [text for text in self.released if text.strip()]

    @property
    def fair(self) -> tuple[list[str], list[str]]:
        """Return equal numbers of members and non-members, because more documents give more matches by chance."""
        size = min(len(self.members), len(self.nonmembers))
        return list(self.members[:size]), list(self.nonmembers[:size])


FEWEST = 2
"""Members, and non-members: fewer would leave nothing to compare."""

MOST_NONMEMBERS = 1000
"""Maximum number of non-members, enough for the TPR at FPR 0.1 %, unless there are more members."""

CANARIES, COPIES = 20, 3


@dataclass(frozen=True)
class TwinSplit:
    """Split of the public twin into members and non-members, fixed before anything is generated.

    Attributes:
        key: the partition key of the copy.
        members, nonmembers: one document for each unit.
        canaries: planted among the members, and held out.
    """

    key: bytes
    members: tuple[CorpusDocument, ...]
    nonmembers: tuple[CorpusDocument, ...]
    canaries: Canaries

    def corpus(self, labels: Sequence[str] = ()) -> list[CorpusDocument]:
        """Return the input of the release: the members and the planted canaries, which take `labels` in turn."""
        return list(plant(self.members, self.canaries, labels))

    def to_json(self) -> dict[str, Json]:
        """Return the stored form."""
        sides = {name: [asdict(each) for each in getattr(self, name)] for name in ("members", "nonmembers")}
        parts = {
            name: [asdict(each) for each in getattr(self.canaries, name)]
            for name in ("planted", "held_out", "alternatives")
        }
        return {"key": self.key.hex(), **sides, "canaries": parts}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "TwinSplit":
        """Read the stored form back.

        Raises:
            KeyError, TypeError, ValueError: it is not one of ours.
        """
        members, nonmembers = (
            tuple(CorpusDocument(**each) for each in stored[name]) for name in ("members", "nonmembers")
        )
        parts = stored["canaries"]
        canaries = Canaries(
            *(tuple(Canary(**each) for each in parts[name]) for name in ("planted", "held_out", "alternatives"))
        )
        return cls(bytes.fromhex(stored["key"]), members, nonmembers, canaries)


def split_twin(
    units: Sequence[CorpusDocument],
    rng: RandomSource,
    *,
    members: int,
    canaries: int = CANARIES,
    copies: int = COPIES,
) -> TwinSplit:
    """Cut a public corpus in two.

    Args:
        units: one document for each.
        members: how many at most; never more than half of the units.
        canaries: how many secrets to plant, each behind the beginning of the text of somebody who then is on neither
            side; at most a quarter of those who are not members lend one.
        copies: how many times a canary says its secret.

    Raises:
        TwinTooSmall: there are not enough units for two sides.
        CanariesInvalid: canaries or copies is not positive.
    """
    inside = min(members, len(units) // 2)
    if inside < FEWEST:
        raise _twin_too_small(len(units), members)
    order = shuffled(units, rng)
    rest = order[inside:]
    # Whoever lends a canary its beginning is in the copy with it, so on neither side.
    lending = min(canaries, len(rest) // 4)
    lent, outside = rest[:lending], rest[lending:][: max(MOST_NONMEMBERS, inside)]
    planted = make_canaries(canaries, rng, copies=copies, prefixes=[_beginning(each.text) for each in lent])
    return TwinSplit(rng.random_bytes(32), tuple(order[:inside]), tuple(outside), planted)


def shuffled(units: Sequence[CorpusDocument], rng: RandomSource) -> list[CorpusDocument]:
    """Every order is as likely as any other (Fisher and Yates, 1938)."""
    order = list(units)
    for last in range(len(order) - 1, 0, -1):
        other = rng.uniform_below(last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def _beginning(text: str, most: int = 25) -> str:
    return " ".join(text.split()[:most])


def _twin_too_small(units: int, members: int) -> UsageError:
    return UsageError(
        f"A corpus of {units} units cannot be cut into {FEWEST} or more members and as many non-members.",
        "Name a larger public corpus, or ask for more members.",
        {"units": units, "members": members},
        code="TwinTooSmall",
    )
