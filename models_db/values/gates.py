"""The gates: where stewards decide before a release goes on."""

from enum import StrEnum


class Gate(StrEnum):
    """Before private data is touched, before anything leaves, and on proposals."""

    SPEND = "spend"
    PUBLISH = "publish"
    PROPOSAL = "proposal"
