"""Reviews and proposals as several commands show them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text
from typing_extensions import TypedDict

from cli.framework.tables import fact_list, plain_text, table, warning_panel
from flows.approvals.review import Review
from models_db.database.base import utc_now
from tasks.release.sections import FieldList, Samples, Section, Summary, Table, Warnings

if TYPE_CHECKING:
    from flows.approvals.propose_change import ProposalRow


UNSIGNED_NOTE = " (from the ledger; your signature does not cover it)"


DETAILS_NOTE = "Left out: {}. `--details` shows them."


def render_review(
    review: Review, *, elsewhere: bool = False, details: bool = True, title: str | None = None
) -> list[RenderableType]:
    """Render the review of a request or proposal, section by section.

    Args:
        elsewhere: the review comes from a file, so sections that the signature does not cover are marked.
        details: whether to show the sections that are details; otherwise their titles alone are listed.
        title: a heading in the place of the review's own.
    """
    return [
        _render_heading(title or review.title, "bold"),
        *render_sections(review.sections, elsewhere=elsewhere, details=details, below_heading=True),
        Text(f"\nAn approval binds to sha256 {review.subject_digest}"),
    ]


def render_sections(
    sections: Iterable[Section], *, elsewhere: bool = False, details: bool = True, below_heading: bool = False
) -> list[RenderableType]:
    """Render sections in their order, a blank line above each but warnings, which have a frame; see `render_review`."""
    parts: list[RenderableType] = []
    left_out = []
    for section in sections:
        note = UNSIGNED_NOTE if elsewhere and not section.signed else ""
        if details or not section.detail:
            if (parts or below_heading) and not isinstance(section, Warnings):
                parts.append(Text())
            parts += _render_section(section, f"{section.title}{note}")
        else:
            left_out.append(section.title)
    if left_out:
        parts.append(plain_text("\n" + DETAILS_NOTE.format("; ".join(left_out))))
    return parts


def _render_section(section: Section, title: str) -> list[RenderableType]:
    match section:
        case Warnings(lines=lines):
            return [warning_panel(lines, title)]
        case Summary(lines=lines):
            return [plain_text("\n".join(lines))]
        case FieldList(rows=rows):
            return [_render_heading(title), fact_list(rows)]
        case Table(rows=(), empty=empty):
            return [_render_heading(title), plain_text(empty)]
        case Table(columns=columns, rows=rows):
            return [_render_heading(title), table(columns, rows)]
        case Samples(texts=texts, names=names):
            about = [f": {name}" if name is not None else "" for name in names or [None] * len(texts)]
            shown = [f"Text {n}{name}" for n, name in enumerate(about, 1)]
            return [
                _render_heading(title),
                *map(_render_sample, texts, shown),
            ]
    raise TypeError(f"{type(section).__name__} cannot be shown on a terminal")


def _render_heading(title: str, style: str = "bold underline") -> Text:
    heading = plain_text(title)
    heading.stylize(style)
    return heading


def _render_sample(text: str, title: str) -> Panel:
    return Panel(plain_text(text), title=plain_text(title), title_align="left")


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
