"""A release is charged what was approved, neither more nor less, whatever client its runner uses.

Each deed is tried on a ledger as it is, without the guard of holds, and without any guard: there the ledger takes it,
and `doctor`, the publish gate and the publication name it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from models_db.services.budget import InvocationPlan
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.contract.driver import (
    Driver,
    Held,
    parts_of,
    planned,
    refusal_of,
)

BLOCKS = 2
PLAN = (planned(Amount(10, 1), Amount(10, 1), Amount(7)), planned(Amount(5), mechanism="noisy_count"))
WHOLE = Amount(32, 2)
FREE = (planned(Amount(0), mechanism="noisy_count"),)
"""The plan of an extension: it draws nothing."""


@pytest.fixture
def driver(database: Database) -> Driver:
    made = Driver.on(database)
    made.register(blocks=BLOCKS)
    made.register("throwaway")
    return made


def approved(driver: Driver, plan: Sequence[InvocationPlan] = PLAN) -> int:
    number = driver.request(plan)
    driver.approve(number)
    return number


def scheduled(driver: Driver, plan: Sequence[InvocationPlan] = PLAN) -> int:
    return driver.request_on_schedule(plan, BLOCKS, WHOLE)


@dataclass(frozen=True)
class Deed:
    """What a runner's own client does otherwise than almoner.

    Attributes:
        held: the amounts that it reserves, made of those of the plan.
        armed: the parts that it arms before it ends; None for all that are held.
    """

    name: str
    held: Callable[[Held], Held] = field(default=lambda plan: plan)
    armed: tuple[tuple[int, int], ...] | None = None


def change(part: tuple[int, int, int], rho: int = 0, delta: int = 0) -> Callable[[Held], Held]:
    def changed(plan: Held) -> Held:
        return {**plan, part: Amount(plan[part].rho + rho, plan[part].delta + delta)}

    return changed


def each(amount: Callable[[Amount], Amount]) -> Callable[[Held], Held]:
    return lambda plan: {part: amount(planned_amount) for part, planned_amount in plan.items()}


def only(condition: Callable[[tuple[int, int, int]], bool]) -> Callable[[Held], Held]:
    return lambda plan: {part: amount for part, amount in plan.items() if condition(part)}


DEEDS = (
    Deed("nothing for every part", each(lambda _: Amount())),
    Deed("one unit of rho less", change((0, 1, 0), rho=-1)),
    Deed("one unit of rho less in the last part", change((0, 2, 1), rho=-1)),
    Deed("one unit of delta less", change((0, 0, 0), delta=-1)),
    Deed("delta left out", each(lambda planned_amount: Amount(planned_amount.rho))),
    Deed("nothing for one part on one block", change((1, 0, 1), rho=-5)),
    Deed("nothing on one block", lambda plan: {**plan, **{p: Amount() for p in plan if p[2] == 1}}),
    Deed("a block left out", only(lambda part: part[2] == 0)),
    Deed("an instalment left out", only(lambda part: part[:2] != (0, 2))),
    Deed("an instalment left out on one block", only(lambda part: part != (0, 1, 1))),
    Deed("a mechanism left out", only(lambda part: part[0] == 0)),
    Deed("a mechanism left out on one block", only(lambda part: part != (1, 0, 0))),
    Deed("the first instalment alone is armed", armed=((0, 0), (1, 0))),
    Deed("one mechanism is not armed", armed=((0, 0), (0, 1), (0, 2))),
)
DEARER = (
    Deed("one unit of rho more", change((0, 1, 0), rho=1)),
    Deed("one unit of delta more", change((1, 0, 1), delta=1)),
)


def run(driver: Driver, request: int, deed: Deed) -> None:
    """Run a request as a deed has it, to its artifact."""
    attempt = driver.start(request)
    held = deed.held(parts_of(PLAN, BLOCKS))
    driver.hold(attempt, PLAN, held)
    parts = sorted({part[:2] for part in held}) if deed.armed is None else deed.armed
    driver.arm(attempt, parts)
    driver.produce_cheaply(attempt)


@pytest.mark.parametrize("asked", [approved, scheduled])
def test_a_release_is_charged_its_plan_on_every_block(driver: Driver, asked: Callable[[Driver], int]) -> None:
    request = asked(driver)
    attempt = driver.start(request)
    driver.hold(attempt, PLAN, parts_of(PLAN, BLOCKS))
    driver.arm(attempt, [(0, 0)])
    driver.produce(attempt)  # its texts ended early: it is charged all the same
    assert driver.spent() == dict.fromkeys(range(BLOCKS), WHOLE)
    assert (driver.charge(request), driver.uncharged()) == (WHOLE.rho_text, [])


@pytest.mark.parametrize("deed", [*DEEDS, *DEARER], ids=lambda deed: deed.name)
@pytest.mark.parametrize("asked", [approved, scheduled])
def test_another_charge_than_the_approved_one_makes_no_release(
    driver: Driver, asked: Callable[[Driver], int], deed: Deed
) -> None:
    assert refusal_of(lambda: run(driver, asked(driver), deed)) == "RuleViolated"
    assert driver.uncharged() == []


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.name)
def test_the_guard_of_artifacts_is_enough_against_each_lower_charge(driver: Driver, deed: Deed) -> None:
    with driver.without(driver.guard_of_holds):
        assert refusal_of(lambda: run(driver, approved(driver), deed)) == "RuleViolated"


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.name)
def test_without_any_guard_a_lower_charge_is_found(driver: Driver, deed: Deed) -> None:
    request = approved(driver)
    with driver.without(driver.guard_of_holds, driver.guard_of_artifacts):
        run(driver, request, deed)
    assert (driver.charge(request), driver.uncharged()) == ("NotCharged", [request])


def test_the_charge_of_another_dataset_is_none(driver: Driver) -> None:
    attempt = driver.start(approved(driver))
    assert refusal_of(lambda: driver.hold_elsewhere(attempt, PLAN, "throwaway")) == "RuleViolated"
    assert driver.spent("throwaway") == {0: Amount()}


def test_a_release_that_costs_nothing_is_charged_nothing(driver: Driver) -> None:
    request = approved(driver, FREE)
    attempt = driver.start(request)
    driver.hold(attempt, FREE, parts_of(FREE, BLOCKS))
    driver.produce(attempt)
    assert (driver.charge(request), driver.spent()) == ("0", dict.fromkeys(range(BLOCKS), Amount()))


# --- attempts that go on ---------------------------------------------------------------------------------------------

PAID_FIRST = {(0, 0, block): Amount() for block in range(BLOCKS)}
"""The first part of a run that goes on, of which an earlier attempt has armed it."""


def interrupted(driver: Driver) -> tuple[int, Callable[[Held], None]]:
    """A request of which one attempt armed the first part, and a client that goes on and reserves what it is told."""
    request = approved(driver)
    first = driver.start(request)
    driver.hold(first, PLAN, parts_of(PLAN, BLOCKS))
    driver.arm(first, [(0, 0)])
    driver.fail(first)

    def go_on(held: Held) -> None:
        attempt = driver.go_on(request, first)
        driver.hold(attempt, PLAN, held)
        driver.arm(attempt, sorted({part[:2] for part in held}))
        driver.produce_cheaply(attempt)

    return request, go_on


def test_what_an_earlier_attempt_has_armed_is_not_charged_again(driver: Driver) -> None:
    request, go_on = interrupted(driver)
    go_on(parts_of(PLAN, BLOCKS) | PAID_FIRST)
    assert driver.spent() == dict.fromkeys(range(BLOCKS), WHOLE)
    assert (driver.charge(request), driver.uncharged()) == (WHOLE.rho_text, [])


REPEATED = {
    "another part for nothing": lambda plan: plan | PAID_FIRST | {(0, 1, 0): Amount()},
    "the other mechanism for nothing": lambda plan: plan | PAID_FIRST | {(1, 0, block): Amount() for block in (0, 1)},
    "everything for nothing": lambda plan: dict.fromkeys(plan, Amount()),
    "half of the first part": lambda plan: plan | {(0, 0, block): Amount(5) for block in range(BLOCKS)},
    "delta alone for nothing": lambda plan: plan | {(0, 0, block): Amount(10) for block in range(BLOCKS)},
    "a later part left out": lambda plan: {p: a for p, a in (plan | PAID_FIRST).items() if p[:2] != (0, 2)},
    "a mechanism left out": lambda plan: {p: a for p, a in (plan | PAID_FIRST).items() if p[0] == 0},
}


@pytest.mark.parametrize("deed", REPEATED)
def test_what_no_attempt_has_armed_is_charged_when_it_goes_on(driver: Driver, deed: str) -> None:
    _, go_on = interrupted(driver)
    assert refusal_of(lambda: go_on(REPEATED[deed](parts_of(PLAN, BLOCKS)))) == "RuleViolated"


def test_an_attempt_that_begins_anew_pays_everything_again(driver: Driver) -> None:
    """What a lost attempt has armed paid for draws that are gone."""
    request = approved(driver)
    first = driver.start(request)
    driver.hold(first, PLAN, parts_of(PLAN, BLOCKS))
    driver.arm(first, [(0, 0), (0, 1), (0, 2), (1, 0)])
    driver.fail(first)
    second = driver.start(request)
    for held in (dict.fromkeys(parts_of(PLAN, BLOCKS), Amount()), parts_of(PLAN, BLOCKS) | PAID_FIRST):
        assert refusal_of(lambda held=held: driver.hold(second, PLAN, held)) == "RuleViolated"
    with driver.without(driver.guard_of_holds):
        driver.hold(second, PLAN, dict.fromkeys(parts_of(PLAN, BLOCKS), Amount()))
        driver.arm(second, [(0, 0), (0, 1), (0, 2), (1, 0)])
        assert refusal_of(lambda: driver.produce_cheaply(second)) == "RuleViolated"
        with driver.without(driver.guard_of_artifacts):
            driver.produce_cheaply(second)
    assert (driver.charge(request), driver.uncharged()) == ("NotCharged", [request])


@pytest.mark.parametrize("deed", REPEATED)
def test_each_lower_charge_is_refused_without_the_guard_of_holds_when_it_goes_on(driver: Driver, deed: str) -> None:
    _, go_on = interrupted(driver)
    with driver.without(driver.guard_of_holds):
        assert refusal_of(lambda: go_on(REPEATED[deed](parts_of(PLAN, BLOCKS)))) == "RuleViolated"
    assert driver.uncharged() == []
