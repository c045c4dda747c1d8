"""Schemas of what commands print under --json, derived from the types of their results."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from typing_extensions import TypedDict  # pydantic reads those of `typing` from Python 3.12 on only

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ProblemData(TypedDict):
    """Any command that fails: its error, with exit code 1 (a rule), 2 (usage) or 3 (this machine)."""

    error: str
    message: str
    advice: str
    facts: dict[str, object]


def answer_schema(function: Callable[..., object]) -> dict[str, Any]:
    """Return the JSON schema of everything that a command prints to stdout under --json: its result, or its error.

    Objects have the listed properties and no others.
    """
    from pydantic import TypeAdapter  # slow to import, and only schemas need it

    (data,) = get_args(inspect.signature(function, eval_str=True).return_annotation)
    schema = TypeAdapter(data | ProblemData).json_schema()
    _close(schema)
    return {"$schema": DIALECT, **schema}


def to_plain(value: object) -> object:
    """Return a dataclass or a pydantic model as the object that its schema describes, for `json.dumps(default=...)`."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    from pydantic import BaseModel  # loaded already, where a value is one

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _close(schema: object) -> None:
    """Forbid other properties in all objects that list theirs, and drop titles that only repeat a property's name."""
    if isinstance(schema, list):
        for each in schema:
            _close(each)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            schema.setdefault("additionalProperties", False)
            for each in properties.values():
                each.pop("title", None)
        for each in schema.values():
            _close(each)
