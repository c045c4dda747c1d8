"""Asking what became of an unconfirmed commit waits until it has become something."""

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from models_db.sessions import database as sessions
from models_db.sessions.database import Database, OutcomeUnknown
from tests.conftest import Ledgers


@pytest.fixture
def served(ledgers: Ledgers) -> Iterator[Database]:
    with ledgers.new("postgresql") as database:
        yield database


def test_a_transaction_that_is_still_committing_is_waited_for(served: Database) -> None:
    other = Database(served.engine.url.render_as_string(hide_password=False))
    ended: list[float] = []
    with other.engine.connect() as connection:
        connection.execute(text("SELECT almoner_begin()"))

        def end() -> None:
            time.sleep(0.3)
            ended.append(time.monotonic())
            connection.commit()

        thread = threading.Thread(target=end)
        thread.start()
        with served.write_after_loss():
            assert ended, "it was asked while the commit was under way"
        thread.join()
    other.dispose()


def test_one_that_does_not_end_leaves_the_outcome_unknown(served: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_SESSION_SETTINGS", ("lock_timeout=100ms",))
    hasty = Database(served.engine.url.render_as_string(hide_password=False))
    with served.engine.connect() as connection:
        connection.execute(text("SELECT almoner_begin()"))
        with pytest.raises(OutcomeUnknown), hasty.write_after_loss():
            pass
    hasty.dispose()


def test_readers_are_not_waited_for(served: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_SESSION_SETTINGS", ("lock_timeout=100ms",))
    hasty = Database(served.engine.url.render_as_string(hide_password=False))
    with served.read() as reader, hasty.write_after_loss():
        assert reader.scalar(text("SELECT 1")) == 1
    hasty.dispose()
