"""Strict YAML reader: plain data only; text that two YAML readers could read differently is refused.

Of YAML 1.2's core schema: mappings, lists, text, `true`, `false`, `null`, decimal numbers. What YAML 1.1 made of other
words is text here: `yes`, `no`, `on`, `off`, days and times. Refused by name are anchors and aliases (a short file can
stand for a huge one), tags, keys that are there twice, and numbers that 1.1 reads in another base (`010`, `0x1f`,
`1_000`, `1:30`), as not-a-number, or with too many digits. No error quotes the file: another one may have been meant.
"""

import re
from collections.abc import Hashable
from math import isinf
from typing import Any, ClassVar, Final

import yaml

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
