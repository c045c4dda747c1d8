"""True against phantom disclosures: of the units that a release names, those that it read, and those it never saw.

Amin et al., "Phantoms and Disclosures: a Causal Framework for Auditing Synthetic Data", arXiv 2606.16952. A release may
contain something of a unit by chance, because people write alike. How often that happens is known from the units that
a key has kept from it: what it has of them is a phantom. If the release had nothing of any unit, the share of true
disclosures would be the share of units that it read. No secret is planted, and no second release is made.

What names units must be a function of the release and of the units' texts, and treat both sides alike.
"""

from dataclasses import dataclass

from tasks.auditing.one_run import OneRunBound, one_run_bound
from tasks.evaluation.core.intervals import CONFIDENCE, wilson
from tasks.evaluation.core.subject import HoldOut
from tasks.values.metric_result import MetricResult, Value, rounded

SOURCE = (
    "Amin et al., 'Phantoms and Disclosures', arXiv 2606.16952; bound: Steinke, Nasr and Jagielski, 'Privacy Auditing"
    " with One (1) Training Run', NeurIPS 2023, with units for canaries"
)
METHOD = (
    "a named unit is true if it was in a block that the release read, a phantom if the dataset's key kept it from it;"
    f" score interval of the true share, {CONFIDENCE:.0%}; epsilon is at least the bound with {CONFIDENCE:.0%}"
    " confidence"
)


@dataclass(frozen=True)
class Disclosures:
    """How many units a release names.

    Attributes:
        read, held_out: units of each side.
        true, phantom: those of them that it names.
    """

    read: int
    held_out: int
    true: int
    phantom: int

    @property
    def named(self) -> int:
        """Named units of both sides."""
        return self.true + self.phantom

    def bound(self, hold_out: HoldOut) -> OneRunBound:
        """Return what the true ones prove."""
        slack = (self.read + self.held_out) * hold_out.chance * hold_out.delta
        return one_run_bound(self.true, self.named, hold_out.chance, slack, CONFIDENCE)


def result(name: str, how: str, hold_out: HoldOut | None, found: Disclosures | None) -> MetricResult:
    """Return the metric; its figures are null without a hold-out, and those of named units without any."""
    bound = found.bound(hold_out) if hold_out and found else None
    share = found.true / found.named if found and found.named else None
    low, high = wilson(found.true, found.named) if found and found.named else (None, None)
    values: dict[str, Value] = {
        "read": found.read if found else None,
        "held_out": found.held_out if found else None,
        "chance": rounded(hold_out.chance if hold_out else None, 4),
        "true": found.true if found else None,
        "phantom": found.phantom if found else None,
        "true_share": rounded(share, 4),
        "true_share_low": rounded(low, 4),
        "true_share_high": rounded(high, 4),
        "p_value": rounded(bound.p_value if bound else None, 6),
        "epsilon_at_least": rounded(bound.epsilon if bound else None, 4),
    }
    return MetricResult(name, "internal", values, SOURCE, f"{how}; {METHOD}", _line(hold_out, found, bound))


def _line(hold_out: HoldOut | None, found: Disclosures | None, bound: OneRunBound | None) -> str:
    if hold_out is None or found is None or bound is None:
        return "not measured: the release read every block; one with rotate_over has a hold-out"
    told = (
        f"{found.true} true and {found.phantom} phantom disclosures (by chance {hold_out.chance:.0%} true):"
        f" {'more than chance' if bound.p_value < 1 - CONFIDENCE else 'indistinguishable from chance'},"
        f" epsilon at least {bound.epsilon:.2f}"
    )
    if hold_out.epsilon is None:
        return told
    contradicted = ", WHICH CONTRADICTS IT" if bound.epsilon > hold_out.epsilon else ""
    return f"{told} (claim {hold_out.epsilon:g}{contradicted})"
