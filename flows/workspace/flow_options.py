"""Options of every Prefect flow: no retries, and nothing stored.

A retry would charge again, a persisted result would put private text into Prefect's storage, and captured prints
would put it into its log (docs/threat-model.md).
"""

from typing import Final, TypedDict


class FlowSettings(TypedDict):
    """The keyword arguments of `prefect.flow` that matter for privacy."""

    retries: int
    persist_result: bool
    log_prints: bool


PRIVATE_FLOW: Final[FlowSettings] = {"retries": 0, "persist_result": False, "log_prints": False}
