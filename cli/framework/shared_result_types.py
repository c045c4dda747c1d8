"""Types of results that several groups of commands print under --json."""

from typing import Literal

from typing_extensions import TypedDict

from models_db.values.exposures import SecrecyEnd


class SecrecyEndData(TypedDict):
    """The end of what a release claims while its assignment is secret; `reason` is empty where figures were seen."""

    since: str
    cause: Literal["exposed", "viewed"]
    by: str
    reason: str


class MetricData(TypedDict):
    """A metric of a release: counts as integers, reals as decimal text, null where nothing could be measured."""

    name: str
    exposure: str
    values: dict[str, int | str | None]
    source: str
    method: str
    line: str


def secrecy_end_data(end: SecrecyEnd) -> SecrecyEndData:
    """Return the end of a secret assignment for programs."""
    return SecrecyEndData(since=end.since, cause=end.cause, by=end.by, reason=end.reason)
