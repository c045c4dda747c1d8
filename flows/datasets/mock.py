"""Mock of a dataset: a file of fictional records with its declared fields, written without reading its texts."""

import json
from collections.abc import Sequence
from pathlib import Path

from flows.workspace.workspace import Workspace
from flows.workspace.yaml_files import new_file
from models_db.errors import UsageError
from models_db.services import datasets
from models_db.values.requests import PublicMetadata
from tasks.corpus.mock_records import ID_FIELD, USUAL_WORDS, MockShape, mock_records
from tasks.corpus.readers.documents import TextTemplate
from tasks.corpus.units import normalise_label

ROWS_PER_UNIT = 3


def write_mock(
    workspace: Workspace,
    name: str,
    path: Path,
    rows: int,
    units: int | None = None,
    label_field: str = "label",
    labels: Sequence[str] = (),
    seed: int = 0,
) -> MockShape:
    """Write fictional records of a dataset's declared fields into a new JSONL file.

    Fields, unit and usual length are what the owner declared; the texts of the dataset are not read.

    Args:
        units: the number of privacy units; a third of the rows without it. If each record is a unit, as many as rows.

    Raises:
        DatasetUnknown: there is no such dataset.
        MockUnfit: the file is no .jsonl, there are more units than rows, or the label field is another field of the
            dataset.
        FileUnwritable: the file exists, or cannot be written.
    """
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, name)
        text, unit_field = TextTemplate.parse(dataset.text_field), dataset.unit_field
        declared = PublicMetadata.stored(dataset.public_metadata).typical_words
    if unit_field in (None, ID_FIELD, *text.fields):
        unit_field, units = None, rows
    shape = MockShape(
        rows,
        max(1, rows // ROWS_PER_UNIT) if units is None else units,
        declared or USUAL_WORDS,
        label_field,
        tuple(map(_usable_label, labels)),
        seed,
    )
    if path.suffix.lower() != ".jsonl":
        raise _mock_unfit(f"{path.name!r} does not end in .jsonl", "Name a new file such as mock.jsonl.")
    if shape.units > rows:
        raise _mock_unfit(f"{shape.units} units need at least as many rows", f"Ask for at most {rows} units.")
    if labels and label_field in (ID_FIELD, unit_field, *text.fields):
        raise _mock_unfit(
            f"{label_field!r} is another field of the dataset", "Name the label field with --label-field."
        )
    with new_file(path) as out:
        for record in mock_records(text, unit_field, shape):
            out.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return shape


def _usable_label(label: str) -> str:
    try:
        usable = normalise_label(label)
    except ValueError:
        usable = None
    if usable is None:
        raise _mock_unfit(f"{label!r} is no label", "Name labels of at most 200 characters that are not blank.")
    return usable


def _mock_unfit(reason: str, advice: str) -> UsageError:
    return UsageError(f"The mock is not written: {reason}.", advice, code="MockUnfit")
