"""Public examples of summaries, from which adapters are trained: a JSONL file, one example a line.

    {"documents": ["what one person wrote", "..."], "summary": "...", "about": "public metadata", "group": "B0001"}

`about` is what the model may be told beside the documents; either every line has it or none. Lines of one `group` (of
the same documents, where no group is named) are held out together: what is checked with was never learned from. All
of it is public by declaration, so errors name lines; they quote none of them all the same.

BadTrainingFile (UsageError)
├── TrainingFileUnreadable   missing, no file, too large
├── TrainingLineInvalid      a line that is no example
└── TrainingFileTooSmall     one group: nothing is left to check with
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from models_db.errors import UsageError
from models_db.values.bounded_json import InvalidJson, parse_json
from tasks.corpus.identity.units import is_unicode

LARGEST_FILE: Final = 2**30
"""Bytes. Examples are kept in memory."""

MOST_DOCUMENTS: Final = 10_000
"""Documents of one example."""

_FIELDS = ("documents", "summary", "about", "group")


@dataclass(frozen=True)
class Example:
    """What many people wrote, and one summary of it.

    Attributes:
        about: public metadata of the group, or None if the file has none.
        group: which examples are held out together.
    """

    documents: tuple[str, ...]
    summary: str
    about: str | None
    group: str


@dataclass(frozen=True)
class TrainingData:
    """A training file as it was read.

    Attributes:
        file: its name, without its folder.
        sha256: of its bytes.
    """

    file: str
    sha256: str
    examples: tuple[Example, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups in the order in which they first appear."""
        return tuple(dict.fromkeys(example.group for example in self.examples))

    @property
    def labelled(self) -> bool:
        """Whether the examples say what they are about."""
        return self.examples[0].about is not None


def read_training_data(path: Path) -> TrainingData:
    """Every example of a JSONL file; blank lines are passed over.

    Raises:
        TrainingFileUnreadable, TrainingLineInvalid, TrainingFileTooSmall.
    """
    content = _bytes(path)
    examples: list[Example] = []
    for number, line in _lines(content, path.name):
        example = _example(line, path.name, number)
        if examples and (example.about is None) != (examples[0].about is None):
            raise TrainingLineInvalid(path.name, number, "either every line has `about` or none")
        examples.append(example)
    made = TrainingData(path.name, hashlib.sha256(content).hexdigest(), tuple(examples))
    if len(made.groups) < 2:
        raise TrainingFileTooSmall(path.name, len(made.groups))
    return made


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise TrainingFileUnreadable(path.name, "it is a folder")
        if path.stat().st_size > LARGEST_FILE:
            raise TrainingFileUnreadable(path.name, f"it is larger than {LARGEST_FILE:,} bytes")
        return path.read_bytes()
    except OSError as problem:
        raise TrainingFileUnreadable(path.name, problem.strerror or type(problem).__name__) from None


def _lines(content: bytes, file: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise TrainingLineInvalid(file, number, "it is not UTF-8 text") from None
        if text.strip():
            yield number, text


def _example(line: str, file: str, number: int) -> Example:
    try:
        found = parse_json(line, most_bytes=LARGEST_FILE)
    except InvalidJson as unfit:
        raise TrainingLineInvalid(file, number, "it is not JSON" if "not JSON" in str(unfit) else str(unfit)) from None
    if reason := _unfit(found):
        raise TrainingLineInvalid(file, number, reason)
    documents = tuple(found["documents"])
    named = found.get("group")
    group = named if named is not None else hashlib.sha256("\0".join(sorted(documents)).encode()).hexdigest()
    return Example(documents, found["summary"].strip(), found.get("about"), group)


def _unfit(found: object) -> str:
    """What is wrong with a line, in words; nothing if it is an example."""
    if not isinstance(found, Mapping):
        return "it is not an object"
    if any(name not in _FIELDS for name in found):
        return f"it has another field than {', '.join(_FIELDS)}"
    documents = found.get("documents")
    if not isinstance(documents, list) or not 1 <= len(documents) <= MOST_DOCUMENTS:
        return f"`documents` must be a list of 1 to {MOST_DOCUMENTS} texts"
    if not all(_is_text(document) for document in documents):
        return "a document is empty or no text"
    if not _is_text(found.get("summary")):
        return "`summary` is missing, empty or no text"
    for name in ("about", "group"):
        if found.get(name) is not None and not _is_text(found[name]):
            return f"`{name}` is empty or no text"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_unicode(value)


class BadTrainingFile(UsageError):
    """A training file that cannot be learned from."""

    def __init__(self, message: str, file: str, **facts: object) -> None:
        super().__init__(
            message,
            "One JSON object a line, with `documents` and `summary`; the format is in docs/adapters.md.",
            {"file": file, **facts},
        )


class TrainingFileUnreadable(BadTrainingFile):
    """A file that is not there, or no file, or too large."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"The training file {file!r} cannot be read: {reason}.", file)


class TrainingLineInvalid(BadTrainingFile):
    """A line that is no example."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"Line {line} of the training file {file!r} is no example: {reason}.", file, line=line)


class TrainingFileTooSmall(BadTrainingFile):
    """With one group there is nothing to check with."""

    def __init__(self, file: str, groups: int) -> None:
        super().__init__(
            f"The training file {file!r} has {groups} group(s) of documents; two are the least, one to learn from and"
            " one to check with.",
            file,
            groups=groups,
        )
