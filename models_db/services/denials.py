"""What the database refused, as named errors.

The guards of the migrations speak in stable messages that begin with 'almoner:'; a CHECK speaks by its name. A
service tries the change and lets the database decide; this module only translates.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import IntegrityError

from models_db.errors import Refused

_GUARD = re.compile(r"almoner: ([^\n]+)")
_BUDGET = ("ck_account_rho", "ck_account_delta")
_RECORDED = "has recorded this already"


class Denied(Refused):
    """The ledger's own rules forbid this change; nothing was changed."""

    def __init__(self, rule: str) -> None:
        super().__init__(
            f"The ledger refused: {rule}.",
            "Look at the request with `almoner release show ID`; `almoner doctor` checks the ledger itself.",
            {"rule": rule},
        )


class AlreadyRecorded(Refused):
    """The same fact is in the ledger already; nothing was changed."""

    def __init__(self) -> None:
        super().__init__(
            "The ledger has recorded this already, or another process was first.", "Look at its state again."
        )


class OverCap(Refused):
    """A counter would pass its cap; the services turn this into a `BudgetExceeded` with figures."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn a refusal of the database inside the block into a named error.

    Raises:
        OverCap, Denied, AlreadyRecorded: by what the database said.
    """
    try:
        yield
    except IntegrityError as refusal:
        raise _named(str(refusal.orig)) from None


def _named(said: str) -> Refused:
    if any(name in said for name in _BUDGET):
        return OverCap("The account's cap would be passed.")
    found = _GUARD.search(said)
    if found is None or found.group(1).endswith(_RECORDED):
        return AlreadyRecorded()
    return Denied(found.group(1).strip())
