"""Ends of a release's protection: views of its unprotected figures, and the end of its assignment's secrecy.

Views of unprotected figures: since when, by whom, and the effect on a lifetime claim (PRIVACY §10.3). An internal
metric reads private data without protection. A person who has seen one may choose by it what is requested, published or
stopped next, and no later output can show that; so the mark is the account's, for every dataset that shares it, and is
never removed.

End of the secrecy of an assignment: since when units' places in a release are no longer secret, and why. A release
claims a second, smaller epsilon only as long as nobody outside knows which units were behind which of its texts
(decision 0132). Internal figures compare texts with units, so whoever has seen them may know.
"""

from dataclasses import dataclass
from typing import Final, Literal

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


FALLS_BACK: Final = "Only the unconditional epsilon holds."
_CAUSES: Final = {
    "exposed": ("the assignment of units to texts got out", " ({reason}; recorded by {by})"),
    "viewed": ("internal figures of the release were seen", " (by {by})"),
}


@dataclass(frozen=True)
class SecrecyEnd:
    """End of what a release claims while its assignment is secret.

    Attributes:
        since: the day (UTC), '2026-11-23'.
        cause: whether a steward recorded that the assignment got out, or internal figures were seen.
        by: who recorded it, or saw them; for internal screens, not for published files.
        reason: the steward's reason; empty for a view.
    """

    since: str
    cause: Literal["exposed", "viewed"]
    by: str
    reason: str = ""

    @property
    def sentence(self) -> str:
        """Sentence that says when and why it ended, and who recorded or saw it."""
        cause, details = _CAUSES[self.cause]
        return self._ended(cause + details.format(reason=self.reason, by=self.by))

    @property
    def public_sentence(self) -> str:
        """The sentence without names and reasons."""
        return self._ended(_CAUSES[self.cause][0])

    def _ended(self, cause: str) -> str:
        return f"The epsilon while the assignment is secret ended on {self.since}: {cause}. {FALLS_BACK}"

    def to_json(self) -> dict[str, Json]:
        """Return it for `--json`."""
        return {"since": self.since, "cause": self.cause, "by": self.by, "reason": self.reason}
