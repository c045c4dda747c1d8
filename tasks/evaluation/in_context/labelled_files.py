"""Labelled texts from a file: `texts.jsonl` of a bundle whose request declared labels, or a public test set."""

from pathlib import Path
from typing import Any

from models_db.errors import UsageError
from models_db.values.bounded_json import parse_json
from tasks.common.files import open_user_file
from tasks.evaluation.in_context.demonstrations import Example, require_labels
from tasks.evaluation.in_context.task_definitions import Task

MOST_BYTES = 16 << 20
"""Maximum number of bytes of one line."""


def _no_example(file: Path, line: int) -> UsageError:
    return UsageError(
        f"Line {line} of {file.name} is not a labelled text.",
        "Each line is a JSON object with a text `text` and a text `label`, in UTF-8.",
        {"file": file.name, "line": line},
        code="NoExample",
    )


def read_examples(task: Task, file: Path) -> list[Example]:
    """Every line's `text` and `label`; other fields are passed over. For classification a label may be written as the
    task's word for it, as requests do that tell the model their labels. The file must be released or public.

    Raises:
        NoExample, UnknownLabel.
        OSError: the file cannot be read.
    """
    labels = {word: label for label, word in task.words.items()}
    with open_user_file(file) as lines:
        parsed = [_example(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    examples = [Example(example.text, labels.get(example.label, example.label)) for example in parsed]
    require_labels(task, examples)
    return examples


def _example(file: Path, number: int, line: bytes) -> Example:
    try:
        record: Any = parse_json(line, most_bytes=MOST_BYTES)
    except ValueError:  # a line that is not UTF-8 raises one too
        raise _no_example(file, number) from None
    if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in ("text", "label")):
        raise _no_example(file, number)
    return Example(record["text"], record["label"])
