"""YAML files written by people, and new files written for them."""

import errno
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from flows.workspace.plain_yaml import InvalidYaml, parse_yaml
from models_db.errors import UsageError
from models_db.home import describe_free_space
from models_db.values.requests import file_invalid
from tasks.common.files import open_user_file, write_over

LARGEST_FILE = 1_000_000


def file_unreadable(path: Path, reason: str) -> UsageError:
    """Return the error of a named file that cannot be read."""
    return UsageError(
        f"{path} cannot be read: {reason}.",
        "Check the path and its permissions.",
        {"path": str(path)},
        code="FileUnreadable",
    )


def file_unwritable(path: Path, reason: str) -> UsageError:
    """Return the error of a file that cannot be written, or already exists."""
    full = reason in (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
    return UsageError(
        f"{path} cannot be written: {reason}.",
        f"Make room there ({describe_free_space(path)}), or name a file on another disk."
        if full
        else "Name a new file in an existing folder.",
        {"path": str(path)},
        code="FileUnwritable",
    )


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing.

    Raises:
        FileUnwritable: the file exists, or cannot be written.
    """
    try:
        with path.open("xb") as out:
            yield out
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None


def read_yaml(path: Path, what: str, page: str = "docs/requests.md") -> object:
    """Read a YAML file; `what` names it in errors, and `page` explains its format.

    Raises:
        FileUnreadable: the file cannot be read.
        FileInvalid: the file is not plain YAML.
    """
    try:
        with open_user_file(path) as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise file_unreadable(path, f"it is larger than {LARGEST_FILE:,} bytes")
        return parse_yaml(data.decode("utf-8-sig"))
    except OSError as problem:
        raise file_unreadable(path, problem.strerror or type(problem).__name__) from None
    except UnicodeDecodeError:
        raise file_unreadable(path, "it is not UTF-8 text") from None
    except InvalidYaml as unfit:
        raise file_invalid(what, [str(unfit)], page) from None


def read_fields(
    path: Path, what: str, field_names: Collection[str], page: str = "docs/requests.md"
) -> dict[str, object]:
    """Read the mapping of fields in a YAML file, which must have at least one of the `field_names` fields.

    Raises:
        FileUnreadable: the file cannot be read.
        FileInvalid: the file holds no such mapping; the message quotes nothing, because the path may be a mistake.
    """
    return _require_fields(read_yaml(path, what, page), what, field_names, page)


def parse_fields(
    text: str, what: str, field_names: Collection[str], page: str = "docs/requests.md"
) -> dict[str, object]:
    """Read the mapping of fields in a YAML text, as `read_fields` reads that in a file.

    Raises:
        FileInvalid: the text holds no such mapping.
    """
    try:
        return _require_fields(parse_yaml(text), what, field_names, page)
    except InvalidYaml as unfit:
        raise file_invalid(what, [str(unfit)], page) from None


def _require_fields(content: object, what: str, field_names: Collection[str], page: str) -> dict[str, object]:
    if not isinstance(content, dict):
        raise file_invalid(what, ["line 1: a mapping of fields is needed, such as `name: value`"], page)
    fields = {str(name): value for name, value in content.items()}
    if not fields.keys() & set(field_names):
        raise file_invalid(what, [f"none of its fields is one of {', '.join(sorted(field_names))}"], page)
    return fields


def read_sections(path: Path, what: str, page: str) -> dict[str, dict[str, Any]]:
    """Return the mapping of each section of a YAML file; empty without a file, or for an empty one.

    Args:
        what: the noun for a section in errors.

    Raises:
        FileUnreadable: the file cannot be read.
        FileInvalid: the file does not hold named sections.
    """
    if not path.exists():
        return {}
    content = read_yaml(path, path.name, page)
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(each, dict) for each in content.values()):
        raise file_invalid(path.name, [f"{what} needs a name and its settings"], page)
    return {str(name): section for name, section in content.items()}


def write_sections(path: Path, head: str, sections: Mapping[str, Mapping[str, object]]) -> None:
    """Replace a file of sections, sorted by name after the text `head`; 0600.

    Raises:
        OSError: the file cannot be written.
    """
    text = head + (yaml.safe_dump(dict(sorted(sections.items())), sort_keys=False) if sections else "")
    write_over(path, text.encode(), 0o600)
