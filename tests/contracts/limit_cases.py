"""For every guard of plans and limits: what it denies, and the nearest things it lets pass."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Executable

from models_db.database.base import utc_now
from models_db.values.canonical_json import Json, encode_canonical
from tests.contracts.decision_cases import AFTER_ALL
from tests.contracts.initial_cases import Case, Make
from tests.contracts.rows import (
    EVENT,
    PARTS,
    approval,
    hold,
    insert,
    invocation,
    policy,
    request,
    transition,
)
from tests.contracts.town import Town
from tests.support import event_of, plan_of


def too_late() -> str:
    """A time one day later than the policies of these tests allow."""
    return utc_now(datetime.now(UTC) + timedelta(days=367))


def last() -> str:
    """The beginning of the last day that they allow."""
    return (datetime.now(UTC) + timedelta(days=366)).strftime("%Y-%m-%dT00:00:00.000000Z")


def planned_row(town: Town, table: str, of: int, **given: object) -> Executable:
    rows: dict[str, dict[str, object]] = {
        "planned_release": {"invocations": 1},
        "planned_block": {"first_block": 7, "last_block": 7},
        "planned_invocation": {"sequence": 77, "mechanism": "m", "event": "{}", "instalments": 1},
        "planned_instalment": {"sequence": 77, "first_instalment": 0, "last_instalment": 0, "rho": 1, "delta": 1},
    }
    return insert(table, **{"request_id": of} | rows[table] | given)


def asking(town: Town, canonical_text: str) -> Executable:
    return request(town, "clinic", "clinic", canonical=canonical_text)


def unplanned(plan: Json) -> Make:
    return lambda town: asking(town, encode_canonical({"plan": plan}).decode())


TWICE = '{"plan":{"blocks":[0],"invocations":[{"event":{"mechanism":"m"},"instalments":[{"rho":"1","rho":"2"}]}]}}'
"""A part with two amounts of rho and none of delta, which no row can have; INSERT OR IGNORE would leave it out."""


def with_part(part: Json) -> Make:
    event = event_of("integer_draw").to_json()
    return unplanned({"blocks": [0], "invocations": [{"event": event, "instalments": [part]}]})


def paid_again(town: Town, goes_on_from: str = "1", **given: object) -> list[Executable]:
    """A second attempt at a request of which the first has armed its first part, and a hold of it."""
    of, invoked = town.lost.request_id, int(town.one("SELECT max(id) + 1 FROM invocation"))
    return [
        transition(town, of, "approved", "running", detail=goes_on_from),
        invocation(town, town.lost, id=invoked, attempt=2, sequence=0),
        hold(town, town.lost, **{"invocation_id": invoked, "instalment": 0} | given),
    ]


def spent_up(town: Town) -> list[Executable]:
    """A policy under which a request has one attempt, which is under way."""
    number = town.id_of("policy_version", "TRUE") + 1
    asked = town.id_of("request", "TRUE") + 1
    return [
        policy(town, 1, 1, id=number, attempts=1),
        insert("policy_adoption", policy_id=number, adopted_by=town.world.admin.id, at=utc_now()),
        request(town, "clinic", "clinic", id=asked, policy_id=number),
        _step(town, asked, 1, "draft", "submitted", town.world.analyst.id),
        approval(town, asked, subject_digest="d" * 64),
        _step(town, asked, 2, "submitted", "approved", town.world.steward.id),
        _step(town, asked, 3, "approved", "running", town.world.runner.id),
        _step(town, asked, 4, "running", "approved", town.world.runner.id),
    ]


def _step(town: Town, asked: int, number: int, from_state: str, to_state: str, actor: int) -> Executable:
    row = {"request_id": asked, "number": number, "from_state": from_state, "to_state": to_state, "detail": ""}
    return insert("transition", **row, at=utc_now(), actor_id=actor)


def again(town: Town) -> Executable:
    asked = town.id_of("request", "TRUE") + 1
    return _step(town, asked, 5, "approved", "running", town.world.runner.id)


REQUESTS: tuple[Callable[[Town], int], ...] = (lambda t: t.reopened, lambda t: t.id_of("request", "TRUE") + 1)
"""One that has a plan, and one that is still to come."""

LIMITS: dict[str, Case] = {
    "request_says_plan": Case(
        denied=[
            lambda t: asking(t, "{}"),
            unplanned(1),
            unplanned({"blocks": [0]}),
            unplanned({"invocations": []}),
            unplanned({"blocks": {}, "invocations": []}),
            unplanned({"blocks": [0], "invocations": {}}),
            unplanned({"blocks": ["0"], "invocations": []}),
            unplanned({"blocks": [-1], "invocations": []}),
            unplanned({"blocks": [2**31], "invocations": []}),
            unplanned({"blocks": [True], "invocations": []}),
            lambda t: asking(t, '{"plan":{"blocks":[0.5],"invocations":[]}}'),
            unplanned({"blocks": [0], "invocations": [{}]}),
            unplanned({"blocks": [0], "invocations": [[]]}),
            unplanned({"blocks": [0], "invocations": [{"event": {}, "instalments": []}]}),
            unplanned({"blocks": [0], "invocations": [{"event": {"mechanism": "m"}}]}),
            unplanned({"blocks": [0], "invocations": [{"event": {"mechanism": "m"}, "parts": []}]}),
            unplanned({"blocks": [0], "invocations": [{"event": {"mechanism": "m"}, "instalments": {}}]}),
            unplanned({"blocks": [0], "invocations": [{"event": {"mechanism": 1}, "instalments": []}]}),
            unplanned({"blocks": [0], "invocations": [{"event": {"name": "m"}, "instalments": []}]}),
            unplanned({"blocks": [0], "invocations": [{"event": "m", "instalments": []}]}),
            with_part({}),
            with_part({"rho": "1"}),
            with_part({"rho": "1", "delta": ""}),
            with_part({"rho": "1", "epsilon": "1"}),
            with_part({"rho": 1, "delta": "0"}),
            with_part({"rho": "1", "delta": "-1"}),
            with_part({"rho": "0.5", "delta": "0"}),
            with_part({"rho": "9223372036854775808", "delta": "0"}),
            with_part({"rho": "1" * 20, "delta": "0"}),
            with_part([]),
            lambda t: asking(
                t,
                '{"plan":{"blocks":[0],"invocations":[{"event":{"mechanism":"m"},"instalments":[{"rho":"1","rho":"2"}]}]}}',
            ),
        ],
        allowed=[
            unplanned({"blocks": [], "invocations": []}),
            unplanned(plan_of(range(2))),
            with_part({"rho": "9223372036854775807", "delta": "0"}),
            with_part({"rho": "95", "delta": "0"}),
        ],
    ),
    "request_expires": Case(
        denied=[lambda t: request(t, "clinic", "clinic", expires_at=too_late())],
        allowed=[lambda t: request(t, "clinic", "clinic", expires_at=last())],
    ),
    "approval_expires": Case(
        denied=[
            lambda t: approval(t, t.reopened, expires_at=too_late()),
            lambda t: approval(t, t.open_proposal, "proposal", expires_at=too_late()),
        ],
        allowed=[
            lambda t: approval(t, t.reopened, expires_at=last()),
            lambda t: approval(t, t.open_proposal, "proposal", expires_at=last()),
        ],
    ),
    "ck_policy_version_limits_attempts_and_days": Case(
        denied=[
            lambda t, given=given: policy(t, 1, 1, **given)  # type: ignore[misc]
            for given in (
                {"attempts": None},
                {"attempts": 0},
                {"attempts": 101},
                {"approval_days": None},
                {"approval_days": 0},
                {"approval_days": 366},
                {"request_days": None},
                {"request_days": 366},
            )
        ],
        allowed=[lambda t: policy(t, 1, 1, attempts=1, approval_days=1, request_days=1)],
    ),
    "transition_begins": Case(
        denied=[
            lambda t: [*spent_up(t), again(t)],
            lambda t: transition(t, t.approved, "approved", "running", at=AFTER_ALL),
            lambda t: transition(t, t.gone_approved, "approved", "running"),
        ],
        allowed=[
            spent_up,
            lambda t: spent_up(t)[:-1],
            lambda t: transition(t, t.approved, "approved", "running"),
            lambda t: [*spent_up(t)[:3], transition(t, t.failed.request_id, "approved", "running")],
        ],
    ),
    "invocation_planned": Case(
        denied=[
            lambda t: invocation(t, t.deputised, event="{}"),
            lambda t: invocation(t, t.deputised, event=EVENT + " "),
            lambda t: invocation(t, t.deputised, mechanism="noisy_count"),
            lambda t: invocation(t, t.deputised, sequence=10),
            lambda t: invocation(t, t.deputised, sequence=-1),
        ],
        allowed=[lambda t: invocation(t, t.deputised)],
    ),
    "hold_planned": Case(
        denied=[
            lambda t: hold(t, t.deputised, rho=2),
            lambda t: hold(t, t.deputised, rho=0, instalment=2),
            lambda t: hold(t, t.deputised, delta=2),
            lambda t: hold(t, t.deputised, rho=1, delta=0, instalment=len(PARTS) - 3),
            lambda t: hold(t, t.deputised, instalment=len(PARTS)),
            lambda t: hold(t, t.deputised, instalment=-1),
            lambda t: hold(t, t.deputised, rho=90, instalment=6),
            lambda t: paid_again(t, rho=0, instalment=1),
            lambda t: paid_again(t, "", rho=0),
            lambda t: paid_again(t, rho=0, delta=1),
            lambda t: paid_again(t, rho=1),
            lambda t: hold(t, t.held, account_id=t.account("harbour")),
            lambda t: hold(t, t.elsewhere, account_id=t.account("clinic")),
        ],
        allowed=[
            lambda t: hold(t, t.deputised),
            lambda t: hold(t, t.held, account_id=t.account("clinic", 1)),
            lambda t: hold(t, t.elsewhere, account_id=t.account("estate")),
            lambda t: hold(t, t.deputised, rho=1, delta=1),
            lambda t: paid_again(t, rho=0),
            lambda t: paid_again(t, rho=10),
            lambda t: paid_again(t, rho=10, instalment=1),
        ],
    ),
    **{
        f"{table}_with_its_request": Case(
            denied=[
                lambda t, table=table, of=of: planned_row(t, table, of(t))  # type: ignore[misc]
                for of in REQUESTS[table == "planned_release" :]
            ]
        )
        for table in ("planned_release", "planned_block", "planned_invocation", "planned_instalment")
    },
}


def standing(town: Town, until: str) -> dict[str, object]:
    given = {"kind": "standing", "runs": 1, "until": until, "config_digest": "d" * 64, "configuration": "{}"}
    return {**given, "epsilon": None, "delta": None, "delta_conversion": None}
