"""The budget: its steps (hold, arm, release, commit, forfeit), the balance, and the account in Rényi orders.

The counters are moved by the database, which also enforces the cap; this module never does arithmetic on a counter. An
instalment is entered on every eligible block.

A charge in orders is of the whole plan, on each of its blocks, and is recorded when an attempt begins; the database
lets nothing be armed that no charge covers. Sums are of charges, so there is no counter that could differ from them. A
request whose assignment is no longer secret counts with its whole rho: the sums say so from the moment on at which it
is recorded. docs/proofs/secret-assignment.md has the proofs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import TextClause, bindparam, func, select, text
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import requests
from models_db.services.audit.chain import Actor
from models_db.tables import Account, Dataset, Entry, Hold, Invocation, RenyiCharge, Request
from models_db.tables.accounts import CURVE_COLUMNS
from models_db.values.amounts import Amount, RenyiCurve, total_amount
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.events import PrivacyEvent
from models_db.values.request_state import RequestState
from models_db.writes.database_errors import CapExceeded, RuleViolated
from models_db.writes.insert import PlannedHold, insert_row, record_entries, renew_lease, reserve

ZERO_AMOUNT = Amount()


@dataclass(frozen=True)
class Balance:
    """Cap, spent and reserved amounts of a root account: the maximum over its blocks (PRIVACY §3)."""

    cap: Amount
    spent: Amount
    held: Amount
    remaining: Amount


@dataclass(frozen=True)
class InvocationPlan:
    """One mechanism of a plan: its event, and its loss cut into instalments that are armed one by one.

    Raises:
        ValueError: the instalments together do not cover the event's loss.
    """

    event: PrivacyEvent
    instalments: tuple[Amount, ...]

    def __post_init__(self) -> None:
        if not self.instalments or not self.event.loss.fits(total_amount(list(self.instalments))):
            raise ValueError(f"the instalments of {self.event.mechanism} do not cover its loss")


@dataclass(frozen=True)
class Provenance:
    """Code, libraries and device of a run, recorded with every invocation."""

    device: str
    code_digest: str
    libraries: dict[str, str]
    rng_kind: str


@dataclass(frozen=True)
class Attempt:
    """One execution of a request: which one, whose data, and the blocks it is eligible to read."""

    request_id: int
    number: int
    dataset: str
    account_id: int
    blocks: tuple[int, ...]


class BudgetExceeded(Refused):
    """The account cannot afford the requested amount; nothing was changed.

    Attributes:
        asked: the loss that was asked for.
        left: what the fullest eligible block still affords.
    """

    def __init__(self, dataset: str, requested: Amount, remaining: Amount, where: str = "", hint: str = "") -> None:
        super().__init__(
            f"Asked for rho {requested.rho_text}; dataset {dataset!r} has rho {remaining.rho_text} left"
            + (f" {where}" if where else "")
            + (f" (asked delta {requested.delta_text}, left {remaining.delta_text})" if requested.delta else "")
            + (f". {hint}" if hint else "."),
            f"Ask for less, or see what fits: `almoner budget forecast {dataset}`. Spent budget never comes back.",
            {"dataset": dataset, "asked_rho": requested.rho_text, "left_rho": remaining.rho_text},
        )
        self.requested = requested
        self.remaining = remaining


class AttemptClosed(Refused):
    """Run whose holds were closed by another process (`almoner run sweep`); it must not go on."""

    def __init__(self) -> None:
        super().__init__(
            "This run was swept away while it worked: its reservations are closed and its output cannot be used.",
            "Run the request again: `almoner run ID`.",
        )


def balance(session: Session, account_id: int, blocks: Sequence[int] | None = None) -> Balance:
    """Return the budget of a root account, over all its blocks or the given ones."""
    accounts, among = _load_accounts(session, account_id), None if blocks is None else frozenset(blocks)
    return _balance_of_rows([account for account in accounts if among is None or account.block in among])


def _balance_of_rows(rows: "Sequence[_AccountCounters]") -> Balance:
    cap = Amount(min(r.rho_cap for r in rows), min(r.delta_cap for r in rows))
    fullest = Amount(max(r.rho_held + r.rho_spent for r in rows), max(r.delta_held + r.delta_spent for r in rows))
    return Balance(
        cap=cap,
        spent=Amount(max(r.rho_spent for r in rows), max(r.delta_spent for r in rows)),
        held=Amount(max(r.rho_held for r in rows), max(r.delta_held for r in rows)),
        remaining=cap - fullest,
    )


def hold(
    session: Session,
    actor: Actor,
    attempt: Attempt,
    plan: Sequence[InvocationPlan],
    provenance: Provenance,
    paid: Sequence[int] = (),
) -> None:
    """Reserve the whole plan on every eligible block, or nothing.

    Args:
        paid: for each invocation, how many of its instalments the attempts that this one goes on from have armed.
            They are spent already: the first is held again at no charge, the others are not (docs/decisions/0023).

    Raises:
        BudgetExceeded: some block cannot afford it.
        RuleViolated: this attempt is not running (any more), or another rule of the ledger forbids it.
        ValueError: an eligible block has no account.
    """
    mechanisms = [_invocation_row(attempt, number, planned, provenance) for number, planned in enumerate(plan)]
    paid_counts = paid or [0] * len(plan)
    parts = [_unpaid_instalments(planned, count) for planned, count in zip(plan, paid_counts, strict=True)]
    requested = total_amount([amount for unpaid in parts for _, amount in unpaid])
    among = frozenset(attempt.blocks)
    accounts = [account for account in _load_accounts(session, attempt.account_id) if account.block in among]
    if len(accounts) != len(attempt.blocks):
        raise ValueError(f"of the blocks {attempt.blocks}, {len(accounts)} have accounts")
    remaining = _balance_of_rows(accounts).remaining
    if not requested.fits(remaining):
        raise BudgetExceeded(attempt.dataset, requested, remaining)
    ids = [account.id for account in accounts]
    try:
        reserve(
            session,
            actor.id,
            [PlannedHold(m, _hold_rows(unpaid, ids)) for m, unpaid in zip(mechanisms, parts, strict=True)],
        )
    except CapExceeded:
        raise BudgetExceeded(attempt.dataset, requested, remaining) from None


def _invocation_row(attempt: Attempt, sequence: int, planned: InvocationPlan, provenance: Provenance) -> dict[str, Any]:
    return {
        "request_id": attempt.request_id,
        "attempt": attempt.number,
        "sequence": sequence,
        "mechanism": planned.event.mechanism,
        "event": encode_canonical(planned.event.to_json()).decode(),
        "relation": planned.event.relation,
        "rng_kind": provenance.rng_kind,
        "device": provenance.device,
        "code_digest": provenance.code_digest,
        "libraries": encode_canonical(provenance.libraries).decode(),
        "idem_key": digest({"request": attempt.request_id, "attempt": attempt.number, "sequence": sequence}),
    }


def _unpaid_instalments(planned: InvocationPlan, paid: int) -> list[tuple[int, Amount]]:
    """Return the unpaid instalments by number. A mechanism that is paid in part or whole begins at no charge."""
    begun = [(0, ZERO_AMOUNT)] if paid else []
    return begun + [(number, part) for number, part in enumerate(planned.instalments) if number >= paid]


def _hold_rows(parts: Sequence[tuple[int, Amount]], accounts: Sequence[int]) -> list[tuple[int, int, int, int]]:
    return [(account, number, part.rho, part.delta) for account in accounts for number, part in parts]


def arm(session: Session, actor: Actor, attempt: Attempt, sequence: int, instalment: int,
        lease: tuple[str, str] | None = None) -> Amount:  # fmt: skip
    """Spend one instalment on every eligible block. The caller commits this transaction before it reads data.

    Args:
        lease: token and new end of the run's lease (`attempts.lease_renewal`), which is prolonged first.

    Raises:
        AttemptClosed: the hold is armed or closed already, or another process has the lease now.
        RuleViolated: nothing is held, or the spend gate is not passed (any more).
    """
    if lease and not renew_lease(session, attempt.request_id, *lease):
        raise AttemptClosed
    holds = _holds_by_account(session, _HOLDS_OF_INSTALMENT, attempt, sequence=sequence, instalment=instalment)
    if not holds:
        raise RuleViolated("nothing is held")
    if any(hold.entries != {"HOLD"} for hold in holds):
        raise AttemptClosed
    spent = holds[0].amount
    record_entries(session, actor.id, [(hold.id, "ARM") for hold in holds])
    return spent


def settle(session: Session, actor: Actor, attempt: Attempt, outcome: str) -> None:
    """Close an attempt whose output is kept (COMMIT) or lost (FORFEIT).

    A release is charged what was approved, also where its texts ended before their last draw: COMMIT arms what was not
    armed on the way. Before FORFEIT what was never armed is given back, because nothing was read for it; holds that a
    client of the runner's own has closed stay as they are, so that it keeps nobody from closing the rest.

    Raises:
        AttemptClosed: it is to be committed, and some hold is closed already.
    """
    holds = _holds_by_account(session, _HOLDS_OF_ATTEMPT, attempt)
    open_holds = [hold for hold in holds if hold.entries <= {"HOLD", "ARM"}]
    untouched = [hold for hold in open_holds if "ARM" not in hold.entries]
    closing = {hold.id: outcome for hold in open_holds}
    if outcome == "COMMIT":
        if len(open_holds) < len(holds):
            raise AttemptClosed
        for part in sorted({hold.part for hold in untouched}):
            record_entries(session, actor.id, [(hold.id, "ARM") for hold in untouched if hold.part == part])
    else:
        closing |= {hold.id: "RELEASE" for hold in untouched}
    if closing:
        record_entries(session, actor.id, sorted(closing.items(), key=lambda entry: entry[1] != "RELEASE"))


class _AccountCounters(NamedTuple):
    """A block as it is now: it changes with every entry."""

    block: int
    id: int
    rho_cap: int
    delta_cap: int
    rho_held: int
    rho_spent: int
    delta_held: int
    delta_spent: int


_BLOCKS = text("""
SELECT x.block, x.id, x.rho_cap, x.delta_cap, x.rho_held, x.rho_spent, x.delta_held, x.delta_spent
FROM account x WHERE x.parent_id = :root ORDER BY x.id
""")


def _load_accounts(session: Session, root: int) -> list[_AccountCounters]:
    """Return the blocks of a root account."""
    return [_AccountCounters(*row) for row in session.execute(_BLOCKS, {"root": root})]


@dataclass
class _AttemptHold:
    """A hold of an attempt: its invocation and instalment (`part`), and the kinds of its entries."""

    id: int
    part: tuple[int, int]
    amount: Amount
    entries: set[str]


_HOLDS_QUERY = """
SELECT h.id, h.invocation_id, h.instalment, h.rho, h.delta, e.kind
FROM invocation i JOIN hold h ON h.invocation_id = i.id JOIN entry e ON e.hold_id = h.id
WHERE i.request_id = :request_id AND i.attempt = :attempt ORDER BY h.account_id, h.id
"""
_HOLDS_OF_ATTEMPT = text(_HOLDS_QUERY)
_HOLDS_OF_INSTALMENT = text(
    _HOLDS_QUERY.replace("ORDER", "AND i.sequence = :sequence AND h.instalment = :instalment ORDER")
)


def _holds_by_account(session: Session, query: TextClause, attempt: Attempt, **more: int) -> list[_AttemptHold]:
    """Return the holds by account."""
    parameters = {"request_id": attempt.request_id, "attempt": attempt.number, **more}
    holds: dict[int, _AttemptHold] = {}
    for number, invocation, instalment, rho, delta, kind in session.execute(query, parameters):
        if number not in holds:
            holds[number] = _AttemptHold(number, (invocation, instalment), Amount(rho, delta), set())
        holds[number].entries.add(kind)
    return list(holds.values())


def differing_counters(session: Session) -> list[tuple[int, str]]:
    """Accounts whose counters differ from the sum of their entries: (account id, counter). Empty when all agree."""
    # The database compares, so that memory does not grow with the number of accounts.
    return [
        (account, counter)
        for account, *agree in session.execute(_DIFFERING_COUNTERS)
        for counter, same in zip(COUNTER_COLUMNS, agree, strict=True)
        if not same
    ]


COUNTER_COLUMNS = ("rho_held", "rho_spent", "delta_held", "delta_spent")
"""The counters of an account."""
COUNTER_SUMS = """
    sum(CASE e.kind WHEN 'HOLD' THEN h.{u} WHEN 'ARM' THEN -h.{u} WHEN 'RELEASE' THEN -h.{u} ELSE 0 END) AS {u}_held,
    sum(CASE e.kind WHEN 'ARM' THEN h.{u} ELSE 0 END) AS {u}_spent"""
"""Two of them, for a unit `u`, as sums over entries `e` and their holds `h`."""
_DIFFERING_COUNTERS = text(f"""
SELECT x.id, {", ".join(f"x.{counter} = coalesce(s.{counter}, 0)" for counter in COUNTER_COLUMNS)}
FROM account x LEFT JOIN (
    SELECT h.account_id AS id,
    {",".join(COUNTER_SUMS.format(u=unit) for unit in ("rho", "delta"))}
    FROM entry e JOIN hold h ON h.id = e.hold_id GROUP BY h.account_id) s ON s.id = x.id
WHERE {" OR ".join(f"x.{counter} <> coalesce(s.{counter}, 0)" for counter in COUNTER_COLUMNS)} ORDER BY x.id
""")  # noqa: S608  (of constants)


def spent_by(session: Session, request_id: int) -> Amount:
    """Return the amount that a request has spent, in all its attempts: the maximum over blocks of its armed holds."""
    rows = session.execute(
        select(Hold.account_id, func.sum(Hold.rho), func.sum(Hold.delta))
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .join(Invocation, Invocation.id == Hold.invocation_id)
        .where(Invocation.request_id == request_id)
        .group_by(Hold.account_id)
    ).all()
    return Amount(max((int(r[1]) for r in rows), default=0), max((int(r[2]) for r in rows), default=0))


def armed_parts(session: Session, request_id: int) -> set[tuple[int, int, int, int, int]]:
    """Return what the last attempt at a request, and those that it goes on from, have armed on its dataset's blocks.

    Returns: block, number of the mechanism, instalment, rho in 1e-12 and failure delta in 1e-18.
    """
    runs = [step.detail for step in requests.history(session, request_id) if step.to_state == RequestState.RUNNING]
    begun = max((number for number, goes_on_from in enumerate(runs, 1) if not goes_on_from), default=0)
    rows = session.execute(
        select(Account.block, Invocation.sequence, Hold.instalment, Hold.rho, Hold.delta)
        .join(Hold, Hold.account_id == Account.id)
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .join(Invocation, Invocation.id == Hold.invocation_id)
        .join(Request, Request.id == Invocation.request_id)
        .join(Dataset, (Dataset.id == Request.dataset_id) & (Dataset.account_id == Account.parent_id))
        .where(Invocation.request_id == request_id, Invocation.attempt >= begun)
    )
    return {(int(block or 0), mechanism, part, rho, delta) for block, mechanism, part, rho, delta in rows}


def armed_instalments(session: Session, request_id: int, attempts: Collection[int]) -> dict[int, set[int]]:
    """Return the instalments that some attempts of a request have armed, for each of their invocations."""
    rows = session.execute(
        select(Invocation.sequence, Hold.instalment)
        .join(Hold, Hold.invocation_id == Invocation.id)
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .where(Invocation.request_id == request_id, Invocation.attempt.in_(attempts))
        .distinct()
    )
    instalments: dict[int, set[int]] = {}
    for sequence, instalment in rows:
        instalments.setdefault(sequence, set()).add(instalment)
    return instalments


def load_attempt(session: Session, request_id: int, number: int, blocks: tuple[int, ...]) -> Attempt:
    """Return the `Attempt` of a request, which the functions above take."""
    request = session.get_one(Request, request_id)
    dataset = session.get_one(Dataset, request.dataset_id)
    return Attempt(request_id, number, dataset.name, dataset.account_id, blocks)


def charge_attempt(
    session: Session, actor: Actor, request_id: int, attempt: int, curve: RenyiCurve | None = None
) -> None:
    """Charge the whole plan of a request for an attempt from nothing, unless nothing was armed since the last charge.

    Args:
        curve: what the plan is charged in orders; None for its rho at each.

    Raises:
        RuleViolated: the attempt does not run, or another rule of the ledger forbids it.
    """
    if not needs_charge(session, request_id):
        return
    rho = int(session.scalar(_PLANNED_RHO, {"request": request_id}) or 0)
    columns = dict(zip(CURVE_COLUMNS, (curve or RenyiCurve.of_rho(rho)).values, strict=True))
    row = RenyiCharge(request_id=request_id, attempt=attempt, rho=rho, **columns, at=utc_now(), actor_id=actor.id)
    insert_row(session, row)


def needs_charge(session: Session, request_id: int) -> bool:
    """Return whether an attempt from nothing is charged: the request never was, or armed something since it was."""
    return bool(session.scalar(_NEEDS_CHARGE, {"request": request_id}))


_NEEDS_CHARGE = text("""
SELECT NOT EXISTS (SELECT 1 FROM renyi_charge c WHERE c.request_id = :request) OR EXISTS (
    SELECT 1 FROM invocation i CROSS JOIN hold h CROSS JOIN entry e WHERE i.request_id = :request
    AND i.attempt >= (SELECT max(c.attempt) FROM renyi_charge c WHERE c.request_id = :request)
    AND h.invocation_id = i.id AND h.rho > 0 AND e.hold_id = h.id AND e.kind = 'ARM')
""")
_PLANNED_RHO = text("""
SELECT coalesce(sum(q.rho * (q.last_instalment - q.first_instalment + 1)), 0) FROM planned_instalment q
WHERE q.request_id = :request
""")


def is_charged(session: Session, request_id: int) -> bool:
    """Return whether an attempt of the request was charged."""
    return session.scalar(select(RenyiCharge.id).where(RenyiCharge.request_id == request_id).limit(1)) is not None


def charged_requests(session: Session) -> set[int]:
    """Return the ids of all requests of which an attempt was charged."""
    return set(session.scalars(select(RenyiCharge.request_id).distinct()))


def list_charges(
    session: Session, account_id: int | None = None, request_id: int | None = None
) -> Sequence[RenyiCharge]:
    """Return all charges, or those of a root account or of a request, oldest first."""
    query = select(RenyiCharge).order_by(RenyiCharge.id)
    if request_id is not None:
        query = query.where(RenyiCharge.request_id == request_id)
    if account_id is not None:
        asked = select(Request.id).join(Dataset, Dataset.id == Request.dataset_id)
        query = query.where(RenyiCharge.request_id.in_(asked.where(Dataset.account_id == account_id)))
    return session.scalars(query).all()


def sums_of_blocks(
    session: Session, accounts: Collection[int], whole: Collection[int] = ()
) -> dict[int, dict[int, RenyiCurve]]:
    """Return the sum of all charges on each block of root accounts that has any, by account and the block's number.

    Args:
        whole: requests whose charges count with their rho at each order.
    """
    sums = ", ".join(
        f"sum(CASE WHEN s.known OR s.request_id IN :whole THEN s.rho ELSE s.{column} END)" for column in CURVE_COLUMNS
    )
    query = text(f"SELECT u.parent_id, u.block, {sums} {_CHARGES_OF_BLOCKS} GROUP BY u.parent_id, u.block").bindparams(
        bindparam("accounts", expanding=True), bindparam("whole", expanding=True)
    )
    found: dict[int, dict[int, RenyiCurve]] = {account_id: {} for account_id in accounts}
    for account_id, block, *values in session.execute(query, {"accounts": list(accounts), "whole": list(whole)}):
        found[account_id][int(block)] = RenyiCurve.of_values([int(value) for value in values])
    return found


_CHARGES_OF_BLOCKS = """
FROM account u JOIN dataset d ON d.account_id = u.parent_id JOIN request r ON r.dataset_id = d.id
JOIN planned_block k ON k.request_id = r.id AND u.block BETWEEN k.first_block AND k.last_block
JOIN (SELECT c.*, EXISTS (SELECT 1 FROM assignment_exposure w WHERE w.request_id = c.request_id)
    OR EXISTS (SELECT 1 FROM internal_view v JOIN artifact f ON f.id = v.artifact_id WHERE f.request_id = c.request_id)
    AS known FROM renyi_charge c) s ON s.request_id = r.id
WHERE u.parent_id IN :accounts
"""
