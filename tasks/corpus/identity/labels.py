"""Labels of documents: their normalised spelling, and the public set that a request declares (PRIVACY §1, §3).

Which labels a corpus has, and how often, is private. A request names the labels it wants from public knowledge; what it
names and the corpus has not is generated all the same, from null rows.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from models_db.values.requests import normalise_spelling
from tasks.corpus.identity.units import is_unicode

LONGEST_LABEL = 200
"""Characters."""

MOST_LABELS = 1000


def normalise_label(value: object) -> str | None:
    """Return the normal form of a label: NFC, without outer white space; 7 and "7" are one label. None if empty.

    Raises:
        ValueError: no string or integer (a boolean is neither), too long, or half of a surrogate pair. The value is
            private where it comes from a corpus, and never part of the message.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("a label is text or an integer; in YAML, put words such as yes and no in quotes")
    label = normalise_spelling(value)
    if len(label) > LONGEST_LABEL:
        raise ValueError(f"a label has at most {LONGEST_LABEL} characters")
    if not is_unicode(label):
        raise ValueError("a label is valid Unicode")
    return label or None


def _declared(value: object) -> str:
    label = normalise_label(value)
    if label is None:
        raise ValueError("a label is not empty")
    return label


def _each_once(labels: Sequence[str]) -> tuple[str, ...]:
    if len(set(labels)) != len(labels):
        raise ValueError("each label once")
    return tuple(labels)


DeclaredLabel = Annotated[str, BeforeValidator(_declared)]
DeclaredLabels = Annotated[tuple[DeclaredLabel, ...], Field(max_length=MOST_LABELS), AfterValidator(_each_once)]
"""`parameters.labels` of a request: public, in the order in which samples are shared out; empty for none."""
