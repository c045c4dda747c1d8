"""What a steward sees before deciding; names, reasons and texts are shown as text, never as markup."""

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from cli.framework.tables import fact_list, plain_text, table
from flows.approvals.review import FieldList, Review, ReviewSection, Samples, Table, Warnings

UNSIGNED_NOTE = " (as the ledger says; your signature does not cover it)"


def render_review(review: Review, *, elsewhere: bool = False) -> list[RenderableType]:
    """A matter, section by section.

    Args:
        elsewhere: it comes out of a file, so what the file only reports is told apart from what is signed.
    """
    parts: list[RenderableType] = [_render_heading(review.title, "bold")]
    for section in review.sections:
        note = UNSIGNED_NOTE if elsewhere and not section.signed else ""
        parts += _render_section(section, f"\n{section.title}{note}")
    parts.append(Text(f"\nAn approval binds to sha256 {review.subject_digest}"))
    return parts


def _render_section(section: ReviewSection, title: str) -> list[RenderableType]:
    match section:
        case Warnings(lines=lines):
            text = plain_text("\n".join(f"! {line}" for line in lines))
            text.stylize("bold yellow")
            return [Panel(text, title=plain_text(title.strip()), title_align="left", border_style="yellow")]
        case FieldList(rows=rows):
            return [_render_heading(title), fact_list(rows)]
        case Table(rows=(), empty=empty):
            return [_render_heading(title), plain_text(empty or "None.")]
        case Table(columns=columns, rows=rows):
            return [_render_heading(title), table(columns, rows)]
        case Samples(texts=texts, names=names):
            about = [f": {name}" if name is not None else "" for name in names or [None] * len(texts)]
            shown = [f"{n} of {len(texts)} shown{name}" for n, name in enumerate(about, 1)]
            return [_render_heading(title), *map(_render_sample, texts, shown)]


def _render_heading(title: str, style: str = "bold underline") -> Text:
    heading = plain_text(title)
    heading.stylize(style)
    return heading


def _render_sample(text: str, title: str) -> Panel:
    return Panel(plain_text(text), title=plain_text(title), title_align="left")
