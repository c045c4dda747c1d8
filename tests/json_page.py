"""docs/json-results.md, made from the schemas of all commands: `python -m tests.json_page` writes it."""

from collections.abc import Iterator
from inspect import unwrap
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from cli.app import app
from cli.command_table import ListedCommand
from cli.framework.json_schema import answer_schema

PAGE = Path(__file__).resolve().parents[1] / "docs" / "json-results.md"
ERROR = "ProblemData"
INTRODUCTION = """# Results as JSON

With `--json` a command prints one JSON document to stdout, and nothing else goes there. `--json-schema` prints its
JSON schema, and needs no argument and no project home: `almoner release list --json-schema`.

Each schema says what stdout may hold: the command's result, or [ProblemData](#problemdata). Objects have the listed
fields and no others; a field without "may be absent" is always there. Amounts of epsilon, delta and rho are decimal
text, so that no reader rounds them; times are ISO 8601 in UTC. Fields may still change before the first release. A
test prints the result of every command and compares it with its schema.

This page is made from the schemas by `python -m tests.json_page`.

## Commands

| command | result |
| --- | --- |
"""


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command with its full name."""
    for name, listed in group.commands.items():
        found = listed.load() if isinstance(listed, ListedCommand) else listed
        if isinstance(found, TyperGroup):
            yield from commands(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


def page_text() -> str:
    """The page as it has to be."""
    rows, types = [], {}
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    for name, found in sorted(commands(root)):
        schema = answer_schema(unwrap(found.callback))
        types |= schema["$defs"]
        results = [_type(each) for each in schema["anyOf"] if each.get("$ref") != f"#/$defs/{ERROR}"]
        rows.append(f"| `almoner {name}` | {' or '.join(results)} |")
    parts = ["\n".join(rows), "", "## Objects"]
    parts += [_object(title, types[title]) for title in sorted(types)]
    return INTRODUCTION + "\n".join(parts) + "\n"


def _object(title: str, schema: dict[str, Any]) -> str:
    lines = [
        "",
        f"### {title}",
        "",
        " ".join(schema.get("description", f"One of the values of {title}.").split("\n\n")[0].split()),
    ]
    if "properties" not in schema:
        return "\n".join([*lines, "", f"It is {_type(schema)}."])
    lines += ["", "| field | type |", "| --- | --- |"]
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        absent = "" if name in required else "; may be absent"
        lines.append(f"| `{name}` | {_type(field)}{absent} |")
    return "\n".join(lines)


def _type(schema: dict[str, Any]) -> str:
    """A type in words, with links to objects."""
    if "$ref" in schema:
        title = schema["$ref"].rpartition("/")[2]
        return f"[{title}](#{title.lower()})"
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_type, several))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_type(schema['additionalProperties'])} by name"
        case "object":
            return "object"
        case None:
            return "any value"
        case kind:
            return str(kind)


if __name__ == "__main__":
    PAGE.write_text(page_text())
