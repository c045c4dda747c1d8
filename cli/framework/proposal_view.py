"""Views of proposals in commands, and the next step of each."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import RenderableType

from cli.framework.tables import table
from models_db.database.base import utc_now
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json

if TYPE_CHECKING:
    from flows.approvals.propose_change import ProposalRow


def approve_hint(number: int) -> str:
    """Return the command with which a steward decides a proposal."""
    return f'A steward decides: `almoner approve {number} --gate proposal --reason "..."`, or `almoner reject`.'


def waiting_sentence(number: int | None, needed: int) -> list[RenderableType]:
    """Return the closing sentence of a proposal; without a number it was a dry run."""
    people = "1 steward" if needed == 1 else f"{needed} different stewards"
    if number is None:
        return [f"It would need the approval of {people}. Dry run: no proposal was recorded."]
    return [f"Proposed as proposal {number}; it takes effect when {people} have approved it.", approve_hint(number)]


def proposal_table(proposals: Sequence["ProposalRow"]) -> RenderableType:
    """Return a table of proposals, one in each row."""
    columns = ("proposal", "dataset", "kind", "what", "state", "approvals", "proposer", "expires")
    return table(columns, [_row(proposal) for proposal in proposals])


def _row(proposal: "ProposalRow") -> tuple[object, ...]:
    approvals = f"{proposal.given} of {proposal.needed}" if proposal.state == "open" else ""
    ends = proposal.expires_at[:10] if proposal.expires_at > utc_now() and proposal.state == "open" else ""
    return (
        proposal.number,
        proposal.dataset,
        proposal.kind,
        proposal.content,
        proposal.state,
        approvals,
        proposal.proposer,
        ends,
    )


def as_data(proposal: "ProposalRow") -> dict[str, Json]:
    """Return a proposal as JSON for programs, without the fields that its kind lacks."""
    plain = {
        name: value for name, value in asdict(proposal).items() if value is not None and name not in ("rho", "number")
    }
    amount = proposal.rho if isinstance(proposal.rho, Amount) else None
    figures = {} if amount is None else {"rho": amount.rho_text, "delta_fail": amount.delta_text}
    return {"proposal": proposal.number, **plain, **figures}
