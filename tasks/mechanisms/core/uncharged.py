"""Invocations that charge nothing: no private text is read, the data is public, or an earlier release is processed.

Invocations that lose nothing about governed data: no private text is read, or the data is public. They are recorded
like any other, so that the ledger shows every run; their loss is zero by definition, and for the unprotected ones only
because they are refused on governed data (PRIVACY §4.3).

Post-processing of an earlier release: it reads nothing private and charges nothing. Output made of released values
alone is as private as these values (post-processing; Bun and Steinke 2016, Lemma 1.8). Beside its parent it adds
nothing to the lifetime of a dataset. Read by itself it is still about the units that the parent read, so its claim is
the parent's, never (0, 0): the event carries what the parent's mechanisms cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from models_db.values.amounts import DELTA_UNIT, RHO_UNIT, Amount, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.zcdp import DP_EVENT_MODULE

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
        mechanism=name,
        count=1,
        parameters={},
        loss=Amount(),
        dp_event={"module_name": DP_EVENT_MODULE, "class_name": event},
    )


MECHANISM: Final = "post_processing"


@dataclass(frozen=True)
class PostProcessing:
    """Post-processing of the values that release number `release` of the same dataset had released.

    Attributes:
        covered: what the mechanisms cost whose values are used, charged once, with the parent.
    """

    release: int
    covered: Amount

    def event(self) -> PrivacyEvent:
        """Return the recorded event: no loss, the parent release, and the loss that it has paid."""
        covered = {"covered_rho": self.covered.rho_text, "covered_delta": self.covered.delta_text}
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=1,
            parameters={"release": self.release, **covered},
            loss=Amount(),
            dp_event={"module_name": DP_EVENT_MODULE, "class_name": "NoOpDpEvent"},
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "PostProcessing":
        """Return the post-processing that `event` records.

        Raises:
            ValueError: it is not such an event.
        """
        if set(event.parameters) != {"release", "covered_rho", "covered_delta"}:
            raise ValueError("post-processing names a release and what it has paid, and nothing else")
        release, rho, delta = (event.parameters[name] for name in ("release", "covered_rho", "covered_delta"))
        if not isinstance(release, int) or release < 1:
            raise ValueError("a release has a number from 1 on")
        return cls(release, Amount(_units(rho, RHO_UNIT), _units(delta, DELTA_UNIT)))


def loss_paid_by_parent(events: Sequence[PrivacyEvent]) -> Amount:
    """Return the loss behind the claim of a release with these events: their losses and those paid by its parent."""
    parents = [PostProcessing.from_event(event).covered for event in events if event.mechanism == MECHANISM]
    return total_amount([*(event.loss for event in events), *parents])


def parent_of(events: Sequence[PrivacyEvent]) -> int | None:
    """Return the number of the release that a release with these events extends, if it does."""
    return next((PostProcessing.from_event(event).release for event in events if event.mechanism == MECHANISM), None)


def _units(text: str | int, unit: int) -> int:
    try:
        units = Decimal(text) * unit
    except ArithmeticError:
        raise ValueError("no amount of the ledger") from None
    if not units.is_finite() or units != int(units) or units < 0:
        raise ValueError("no amount of the ledger")
    return int(units)
