"""For the guards of revision 0009 that one table has by itself: what they deny, and what they let pass."""

from sqlalchemy import Executable

from models_db.database.base import utc_now
from tests.contracts.initial_cases import Case
from tests.contracts.rows import insert, unit_mark
from tests.contracts.town import Town
from tests.support import NO_KEY


def restoration(town: Town, actor_id: int = 0) -> Executable:
    row = {"taken_at": utc_now(), "link": 1, "reason": "a disk", "at": utc_now()}
    return insert("restoration", **row, actor_id=actor_id or town.world.admin.id)


def overlap_key(town: Town, created_by: int = 0) -> Executable:
    row = {"key_commitment": NO_KEY, "created_at": utc_now()}
    return insert("overlap_key", **row, created_by=created_by or town.world.admin.id)


LINKED: dict[str, Case] = {
    "unit_mark_open_claim": Case(
        denied=[lambda t: unit_mark(t, "clinic", b"late-unit", claim=t.id_of("unit_claim", "TRUE"))],
        allowed=[lambda t: unit_mark(t, "clinic", b"late-unit")],
    ),
}
