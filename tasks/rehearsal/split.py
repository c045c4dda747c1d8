"""Split of a public twin's people: those read, in batches as full as the request's, and those held out.

The twin is a uniformly drawn set of people of the declared size, which is a public number. Where the public corpus has
fewer, all are taken; then a block has fewer batches, so that a text still reads about as many people as in the request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from tasks.attacks.canaries import CorpusDocument
from tasks.attacks.public_twin import shuffled
from tasks.mechanisms.core.rng import RandomSource

HELD_OUT_MOST, HELD_OUT_LEAST = 100, 10
"""Documents that texts are compared with: a quarter of the corpus, within these numbers."""
FEWEST_PEOPLE = 10


@dataclass(frozen=True)
class RehearsalSplit:
    """Split of the people into read and held out, drawn before anything is generated.

    Attributes:
        key: the partition key of the copy.
        people: one document for each unit that is read.
        held_out: one document for each unit of the hold-out; none of them is read.
    """

    key: bytes
    people: tuple[CorpusDocument, ...]
    held_out: tuple[CorpusDocument, ...]

    def to_json(self) -> dict[str, Json]:
        """Return the stored form."""
        sides = {name: [asdict(one) for one in getattr(self, name)] for name in ("people", "held_out")}
        return {"key": self.key.hex(), **sides}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "RehearsalSplit":
        """Read the stored form back.

        Raises:
            KeyError, TypeError, ValueError: it is not a stored split.
        """
        people, held_out = (tuple(CorpusDocument(**one) for one in stored[name]) for name in ("people", "held_out"))
        return cls(bytes.fromhex(stored["key"]), people, held_out)


def split_people(units: Sequence[CorpusDocument], size: int, name: str, rng: RandomSource) -> RehearsalSplit:
    """Draw the twin and the hold-out.

    Args:
        units: one document for each.
        size: people of the twin; fewer where the corpus has fewer beside the hold-out.
        name: of the public dataset.

    Raises:
        TwinTooSmall: it has not enough people for either.
    """
    held = min(HELD_OUT_MOST, max(HELD_OUT_LEAST, len(units) // 4))
    if len(units) - held < FEWEST_PEOPLE:
        raise _rehearsal_twin_too_small(name, len(units))
    order = shuffled(units, rng)
    return RehearsalSplit(rng.random_bytes(32), tuple(order[held:][:size]), tuple(order[:held]))


@dataclass(frozen=True)
class RehearsedBatches:
    """Batches of a rehearsal.

    Attributes:
        per_cell: batches of each block and label.
        units_per_text: expected people behind a text of the twin; `asked` in the request.
    """

    per_cell: int
    units_per_text: Fraction
    asked: Fraction


def rehearsed_batches(per_cell: int, cells: int, texts: int, people: int, declared: int) -> RehearsedBatches:
    """Return batches that are as full as the request's, as far as the twin has the people.

    Args:
        per_cell: the request's batches of each of its `cells` (blocks times labels).
        texts: texts that are rehearsed, each from a batch of its own.
        people: units of the twin.
        declared: units that the request's batches were made for.
    """
    made = max(1, -(-texts // cells), per_cell * people // declared)
    return RehearsedBatches(made, Fraction(people, cells * made), Fraction(declared, cells * per_cell))


def _rehearsal_twin_too_small(name: str, units: int) -> UsageError:
    least = FEWEST_PEOPLE + HELD_OUT_LEAST
    return UsageError(
        f"The public dataset {name!r} has {units} units that can be read; a rehearsal needs at least {least}:"
        f" {FEWEST_PEOPLE} to read and {HELD_OUT_LEAST} to compare with.",
        "Name a larger public dataset with --on.",
        {"dataset": name, "units": units, "least": least},
        code="RehearsalTwinTooSmall",
    )
