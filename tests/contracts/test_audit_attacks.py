"""A ledger that was rewritten, cut or replaced as a whole, on both backends: what lies outside finds it and says how.

Two anchors: what a bundle carries (a hash, and which artifact it was published with) and what a checkpoint file holds
(also number and time). In each attack the ledger's own list of checkpoints is emptied, so nothing inside tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from models_db.database.base import utc_now
from models_db.services.audit import chain, log, verify_chain
from models_db.services.audit.log import LogFilter, LoggedLink
from models_db.services.audit.verify_chain import ChainAnchor, ChainReport
from models_db.sessions.database import Database
from models_db.tables import AuditLink
from tests.conftest import Ledgers
from tests.contracts.tampering import FORGET_CHECKPOINTS, rewrite, superuser, truncate
from tests.support import World


@dataclass(frozen=True)
class Story:
    """A ledger after its second release, and two anchors of the end."""

    world: World
    bundle: ChainAnchor
    file: ChainAnchor


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def original(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[Story]:
    with ledgers.new(request.param) as database:
        world = World.create(database)
        world.dataset()
        world.published()
        attempt = world.published()
        published = links(database)[-1]
        bundle = ChainAnchor(published.row_hash, "key of runner", artifact=world.subject(attempt.request_id, "publish"))
        with database.write() as session:
            head = chain.read_chain_head(session)
            chain.record_checkpoint(session, world.steward, head.hash, "s", "key of steward", utc_now())
        world.running()
        file = ChainAnchor(head.hash, "key of steward", head.seq, utc_now())
        yield Story(world, bundle, file)


@pytest.fixture
def story(original: Story, ledgers: Ledgers) -> Iterator[Story]:
    """A copy that may be attacked."""
    backend = original.world.database.engine.dialect.name
    with ledgers.new(backend, like=original.world.database) as database:
        yield replace(original, world=replace(original.world, database=database))


def links(database: Database) -> list[LoggedLink]:
    with database.read() as session:
        return list(log.stream_links(session, LogFilter()))


def verify(database: Database, *anchors: ChainAnchor) -> ChainReport:
    with database.read() as session:
        return verify_chain.verify_chain(session, anchors)


def verdicts(database: Database, story: Story) -> list[str]:
    """What the two anchors say; on its own the chain holds."""
    assert verify(database).holds
    found = verify(database, story.bundle, story.file)
    assert found.holds
    assert all(placed.detail for placed in found.placements)
    assert found.sound == all(placed.link for placed in found.placements)
    return [placed.verdict for placed in found.placements]


@pytest.mark.parametrize("edits", [{2: {"actor": "somebody"}}, {9: {"body": '{"reason":"better"}'}}])
def test_a_rewritten_ledger(story: Story, edits: Mapping[int, Mapping[str, str]]) -> None:
    superuser(story.world.database, FORGET_CHECKPOINTS)
    rewrite(story.world.database, edits)
    assert verdicts(story.world.database, story) == ["rewritten"] * 2


def test_a_rewritten_end_leaves_what_was_signed_before(story: Story) -> None:
    superuser(story.world.database, FORGET_CHECKPOINTS)
    rewrite(story.world.database, {int(story.file.seq or 0) + 1: {"actor": "somebody"}})
    assert verdicts(story.world.database, story) == ["on the chain"] * 2


@pytest.mark.parametrize("less", [1, 4])
def test_a_truncated_tail(story: Story, less: int) -> None:
    superuser(story.world.database, FORGET_CHECKPOINTS)
    truncate(story.world.database, int(story.file.seq or 0) - less)
    assert verdicts(story.world.database, story) == ["cut off"] * 2


def test_another_ledger_of_the_same_people(story: Story, ledgers: Ledgers) -> None:
    """A checkpoint file knows when it was signed; of a bundle only that this ledger never heard of its release."""
    with ledgers.new(story.world.database.engine.dialect.name) as database:
        world = World.create(database)
        world.dataset()
        world.published()
        world.fail(world.running())
        world.published()
        world.published()
        assert verdicts(database, story) == ["older copy", "another ledger"]


def test_the_ledgers_own_list_of_checkpoints_tells_as_well(story: Story) -> None:
    truncate(story.world.database, int(story.file.seq or 0) - 2)
    found = verify(story.world.database, story.bundle, story.file)
    assert (found.broken_at, found.reason) == (story.file.seq, verify_chain.OFF_CHAIN)
    assert [placed.verdict for placed in found.placements] == ["cut off"] * 2


def test_anchors_beyond_a_break_are_not_said_to_hold(story: Story) -> None:
    superuser(story.world.database, FORGET_CHECKPOINTS, "UPDATE audit SET actor = 'x' WHERE seq = 8")
    found = verify(story.world.database, story.bundle, story.file)
    assert found.broken_at == 8
    assert [(placed.link, placed.verdict) for placed in found.placements] == [(None, "broken")] * 2


def test_a_number_that_was_not_signed_with_its_hash(story: Story) -> None:
    wrong = replace(story.file, seq=int(story.file.seq or 0) - 1)
    [placed] = verify(story.world.database, wrong).placements
    assert (placed.link, placed.verdict) == (None, "rewritten")


def test_a_clock_that_went_back_is_found_where_it_did(story: Story) -> None:
    """The chain holds: somebody set the clock back, and whoever wrote then was believed."""
    database = story.world.database
    superuser(database, FORGET_CHECKPOINTS)
    at = {link.seq: link.at for link in links(database)}
    rewrite(database, {8: {"at": "2020-01-01T00:00:00.000000Z"}, 12: {"at": "2019-01-01T00:00:00.000000Z"}})
    found = verify(database)
    assert (found.holds, found.sound, found.clock_back) == (True, False, (8, 12))
    rewrite(database, {8: {"at": at[8]}, 12: {"at": at[12]}})
    assert verify(database).sound


def test_the_places_of_a_clock_are_some(story: Story) -> None:
    database = story.world.database
    superuser(database, FORGET_CHECKPOINTS)
    rewrite(database, {seq: {"at": f"20{99 - seq}-01-01T00:00:00.000000Z"} for seq in range(2, 40)})
    assert verify(database).clock_back == tuple(range(3, 3 + verify_chain.MOST_UNREADABLE))


@pytest.mark.parametrize("value", ["x'00ff'", "12"])
def test_a_value_of_another_type_is_an_alteration(ledgers: Ledgers, value: str) -> None:
    """SQLite keeps what it is given."""
    with ledgers.new("sqlite") as database:
        World.create(database)
        superuser(database, f"UPDATE audit SET body = {value} WHERE seq = 1")
        assert (verify(database).broken_at, verify(database).reason) == (1, "a link was altered")


def test_a_walk_tells_how_far_it_is(story: Story) -> None:
    told: list[tuple[int, int]] = []
    with story.world.database.read() as session:
        count = verify_chain.verify_chain(session, progress=lambda done, total: told.append((done, total))).links
    assert told[-1] == (count, count)


def test_the_walks_hash_is_the_writers(story: Story) -> None:
    strange: Sequence[str | None] = [None, "", "é\u2028\U0001f512", '"\\/\b\f\n\r\t\x00\x1f\x7f', "</script>"]
    for text in strange:
        fourth = links(story.world.database)[3]
        link = fourth._replace(dataset=text, actor=text or "", body=text or "", request_id=2**40)
        row = AuditLink(**link._asdict())
        assert verify_chain.link_hash(link) == row.computed_hash
        plain = link._replace(request_id=None)
        assert verify_chain.link_hash(plain) == AuditLink(**plain._asdict()).computed_hash
