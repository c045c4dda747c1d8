"""A missing tool skips a test with its reason, and fails it where everything is required."""

from datetime import timedelta

import pytest

from models_db.database.base import utc_now
from models_db.writes import insert
from tests.support import World, later, require, snapshot


@pytest.mark.parametrize(("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, required: str, outcome: type[BaseException]) -> None:
    monkeypatch.setenv("ALMONER_REQUIRE_ALL", required)
    require(True, "nothing is missing")
    with pytest.raises(outcome, match="the abacus is missing"):
        require(None, "the abacus is missing")


def test_a_snapshot_sees_every_change(world: World) -> None:
    before = snapshot(world.database)
    assert snapshot(world.database) == before
    world.dataset()
    after = snapshot(world.database)
    assert {table for table in after if after[table] != before[table]} == {
        "account",
        "audit",
        "audit_head",
        "dataset",
        "dataset_version",
        "unit_claim",
        "unit_mark",
    }


def test_later_is_later_and_ends() -> None:
    with later(timedelta(days=2)):
        assert insert.utc_now() > utc_now()
    assert insert.utc_now is utc_now
