"""Files that people write in YAML, and new files that are written for them."""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from models_db.errors import UsageError
from models_db.requests import FileInvalid
from tasks.publishing.layout import write_over

LARGEST_FILE = 1_000_000


class FileUnreadable(UsageError):
    """A file that was named cannot be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} cannot be read: {reason}.", "Check the path and its permissions.", {"path": str(path)}
        )


class FileUnwritable(UsageError):
    """A file that was to be written cannot be, or is there already."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} cannot be written: {reason}.",
            "Name a file that is not there yet, in a folder that is.",
            {"path": str(path)},
        )


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that must not exist yet, for writing.

    Raises:
        FileUnwritable.
    """
    try:
        with path.open("xb") as out:
            yield out
    except OSError as problem:
        raise FileUnwritable(path, problem.strerror or type(problem).__name__) from None


class _EachKeyOnce(yaml.SafeLoader):
    """Plain data; of two equal keys PyYAML would silently keep the last, and nobody could say which was meant."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping, if no key is there twice."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen and key.tag != _MERGE:
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_MERGE = "tag:yaml.org,2002:merge"


def read_yaml(path: Path, what: str, page: str = "docs/requests.md") -> object:
    """The content of a YAML file; `what` names it in errors, `page` explains its format.

    Raises:
        FileUnreadable, FileInvalid.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise FileUnreadable(path, f"it is larger than {LARGEST_FILE:,} bytes")
        return yaml.load(path.read_text(encoding="utf-8"), _EachKeyOnce)  # noqa: S506  # a SafeLoader
    except OSError as problem:
        raise FileUnreadable(path, problem.strerror or type(problem).__name__) from None
    except UnicodeDecodeError:
        raise FileUnreadable(path, "it is not UTF-8 text") from None
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark else "the file"
        reason = getattr(problem, "problem", None) or "malformed"
        raise FileInvalid(what, [f"{place}: not YAML ({reason})"], page) from None


def read_named(path: Path, what: str, page: str) -> dict[str, dict[str, Any]]:
    """What a YAML file has under each name: a mapping. Nothing where there is no file, or an empty one.

    Args:
        what: what a name stands for, for errors.

    Raises:
        FileUnreadable, FileInvalid.
    """
    if not path.exists():
        return {}
    found = read_yaml(path, path.name, page)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise FileInvalid(path.name, [f"{what} is a name and what belongs to it"], page)
    return {str(name): said for name, said in found.items()}


def keep_named(path: Path, head: str, named: Mapping[str, Mapping[str, object]]) -> None:
    """Write such a file anew, in the order of names and behind its `head`; 0600.

    Raises:
        OSError: it cannot be written.
    """
    text = head + (yaml.safe_dump(dict(sorted(named.items())), sort_keys=False) if named else "")
    write_over(path, text.encode(), 0o600)
