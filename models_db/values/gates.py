"""Gates, at which stewards decide before a release continues."""

from enum import StrEnum


class Gate(StrEnum):
    """Gates before private data is read, before a release leaves the home, and for proposals."""

    SPEND = "spend"
    PUBLISH = "publish"
    PROPOSAL = "proposal"

    @property
    def subject(self) -> str:
        """Subject of decisions at the gate: `request` or `proposal`."""
        return "proposal" if self is Gate.PROPOSAL else "request"


REQUEST_GATES = (Gate.SPEND, Gate.PUBLISH)
