"""YAML files written by people: plain data only, read strictly; and new files written for them.

Strict YAML reader: plain data only; text that two YAML readers could read differently is refused. Of YAML 1.2's core
schema: mappings, lists, text, `true`, `false`, `null`, decimal numbers. What YAML 1.1 made of other words is text here:
`yes`, `no`, `on`, `off`, days and times. Refused by name are anchors and aliases (a short file can stand for a huge
one), tags, keys that are there twice, and numbers that 1.1 reads in another base (`010`, `0x1f`, `1_000`, `1:30`), as
not-a-number, or with too many digits. No error quotes the file: another one may have been meant.
"""

import errno
import os
import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from math import isinf
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

import yaml

from models_db.errors import UsageError
from models_db.home import describe_free_space
from models_db.values.requests import file_invalid
from tasks.common.files import open_user_file, write_over

MOST_DEPTH: Final = 64
MOST_DIGITS: Final = 400
_AMBIGUOUS_SCALAR = re.compile(
    r"[-+]?0[0-9_]+|[-+]?0[xX][0-9a-fA-F_]+|[-+]?0[oO][0-7_]+|[-+]?0[bB][01_]+"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?[0-9]+_[0-9_]*(\.[0-9_]*)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_PROBLEM_TEXTS = {
    "could not find expected ':'": "a `:` is missing",
    "mapping values are not allowed here": "there is a `:` in a wrong place",
}
"""Messages of PyYAML and their replacements; its other messages may quote the file and are not shown."""


class InvalidYaml(ValueError):
    """The text is not plain YAML; the message gives the reason and the line, and quotes nothing."""


class _PlainLoader(yaml.SafeLoader):
    """The safe loader, restricted to plain YAML and to bounded sizes."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]  # as PyYAML's own loaders do
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node and its children; refuse anchors, aliases, tags and deep nesting."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refusal_at("anchors and aliases are not read", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _refusal_at("tags are not read", event.start_mark)
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _refusal_at(f"it is nested deeper than {MOST_DEPTH} levels", event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct a mapping; refuse repeated keys, also in two spellings of one value."""
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refusal_at("a key is not text", key.start_mark)
        mapping = super().construct_mapping(node, deep)
        if len({str(name) for name in mapping}) != len(node.value):
            names: set[str] = set()
            for key, _ in node.value:
                name = str(self.construct_object(key))
                if name in names:
                    raise _refusal_at("a key is repeated", key.start_mark)
                names.add(name)
        return mapping

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Construct a scalar; refuse numbers that YAML 1.1 reads differently."""
        if not isinstance(node, yaml.ScalarNode):
            raise _refusal_at("a mapping is not allowed here", node.start_mark)
        if node.style is None and node.tag == _TEXT and _AMBIGUOUS_SCALAR.fullmatch(node.value):
            raise _refusal_at("YAML 1.1 reads this number differently; quote it, or write it plainly", node.start_mark)
        if node.tag in (_INT, _FLOAT) and len(node.value) > MOST_DIGITS:
            raise _refusal_at(f"a number has more than {MOST_DIGITS} digits", node.start_mark)
        if node.tag == _FLOAT and isinf(float(node.value)):
            raise _refusal_at("a number is too large", node.start_mark)
        return super().construct_scalar(node)


_TEXT, _INT, _FLOAT = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float"))


def _add_resolver(kind: str, pattern: str, first: str) -> None:
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), list(first))


_add_resolver("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_add_resolver("null", "~|null|Null|NULL|", "~nN")
_PlainLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^$"), [""])
_add_resolver("int", "[-+]?(?:0|[1-9][0-9]*)", "-+0123456789")
_DECIMAL = r"[-+]?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?(?:0|[1-9][0-9]*)\.(?:[eE][-+]?[0-9]+)?"
_add_resolver("float", _DECIMAL, "-+0123456789.")


def parse_yaml(text: str) -> object:
    """Return the one document in `text` as plain data; None if there is none.

    Raises:
        InvalidYaml: the text is not plain YAML.

    >>> parse_yaml("epsilon: 2.0\\nmechanism: on")
    {'epsilon': 2.0, 'mechanism': 'on'}
    """
    try:
        return yaml.load(text, _PlainLoader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as problem:
        raise InvalidYaml(_problem_text(problem)) from None
    except (RecursionError, ValueError, OverflowError):
        raise InvalidYaml("not YAML") from None


def _refusal_at(reason: str, mark: yaml.Mark | None) -> yaml.MarkedYAMLError:
    return _PlainYamlError(None, None, reason, mark)


class _PlainYamlError(yaml.MarkedYAMLError):
    """A message of almoner, which quotes nothing."""


def _problem_text(problem: yaml.YAMLError) -> str:
    mark = getattr(problem, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark else ""
    reason = str(getattr(problem, "problem", "") or "")
    explanation = reason if isinstance(problem, _PlainYamlError) else _PROBLEM_TEXTS.get(reason, "")
    return f"{place}not YAML" + (f" ({explanation})" if explanation else "")


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
