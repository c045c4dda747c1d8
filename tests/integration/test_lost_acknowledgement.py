"""The ledger is told to commit and the answer is lost: what it kept is found, and nothing is spent or said twice.

On PostgreSQL a relay hangs up between COMMIT and its answer, or before COMMIT arrives; on SQLite the COMMIT fails after
it took effect, or before.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import flows.releases.resume
from models_db.services import artifacts, attempts, budget
from models_db.values.amounts import Amount, total_amount
from tasks.decoding.sampling_rule import InvisibleInkRule
from tests.integration.killing import balance, instalments, is_clean, nothing_is_out
from tests.integration.losing import BrokenDisk, Fate, Loss, Relay
from tests.integration.story import Almoner
from tests.support import fetch

BOTH = pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
KEPT_OR_NOT = pytest.mark.parametrize("fate", ["kept", "undone"])
ARMS = "SELECT i.sequence, h.instalment, e.kind FROM entry e JOIN hold h ON h.id = e.hold_id JOIN invocation i"
ARMS += " ON i.id = h.invocation_id JOIN account a ON a.id = h.account_id"
ARMS += " WHERE e.kind = 'ARM' AND a.parent_id IS NOT NULL ORDER BY e.id"


@pytest.fixture
def loss(backend: str, any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loss]:
    """What stands between this process and its ledger."""
    if backend == "sqlite":
        yield BrokenDisk(monkeypatch)
        return
    relay = Relay(any_almoner.home.database_url)
    monkeypatch.setenv("ALMONER_DATABASE_URL", relay.url)
    yield relay
    relay.close()


@pytest.fixture
def losing(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the COMMIT lost that follows a certain call of a service, or that the call itself sends."""

    def plant(service: Any, name: str, number: int, fate: Fate) -> None:
        real, calls = getattr(service, name), 0

        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                loss.fate = fate
            return real(*args, **kwargs)

        monkeypatch.setattr(service, name, watched)

    return plant


@BOTH
@pytest.mark.parametrize("number", [1, 2])
def test_an_instalment_that_was_armed_unheard_is_used(
    any_almoner: Almoner, loss: Loss, losing: Any, number: int
) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    losing(budget, "arm", number, "kept")
    assert almoner.ask("run 1")["state"] == "produced"
    assert loss.lost == 1
    armed = fetch(almoner.database, ARMS)
    assert len(armed) == len(set(armed)) == len(plan)
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    assert almoner.ask("doctor")["ok"] is True


@BOTH
def test_nothing_is_read_for_an_instalment_that_was_not_armed(
    any_almoner: Almoner, loss: Loss, losing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    losing(budget, "arm", 2, "undone")
    with monkeypatch.context() as watching:
        watching.setattr(InvisibleInkRule, "next_tokens", lambda *_, **__: pytest.fail("a draw that nobody paid for"))
        assert almoner.ask("run 1", expected=3)["error"] == "OutcomeUnknown"
    assert loss.lost == 1
    assert balance(almoner).spent == total_amount(plan[:1])
    assert almoner.state() == "approved"
    is_clean(almoner, left=True)
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)


@BOTH
@KEPT_OR_NOT
def test_a_ledger_that_stays_away_gives_nothing_back(
    any_almoner: Almoner, loss: Loss, losing: Any, fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    loss.for_good = True
    losing(budget, "arm", 2, fate)
    assert almoner.ask("run 1", expected=3)["error"] in ("LedgerUnreachable", "OutcomeUnknown")
    loss.down = False
    armed = total_amount(plan[: 2 if fate == "kept" else 1])
    assert balance(almoner).spent == armed
    assert almoner.state() == "running"
    nothing_is_out(almoner)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(flows.releases.resume, "is_dead", lambda lease: True)
        assert almoner.ask("run sweep")["requests"] == [1]
    assert balance(almoner).spent == armed
    is_clean(almoner, left=True)


@BOTH
@KEPT_OR_NOT
def test_a_run_that_began_unheard(any_almoner: Almoner, losing: Any, fate: Fate) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    losing(attempts, "start_attempt", 1, fate)
    if fate == "undone":
        assert almoner.ask("run 1", expected=3)["error"] == "OutcomeUnknown"
        assert almoner.state() == "approved"
        assert balance(almoner).spent == Amount()
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)
    assert almoner.ask("doctor")["ok"] is True


@BOTH
@KEPT_OR_NOT
def test_what_was_held_unheard_is_given_back(any_almoner: Almoner, losing: Any, fate: Fate) -> None:
    almoner = any_almoner
    almoner.approved()
    losing(budget, "hold", 1, fate)
    assert almoner.ask("run 1", expected=3)["error"] == "OutcomeUnknown"
    assert almoner.state() == "approved"
    assert balance(almoner).spent == Amount()
    is_clean(almoner)
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(instalments(almoner))


@BOTH
@KEPT_OR_NOT
def test_an_artifact_that_was_committed_unheard(any_almoner: Almoner, losing: Any, fate: Fate) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    losing(artifacts, "record_artifact", 1, fate)
    if fate == "kept":
        assert almoner.ask("run 1")["state"] == "produced"
    else:
        assert almoner.ask("run 1", expected=3)["error"] == "OutcomeUnknown"
        assert almoner.state() == "approved"
        assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 1}
        is_clean(almoner, left=True)
        almoner.type("run 1")
    assert len(fetch(almoner.database, "SELECT id FROM artifact")) == 1
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    assert almoner.ask("doctor")["ok"] is True


@BOTH
@KEPT_OR_NOT
@pytest.mark.parametrize("service", ["record_publication", "record_delivery"])
def test_a_publication_that_was_recorded_unheard(any_almoner: Almoner, losing: Any, fate: Fate, service: str) -> None:
    almoner = any_almoner
    almoner.passed()
    losing(artifacts, service, 1, fate)
    line = f"publish 1 --to {almoner.folder / 'out'}"
    assert almoner.ask(line, expected=3)["error"] == "OutcomeUnknown"
    assert almoner.state() == ("produced" if (service, fate) == ("record_publication", "undone") else "published")
    assert almoner.bundle.exists() == (service == "record_delivery")
    almoner.type(line)
    assert len(fetch(almoner.database, "SELECT id FROM publication")) == 1
    assert [path.name for path in (almoner.folder / "out").iterdir()] == [almoner.bundle.name]
    almoner.type(f"verify-release {almoner.bundle}")
    assert almoner.ask("doctor")["ok"] is True
