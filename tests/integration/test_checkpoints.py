"""Recorded checkpoints: `doctor` and `audit verify` name those that their keys have not signed, and go on."""

from models_db.services.audit import chain
from models_db.services.catalogue import principals
from tests.integration.story import Almoner

CONCERNS = ("flows/audit", "migrations/schema", "models_db/services")


def finding(almoner: Almoner) -> tuple[bool, bool, str]:
    [found] = [each for each in almoner.ask("doctor")["findings"] if each["check"] == "checkpoints"]
    return found["ok"], found["warning"], found["detail"]


def test_a_checkpoint_that_its_key_has_not_signed_is_named_and_stops_nobody(any_almoner: Almoner) -> None:
    """Of a bundle and of a file; whoever may record one must not be able to keep verification from ever passing."""
    almoner = any_almoner
    almoner.published()
    almoner.type(f"audit checkpoint --to {almoner.folder / 'head.json'}")
    assert finding(almoner) == (True, False, "all are signed")
    assert almoner.ask("audit verify")["unsigned_checkpoints"] == []
    with almoner.database.write() as session:
        owner = principals.list_all(session)[0]
        actor, head = chain.Actor(owner.id, owner.name), chain.read_chain_head(session).hash
        chain.record_checkpoint(session, actor, head, "0" * 128, owner.public_key, "2026-01-01T00:00:00.000000Z")
    named = f"checkpoint 3, recorded by {owner.name}"
    ok, warning, detail = finding(almoner)
    assert (ok, warning) == (True, True)
    assert named in detail
    told = almoner.ask("audit verify")
    assert (told["sound"], told["unsigned_checkpoints"]) == (True, [named])
    assert named in almoner.type("audit verify").out
