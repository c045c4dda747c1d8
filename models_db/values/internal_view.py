"""Views of unprotected figures: since when, by whom, and the effect on a lifetime claim (PRIVACY §10.3).

An internal metric reads private data without protection. A person who has seen one may choose by it what is requested,
published or stopped next, and no later output can show that; so the mark is the account's, for every dataset that
shares it, and is never removed.
"""

from dataclasses import dataclass
from typing import Final

from models_db.values.canonical_json import Json

CONDITIONAL_CLAIM: Final = (
    "Later choices on this account may follow unprotected outputs, so the lifetime claim is conditional: it holds only"
    " as far as none of them did."
)


@dataclass(frozen=True)
class ViewingRecord:
    """Viewers of unprotected figures of an account.

    Attributes:
        since: the day (UTC) on which they were first seen, '2026-11-23'.
        people: the sorted names of all viewers; for internal screens, not for published files.
    """

    since: str
    people: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Sentence that states the record in words, with names."""
        first = f"Unprotected figures of this account were first seen on {self.since}; they were seen by {self.names}."
        return f"{first} {CONDITIONAL_CLAIM}"

    @property
    def names(self) -> str:
        """The people in one line."""
        return ", ".join(self.people)

    def to_json(self) -> dict[str, Json]:
        """Return the record for `--json`."""
        return {"since": self.since, "people": list(self.people), "meaning": CONDITIONAL_CLAIM}
