"""The life of a request: its states, the moves between them, and the gates at which stewards decide."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


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


class RequestState(StrEnum):
    """State of a request: the end of its last transition, `draft` before the first."""

    DRAFT = "draft"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    RUNNING = "running"
    PRODUCED = "produced"
    DISCARDED = "discarded"
    PUBLISHED = "published"
    RETRACTED = "retracted"


_S = RequestState
LEGAL_TRANSITIONS: Final = (
    (_S.DRAFT, _S.SUBMITTED),
    (_S.SUBMITTED, _S.APPROVED),
    (_S.SUBMITTED, _S.REJECTED),
    (_S.SUBMITTED, _S.WITHDRAWN),
    (_S.APPROVED, _S.SUBMITTED),
    (_S.APPROVED, _S.REJECTED),
    (_S.APPROVED, _S.WITHDRAWN),
    (_S.APPROVED, _S.RUNNING),
    (_S.RUNNING, _S.APPROVED),
    (_S.RUNNING, _S.PRODUCED),
    (_S.PRODUCED, _S.DISCARDED),
    (_S.PRODUCED, _S.PUBLISHED),
    (_S.PUBLISHED, _S.RETRACTED),
)
"""The only moves a request can make; 'running' goes back to 'approved' when an attempt failed, and 'approved' to
'submitted' when an approval was withdrawn."""

UNRUN_STATES: Final = (_S.SUBMITTED, _S.APPROVED)
"""States without a running or a successful attempt: the price is not yet spent."""

WAITS_AT: Final[Mapping[Gate, tuple[RequestState, ...]]] = {Gate.SPEND: UNRUN_STATES, Gate.PUBLISH: (_S.PRODUCED,)}
"""The states in which a request takes decisions at a gate, the one in which it needs them first."""

STATES_AT_A_GATE: Final = tuple(states[0] for states in WAITS_AT.values())
"""The states in which a request waits for stewards: at the spend gate, and at the publish gate."""

DECIDED: Final = (_S.PUBLISHED, _S.RETRACTED, _S.DISCARDED)
"""Stewards have decided on its files."""
