"""Named errors for refusals of the database.

The guards of the migrations raise stable messages that begin with 'almoner:'; a CHECK is identified by its name. A
service tries the change and lets the database decide; this module only translates.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from sqlalchemy.exc import IntegrityError, OperationalError

from models_db.errors import AlmonerError, EnvironmentProblem, Refused
from models_db.values.untrusted_text import invalid_plain_name

_GUARD = re.compile(r"almoner: ([^\n]+)")
_CONSTRAINT = re.compile(r"\b(?:ck|fk)_\w+")
_FORM = re.compile(r"ck_(\w+)_(?:form|moment|type)")
_CAP_GUARDS = ("the cap would be passed", "ck_account_rho", "ck_account_delta")
_NO_JSON = "malformed JSON"
"""Message of SQLite where a guard reads a text that is no JSON; PostgreSQL's guard names the rule itself."""
_PLAN_GUARD = "a request says its plan"
_ORDERS_GUARD = "the limit in orders would be passed"
_DUPLICATE_GUARD = "has recorded this already"
_CLOCK_GUARD = "the clock went backwards"
_ROLE_GUARDS = re.compile("only an? |everybody acts under|the ledger knows nobody")
_UNIQUE_CODES = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, "23505")


class RuleViolated(Refused):
    """The ledger's own rules forbid this change; nothing was changed."""

    def __init__(self, rule: str, advice: str = "", code: str | None = None) -> None:
        look = "Look at the request with `almoner release show ID`; `almoner doctor` checks the ledger itself."
        super().__init__(f"The ledger refused: {rule}.", advice or look, {"rule": rule}, code)


class AlreadyRecorded(Refused):
    """The ledger already has the same fact; nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            "The ledger has recorded this already, or another process was first.", "Look at its state again."
        )


class CapExceeded(Refused):
    """A counter would pass its cap; the services turn this into a `BudgetExceeded` with figures."""


def role_denied(rule: str) -> RuleViolated:
    """Return the refusal of somebody who lacks the role for this."""
    roles = "See your roles with `almoner user list`; an admin grants them: `almoner user grant NAME ROLE`."
    return RuleViolated(rule, roles, code="RoleDenied")


class LimitInOrdersExceeded(Refused):
    """The releases of a dataset would come to more than the policy allows while their assignments are secret.

    Like a `BudgetExceeded` it is of the budget, and no other person or machine would be let pass.
    """

    def __init__(self, message: str = "", facts: Mapping[str, object] | None = None) -> None:
        super().__init__(
            message or f"The ledger refused: {_ORDERS_GUARD}.",
            "Ask for less, or for more texts, of which one person's record reads one: `lifetime_while_secret` of"
            " `almoner policy show` says how much, and what is charged never comes back.",
            facts,
        )

    @classmethod
    def of_price(cls, dataset: str, asked: str, limit: tuple[str, str], charged: tuple[str, str], hint: str) -> Self:
        """Return the refusal of a request that is priced.

        Args:
            asked: the rho of its plan.
            limit: epsilon and delta that the policy allows.
            charged: epsilon of the fullest block that it would read, before and with it.
            hint: what would fit.
        """
        figures = {"asked_rho": asked, "epsilon_limit": limit[0], "delta_limit": limit[1]}
        return cls(
            f"With this, dataset {dataset!r} would come to epsilon {charged[1]} while assignments are secret"
            f" ({charged[0]} is charged); the policy allows {limit[0]} at delta {limit[1]}. {hint}",
            {"dataset": dataset, **figures, "epsilon_charged": charged[0], "epsilon_with_it": charged[1]},
        )


class ClockWentBack(EnvironmentProblem):
    """The newest entry of the ledger is later than this machine's clock."""

    def __init__(self) -> None:
        super().__init__(
            "This machine's clock is behind the newest entry of the ledger; nothing was changed.",
            "Set the clock right (`timedatectl`), then try again; the newest entry: `almoner audit log --limit 1`.",
        )


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Turn a refusal of the database inside the block into a named error.

    Raises:
        CapExceeded, RuleViolated, RoleDenied, LimitInOrdersExceeded, InvalidPlainName, AlreadyRecorded, ClockWentBack:
        by what the database said.
    """
    try:
        yield
    except IntegrityError as refusal:
        raise _error_for(refusal.orig) from None
    except OperationalError as refusal:
        if _NO_JSON not in str(refusal.orig):
            raise
        raise RuleViolated(_PLAN_GUARD) from None


def _error_for(refusal: BaseException | None) -> AlmonerError:
    message = str(refusal)
    if any(name in message for name in _CAP_GUARDS):
        return CapExceeded("The account's cap would be passed.")
    if guard := _GUARD.search(message):
        rule = guard.group(1).strip()
        if rule == _ORDERS_GUARD:
            return LimitInOrdersExceeded()
        if rule == _CLOCK_GUARD:
            return ClockWentBack()
        if rule.endswith(_DUPLICATE_GUARD):
            return AlreadyRecorded()
        return role_denied(rule) if _ROLE_GUARDS.match(rule) else RuleViolated(rule)
    if (
        getattr(refusal, "sqlite_errorcode", None) in _UNIQUE_CODES
        or getattr(refusal, "sqlstate", None) in _UNIQUE_CODES
    ):
        return AlreadyRecorded()
    constraint = _CONSTRAINT.search(message)
    if constraint is None:
        return RuleViolated("a constraint of the schema")
    if form := _FORM.fullmatch(constraint.group()):
        return invalid_plain_name("a dataset") if form[1] == "dataset_name" else RuleViolated(form_rule(form[1]))
    return RuleViolated(constraint.group().removeprefix("ck_").replace("_", " "))


def form_rule(column: str) -> str:
    """Return the rule that a value of another form than its column breaks."""
    return f"a value is not of the form of its column, {column}"
