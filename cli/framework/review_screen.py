"""Review screen of a steward; names, reasons and texts are shown as text, never as markup."""

from collections.abc import Iterable

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from cli.framework.tables import fact_list, plain_text, table, warning_panel
from flows.approvals.review import Review
from tasks.release.sections import FieldList, Samples, Section, Summary, Table, Warnings

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
