"""The budget: hold, arm, release, commit, forfeit, and what is left.

Order of every write: account rows locked by ascending id, then entries, then the audit head. The counters are
moved by the database, which also enforces the cap; this module never does arithmetic on a counter. An instalment is
entered on every eligible block and, where the request has them, once in its envelope and in its window of time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.budgets import Amount, total
from models_db.canonical import Json, canonical, digest
from models_db.errors import Refused
from models_db.events import PrivacyEvent
from models_db.recording import lock_accounts, record, record_all
from models_db.services import audits, envelopes
from models_db.services.audits import Actor
from models_db.services.denials import Denied, OverCap
from models_db.tables import Account, Dataset, Entry, Hold, Invocation, Request

NOTHING = Amount()


@dataclass(frozen=True)
class Balance:
    """What a root account may lose, has lost and keeps reserved: the maximum over its blocks (PRIVACY §3).

    `reserved` is what open envelopes keep for the requests that name them; `left` is for all others.
    """

    cap: Amount
    spent: Amount
    held: Amount
    left: Amount
    reserved: Amount = NOTHING


@dataclass(frozen=True)
class PlannedInvocation:
    """One mechanism of a plan: its event, and its loss cut into instalments that are armed one by one.

    Raises:
        ValueError: the instalments together do not cover the event's loss.
    """

    event: PrivacyEvent
    instalments: tuple[Amount, ...]

    def __post_init__(self) -> None:
        if not self.instalments or not self.event.loss.fits(total(list(self.instalments))):
            raise ValueError(f"the instalments of {self.event.mechanism} do not cover its loss")


@dataclass(frozen=True)
class Provenance:
    """What ran: recorded with every invocation."""

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
    """The account cannot afford what was asked; nothing was changed.

    Attributes:
        asked: the loss that was asked for.
        left: what the fullest eligible block still affords.
    """

    def __init__(self, dataset: str, asked: Amount, left: Amount, where: str = "", hint: str = "") -> None:
        super().__init__(
            f"Asked for rho {asked.rho_text}; dataset {dataset!r} has rho {left.rho_text} left"
            + (f" {where}" if where else "")
            + (f" (asked delta {asked.delta_text}, left {left.delta_text})" if asked.delta else "")
            + (f". {hint}" if hint else "."),
            f"Ask for less, or see what fits: `almoner budget forecast {dataset}`. Spent budget never comes back.",
            {"dataset": dataset, "asked_rho": asked.rho_text, "left_rho": left.rho_text},
        )
        self.asked = asked
        self.left = left


class Fenced(Refused):
    """This run's holds were closed by someone else (`almoner run sweep`); it must not go on."""

    def __init__(self) -> None:
        super().__init__(
            "This run was swept away while it worked: its reservations are closed and its output cannot be used.",
            "Run the request again: `almoner run ID`.",
        )


def balance(session: Session, account_id: int, blocks: Sequence[int] | None = None) -> Balance:
    """The budget of a root account, over all its blocks or the given ones."""
    rows = session.scalars(_block_accounts(account_id, blocks)).all()
    cap = Amount(min(r.rho_cap for r in rows), min(r.delta_cap for r in rows))
    fullest = Amount(max(r.rho_held + r.rho_spent for r in rows), max(r.delta_held + r.delta_spent for r in rows))
    reserved = envelopes.reserved(session, account_id)
    return Balance(
        cap=cap,
        spent=Amount(max(r.rho_spent for r in rows), max(r.delta_spent for r in rows)),
        held=Amount(max(r.rho_held for r in rows), max(r.delta_held for r in rows)),
        left=cap - fullest - reserved,
        reserved=reserved,
    )


def hold(
    session: Session, actor: Actor, attempt: Attempt, plan: Sequence[PlannedInvocation], provenance: Provenance
) -> None:
    """Reserve the whole plan on every eligible block, or nothing.

    Raises:
        BudgetExceeded: some block cannot afford it.
        Denied: this attempt is not running (any more), or another rule of the ledger forbids it.
        ValueError: an eligible block has no account.
    """
    lock_accounts(session, attempt.account_id, attempt.blocks)
    accounts = session.scalars(_block_accounts(attempt.account_id, attempt.blocks)).all()
    if len(accounts) != len(attempt.blocks):
        raise ValueError(f"of the blocks {attempt.blocks}, {len(accounts)} have accounts")
    asked = total([instalment for planned in plan for instalment in planned.instalments])
    request = session.get_one(Request, attempt.request_id)
    narrower = envelopes.narrowing(session, request)
    left = balance(session, attempt.account_id, attempt.blocks).left
    rooms = [(each.label, each.left) for each in narrower]
    for label, room in rooms if request.scope_id else [("", left), *rooms]:
        if not asked.fits(room):
            raise BudgetExceeded(attempt.dataset, asked, room, label)
    ids = [account.id for account in accounts] + [each.account_id for each in narrower]
    try:
        for sequence, planned in enumerate(plan):
            _hold_one(session, actor, attempt, sequence, planned, provenance, ids)
    except OverCap:
        raise BudgetExceeded(attempt.dataset, asked, left) from None
    _record(session, actor, attempt, "ledger.hold", {"rho": str(asked.rho), "delta": str(asked.delta),
            "mechanisms": [p.event.mechanism for p in plan], "blocks": list(attempt.blocks)})  # fmt: skip


def _hold_one(
    session: Session,
    actor: Actor,
    attempt: Attempt,
    sequence: int,
    planned: PlannedInvocation,
    provenance: Provenance,
    accounts: Sequence[int],
) -> None:
    invocation = Invocation(
        request_id=attempt.request_id,
        attempt=attempt.number,
        sequence=sequence,
        mechanism=planned.event.mechanism,
        event=canonical(planned.event.to_json()).decode(),
        relation=planned.event.relation,
        rng_kind=provenance.rng_kind,
        device=provenance.device,
        code_digest=provenance.code_digest,
        libraries=canonical(provenance.libraries).decode(),
        idem_key=digest({"request": attempt.request_id, "attempt": attempt.number, "sequence": sequence}),
        created_at=moment(),
        created_by=actor.id,
    )
    record(session, invocation)
    holds = [
        Hold(invocation_id=invocation.id, account_id=account, instalment=number, rho=part.rho, delta=part.delta)
        for account in accounts
        for number, part in enumerate(planned.instalments)
    ]
    record_all(session, holds)
    _enter(session, actor, holds, "HOLD")


def arm(session: Session, actor: Actor, attempt: Attempt, sequence: int, instalment: int) -> Amount:
    """Spend one instalment on every eligible block. The caller commits this transaction before it reads data.

    Raises:
        Fenced: the hold is armed or closed already.
        Denied: nothing is held, or the spend gate is not passed (any more).
    """
    holds = _lock_holds(session, attempt, Hold.instalment == instalment, Invocation.sequence == sequence)
    if not holds:
        raise Denied("nothing is held")
    if any(entries != {"HOLD"} for entries in holds.values()):
        raise Fenced
    _enter(session, actor, holds, "ARM")
    spent = next(Amount(each.rho, each.delta) for each in holds)
    _record(session, actor, attempt, "ledger.arm", {"sequence": sequence, "instalment": instalment,
            "rho": str(spent.rho), "delta": str(spent.delta)})  # fmt: skip
    return spent


def settle(session: Session, actor: Actor, attempt: Attempt, outcome: str) -> None:
    """Close an attempt: armed holds get `outcome` (COMMIT or FORFEIT), never-armed ones are given back.

    Raises:
        Fenced: it has been settled already.
    """
    holds = _lock_holds(session, attempt)
    armed = [each for each, entries in holds.items() if entries == {"HOLD", "ARM"}]
    untouched = [each for each, entries in holds.items() if entries == {"HOLD"}]
    if len(armed) + len(untouched) != len(holds):
        raise Fenced
    _enter(session, actor, armed, outcome)
    _enter(session, actor, untouched, "RELEASE")
    if holds:
        _record(session, actor, attempt, f"ledger.{outcome.lower()}",
                {"armed_holds": len(armed), "released_holds": len(untouched)})  # fmt: skip


def _block_accounts(account_id: int, blocks: Sequence[int] | None) -> Select[Account]:
    query = select(Account).where(Account.parent_id == account_id, Account.kind == "block").order_by(Account.id)
    query = query.execution_options(populate_existing=True)
    return query if blocks is None else query.where(Account.block.in_(blocks))


def _lock_holds(session: Session, attempt: Attempt, *conditions: ColumnElement[bool]) -> dict[Hold, set[str]]:
    """The attempt's holds, by account, each with the kinds of its entries; nobody else can add one meanwhile."""
    lock_accounts(session, attempt.account_id, attempt.blocks)
    query = (
        select(Hold, Entry.kind)
        .join(Invocation, Invocation.id == Hold.invocation_id)
        .join(Entry, Entry.hold_id == Hold.id)
        .where(Invocation.request_id == attempt.request_id, Invocation.attempt == attempt.number, *conditions)
        .order_by(Hold.account_id, Hold.id)
    )
    found: dict[Hold, set[str]] = {}
    for each, kind in session.execute(query):
        found.setdefault(each, set()).add(kind)
    return found


def _enter(session: Session, actor: Actor, holds: Iterable[Hold], kind: str) -> None:
    record_all(session, [Entry(hold_id=each.id, kind=kind, at=moment(), actor_id=actor.id) for each in holds])


def _record(session: Session, actor: Actor, attempt: Attempt, kind: str, body: dict[str, Json]) -> None:
    audits.append(
        session,
        actor,
        kind,
        {"attempt": attempt.number, **body},
        dataset=attempt.dataset,
        request_id=attempt.request_id,
    )


def recomputed(session: Session) -> list[tuple[int, str]]:
    """Accounts whose counters differ from the sum of their entries: (account id, counter). Empty when all agree."""
    rows = session.execute(
        select(Hold.account_id, Entry.kind, func.sum(Hold.rho), func.sum(Hold.delta))
        .join(Entry, Entry.hold_id == Hold.id)
        .group_by(Hold.account_id, Entry.kind)
    )
    # Plain integers: what a tampered ledger holds need not be an Amount.
    sums: dict[int, dict[str, tuple[int, int]]] = {}
    for account_id, kind, rho, delta in rows:
        sums.setdefault(account_id, {})[kind] = (int(rho), int(delta))
    wrong: list[tuple[int, str]] = []
    for account in session.scalars(select(Account).execution_options(populate_existing=True)):
        of = sums.get(account.id, {})
        held, armed, released = (of.get(kind, (0, 0)) for kind in ("HOLD", "ARM", "RELEASE"))
        expected = {
            "rho_held": held[0] - armed[0] - released[0],
            "rho_spent": armed[0],
            "delta_held": held[1] - armed[1] - released[1],
            "delta_spent": armed[1],
        }
        wrong += [(account.id, counter) for counter, value in expected.items() if getattr(account, counter) != value]
    return wrong


def invocations(session: Session, request_id: int, attempt: int | None = None) -> Sequence[Invocation]:
    """The mechanisms a request invoked, in order."""
    query = select(Invocation).where(Invocation.request_id == request_id)
    if attempt is not None:
        query = query.where(Invocation.attempt == attempt)
    return session.scalars(query.order_by(Invocation.attempt, Invocation.sequence)).all()


def spent_by(session: Session, request_id: int) -> Amount:
    """What one request has spent so far, in all its attempts: the maximum over blocks of its armed holds."""
    rows = session.execute(
        select(Hold.account_id, func.sum(Hold.rho), func.sum(Hold.delta))
        .join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))
        .join(Invocation, Invocation.id == Hold.invocation_id)
        .where(Invocation.request_id == request_id)
        .group_by(Hold.account_id)
    ).all()
    return Amount(max((int(r[1]) for r in rows), default=0), max((int(r[2]) for r in rows), default=0))


def attempt_of(session: Session, request_id: int, number: int, blocks: tuple[int, ...]) -> Attempt:
    """The value the functions above take, from a request's id."""
    request = session.get_one(Request, request_id)
    dataset = session.get_one(Dataset, request.dataset_id)
    return Attempt(request_id, number, dataset.name, dataset.account_id, blocks)
