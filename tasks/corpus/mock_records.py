"""Fictional records with the fields of a dataset: an analyst writes and tries requests against them.

They follow from public declarations and a seed alone. Their sentences say that they are fiction.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.corpus.readers.documents import TextTemplate
from tasks.text.public_topics import PUBLIC_TOPICS

USUAL_WORDS = 60
ID_FIELD = "id"


@dataclass(frozen=True)
class MockShape:
    """Size of a set of fictional records.

    Attributes:
        rows: the number of records.
        units: the number of privacy units that they belong to, at most `rows`.
        words: about how many words the records of one unit have together.
        label_field, labels: the field of a record's label, and the labels that occur; none without labels.
        seed: equal seeds give equal records.
    """

    rows: int
    units: int
    words: int = USUAL_WORDS
    label_field: str = "label"
    labels: Sequence[str] = ()
    seed: int = 0


def mock_records(text: TextTemplate, unit_field: str | None, shape: MockShape) -> Iterator[dict[str, str]]:
    """Yield records with an id, a unit, the fields of the text and a label; every unit has at least one of them."""
    teller = random.Random(shape.seed)  # noqa: S311 - fiction that everybody may repeat
    words = max(1, shape.words * shape.units // (shape.rows * len(text.fields)))
    units = [*range(shape.units), *(teller.randrange(shape.units) for _ in range(shape.rows - shape.units))]
    for number, unit in enumerate(units, 1):
        record = {name: _sentences(teller, words) for name in text.fields}
        if unit_field is not None:
            record[unit_field] = f"unit-{unit + 1:05}"
        if shape.labels:
            record[shape.label_field] = teller.choice(shape.labels)
        yield {ID_FIELD: f"mock-{number:06}", **record}


def _sentences(teller: random.Random, words: int) -> str:
    """Return sentences of at least `words` words."""
    told = ""
    while len(told.split()) < words:
        told += f" This fictional text speaks of {' and of '.join(teller.sample(PUBLIC_TOPICS, 2))}."
    return told.strip()
