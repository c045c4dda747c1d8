"""Derivation of a proposal's amounts, before it is approved and before it takes effect.

Accounting computes what an epsilon costs, and accounting is a layer above these services; so they take the check as an
argument, and without one they refuse to go on with anything that carries amounts.
"""

from collections.abc import Callable

from models_db.tables import Proposal

AmountCheck = Callable[[Proposal], None]
"""Check that raises unless a proposal's amounts follow from its text; this room does not know accounting."""


def require_applicable(proposal: Proposal, applicable: AmountCheck | None) -> None:
    """Check a proposal whose amounts people have not read.

    Raises:
        ValueError: nothing checks it.
        and as `applicable`.
    """
    if proposal.kind == "retraction":
        return
    if applicable is None:
        raise ValueError(f"proposal {proposal.id} carries amounts, and nothing derives them")
    applicable(proposal)
