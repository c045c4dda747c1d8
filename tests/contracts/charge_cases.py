"""For every guard of charges in Rényi orders: what it denies and the nearest things it lets pass."""

from sqlalchemy import Executable

from models_db.values.amounts import RENYI_ORDERS
from tests.contracts.initial_cases import Case
from tests.contracts.rows import (
    adoption,
    entry,
    hold,
    invocation,
    planned_rho,
    policy,
    renyi_charge,
    transition,
)
from tests.contracts.town import Town


def charged(town: Town, **given: object) -> list[Executable]:
    """An approved request is started and charged."""
    return [transition(town, town.approved, "approved", "running"), renyi_charge(town, town.approved, **given)]


def armed(town: Town, of: int, attempt: int, sequence: int = 0, **given: object) -> list[Executable]:
    """A hold of an attempt that no service made, armed."""
    invoked, held = (int(town.one(f"SELECT max(id) + 1 FROM {table}")) for table in ("invocation", "hold"))
    row = {"id": held, "invocation_id": invoked, "instalment": 0, "rho": 10}
    numbers = {"id": invoked, "request_id": of, "attempt": attempt, "sequence": sequence}
    return [
        invocation(town, town.settled, **numbers),
        hold(town, town.settled, **row | given),
        entry(town, held, "HOLD"),
        entry(town, held, "ARM"),
    ]


def armed_again(town: Town, *between: Executable, sequence: int = 0, **given: object) -> list[Executable]:
    """A second attempt at a request of which the first has armed its first instalment on every block."""
    of = town.lost.request_id
    going_on = transition(town, of, "approved", "running", detail="1")
    return [going_on, *between, *armed(town, of, 2, sequence, **given)]


def charged_again(town: Town) -> list[Executable]:
    return armed_again(town, renyi_charge(town, town.lost.request_id, attempt=2))


def charged_after_nothing(town: Town) -> list[Executable]:
    of = town.failed.request_id
    return [transition(town, of, "approved", "running"), renyi_charge(town, of, attempt=2)]


def armed_after_nothing(town: Town) -> list[Executable]:
    """A second attempt at a request of which the first has armed nothing: its charge covers both."""
    of = town.failed.request_id
    return [transition(town, of, "approved", "running"), *armed(town, of, 2)]


def armed_uncharged(town: Town) -> list[Executable]:
    return [transition(town, town.approved, "approved", "running"), *armed(town, town.approved, 1)]


def short_by_one(town: Town) -> list[Executable]:
    rho = planned_rho(town, town.approved)
    return charged(town, rho=rho - 1)


def sums_on_clinic(town: Town) -> int:
    """The sum of all charges on the first block of `clinic`, which is the same at each order: rho, for every town."""
    query = (
        "SELECT coalesce(sum(c.rho), 0) FROM renyi_charge c JOIN request r ON r.id = c.request_id"
        " JOIN dataset d ON d.id = r.dataset_id WHERE d.name = 'clinic'"
    )
    return int(town.one(query))


def under_limits(town: Town, more: int) -> list[Executable]:
    """A charge of 1 at each order, under a policy whose limits leave so much."""
    number = town.id_of("policy_version", "TRUE") + 1
    limits = {f"renyi_limit_{order}": sums_on_clinic(town) + more for order in RENYI_ORDERS}
    ones = {f"{way}_{order}": 1 for way in ("remove", "add") for order in RENYI_ORDERS}
    return [
        policy(town, 1, 1, id=number, digest=f"{number:064}", **limits),
        adoption(town, number),
        *charged(town, **ones),
    ]


CHARGES: dict[str, Case] = {
    "renyi_charge_within_limit": Case(
        denied=[lambda t: under_limits(t, 0)],
        allowed=[lambda t: under_limits(t, 1), charged],
    ),
    "renyi_charge_of_running_attempt": Case(
        denied=[
            lambda t: renyi_charge(t, t.approved),
            lambda t: renyi_charge(t, t.lost.request_id, attempt=2),
            lambda t: charged(t, attempt=2),
            lambda t: charged(t, attempt=0),
        ],
        allowed=[charged],
    ),
    "renyi_charge_whole": Case(
        denied=[short_by_one, lambda t: charged(t, rho=planned_rho(t, t.approved) + 1)],
        allowed=[charged],
    ),
    "renyi_charge_needed": Case(
        denied=[charged_after_nothing],
        allowed=[charged, charged_again],
    ),
    "entry_charged": Case(
        denied=[armed_uncharged, armed_again],
        allowed=[
            charged_again,
            lambda t: armed_uncharged(t)[:-1],  # it is held, and not armed
            armed_after_nothing,
            lambda t: armed_again(t, rho=0),
            lambda t: armed_again(t, instalment=1),
            lambda t: armed_again(t, sequence=1, rho=1),
        ],
    ),
}
