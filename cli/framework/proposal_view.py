"""Proposals as commands show them, and what comes next."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import RenderableType

from cli.framework.tables import table
from flows.approvals.propose_change import ProposalRow
from models_db.database.base import utc_now
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json


def approve_hint(number: int) -> str:
    """What a steward types next."""
    return f'A steward decides: `almoner approve {number} --gate proposal --reason "..."`, or `almoner reject`.'


def waiting_sentence(number: int | None, needed: int) -> list[RenderableType]:
    """What a proposal says in the end; nothing was proposed without a number."""
    people = "1 steward" if needed == 1 else f"{needed} different stewards"
    if number is None:
        return [f"It would need the approval of {people}. Dry run: nothing was proposed."]
    return [f"Proposed as proposal {number}; it takes effect when {people} approved.", approve_hint(number)]


def proposal_table(found: Sequence[ProposalRow]) -> RenderableType:
    """Proposals, one a line."""
    columns = ("proposal", "dataset", "kind", "what", "state", "approvals", "proposer", "expires")
    return table(columns, [_line(proposal) for proposal in found])


def _line(found: ProposalRow) -> tuple[object, ...]:
    given = f"{found.given} of {found.needed}" if found.state == "open" else ""
    ends = found.expires_at[:10] if found.expires_at > utc_now() and found.state == "open" else ""
    return (found.number, found.dataset, found.kind, found.content, found.state, given, found.proposer, ends)


def as_data(found: ProposalRow) -> dict[str, Json]:
    """A proposal as programs read it; what its kind has not is left out."""
    plain = {
        name: value for name, value in asdict(found).items() if value is not None and name not in ("rho", "number")
    }
    amount = found.rho if isinstance(found.rho, Amount) else None
    figures = {} if amount is None else {"rho": amount.rho_text, "delta_fail": amount.delta_text}
    return {"proposal": found.number, **plain, **figures}
