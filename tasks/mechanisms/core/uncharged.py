"""Invocations that lose nothing about governed data: no private text is read, or the data is public.

They are recorded like any other, so that the ledger shows every run; their loss is zero by definition, and for the
unprotected ones only because they are refused on governed data (PRIVACY §4.3).
"""

from typing import Final

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.dp_events import MODULE

UNPROTECTED = frozenset({"non_private", "adapmixed", "simple_clio"})
"""Mechanisms that read the data without a guarantee: a release that used one has no claim."""

PUBLIC_ONLY: Final = "public_only"
"""The one that reads no private text."""
NAMES = (PUBLIC_ONLY, *sorted(UNPROTECTED))


def uncharged(name: str) -> PrivacyEvent:
    """Return the event of one run of `name`.

    Raises:
        ValueError: that name is not one of NAMES.
    """
    if name not in NAMES:
        raise ValueError(f"{name} is not an uncharged mechanism")
    event = "NonPrivateDpEvent" if name in UNPROTECTED else "NoOpDpEvent"
    return PrivacyEvent(
        mechanism=name, count=1, parameters={}, loss=Amount(), dp_event={"module_name": MODULE, "class_name": event}
    )
