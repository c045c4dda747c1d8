"""Views of proposals in commands, and the next step of each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.tables import table
from models_db.database.base import utc_now

if TYPE_CHECKING:
    from flows.approvals.propose_change import ProposalRow


class ProposalData(TypedDict):
    """A proposal; fields that its kind lacks are null."""

    proposal: int
    kind: str
    dataset: str
    state: str
    proposer: str
    reason: str
    proposed_at: str
    expires_at: str
    given: int
    needed: int
    epsilon: str | None
    delta: str | None
    rho: str | None
    delta_fail: str | None
    runs: int | None
    used: int | None
    until: str | None
    request_id: int | None
    problem: str | None


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


def as_data(proposal: "ProposalRow") -> ProposalData:
    """Return a proposal for programs."""
    amount = proposal.rho
    return ProposalData(
        proposal=proposal.number,
        kind=proposal.kind,
        dataset=proposal.dataset,
        state=proposal.state,
        proposer=proposal.proposer,
        reason=proposal.reason,
        proposed_at=proposal.proposed_at,
        expires_at=proposal.expires_at,
        given=proposal.given,
        needed=proposal.needed,
        epsilon=proposal.epsilon,
        delta=proposal.delta,
        rho=None if amount is None else amount.rho_text,
        delta_fail=None if amount is None else amount.delta_text,
        runs=proposal.runs,
        used=proposal.used,
        until=proposal.until,
        request_id=proposal.request_id,
        problem=proposal.problem,
    )
