"""The account in Rényi orders: what is charged when, what its sums are, and that it holds integers at fixed orders."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from migrations.schema import definitions
from models_db.database.base import Base
from models_db.policies.rules import DatasetTerms
from models_db.services import artifacts, attempts, budget, datasets, exposures, policies
from models_db.services.budget import Attempt
from models_db.services.verification import verify_rows
from models_db.values.amounts import RENYI_ORDERS, Amount, RenyiCurve
from models_db.writes.database_errors import LimitInOrdersExceeded, RuleViolated
from tests.contracts.meeting import meanwhile
from tests.integration.test_altered_ledger import alter
from tests.support import TEN, World, execute, fetch, planned, terms

CONCERNS = ("tasks/accounting", "migrations/schema", "models_db/services")

WHOLE = 30
"""What the plan of every request here costs a block."""
CURVE = RenyiCurve((9, 9, 9, 9, 10, 10, 11, 20), (12, 12, 12, 12, 12, 12, 12, 12))
PLAN = (planned(TEN, TEN, TEN),)


@pytest.fixture
def charged(world: World) -> World:
    """Its dataset has two blocks."""
    world.dataset("clinic", Amount(1000, 100), blocks=2)
    return world


def start(world: World, request_id: int, curve: RenyiCurve | None = CURVE, goes_on_from: int | None = None) -> Attempt:
    with world.database.write() as session:
        token = f"token of {request_id}"
        number = attempts.start_attempt(session, world.runner, request_id, token, "here", goes_on_from, curve)
        return budget.load_attempt(session, request_id, number, (0, 1))


def approved(world: World) -> int:
    """A request whose plan costs `WHOLE`, in three instalments."""
    request_id = world.request(approved=PLAN)
    world.decide(request_id)
    return request_id


def sums(world: World) -> dict[int, RenyiCurve]:
    with world.database.read() as session:
        account = datasets.find_dataset(session, "clinic").account_id
        return budget.sums_of_blocks(session, [account])[account]


def charges(world: World) -> list[tuple[object, ...]]:
    return [
        tuple(row) for row in fetch(world.database, "SELECT request_id, attempt, rho FROM renyi_charge ORDER BY id")
    ]


def produced(world: World, curve: RenyiCurve | None = CURVE) -> Attempt:
    attempt = start(world, approved(world), curve)
    world.hold(attempt, *PLAN)
    world.arm(attempt)
    world.produce(attempt)
    return attempt


def test_both_lists_of_orders_are_the_same() -> None:
    assert definitions.RENYI_ORDERS == RENYI_ORDERS


def test_an_attempt_is_charged_its_curve_on_every_block(charged: World) -> None:
    produced(charged)
    assert charges(charged) == [(1, 1, WHOLE)]
    assert sums(charged) == {0: CURVE, 1: CURVE}
    produced(charged, None)
    assert sums(charged) == dict.fromkeys((0, 1), CURVE + RenyiCurve.of_rho(WHOLE))


def test_the_charge_is_named_by_the_link_of_the_start(charged: World) -> None:
    start(charged, approved(charged))
    [(kind, body)] = fetch(charged.database, "SELECT kind, body FROM audit ORDER BY seq DESC LIMIT 1")
    assert kind == "run.started"
    assert '"table":"renyi_charge"' in str(body)
    with charged.database.read() as session:
        assert verify_rows.compare_rows_with_chain(session) == []


def test_an_attempt_from_nothing_pays_again_only_if_something_was_armed(charged: World) -> None:
    request_id = approved(charged)
    first = start(charged, request_id)
    charged.hold(first, *PLAN)
    charged.fail(first)
    second = start(charged, request_id)
    assert charges(charged) == [(1, 1, WHOLE)], "nothing was armed under the first charge"
    charged.hold(second, *PLAN)
    charged.arm(second)
    charged.fail(second)
    third = start(charged, request_id)
    assert charges(charged) == [(1, 1, WHOLE), (1, 3, WHOLE)]
    assert sums(charged) == {0: CURVE + CURVE, 1: CURVE + CURVE}
    charged.hold(third, *PLAN)
    charged.arm(third)
    charged.arm(third, 0, 1)


def test_an_attempt_that_goes_on_pays_nothing_and_arms_nothing_twice(charged: World) -> None:
    request_id = approved(charged)
    first = start(charged, request_id)
    charged.hold(first, *PLAN)
    charged.arm(first)
    charged.fail(first)
    second = start(charged, request_id, goes_on_from=1)
    assert charges(charged) == [(1, 1, WHOLE)]
    charged.hold(second, *PLAN)  # as if nothing were paid
    with pytest.raises(RuleViolated, match="no charge in orders covers this"):
        charged.arm(second)
    charged.arm(second, 0, 1)
    assert sums(charged) == {0: CURVE, 1: CURVE}


@pytest.mark.parametrize("how", ["exposed", "viewed"])
def test_a_release_whose_secret_is_out_counts_with_its_whole_rho(charged: World, how: str) -> None:
    attempt, other = produced(charged), produced(charged)
    for each in (attempt, other):
        charged.decide(each.request_id, "publish", "reject")
    with charged.database.write() as session:
        if how == "exposed":
            exposures.record_exposure(session, charged.steward, attempt.request_id, None, "a copy")
        else:
            made = artifacts.artifact_of(session, attempt.request_id)
            assert made is not None
            exposures.record_view(session, charged.steward, made, "shown")
    assert sums(charged) == dict.fromkeys((0, 1), CURVE + RenyiCurve.of_rho(WHOLE))


def failed(world: World) -> Attempt:
    """An attempt that was charged, has armed one instalment and failed."""
    attempt = start(world, approved(world))
    world.hold(attempt, *PLAN)
    world.arm(attempt)
    world.fail(attempt)
    return attempt


def expose(world: World, request_id: int) -> None:
    with world.database.write() as session:
        exposures.record_exposure(session, world.steward, request_id, None, "a copy")


def test_a_run_that_failed_counts_with_its_whole_rho_once_its_assignment_is_out(charged: World) -> None:
    """It has no artifact, and its assignment was used all the same; what comes later of the request counts so too."""
    attempt = failed(charged)
    produced(charged)
    expose(charged, attempt.request_id)
    assert sums(charged) == dict.fromkeys((0, 1), CURVE + RenyiCurve.of_rho(WHOLE))
    start(charged, attempt.request_id)
    assert sums(charged) == dict.fromkeys((0, 1), CURVE + RenyiCurve.of_rho(2 * WHOLE))
    with charged.database.read() as session:
        assert verify_rows.compare_rows_with_chain(session) == []


def test_a_new_attempt_of_an_exposed_request_is_held_to_the_limit_with_its_rho(charged: World) -> None:
    attempt, other = failed(charged), failed(charged)
    expose(charged, attempt.request_id)
    added = max(sums(charged)[0].add)
    limit(charged, (added + WHOLE - 1,) * 8)
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, attempt.request_id)
    start(charged, other.request_id)
    limit(charged, (added + max(CURVE.add) + WHOLE,) * 8)
    start(charged, attempt.request_id)


def test_a_curve_is_nowhere_above_the_rho_of_its_plan(charged: World) -> None:
    request_id = approved(charged)
    for high in (RenyiCurve.of_rho(WHOLE + 1), RenyiCurve(CURVE.remove, (*CURVE.add[:-1], WHOLE + 1))):
        with pytest.raises(RuleViolated, match="renyi charge curve"):
            start(charged, request_id, high)
    assert charges(charged) == []


CURVES = ("'[[0.5, 1e-5]]'", "'{\"pld\": [1, 2]}'", "x'00ff'", "1.5", "NULL")


@pytest.mark.parametrize("value", CURVES)
def test_nothing_but_an_integer_is_charged_at_an_order(charged: World, value: str) -> None:
    """No trade-off curve and no privacy loss distribution fits (arXiv 2602.06756): natural filters of both are invalid.

    PostgreSQL rounds 1.5 to an integer of its own accord, as it does in every column of integers.
    """
    if value == "1.5" and not charged.database.is_sqlite:
        return
    if value == "x'00ff'" and not charged.database.is_sqlite:
        value = "decode('00ff', 'hex')"
    request_id = approved(charged)
    charged.start(request_id)
    columns = [f"{way}_{order}" for way in ("remove", "add") for order in RENYI_ORDERS]
    for column in columns:
        others = ", ".join(name for name in columns if name != column)
        statement = (
            f"INSERT INTO renyi_charge (request_id, attempt, rho, {column}, {others}, at, actor_id)"
            f" SELECT request_id, 9, rho, {value}, {others}, at, actor_id FROM renyi_charge"
        )
        with pytest.raises(DBAPIError), charged.database.engine.begin() as connection:
            connection.execute(text(statement.replace(":", "\\:")))
    assert charges(charged) == [(1, 1, WHOLE)]


def test_no_table_has_a_column_for_curves_or_distributions() -> None:
    charged = {f"{way}_{order}" for way in ("remove", "add") for order in RENYI_ORDERS}
    assert charged <= {column.name for column in Base.metadata.tables["renyi_charge"].columns}
    words = ("order", "alpha", "curve", "profile", "pld", "tradeoff", "trade_off", "divergence", "moment", "secret")
    every = [(table.name, column.name) for table in Base.metadata.sorted_tables for column in table.columns]
    assert [pair for pair in every if any(word in pair[1] for word in words)] == []
    assert {name for name, column in every if column in charged} == {"renyi_charge"}


# --- Rows that were changed past the guards ----------------------------------------------------------------------

ROW_CHANGES = {
    **{f"less at {way} {order}": (f"UPDATE renyi_charge SET {way}_{order} = {way}_{order} - 1 WHERE id = 1",)
       for way in ("remove", "add") for order in RENYI_ORDERS},
    "another rho": ("UPDATE renyi_charge SET rho = rho + 1 WHERE id = 1",),
    "another attempt": ("UPDATE renyi_charge SET attempt = 2 WHERE id = 1",),
    "another person": ("UPDATE renyi_charge SET actor_id = actor_id - 1 WHERE id = 1",),
    "another moment": ("UPDATE renyi_charge SET at = '2020-01-01T00:00:00.000000Z' WHERE id = 1",),
    "of another request": (
        "UPDATE renyi_charge SET request_id = 3 WHERE id = 1",
        "UPDATE renyi_charge SET request_id = 1 WHERE id = 2",
        "UPDATE renyi_charge SET request_id = 2 WHERE id = 1",
    ),
    "one taken away": ("DELETE FROM renyi_charge WHERE id = 1",),
    "all taken away": ("DELETE FROM renyi_charge",),
    "one that no attempt made": (
        "INSERT INTO renyi_charge SELECT id + 9, request_id, attempt + 9, rho, "
        + ", ".join(f"{way}_{order}" for way in ("remove", "add") for order in RENYI_ORDERS)
        + ", at, actor_id FROM renyi_charge WHERE id = 1",
    ),
}  # fmt: skip


@pytest.mark.slow_except(
    "sqlite-less at add 3",
    "postgresql-less at add 3",
    "sqlite-less at remove 64",
    "postgresql-less at remove 64",
    "sqlite-another rho",
    "sqlite-another attempt",
    "sqlite-another person",
    "sqlite-another moment",
    "postgresql-another rho",
    "postgresql-another attempt",
    "postgresql-another person",
    "postgresql-another moment",
    "sqlite-of another request",
    "postgresql-of another request",
    "sqlite-one taken away",
    "sqlite-all taken away",
    "postgresql-one taken away",
    "postgresql-all taken away",
    "sqlite-one that no attempt made",
    "postgresql-one that no attempt made",
)
@pytest.mark.parametrize("change", ROW_CHANGES)
def test_a_charge_that_was_changed_past_the_guards_is_found(charged: World, change: str) -> None:
    """By the comparison of rows with the chain, which `audit verify`, `doctor` and every run of the account make."""
    produced(charged)
    produced(charged)
    request_id = approved(charged)
    with charged.database.read() as session:
        assert verify_rows.compare_rows_with_chain(session) == []
    alter(charged.database, *ROW_CHANGES[change])
    with charged.database.read() as session:
        found = verify_rows.compare_rows_with_chain(session)
    assert any("renyi_charge" in one for one in found), (change, found)
    assert request_id == 3, "the request that one of the changes names"


# --- Limits ------------------------------------------------------------------------------------------------------

LIMITS = (18, 18, 18, 18, 20, 20, 22, 40)
"""Two charges of `CURVE` and not three."""


def limit(world: World, limits: tuple[int, ...] | None = LIMITS, **rules: tuple[int, ...]) -> None:
    """Put a policy in force that limits the sums."""
    datasets_rules = tuple(
        DatasetTerms(name, None, None, None, None, None, given) for name, given in sorted(rules.items())
    )
    with world.database.write() as session:
        policies.adopt(session, world.admin, terms(renyi_limits=limits, rules=datasets_rules))


def test_a_limit_admits_while_one_order_holds_in_each_direction(charged: World) -> None:
    limit(charged, (0, 0, 0, 0, 0, 0, 22, 0))
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, approved(charged), RenyiCurve(CURVE.remove, (23,) * 8))
    start(charged, approved(charged), RenyiCurve(CURVE.remove, (11,) * 8))
    start(charged, approved(charged), RenyiCurve(CURVE.remove, (11,) * 8))
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, approved(charged), RenyiCurve((1,) * 8, (0,) * 8))
    assert sums(charged)[0] == RenyiCurve(tuple(2 * value for value in CURVE.remove), (22,) * 8)


def test_the_other_account_admits_by_its_own_cap(charged: World) -> None:
    """Both have to admit: what fits in orders may still be too much in rho, and the other way round."""
    limit(charged, (10**6,) * 8)
    beyond = planned(Amount(2000))
    request_id = charged.request(approved=[beyond])
    charged.decide(request_id)
    attempt = start(charged, request_id)
    with pytest.raises(budget.BudgetExceeded):
        charged.hold(attempt, beyond)
    limit(charged, (0,) * 8)
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, approved(charged))


def test_what_was_charged_before_a_limit_counts_too(charged: World) -> None:
    for _ in range(2):
        start(charged, approved(charged))
    limit(charged, (26,) * 8)
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, approved(charged))
    limit(charged, None)
    start(charged, approved(charged))


def test_a_request_of_before_is_held_to_the_limit_in_force(charged: World) -> None:
    request_id = approved(charged)
    limit(charged, (0,) * 8)
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, request_id)
    limit(charged, (0,) * 8, clinic=LIMITS)
    start(charged, request_id)


def test_a_limit_of_a_dataset_that_shares_the_account_holds(charged: World) -> None:
    with charged.database.read() as session:
        account = datasets.find_dataset(session, "clinic").account_id
    charged.dataset("ward", account_id=account)
    limit(charged, None, ward=(0,) * 8)
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, approved(charged))


def test_a_leak_uses_up_what_the_limit_left(charged: World) -> None:
    attempt = produced(charged)
    limit(charged)
    with charged.database.write() as session:
        exposures.record_exposure(session, charged.steward, attempt.request_id, None, "a copy")
    with pytest.raises(LimitInOrdersExceeded):
        start(charged, approved(charged))


def test_a_release_that_costs_nothing_passes_no_limit(charged: World) -> None:
    """Further texts and public releases stay possible when a leak has used up more than the limit."""
    produced(charged)
    limit(charged, (0,) * 8)
    free = charged.request(approved=[planned(Amount())])
    charged.decide(free)
    start(charged, free, None)
    assert charges(charged)[-1] == (free, 1, 0)


def test_the_last_of_a_limit_is_charged_once(charged: World) -> None:
    one, two = approved(charged), approved(charged)
    limit(charged, (12,) * 8)
    refused = meanwhile(
        charged.database,
        lambda session: attempts.start_attempt(session, charged.runner, one, "one", "here", None, CURVE),
        lambda: start(charged, two),
    )
    assert refused == "LimitInOrdersExceeded"
    assert charges(charged) == [(one, 1, WHOLE)]


@pytest.mark.parametrize("given", [{3: 5}, dict.fromkeys(RENYI_ORDERS, -1), dict.fromkeys(RENYI_ORDERS[1:], 1)])
def test_a_policy_has_a_limit_at_each_order_or_at_none(charged: World, given: dict[int, int]) -> None:
    names = (
        "digest, body, several_roles, spend_approvals, publish_approvals, proposal_approvals, created_at, attempts"
        ", approval_days, request_days"
    )
    columns = "".join(f", renyi_limit_{order}" for order in given)
    values = "".join(f", {value}" for value in given.values())
    version = (
        "INSERT INTO policy_version ({}) SELECT '" + "d" * 64 + "', '{{}}', FALSE, 1, 1, 2, created_at, 1, 1, 1{}"
        " FROM policy_version"
    )
    with pytest.raises(IntegrityError, match="ck_policy_version_renyi_limits"):
        execute(charged.database, version.format(names + columns, values))
    rule = f"INSERT INTO policy_rule (policy_id, dataset{columns}) SELECT max(id), 'clinic'{values} FROM policy_version"
    with pytest.raises(IntegrityError, match="ck_policy_rule_renyi_limits"):
        execute(charged.database, version.format(names, ""), rule)
