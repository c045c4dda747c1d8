"""For each guard on charges in Rényi orders: states in which one clause of it decides."""

from sqlalchemy import Executable, text

from models_db.values.amounts import RENYI_ORDERS
from tests.contracts.charge_cases import armed_again, charged
from tests.contracts.circumstances import PAST
from tests.contracts.initial_cases import Make
from tests.contracts.lone_states import Lone, sql
from tests.contracts.rows import entry, renyi_charge
from tests.contracts.town import Town


def arm_held(town: Town) -> Executable:
    return entry(town, town.hold(town.held), "ARM")


def again(town: Town) -> Executable:
    return renyi_charge(town, town.lost.request_id, attempt=2)


WAYS = ("remove", "add")
CHARGED = ", ".join(f"{way}_{order} = {{value}}" for way in WAYS for order in RENYI_ORDERS)
_LIMITED = ", ".join(f"renyi_limit_{order} = {{value}}" for order in RENYI_ORDERS)
FEW = (
    "DELETE FROM policy_rule",
    sql("DELETE FROM renyi_charge WHERE request_id NOT IN ({complete}, {elsewhere})"),
    f"UPDATE renyi_charge SET rho = 1000, {CHARGED.format(value=1)}",
    sql(f"UPDATE renyi_charge SET {CHARGED.format(value=100)} WHERE request_id = {{elsewhere}}"),
)
"""On `clinic` one charge of 1 at each order, for rho 1000, of a release with an artifact; on `estate` one of 100."""


def limited(
    value: int, condition: str = "id = (SELECT policy_id FROM policy_adoption ORDER BY id DESC LIMIT 1)"
) -> str:
    return f"UPDATE policy_version SET {_LIMITED.format(value=value)} WHERE {condition}"


def at_one_order(order: int) -> tuple[str, str]:
    """Limits of 4, and of 5 at one order."""
    return limited(4), f"UPDATE policy_version SET renyi_limit_{order} = 5 WHERE renyi_limit_{order} = 4"


def fours(town: Town, **given: object) -> list[Executable]:
    """A charge of 4 at each order and in each direction, for a request on both blocks."""
    return charged(town, **{f"{way}_{order}": 4 for way in WAYS for order in RENYI_ORDERS} | given)


def nothing(town: Town) -> list[Executable]:
    """A charge of nothing, for a request that costs nothing."""
    return fours(town, rho=0, **{f"{way}_{order}": 0 for way in WAYS for order in RENYI_ORDERS})


def nines(way: str) -> Make:
    """Fours in one direction and nines in the other."""
    return lambda town: fours(town, **{f"{way}_{order}": 9 for order in RENYI_ORDERS})


def on_blocks(town_request: str, first: int, last: int) -> Make:
    return sql(
        f"UPDATE planned_block SET first_block = {first}, last_block = {last} WHERE request_id = {{{town_request}}}"
    )


RULE = (
    "INSERT INTO policy_rule (policy_id, dataset, {columns}) SELECT {policy}, '{dataset}', {values}"
    " FROM policy_adoption ORDER BY id DESC LIMIT 1"
)


def rule(policy: str, dataset: str, value: int) -> str:
    """A rule of a policy with limits of its own."""
    columns = ", ".join(f"renyi_limit_{order}" for order in RENYI_ORDERS)
    return RULE.format(columns=columns, policy=policy, dataset=dataset, values=", ".join([str(value)] * 8))


SIBLING = (
    "INSERT INTO dataset"
    " (name, registration, account_id, unit_field, text_field, relation, governed, created_at, created_by)"
    " SELECT 'sibling', 1, account_id, unit_field, text_field, relation, governed, created_at, created_by"
    " FROM dataset WHERE name = 'clinic'"
)


def exposed(request: str) -> Make:
    return sql(
        "INSERT INTO assignment_exposure (request_id, since, reason, actor_id, at)"
        f" VALUES ({{{request}}}, '{PAST}', 'a copy', {{runner}}, '{PAST}')"
    )


EXPOSED = exposed("complete")
VIEWED = sql(
    "INSERT INTO internal_view (account_id, artifact_id, actor_id, kind, at)"
    f" SELECT {{clinic}}, id, {{runner}}, 'shown', '{PAST}' FROM artifact WHERE request_id = {{complete}}"
)
EXPOSED_BEFORE = exposed("approved")
"""An earlier assignment of the request that is to be charged got out."""
VIEWED_BEFORE = (
    sql("UPDATE artifact SET request_id = {approved} WHERE request_id = {complete}"),
    sql(
        "INSERT INTO internal_view (account_id, artifact_id, actor_id, kind, at)"
        f" SELECT {{clinic}}, id, {{runner}}, 'shown', '{PAST}' FROM artifact WHERE request_id = {{approved}}"
    ),
)
SECOND_CHARGE = (
    lambda t: text(
        f"UPDATE renyi_charge SET {CHARGED.format(value=100)}, request_id = {t.held.request_id}"
        f" WHERE request_id = {t.elsewhere.request_id}"
    ),
)
"""The charge of 100 is on `clinic` too."""
IN_FORCE_IS_ANOTHER = (
    "UPDATE policy_adoption SET policy_id = (SELECT max(id) FROM policy_version)"
    " WHERE id = (SELECT max(id) FROM policy_adoption)"
)
WITHIN_LIMIT = [
    Lone((*FEW, limited(5)), allowed=[fours], denied=[nines("remove"), nines("add")]),
    Lone((*FEW, limited(4)), denied=[fours]),
    Lone(FEW, allowed=[fours, nines("add")]),
    *(Lone((*FEW, *at_one_order(order)), allowed=[fours]) for order in RENYI_ORDERS),
    Lone((*FEW, limited(4, "TRUE"), limited(5)), allowed=[fours]),
    Lone((*FEW, limited(5, "TRUE"), limited(4)), denied=[fours]),
    Lone((*FEW, limited(9), rule("policy_id", "clinic", 4)), denied=[fours]),
    Lone((*FEW, limited(4), rule("policy_id", "clinic", 5)), allowed=[fours]),
    Lone((*FEW, limited(9), rule("policy_id", "harbour", 4)), allowed=[fours]),
    Lone(
        (*FEW, IN_FORCE_IS_ANOTHER, limited(9), rule("(SELECT min(id) FROM policy_version)", "clinic", 4)),
        allowed=[fours],
    ),
    Lone((*FEW, limited(9), SIBLING, rule("policy_id", "sibling", 4)), denied=[fours]),
    Lone((*FEW, limited(100), EXPOSED), allowed=[nothing], denied=[fours]),
    Lone((*FEW, limited(100), VIEWED), denied=[fours]),
    Lone((*FEW, limited(1004), EXPOSED, VIEWED), allowed=[fours]),
    Lone((*FEW, limited(1004), VIEWED), allowed=[fours]),
    Lone((*FEW, limited(1004), EXPOSED), allowed=[fours]),
    Lone((*FEW, limited(5), EXPOSED_BEFORE), denied=[fours]),
    Lone((*FEW, limited(5), *VIEWED_BEFORE), denied=[fours]),
    Lone((*FEW, limited(1001), EXPOSED_BEFORE), allowed=[lambda t: fours(t, rho=1000)]),
    Lone((*FEW, limited(1000), EXPOSED_BEFORE), denied=[lambda t: fours(t, rho=1000)]),
    Lone(
        (*FEW, limited(5), *SECOND_CHARGE, on_blocks("approved", 0, 0), on_blocks("held", 1, 1)),
        allowed=[fours],
    ),
    Lone(
        (*FEW, limited(5), *SECOND_CHARGE, on_blocks("approved", 1, 1), on_blocks("held", 0, 0)),
        allowed=[fours],
    ),
    Lone((*FEW, limited(5), *SECOND_CHARGE, on_blocks("held", 1, 1)), denied=[fours]),
]

LONE_CHARGES: dict[str, list[Lone]] = {
    "renyi_charge_within_limit": WITHIN_LIMIT,
    "renyi_charge_of_running_attempt": [Lone(denied=[lambda t: renyi_charge(t, t.failed.request_id)])],
    "renyi_charge_needed": [
        Lone((lambda t: renyi_charge(t, t.lost.request_id, attempt=9),), denied=[again]),
        Lone((lambda t: renyi_charge(t, t.failed.request_id, attempt=9),), allowed=[again]),
        Lone((sql("UPDATE hold SET rho = 0 WHERE invocation_id = {lost_invocation}"),), denied=[again]),
    ],
    "entry_charged": [
        Lone((sql("DELETE FROM renyi_charge WHERE request_id = {lost}"),), allowed=[arm_held]),
        Lone((sql("UPDATE renyi_charge SET attempt = 2 WHERE request_id = {held}"),), denied=[arm_held, armed_again]),
        Lone((lambda t: renyi_charge(t, t.lost.request_id, attempt=9),), denied=[armed_again]),
        Lone((sql("UPDATE hold SET rho = 0 WHERE invocation_id = {lost_invocation}"),), allowed=[armed_again]),
        Lone(
            (
                sql(
                    "DELETE FROM entry WHERE hold_id IN (SELECT h.id FROM hold h JOIN account a ON a.id = h.account_id"
                    " WHERE a.block = 1)"
                ),
            ),
            allowed=[lambda t: armed_again(t, account_id=t.account("clinic", 1))],
        ),
    ],
}
