"""Public twin: a public corpus split at random into members and non-members.

The members, with canaries among them, are what a release is made from; the others are people of the same kind that it
cannot have seen. Nothing but chance tells them apart, so whatever an attack finds comes from the release.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from tasks.attacks.canaries import CANARIES, COPIES, Canaries, Canary, CorpusDocument, make_canaries, plant
from tasks.mechanisms.core.rng import RandomSource

FEWEST = 2
"""Members, and non-members: fewer would leave nothing to compare."""


MOST_NONMEMBERS = 1000
"""Maximum number of non-members, enough for the TPR at FPR 0.1 %, unless there are more members."""


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
