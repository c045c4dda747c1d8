"""Labels of documents: their normalised spelling, and the public set that a request declares (PRIVACY §1, §3).

Which labels a corpus has, and how often, is private. A request names the labels it wants from public knowledge; what it
names and the corpus has not is generated all the same, from null rows.

Labels may come from several fields of a record, such as a category and a number of stars. They are then one label,
spelt as its values with ` / ` between them: `books / 5`. A slash inside a value stands without spaces, so that a label
is of one combination of values alone. Nothing else knows of fields: a combination is a label like any other.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from models_db.values.requests import normalise_spelling
from tasks.corpus.identity.units import is_unicode

LONGEST_LABEL = 200
"""Characters."""

MOST_LABELS = 1000

FIELD_SEPARATOR: Final = " / "
"""Between the values of a label that comes from several fields, and between the fields' names."""

LabelFields: TypeAlias = str | Sequence[str] | None
"""The field of a document's label, several of them in the order of their values, or None without labels."""


def normalise_label(value: object) -> str | None:
    """Return the one spelling of a label (`spell`); 7 and "7" are one label. None if empty.

    Raises:
        ValueError: as `spell`, or it is too long.
    """
    label = spell(value)
    if label is not None and len(label) > LONGEST_LABEL:
        raise ValueError(f"it has more than {LONGEST_LABEL} characters")
    return label


def spell(value: object) -> str | None:
    """Return the one spelling of the name of a thing, such as a label or a document's id; None if empty.

    Raises:
        ValueError: no string or integer (a boolean is neither), half of a surrogate pair, or with a character inside
            that nobody sees. The value is private where it comes from a corpus, and never part of the message.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("it is neither text nor an integer; in YAML, put words such as yes and no in quotes")
    name = normalise_spelling(value)
    if not is_unicode(name):
        raise ValueError("it contains half of a surrogate pair, which is no character")
    return name or None


def fields_of(given: LabelFields) -> tuple[str, ...]:
    """Return the fields that labels come from."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def combined_label(values: Sequence[object]) -> str | None:
    """Return the label of a record with these values in its label fields; None if one of them is missing or empty.

    Raises:
        ValueError: as `normalise_label`, of a value or of them together.

    >>> combined_label(["Home / Garden", 5])
    'Home/Garden / 5'
    """
    parts = [normalise_label(value) for value in values]
    if len(parts) == 1:
        return parts[0]
    spelt = [re.sub(r"\s*/\s*", "/", part) for part in parts if part is not None]
    return normalise_label(FIELD_SEPARATOR.join(spelt)) if len(spelt) == len(parts) else None


def _products(declared: object) -> object:
    """Return the labels of all combinations of values of fields, the last field fastest; a list as it is."""
    if not isinstance(declared, Mapping):
        return declared
    if not declared or not all(isinstance(values, list | tuple) and values for values in declared.values()):
        raise ValueError("labels of several fields are a list of values for each field")
    if prod(map(len, declared.values())) > MOST_LABELS:
        raise ValueError(f"the fields have more than {MOST_LABELS} combinations")
    labels = [combined_label(values) for values in product(*declared.values())]
    if None in labels:
        raise ValueError("a label is not empty")
    return tuple(labels)


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
DeclaredLabels = Annotated[
    tuple[DeclaredLabel, ...],
    Field(max_length=MOST_LABELS),
    AfterValidator(_each_once),
    BeforeValidator(
        _products, json_schema_input_type=tuple[DeclaredLabel, ...] | dict[str, Annotated[list[DeclaredLabel], Field()]]
    ),
]
"""`parameters.labels` of a request: public, in the order in which samples are shared out; empty for none. A mapping of
fields to values stands for all their combinations."""
