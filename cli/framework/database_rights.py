"""How commands tell what was done to database roles, and what is left to somebody who may do it."""

from collections.abc import Sequence

from migrations.database_roles import Rights


def told_rights(rights: Rights) -> Sequence[str]:
    """Lines for people; none where nothing was to be done."""
    told = []
    if rights.done:
        told.append("Done in the database:\n" + _indented(rights.done))
    if rights.todo:
        told.append("This session may not do the rest. A database administrator types:\n" + _indented(rights.todo))
    return told


def as_json(rights: Rights) -> dict[str, object]:
    """The same for programs."""
    return {"done": list(rights.done), "todo": list(rights.todo)}


def _indented(statements: Sequence[str]) -> str:
    return "\n".join(f"    {statement};" for statement in statements)
