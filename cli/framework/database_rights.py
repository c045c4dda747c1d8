"""Descriptions of changes to database roles: those applied, and those left to an administrator."""

from collections.abc import Sequence

from typing_extensions import TypedDict

from migrations.database_roles import RoleChanges


class DatabaseRights(TypedDict):
    """Changes of database roles: statements that were executed, and those that an administrator has to execute."""

    done: list[str]
    todo: list[str]


def describe_grants(rights: RoleChanges) -> Sequence[str]:
    """Return the grants as lines for people; no lines if there was nothing to grant."""
    sentences = []
    if rights.applied:
        sentences.append("Done in the database:\n" + _indented(rights.applied))
    if rights.pending:
        sentences.append(
            "This session may not do the rest. A database administrator must run:\n" + _indented(rights.pending)
        )
    return sentences


def grants_to_json(rights: RoleChanges) -> DatabaseRights:
    """Return the grants as JSON for programs."""
    return DatabaseRights(done=list(rights.applied), todo=list(rights.pending))


def _indented(statements: Sequence[str]) -> str:
    return "\n".join(f"    {statement};" for statement in statements)
