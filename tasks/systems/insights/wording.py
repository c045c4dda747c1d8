"""Words for readers of insights that differ between systems: each a promise or a warning.

The card and all other documents of a release use them: other words are another format of the record.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.values.results import Insight


class InsightsRecord(Protocol):
    """What a wording reads of the record of a release: its claim, the stored request, and the facts of its plan."""

    @property
    def claim(self) -> object | None:
        """The claim; None where nothing is claimed."""

    @property
    def request(self) -> Mapping[str, Any]:
        """The canonical request."""

    @property
    def facts(self) -> Mapping[str, str]:
        """The facts of its plan."""


@dataclass(frozen=True)
class InsightSentences:
    """Sentences on the making of a release of insights.

    Attributes:
        preprocessing: the processing of a unit's documents before anything is counted.
        contribution: how much one unit can contribute.
        personal: whether the rows hold information about a person.
        post_processing: what is made of the released values.
    """

    preprocessing: str
    contribution: str
    personal: str
    post_processing: str


class InsightWording(ABC):
    """Wording of the insights of a system.

    Attributes:
        rows: what a catalogue lists its rows as.
        nouns: what a row of the lowest level and one above it are called.
        sentences: on its making.
        page: the sentence below the title of a page of all rows; None for that on topics.
        comparable: whether the rows of two releases can be matched by their names.
        most_shown: most rows that a report shows; None for the usual number.
    """

    rows: str
    nouns: tuple[str, str]
    sentences: InsightSentences
    page: str | None = None
    comparable: bool = True
    most_shown: int | None = None

    @abstractmethod
    def written(self, record: InsightsRecord) -> str:
        """Return the sentence on the origin of the rows, with places for `{mechanism}` and `{model}`."""

    @abstractmethod
    def reading(self, record: InsightsRecord) -> tuple[str, ...]:
        """Return the paragraphs that readers of a release with a claim need; `**` marks emphasis."""

    @abstractmethod
    def rows_asked(self, record: InsightsRecord) -> int | None:
        """Return the requested number of rows of the lowest level; None where the request leaves it open."""

    @abstractmethod
    def require_rows(self, insights: Sequence[Insight], record: InsightsRecord) -> str:
        """Check that the rows are such as the request leads to, and return the finding.

        Raises:
            FileUnfit: they are not.
        """

    def size_with_margin(self, insight: Insight, record: InsightsRecord) -> str | None:
        """Return a size with its margin of error, in words; None where the margin is told once for all rows."""
        return None
