"""Envelopes reserved under a root account: limits within a budget, which none of them widens.

An envelope (`scope`) is taken out of what all others may hold, and only requests that name it draw on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import principals
from models_db.tables import Account, Dataset, Request, ScopeEnd
from models_db.values.amounts import Amount, Envelope
from models_db.writes.database_errors import AlreadyRecorded, RuleViolated
from models_db.writes.insert import insert_row


@dataclass(frozen=True)
class NarrowingAccount:
    """An account that an instalment is entered on beside its blocks."""

    account_id: int
    label: str
    remaining: Amount


class EnvelopeTooLarge(Refused):
    """The envelope exceeds the remaining lifetime budget."""

    def __init__(self, dataset: str, name: str, requested: Amount) -> None:
        super().__init__(
            f"An envelope {name!r} of rho {requested.rho_text} (failure delta {requested.delta_text}) does not fit what"
            f" dataset {dataset!r} has left, beside its other envelopes.",
            f"Ask for less: `almoner budget show {dataset}`.",
            {
                "dataset": dataset,
                "scope": name,
                "asked_rho": requested.rho_text,
                "asked_delta_fail": requested.delta_text,
            },
        )


class EnvelopeExists(Refused):
    """An envelope of that name was opened on this account before; names are not used twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"An envelope named {name!r} is, or was, on this account.", "Choose another name.")


class EnvelopeClosed(Refused):
    """The envelope that a request was made for is closed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The envelope {name!r} is closed: nothing further is held in it.",
            "Submit the request again, without an envelope or with another one: `almoner budget scope list DATASET`.",
            {"scope": name},
        )


class EnvelopeUnknown(UsageError):
    """No open envelope of that name."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(
            f"There is no open envelope named {name!r} on this dataset.",
            f"Open: {', '.join(names)}." if names else "Open one with `almoner budget scope open DATASET NAME`.",
            {"scope": name, "known": list(names)},
        )


def open_envelope(session: Session, actor: Actor, dataset: Dataset, name: str, cap: Amount, reason: str) -> Account:
    """Reserve an envelope on every block of the dataset's account.

    Raises:
        InvalidPlainName: the name could be taken for another one.
        EnvelopeTooLarge: it does not fit.
        EnvelopeExists: the name was used before.
        RoleRequired: the actor is no steward.
    """
    principals.require_role(session, actor, "steward")
    envelope = Account(kind="scope", parent_id=dataset.account_id, name=name, rho_cap=cap.rho, delta_cap=cap.delta,
                   created_by=actor.id, reason=reason)  # fmt: skip
    try:
        insert_row(session, envelope)
    except AlreadyRecorded:
        raise EnvelopeExists(name) from None
    except RuleViolated as refusal:
        if refusal.facts["rule"] != "the envelope exceeds the remaining budget":
            raise
        raise EnvelopeTooLarge(dataset.name, name, cap) from None
    return session.get_one(Account, envelope.id)  # with the counters that the database gave it


def close_envelope(session: Session, actor: Actor, dataset: Dataset, name: str, reason: str) -> None:
    """Close an envelope: its remaining budget is free again; its spent budget stays spent.

    Raises:
        EnvelopeUnknown: there is none open of that name.
        RoleRequired: the actor is no steward.
    """
    principals.require_role(session, actor, "steward")
    account = find_envelope(session, dataset, name)
    insert_row(session, ScopeEnd(account_id=account.id, ended_by=actor.id, reason=reason, at=utc_now()))


def open_envelopes(session: Session, account_id: int) -> Sequence[Account]:
    """Return the open envelopes under a root account."""
    query = select(Account).where(
        Account.parent_id == account_id, Account.kind == "scope", Account.id.not_in(select(ScopeEnd.account_id))
    )
    return session.scalars(query.order_by(Account.id).execution_options(populate_existing=True)).all()


def find_envelope(session: Session, dataset: Dataset, name: str) -> Account:
    """Return the open envelope of that name.

    Raises:
        EnvelopeUnknown: there is none.
    """
    envelopes = {str(scope.name): scope for scope in open_envelopes(session, dataset.account_id)}
    if name not in envelopes:
        raise EnvelopeUnknown(name, sorted(envelopes))
    return envelopes[name]


def require_envelope_open(session: Session, account_id: int) -> Account:
    """Return the envelope of that number, if something may be held in it.

    Raises:
        EnvelopeClosed: it was closed.
    """
    scope = session.get_one(Account, account_id, populate_existing=True)
    if session.scalar(select(func.count()).where(ScopeEnd.account_id == account_id)):
        raise EnvelopeClosed(str(scope.name))
    return scope


def remaining_amount(account: Account) -> Amount:
    """Return the remaining amount of an account."""
    return Amount(
        account.rho_cap - account.rho_held - account.rho_spent,
        account.delta_cap - account.delta_held - account.delta_spent,
    )


def narrowing_accounts(session: Session, request: Request) -> list[NarrowingAccount]:
    """Return the request's envelope, if it names one, as it is now.

    Raises:
        EnvelopeClosed: the envelope was closed since the request was made.
    """
    if request.scope_id is None:
        return []
    scope = require_envelope_open(session, request.scope_id)
    return [NarrowingAccount(scope.id, f"in the envelope {scope.name!r}", remaining_amount(scope))]


def priced_envelope(scope: Account) -> Envelope:
    """Return an envelope's account as a value for quotes."""
    cap, spent = Amount(scope.rho_cap, scope.delta_cap), Amount(scope.rho_spent, scope.delta_spent)
    return Envelope(str(scope.name), cap, spent, remaining_amount(scope))
