"""JSON schemas that a release of records may declare, their parameters in a request, and their conversion to a grammar.

A record's schema is public: it stands in the request and on the card. Of JSON Schema 2020-12 only what a finite
grammar can *promise* is taken, so that every text of the grammar is valid under the schema as it was written;
everything else is refused by name, never ignored. One rule is ours, because a ledger keeps JSON objects without an
order: properties are written in the order of `required`, then the optional ones by name. The request also says whether
the schema constrains the draws.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, Field

from models_db.errors import UsageError
from models_db.values.requests import RequestModel
from tasks.values.results import ReleaseKind


def _usable_schema(schema: object) -> object:
    if schema is not None:
        record_schema(schema)
    return schema


class RecordParameters(RequestModel):
    """The part of a system's `parameters:` that is about records; every one is public.

    Attributes:
        json_schema: `schema` in the file: the JSON schema of every record. A refusal has its own name
            (`SchemaInvalid`, `SchemaNotSupported`, `SchemaTooLarge`).
        constrained: whether each text is a valid record by construction (docs/decisions/0021).
    """

    json_schema: Annotated[Any, AfterValidator(_usable_schema)] = Field(default=None, alias="schema")
    constrained: bool = True


def schema_of(parameters: BaseModel) -> Mapping[str, Any] | None:
    """Return the schema that a system's parameters declare; None if there is none."""
    return parameters.json_schema if isinstance(parameters, RecordParameters) else None


def constraint_facts(settings: RecordParameters) -> dict[str, str]:
    """Return facts about the use of the schema, for people."""
    if settings.json_schema is None:
        return {}
    return {"records": "held to their schema while they are drawn" if settings.constrained else "drawn freely"}


def require_schema_for(kind: str, parameters: BaseModel) -> None:
    """Check that a release of that kind can be made with this schema, or without one.

    Raises:
        SchemaNeeded: records without a schema.
        SchemaUnexpected: a schema for texts that are no records.
    """
    schema = schema_of(parameters)
    if kind == ReleaseKind.RECORDS and schema is None:
        raise UsageError(
            "A release of records needs a schema.",
            "Declare it as `parameters.schema`; docs/records.md has an example.",
            code="SchemaNeeded",
        )
    if kind != ReleaseKind.RECORDS and schema is not None:
        raise UsageError(
            f"A release of kind {kind!r} has no schema.",
            "Set `kind: records`, or leave `parameters.schema` out.",
            {"kind": kind},
            code="SchemaUnexpected",
        )


MOST_BYTES = 16_384
"""The longest schema, as JSON."""
MOST_CHARACTERS = 2_000
"""Characters the automaton must count at most: bounded strings times bounded arrays, and literal values."""
MOST_PARTS = 500
"""Subschemas at most, after references are put in place."""
MOST_VALUES = 2_000
"""Integers between a `minimum` and a `maximum` at most."""
DEEPEST = 16
"""Levels of nesting at most."""

MOST_DIGITS = 15
"""Digits of an integer, or of a fraction, that has no bounds: every such number is a finite float."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REMARKS = frozenset({"title", "description", "$comment", "examples", "default", "$defs"})
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset(),
    "boolean": frozenset(),
    "null": frozenset(),
}
_PYTHON: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
# Keywords of the library that builds the grammar, not of JSON Schema.
_NUMBER: Mapping[str, int] = {
    **{f"minDigits{part}": 1 for part in ("Integer", "Fraction", "Exponent")},
    "maxDigitsInteger": MOST_DIGITS,
    "maxDigitsFraction": MOST_DIGITS,
    "maxDigitsExponent": 2,
}
_OTHER = frozenset({"type", "enum", "const", "anyOf", "$ref"})

Schema = dict[str, Any]


def grammar_schema(schema: object) -> Schema:
    """Return the schema that a grammar is built from: checked, references in place, integer ranges spelt out.

    Every value that it admits is admitted by `schema` as JSON Schema 2020-12 defines it; the reverse need not hold
    (objects are closed, and their properties come in one order).

    Raises:
        SchemaInvalid: not a JSON schema, or one that nothing can satisfy.
        SchemaNotSupported: with every keyword or form that a grammar cannot promise.
        SchemaTooLarge: more than this page's limits.
    """
    well_formed = _well_formed(schema)
    builder = _Builder(well_formed)
    built = builder.build(well_formed, "schema", 0)
    if builder.problems:
        raise _schema_not_supported(builder.problems)
    if (size := _characters(built)) > MOST_CHARACTERS:
        raise schema_too_large(f"its strings and arrays have {size} characters to count", f"{MOST_CHARACTERS}")
    return built


def record_schema(schema: object) -> Schema:
    """Return the `grammar_schema` of a release of records: each of them is an object.

    Raises:
        SchemaInvalid, SchemaNotSupported, SchemaTooLarge.
    """
    built = grammar_schema(schema)
    if built.get("type") != "object":
        raise _schema_not_supported(["schema: a record is an object, so its `type` is object"])
    return built


def _well_formed(schema: object) -> Schema:
    from jsonschema import Draft202012Validator  # slow to import, and few requests have a schema
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema, Mapping) or not schema:
        raise _schema_invalid("an object with a `type` is needed")
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
        parsed = cast(Schema, json.loads(text))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError):
        raise _schema_invalid("it is not plain JSON") from None
    if size > MOST_BYTES:
        raise schema_too_large(f"it has {size} bytes", f"{MOST_BYTES}")
    if parsed.pop("$schema", DIALECT) != DIALECT:
        raise _schema_not_supported([f"schema.$schema: the dialect is {DIALECT}"])
    try:
        Draft202012Validator.check_schema(parsed)
    except SchemaError as wrong:
        where = ".".join(["schema", *map(str, wrong.absolute_path)])
        raise _schema_invalid(f"{where}: {wrong.message[:200]}") from None
    except RecursionError:
        raise schema_too_large("it is nested too deeply", f"{DEEPEST} levels") from None
    return parsed


@dataclass
class _Builder:
    """Walks a schema once, and collects every reason why it cannot be taken."""

    root: Schema
    problems: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _parts: int = 0

    def build(self, schema: object, where: str, depth: int) -> Schema:
        self._parts += 1
        if depth > DEEPEST or self._parts > MOST_PARTS:
            raise schema_too_large("it has too many subschemas", f"{MOST_PARTS} of them, {DEEPEST} levels deep")
        if not isinstance(schema, dict):
            return self._refuse(where, "true and false are not types")
        forms: Mapping[str, Callable[[Schema, str, int], Schema]] = {
            "$ref": self._reference,
            "anyOf": self._any_of,
            "const": self._literal,
            "enum": self._literal,
            "type": self._typed,
        }
        for keyword, build in forms.items():
            if keyword in schema:
                return build(schema, where, depth)
        return self._refuse(where, "a type, enum, const, anyOf or $ref is needed")

    def _reference(self, schema: Schema, where: str, depth: int) -> Schema:
        self._only(schema, where, {"$ref"})
        target = schema["$ref"]
        name = target.removeprefix("#/$defs/")
        definition = self.root.get("$defs", {}).get(name)
        if name == target or definition is None:
            return self._refuse(where, f"$ref {target!r}: only #/$defs/NAME of this schema")
        if name in self._open:
            return self._refuse(where, f"$ref {target!r}: a schema that contains itself has no longest record")
        self._open.append(name)
        built = self.build(definition, where, depth + 1)
        self._open.pop()
        return built

    def _any_of(self, schema: Schema, where: str, depth: int) -> Schema:
        self._only(schema, where, {"anyOf"})
        options = enumerate(schema["anyOf"])
        return {"anyOf": [self.build(option, f"{where}.anyOf[{number}]", depth + 1) for number, option in options]}

    def _literal(self, schema: Schema, where: str, depth: int) -> Schema:
        self._only(schema, where, {"enum", "const", "type"} if ("enum" in schema) != ("const" in schema) else set())
        values = schema["enum"] if "enum" in schema else [schema.get("const")]
        if not values or not all(value is None or isinstance(value, str | int) for value in values):
            return self._refuse(where, "enum and const take strings, integers, true, false and null")
        declared = schema.get("type")
        if declared is not None and not all(_of_type(value, declared) for value in values):
            return self._refuse(where, "a listed value is not of the declared type")
        return {"enum": values}

    def _typed(self, schema: Schema, where: str, depth: int) -> Schema:
        declared = schema["type"]
        if isinstance(declared, list):
            self._only(schema, where, {"type"}.union(*(_KEYWORDS[name] for name in declared)))
            each = ({k: v for k, v in schema.items() if k in _KEYWORDS[name]} | {"type": name} for name in declared)
            return {"anyOf": [self._typed(option, where, depth) for option in each]}
        self._only(schema, where, {"type"} | _KEYWORDS[declared])
        match declared:
            case "object":
                return self._object(schema, where, depth)
            case "array":
                return self._array(schema, where, depth)
            case "integer":
                return self._integer(schema, where)
            case "number":
                return {"type": "number", **_NUMBER}
            case "string":
                return self._bounded(schema, where, "minLength", "maxLength")
            case _:
                return {"type": declared}

    def _object(self, schema: Schema, where: str, depth: int) -> Schema:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not properties or not set(required) <= set(properties):
            return self._refuse(where, "an object lists its properties, and among them every required one")
        if any(json.dumps(name, ensure_ascii=False) != f'"{name}"' for name in properties):
            # The library that builds the grammar writes names as they stand.
            return self._refuse(where, "a property's name has no quote, backslash or control character")
        if not isinstance(schema.get("additionalProperties", False), bool):
            return self._refuse(where, "additionalProperties is true or false; none are ever written")
        order = [*required, *sorted(set(properties) - set(required))]
        return {
            "type": "object",
            "properties": {name: self.build(properties[name], f"{where}.{name}", depth + 1) for name in order},
            "required": required,
            "additionalProperties": False,
        }

    def _array(self, schema: Schema, where: str, depth: int) -> Schema:
        if "items" not in schema:
            return self._refuse(where, "an array says what its `items` are")
        built = self._bounded(schema, where, "minItems", "maxItems")
        return built | {"items": self.build(schema["items"], f"{where}.items", depth + 1)}

    def _integer(self, schema: Schema, where: str) -> Schema:
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is None and high is None:
            return {"type": "integer", "maxDigits": MOST_DIGITS}
        if not isinstance(low, int) or not isinstance(high, int):
            return self._refuse(where, "an integer has both a whole `minimum` and a whole `maximum`, or neither")
        if low > high:
            raise _schema_invalid(f"{where}: minimum is above maximum, so nothing satisfies it")
        if high - low >= MOST_VALUES:
            raise schema_too_large(f"{where} ranges over {high - low + 1} integers", f"{MOST_VALUES}")
        return {"enum": list(range(low, high + 1))}

    def _bounded(self, schema: Schema, where: str, least: str, most: str) -> Schema:
        low, high = schema.get(least, 0), schema.get(most)
        if high is not None and low > high:
            raise _schema_invalid(f"{where}: {least} is above {most}, so nothing satisfies it")
        return {"type": schema["type"]} | {key: int(schema[key]) for key in (least, most) if key in schema}

    def _only(self, schema: Schema, where: str, allowed: set[str] | frozenset[str]) -> None:
        keywords = _OTHER.union(*_KEYWORDS.values())
        for keyword in sorted(set(schema) - allowed - _REMARKS):
            together = " cannot stand beside the others here" if keyword in keywords else " is not supported"
            self.problems.append(f"{where}: {keyword!r}{together}")

    def _refuse(self, where: str, why: str) -> Schema:
        self.problems.append(f"{where}: {why}")
        return {"type": "null"}


def _of_type(value: object, declared: str | list[str]) -> bool:
    names = [declared] if isinstance(declared, str) else declared
    fits = {name for name, types in _PYTHON.items() if isinstance(value, types)}
    if isinstance(value, bool):
        fits = {"boolean"}
    return bool(fits & set(names))


def _characters(built: Schema) -> int:
    """About how many characters the automaton of `built` must tell apart."""
    return sum(_own_characters(built)) or 1


def _own_characters(built: Schema) -> Iterator[int]:
    match built:
        case {"enum": values}:
            yield from (len(json.dumps(value)) for value in values)
        case {"anyOf": options}:
            yield from map(_characters, options)
        case {"type": "object", "properties": properties}:
            yield from (len(json.dumps(name)) + _characters(part) for name, part in properties.items())
        case {"type": "array", "items": items}:
            yield max(built.get("maxItems", built.get("minItems", 0) + 1), 1) * _characters(items)
        case {"type": "string"}:
            yield built.get("maxLength", built.get("minLength", 0) + 1)
        case _:
            yield 2 * MOST_DIGITS


def _schema_invalid(reason: str) -> UsageError:
    return UsageError(
        f"The schema of the records is not valid: {reason}.",
        "Correct `parameters.schema`; docs/records.md has an example.",
        {"reason": reason},
        code="SchemaInvalid",
    )


def _schema_not_supported(problems: list[str]) -> UsageError:
    return UsageError(
        f"The schema of the records cannot be used: {'; '.join(problems)}.",
        "docs/records.md lists what a schema may say. Leave the rest out: a looser schema is still a schema.",
        {"problems": problems},
        code="SchemaNotSupported",
    )


def schema_too_large(reason: str, limit: str) -> UsageError:
    """Return the error of a schema whose grammar would not stay small."""
    return UsageError(
        f"The schema of the records is too large: {reason} (at most {limit}).",
        "Shorten it; a string without `maxLength` costs least, for the token limit bounds it anyway.",
        {"reason": reason, "limit": limit},
        code="SchemaTooLarge",
    )
