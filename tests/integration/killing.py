"""Commands that are killed in processes of their own (kill_driver.py), and what the ledger and the home say then."""

import os
import signal
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

from models_db.values.amounts import Amount, total_amount
from tests.contract.driver import Balance, HomeLedger
from tests.integration import kill_driver
from tests.integration.story import Almoner
from tests.support import PATIENCE


def start(target: Any, *arguments: Any) -> BaseProcess:
    """A new process, from a fork server that has imported everything once; it is told all of this one's environment.

    The server itself knows that of an earlier test.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([kill_driver.__name__])
    process = context.Process(target=target, args=(dict(os.environ), *arguments))
    process.start()
    return process


def killed(line: str, point: str, **more: Any) -> None:
    """Type a command that is killed at a point; `more` is for `kill_driver.type_and_die`."""
    process = start(partial(kill_driver.type_and_die, **more), line, point)
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL


def instalments(almoner: Almoner, number: int = 1) -> list[Amount]:
    """The plan of a request, in the order in which it is armed."""
    return ledger(almoner).plan(number)


def ledger(almoner: Almoner) -> HomeLedger:
    """The ledger that the commands write."""
    return HomeLedger(almoner.database)


def balance(almoner: Almoner) -> Balance:
    return ledger(almoner).balance()


def nothing_is_out(almoner: Almoner) -> None:
    assert (ledger(almoner).publications(), ledger(almoner).deliveries()) == (0, 0)
    assert not almoner.bundle.exists()


def is_clean(almoner: Almoner, *, left: bool = False) -> None:
    """No half-written folder, no running lease, nothing held, and the doctor is content.

    With `left` there is what a run can go on from, and nothing else.
    """
    assert [folder.name for folder in almoner.home.quarantine.iterdir()] == ["1-unfinished"] * left
    assert list(almoner.home.scratch.iterdir()) == []
    assert ledger(almoner).at_work() == []
    assert balance(almoner).held == Amount()
    assert almoner.ask("doctor")["ok"] is True


def goes_on(almoner: Almoner, paid: int, *, lost: bool) -> None:
    """What was killed after `paid` instalments goes on and pays for the others alone.

    With `lost` it died while a step was drawn: it is refused by name, and all is paid anew for a new beginning.
    """
    plan = instalments(almoner)
    almoner.type("run sweep")
    assert balance(almoner).spent == total_amount(plan[:paid])
    if lost:
        assert almoner.ask("run 1", expected=1)["error"] == "StepLost"
        almoner.type("run 1 --anew")
        assert balance(almoner).spent == total_amount(plan) + total_amount(plan[:paid])
    else:
        assert "nothing is paid twice" in almoner.type("run 1").err.lower()
        assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
