"""Check by dp-accounting: its figure for a fixed plan, beside ours (PRIVACY §2).

Only a report: it admits nothing, because the natural filters of such curves are invalid under adaptive
choice. Its use is that somebody else's code, reading the stored events alone, arrives at a figure near ours.

Failure probabilities are not in dp-accounting 0.6's events (it has none for (epsilon, delta)): they are taken off the
claim's delta first, which is what adding them to the accountant's delta amounts to.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    NeighboringRelation,
    PrivacyAccountant,
    SelfComposedDpEvent,
    ZCDpEvent,
    dp_event,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from models_db.errors import Refused
from models_db.values.amounts import DELTA_UNIT, total_amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import Exact, decimal_above, exact, float_below, terminating
from tasks.accounting.zcdp import DP_EVENT_MODULE, InvalidTarget, epsilon_of

EPSILON_PLACES = 6


@dataclass(frozen=True)
class PlanReport:
    """Two epsilons for one plan at one delta.

    Attributes:
        delta: the claim's delta, failure probabilities included.
        zcdp_epsilon: ours, from the sum of the charged rho.
        accountant: which of dp-accounting's accountants gave the other: "PLD" where every event has a privacy
        loss
            distribution, else "RDP" (over its default grid of orders, so a little above ours for zCDP
            events; discrete Laplace noise, which only the other accountant knows, goes in with its zCDP).
        epsilon: dp-accounting's, rounded up to 6 places.
    """

    delta: Decimal
    zcdp_epsilon: Decimal
    accountant: Literal["PLD", "RDP"]
    epsilon: Decimal


def plan_report(events: Sequence[PrivacyEvent], delta: Exact) -> PlanReport:
    """Return both figures for `events`, run one after the other on the same units, at `delta`.

    Raises:
        InvalidTarget: the failure probabilities of the events use up all of delta.
        NotReportable: an event is stated for another relation, not private at all, or unknown to every accountant.
    """
    claim, spent = exact(delta), total_amount([event.loss for event in events])
    delta_conv = claim - Fraction(spent.delta, DELTA_UNIT)
    if delta_conv <= 0:
        raise InvalidTarget(f"The plan's failure probabilities leave nothing of delta {delta}.")
    for event in events:
        if event.relation != "add_or_remove_one":
            raise _not_reportable(event.mechanism)
    name, accountant, composed = _accountant(ComposedDpEvent([dp_event_from_json(event.dp_event) for event in events]))
    epsilon = float(accountant.compose(composed).get_epsilon(float_below(delta_conv)))
    if not math.isfinite(epsilon):
        raise _not_reportable("NonPrivateDpEvent")
    return PlanReport(
        delta=terminating(claim),
        zcdp_epsilon=epsilon_of(spent.rho, delta_conv),
        accountant=name,
        epsilon=decimal_above(Fraction(epsilon), EPSILON_PLACES),
    )


def dp_event_from_json(stored: Json) -> DpEvent:
    """Return the event in nested JSON without floats (see `tasks.accounting.zcdp`).

    Raises:
        NotReportable: it is not an event of dp-accounting's vocabulary.
    """
    if not isinstance(stored, Mapping):
        raise _not_reportable(type(stored).__name__)
    name = str(stored.get("class_name"))
    event_class = getattr(dp_event, name, None)
    if stored.get("module_name") != DP_EVENT_MODULE or not (
        isinstance(event_class, type) and issubclass(event_class, DpEvent)
    ):
        raise _not_reportable(name)
    fields = {key: value for key, value in stored.items() if key not in {"module_name", "class_name"}}
    if set(fields) != set(inspect.signature(event_class).parameters):
        raise _not_reportable(name)
    try:
        return event_class(**{key: _decoded(value) for key, value in fields.items()})
    except ValueError:
        raise _not_reportable(name) from None


def _accountant(event: DpEvent) -> tuple[Literal["PLD", "RDP"], PrivacyAccountant, DpEvent]:
    """Return the name and the instance of an accountant that supports `event`, and the event as it reads it.

    Raises:
        NotReportable: neither accountant supports it.
    """
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    pld, rdp = PLDAccountant(relation), RdpAccountant(neighboring_relation=relation)
    if pld.supports(event):
        return "PLD", pld, event
    renyi = _without_discrete_laplace(event)
    if rdp.supports(renyi):
        return "RDP", rdp, renyi
    raise _not_reportable(type(event).__name__)


def _without_discrete_laplace(event: DpEvent) -> DpEvent:
    """`event` with `ZCDpEvent` for discrete Laplace: x tanh(x/2), x the parameter times the sensitivity."""
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent([_without_discrete_laplace(part) for part in event.events])
    if isinstance(event, SelfComposedDpEvent):
        return SelfComposedDpEvent(_without_discrete_laplace(event.event), event.count)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        loss = event.noise_parameter * event.sensitivity
        return ZCDpEvent(loss * math.tanh(loss / 2))
    return event


def _decoded(value: Json) -> Any:
    if isinstance(value, Mapping):
        return dp_event_from_json(value)
    if isinstance(value, str):
        return float(value)
    if isinstance(value, list | tuple):
        return [_decoded(item) for item in value]
    return value


def _not_reportable(what: str) -> Refused:
    return Refused(
        f"dp-accounting has no add/remove-one figure for {what!r}.",
        "The zCDP figure of the ledger stands on its own; update almoner if the event is newer than it.",
        {"event": what},
        code="NotReportable",
    )
