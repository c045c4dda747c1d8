"""Result of one poll of the schedules, as `--json` prints it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DueSlot:
    """A due slot of a schedule that is not decided."""

    schedule: int
    slot: str


@dataclass(frozen=True)
class SlotDecision(DueSlot):
    """Decision about a slot: the request's number, or the name of the refusal and its public message."""

    request: int | None
    skipped: str | None
    detail: str


@dataclass(frozen=True)
class SlotRun:
    """End of a run: `produced`, `given up`, or `not now` with the name of the reason.

    Attributes:
        schedule: None if the request was approved by hand.
    """

    schedule: int | None
    request: int
    outcome: str
    reason: str
    detail: str


@dataclass(frozen=True)
class PollProblem:
    """Failure of one step of a poll: the name of the error and its public message."""

    what: str
    error: str
    message: str


@dataclass(frozen=True)
class PollResult:
    """Decisions, runs and failures of one poll."""

    slots: list[SlotDecision]
    runs: list[SlotRun]
    problems: list[PollProblem]
