"""Schema parameters of a request for records: a public schema, and whether it constrains the draws."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from models_db.errors import UsageError
from models_db.values.requests import RequestModel
from tasks.inference.structured_output.json_schema import record_schema
from tasks.values.release_kinds import ReleaseKind


def _usable(schema: object) -> object:
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

    json_schema: Annotated[Any, AfterValidator(_usable)] = Field(default=None, alias="schema")
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
