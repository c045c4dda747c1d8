"""Settings and data of an adapter training: public examples of summaries as JSONL. Nothing here imports torch.

Training file of adapters: public examples of summaries as JSONL, one example per line.

    {"documents": ["what one person wrote", "..."], "summary": "...", "about": "public metadata", "group": "B0001"}

`about` is public metadata for the prompt; either every line has it or none. Lines of one `group` (of the same
documents, where no group is named) are held out together: held-out examples are never used for training. All of it is
public by declaration, so errors name lines; still, they quote none.

Codes of the errors (UsageError):

    TrainingFileUnreadable   missing, not a file, too large
    TrainingLineInvalid      a line that is not an example
    TrainingFileTooSmall     one group: none can be held out
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from models_db.errors import UsageError
from models_db.values.canonical_json import InvalidJson, digest, parse_json
from models_db.values.requests import ExactDecimal, RequestModel, model_to_json
from tasks.adapters.metadata import AdapterName, AdapterWording
from tasks.common.files import open_user_file
from tasks.corpus.units import is_unicode

DESCRIPTION: Final = "one short summary of what they say"

_SYSTEM = "You summarise what many people wrote. Reply with the summary alone."
_LABELLED = (
    "Many people wrote about this: {label}\nWords that stand for what they wrote: {reference}\n\nWrite {description}."
)
_PLAIN = "Many people wrote about one thing.\nWords that stand for what they wrote: {reference}\n\nWrite {description}."


def default_wording(description: str = DESCRIPTION, *, labelled: bool) -> AdapterWording:
    """Return the default wording.

    Documents are read for a title and without their public metadata: a state that repeats the public part spends the
    clip norm on it.
    """
    return AdapterWording(
        description=description,
        system=_SYSTEM,
        private=_LABELLED if labelled else _PLAIN,
        reading_system="You give titles to texts.",
        reading_private="{reference}\n\nGive this text a title.",
        reading_opening="Title:",
    )


class TrainingSettings(RequestModel):
    """Sizes of an adapter, and options of its training.

    Attributes:
        soft_tokens: m.
        words: number of soft tokens that are words for the mean.
        dimensions: r, or WHOLE.
        steps: most steps; early stopping may end before.
        batch: examples of a step.
        noise_least, noise_most: the range of the noise in training, as the standard deviation of each entry of a mean
            in clip norms; both 0 for none.
        check_every: steps between checks on the held-out groups, each with a checkpoint.
        patience: checks without a lower loss that end the training.
        held_out: the share of groups that are held out, at least one.
        max_reference_tokens, max_summary_tokens: length in tokens at which documents and summaries are cut.
        seed: of the order of examples, the subsets, the noise and the first weights. The data are public, so nothing
            is protected by their randomness, and a training can be repeated.
        precision: of the frozen model during training.
    """

    soft_tokens: Annotated[int, Field(ge=1, le=256)] = 16
    words: Annotated[int, Field(ge=0, le=255)] = 8
    dimensions: Annotated[int, Field(ge=0)] = 64
    centres: Annotated[int, Field(ge=1, le=64)] = 1
    hidden_units: Annotated[int, Field(ge=1, le=65536)] = 64
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 300
    batch: Annotated[int, Field(ge=1, le=4096)] = 8
    learning_rate: Annotated[ExactDecimal, Field(gt=0, le=1)] = Decimal("0.003")
    weight_decay: Annotated[ExactDecimal, Field(ge=0, le=1)] = Decimal("0.01")
    noise_least: Annotated[ExactDecimal, Field(ge=0, le=100)] = Decimal("0.01")
    noise_most: Annotated[ExactDecimal, Field(ge=0, le=100)] = Decimal(1)
    check_every: Annotated[int, Field(ge=1)] = 20
    patience: Annotated[int, Field(ge=1)] = 4
    held_out: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.2")
    max_reference_tokens: Annotated[int, Field(ge=1)] = 160
    max_summary_tokens: Annotated[int, Field(ge=1)] = 128
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    precision: Literal["float32", "bfloat16"] = "bfloat16"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.noise_least > self.noise_most or (self.noise_most > 0 and self.noise_least == 0):
            raise ValueError("noise_least must be at most noise_most, and above 0 unless both are 0")
        if self.words >= self.soft_tokens:
            raise ValueError("words must be fewer than soft_tokens: at least one is learned")
        return self

    @property
    def noisy(self) -> bool:
        """Return whether training uses noise."""
        return self.noise_most > 0


class Called(RequestModel):
    """A person's statements on an adapter to train.

    Attributes:
        licence: of the training data, in words.
    """

    name: AdapterName
    licence: Annotated[str, Field(min_length=1, max_length=300)]


class Order(Called):
    """Complete description of a training: settings, model and data.

    Attributes:
        model_digest, data_sha256: of the model's files and of the training file.
    """

    model: str
    model_digest: str
    data_sha256: str
    wording: AdapterWording
    settings: TrainingSettings

    @property
    def digest(self) -> str:
        """Digest that binds a checkpoint to this order."""
        return digest(model_to_json(self))


LARGEST_FILE: Final = 2**30
"""Most bytes. Examples are kept in memory."""

MOST_DOCUMENTS: Final = 10_000
"""Most documents of one example."""

_FIELDS = ("documents", "summary", "about", "group")


@dataclass(frozen=True)
class Example:
    """Documents of many people, and one summary of them.

    Attributes:
        about: public metadata of the group, or None if the file has none.
        group: examples of one group are held out together.
    """

    documents: tuple[str, ...]
    summary: str
    about: str | None
    group: str


@dataclass(frozen=True)
class TrainingData:
    """Content of a training file.

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
        """Return whether the examples have `about`."""
        return self.examples[0].about is not None


def read_training_data(path: Path) -> TrainingData:
    """Read every example of a JSONL file; blank lines are skipped.

    Raises:
        TrainingFileUnreadable, TrainingLineInvalid, TrainingFileTooSmall.
    """
    content = _bytes(path)
    examples: list[Example] = []
    for number, line in _lines(content, path.name):
        example = _example(line, path.name, number)
        if examples and (example.about is None) != (examples[0].about is None):
            raise _training_line_invalid(path.name, number, "either every line has `about` or none")
        examples.append(example)
    data = TrainingData(path.name, hashlib.sha256(content).hexdigest(), tuple(examples))
    if len(data.groups) < 2:
        raise _bad_training_file(
            "TrainingFileTooSmall",
            f"The training file {path.name!r} has {len(data.groups)} group(s) of documents; at least two are needed,"
            " one to train on and one to hold out.",
            path.name,
            groups=len(data.groups),
        )
    return data


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise _training_file_unreadable(path.name, "it is a folder")
        with open_user_file(path) as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise _training_file_unreadable(path.name, f"it is larger than {LARGEST_FILE:,} bytes")
        return content
    except OSError as problem:
        raise _training_file_unreadable(path.name, problem.strerror or type(problem).__name__) from None


def _lines(content: bytes, file: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise _training_line_invalid(file, number, "it is not UTF-8 text") from None
        if text.strip():
            yield number, text


def _example(line: str, file: str, number: int) -> Example:
    try:
        fields = parse_json(line, most_bytes=LARGEST_FILE)
    except InvalidJson as error:
        raise _training_line_invalid(
            file, number, "it is not JSON" if "not JSON" in str(error) else str(error)
        ) from None
    if reason := _invalid_reason(fields):
        raise _training_line_invalid(file, number, reason)
    documents = tuple(fields["documents"])
    stated_group = fields.get("group")
    group = (
        stated_group if stated_group is not None else hashlib.sha256("\0".join(sorted(documents)).encode()).hexdigest()
    )
    return Example(documents, fields["summary"].strip(), fields.get("about"), group)


def _invalid_reason(fields: object) -> str:
    """Return the reason why a line is invalid; empty if it is an example."""
    if not isinstance(fields, Mapping):
        return "it is not an object"
    if any(name not in _FIELDS for name in fields):
        return f"it has another field than {', '.join(_FIELDS)}"
    documents = fields.get("documents")
    if not isinstance(documents, list) or not 1 <= len(documents) <= MOST_DOCUMENTS:
        return f"`documents` must be a list of 1 to {MOST_DOCUMENTS} texts"
    if not all(_is_text(document) for document in documents):
        return "a document is empty or no text"
    if not _is_text(fields.get("summary")):
        return "`summary` is missing, empty or no text"
    for name in ("about", "group"):
        if fields.get(name) is not None and not _is_text(fields[name]):
            return f"`{name}` is empty or no text"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and is_unicode(value)


def _bad_training_file(code: str, message: str, file: str, **facts: object) -> UsageError:
    return UsageError(
        message,
        "Write one JSON object per line, with `documents` and `summary`; the format is in docs/adapters.md.",
        {"file": file, **facts},
        code=code,
    )


def _training_file_unreadable(file: str, reason: str) -> UsageError:
    return _bad_training_file("TrainingFileUnreadable", f"The training file {file!r} cannot be read: {reason}.", file)


def _training_line_invalid(file: str, line: int, reason: str) -> UsageError:
    return _bad_training_file(
        "TrainingLineInvalid",
        f"Line {line} of the training file {file!r} is not an example: {reason}.",
        file,
        line=line,
    )
