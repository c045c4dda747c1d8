"""The budget: hold, arm, release, commit, forfeit, and what is left.

Order of every write: account rows locked by ascending id, then entries, then the audit head. The counters are
moved by the database, which also enforces the cap; this module never does arithmetic on a counter. An instalment is
entered on every eligible block and, where the request has them, once in its envelope and in its window of time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, TextClause, func, select, text
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
    return _balance(_block_accounts(session, account_id, blocks), envelopes.reserved(session, account_id))


def _balance(rows: Sequence[Row[Any]], reserved: Amount) -> Balance:
    cap = Amount(min(r.rho_cap for r in rows), min(r.delta_cap for r in rows))
    fullest = Amount(max(r.rho_held + r.rho_spent for r in rows), max(r.delta_held + r.delta_spent for r in rows))
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
    accounts = _block_accounts(session, attempt.account_id, attempt.blocks)
    if len(accounts) != len(attempt.blocks):
        raise ValueError(f"of the blocks {attempt.blocks}, {len(accounts)} have accounts")
    asked = total([instalment for planned in plan for instalment in planned.instalments])
    narrowed = envelopes.narrows(session, attempt.request_id)
    request = session.get_one(Request, attempt.request_id) if narrowed else None
    narrower = envelopes.narrowing(session, request) if request else []
    left = _balance(accounts, envelopes.reserved(session, attempt.account_id)).left
    rooms = [(each.label, each.left) for each in narrower]
    for label, room in rooms if request and request.scope_id else [("", left), *rooms]:
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
    _enter(session, actor, (each.id for each in holds), "HOLD")


def arm(session: Session, actor: Actor, attempt: Attempt, sequence: int, instalment: int) -> Amount:
    """Spend one instalment on every eligible block. The caller commits this transaction before it reads data.

    Raises:
        Fenced: the hold is armed or closed already.
        Denied: nothing is held, or the spend gate is not passed (any more).
    """
    lock_accounts(session, attempt.account_id, attempt.blocks)
    holds = _held(session, _INSTALMENT, attempt, sequence=sequence, instalment=instalment)
    if not holds:
        raise Denied("nothing is held")
    if any(each.entries != {"HOLD"} for each in holds):
        raise Fenced
    _enter(session, actor, (each.id for each in holds), "ARM")
    spent = holds[0].amount
    _record(session, actor, attempt, "ledger.arm", {"sequence": sequence, "instalment": instalment,
            "rho": str(spent.rho), "delta": str(spent.delta)})  # fmt: skip
    return spent


def settle(session: Session, actor: Actor, attempt: Attempt, outcome: str) -> None:
    """Close an attempt: armed holds get `outcome` (COMMIT or FORFEIT), never-armed ones are given back.

    Raises:
        Fenced: it has been settled already.
    """
    lock_accounts(session, attempt.account_id, attempt.blocks)
    holds = _held(session, _ATTEMPT, attempt)
    armed = [each.id for each in holds if each.entries == {"HOLD", "ARM"}]
    untouched = [each.id for each in holds if each.entries == {"HOLD"}]
    if len(armed) + len(untouched) != len(holds):
        raise Fenced
    _enter(session, actor, armed, outcome)
    _enter(session, actor, untouched, "RELEASE")
    if holds:
        _record(session, actor, attempt, f"ledger.{outcome.lower()}",
                {"armed_holds": len(armed), "released_holds": len(untouched)})  # fmt: skip


_BLOCKS = text("""
SELECT id, block, rho_cap, delta_cap, rho_held, rho_spent, delta_held, delta_spent
FROM account WHERE parent_id = :root AND kind = 'block' ORDER BY id
""")


def _block_accounts(session: Session, account_id: int, blocks: Sequence[int] | None) -> Sequence[Row[Any]]:
    """Plain rows: they change with every entry, so a mapped object would have to be read again anyway."""
    rows = session.connection().execute(_BLOCKS, {"root": account_id}).all()
    return rows if blocks is None else [row for row in rows if row.block in blocks]


@dataclass
class _Held:
    """A hold of an attempt, and the kinds of its entries."""

    id: int
    amount: Amount
    entries: set[str]


_ATTEMPT = text("""
SELECT h.id, h.rho, h.delta, e.kind
FROM invocation i JOIN hold h ON h.invocation_id = i.id JOIN entry e ON e.hold_id = h.id
WHERE i.request_id = :request_id AND i.attempt = :attempt ORDER BY h.account_id, h.id
""")
_INSTALMENT = text(str(_ATTEMPT).replace("ORDER", "AND i.sequence = :sequence AND h.instalment = :instalment ORDER"))


def _held(session: Session, query: TextClause, attempt: Attempt, **more: int) -> list[_Held]:
    """Holds by account. The accounts are locked before, so that nobody else adds an entry meanwhile."""
    given = {"request_id": attempt.request_id, "attempt": attempt.number, **more}
    found: dict[int, _Held] = {}
    for number, rho, delta, kind in session.connection().execute(query, given):
        found.setdefault(number, _Held(number, Amount(rho, delta), set())).entries.add(kind)
    return list(found.values())


def _enter(session: Session, actor: Actor, holds: Iterable[int], kind: str) -> None:
    record_all(session, [Entry(hold_id=number, kind=kind, at=moment(), actor_id=actor.id) for number in holds])


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
