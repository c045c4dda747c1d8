"""The record: whatever is altered, removed or put in past every guard is found, and an older ledger is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from models_db.home import ProjectHome
from tests.conftest import Ledgers
from tests.contract.altered import AlteredLedger, altered_ledger, open_again, remembered
from tests.contract.driver import Driver, refusal_of

CONCERNS = ("migrations/schema", "models_db/services/audit", "models_db/services/verification", "models_db/writes")
SAMPLE, EVERY = "one of each fact", "every"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[AlteredLedger]:
    with altered_ledger(ledgers, request.param) as made:
        yield made


def test_nothing_is_found_in_a_ledger_as_it_was_written(ledger: AlteredLedger) -> None:
    assert ledger.found() == ([], [])


@pytest.mark.slow_except("sqlite-one of each fact")
@pytest.mark.parametrize("which", [SAMPLE, EVERY])
def test_every_field_that_is_altered_is_found(ledger: AlteredLedger, which: str) -> None:
    fields = ledger.fields()
    assert len(fields) > 300
    chosen = fields if which == EVERY else [fields[number] for number in places(fields)]
    assert [field for field in chosen if not ledger.altered(field)] == []


def places(fields: list[tuple[str, str]]) -> list[int]:
    """The place of one field of each fact, of another one each time."""
    facts = list(dict.fromkeys(fact for fact, _ in fields))
    of = {fact: [place for place, field in enumerate(fields) if field[0] == fact] for fact in facts}
    return [of[fact][number % len(of[fact])] for number, fact in enumerate(facts)]


@pytest.mark.slow
def test_every_fact_that_is_removed_is_found(ledger: AlteredLedger) -> None:
    assert [fact for fact in ledger.facts() if not ledger.removed(fact)] == []


@pytest.mark.slow
def test_every_fact_that_is_put_in_is_found(ledger: AlteredLedger) -> None:
    assert [fact for fact in ledger.facts() if not ledger.added(fact)] == []


# --- an older ledger -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_ledger_that_was_put_back_is_refused_also_after_it_went_on(
    backend: str, ledgers: Ledgers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ProjectHome(tmp_path)
    with ledgers.new(backend) as database:
        first = Driver.on(database)
        first.register()
        database.dispose()
        with ledgers.new(backend, like=database) as older:
            monkeypatch.setenv("ALMONER_DATABASE_URL", database.url)
            driver = replace(first, world=replace(first.world, database=remembered(home)))
            driver.release()
            open_again(home, database)
            assert refusal_of(lambda: open_again(home, older)) == "LedgerRolledBack"
            replace(first, world=replace(first.world, database=older)).release()
            assert refusal_of(lambda: open_again(home, older)) == "LedgerRolledBack"
        with ledgers.new(backend) as another:
            Driver.on(another)
            assert refusal_of(lambda: open_again(home, another)) == "LedgerRolledBack"
