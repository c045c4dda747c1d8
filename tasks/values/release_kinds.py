"""Kinds of releases, in the words of a request."""

from enum import StrEnum
from typing import Final


class ReleaseKind(StrEnum):
    """Kind of a release: texts one after another, a summary of each group, or a hierarchy of insights."""

    SYNTHETIC_CORPUS = "synthetic_corpus"
    SUMMARIES = "summaries"
    INSIGHTS = "insights"
    DEMONSTRATIONS = "demonstrations"
    RECORDS = "records"


TEXT_KINDS: Final = (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS, ReleaseKind.RECORDS)
"""Kinds of releases that are texts one after another; they differ in the fields of a line of the release."""
