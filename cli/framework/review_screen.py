"""What a steward sees before deciding; names, reasons and texts are shown as text, never as markup."""

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from cli.framework.tables import facts, plain, table
from flows.approvals.review import FieldList, Review, ReviewSection, Samples, Table, Warnings

UNSIGNED = " (as the ledger says; your signature does not cover it)"


def render(asked: Review, *, elsewhere: bool = False) -> list[RenderableType]:
    """A matter, section by section.

    Args:
        elsewhere: it comes out of a file, so what the file only reports is told apart from what is signed.
    """
    parts: list[RenderableType] = [_heading(asked.title, "bold")]
    for section in asked.sections:
        note = UNSIGNED if elsewhere and not section.signed else ""
        parts += _shown(section, f"\n{section.title}{note}")
    parts.append(Text(f"\nAn approval binds to sha256 {asked.subject_digest}"))
    return parts


def _shown(section: ReviewSection, title: str) -> list[RenderableType]:
    match section:
        case Warnings(lines=lines):
            text = plain("\n".join(f"! {line}" for line in lines))
            text.stylize("bold yellow")
            return [Panel(text, title=plain(title.strip()), title_align="left", border_style="yellow")]
        case FieldList(rows=rows):
            return [_heading(title), facts(rows)]
        case Table(rows=(), empty=empty):
            return [_heading(title), plain(empty or "None.")]
        case Table(columns=columns, rows=rows):
            return [_heading(title), table(columns, rows)]
        case Samples(texts=texts, names=names):
            about = [f": {name}" if name is not None else "" for name in names or [None] * len(texts)]
            shown = [f"{n} of {len(texts)} shown{name}" for n, name in enumerate(about, 1)]
            return [_heading(title), *map(_sample, texts, shown)]


def _heading(title: str, style: str = "bold underline") -> Text:
    made = plain(title)
    made.stylize(style)
    return made


def _sample(text: str, title: str) -> Panel:
    return Panel(plain(text), title=plain(title), title_align="left")
