"""Sections: the parts of what a screen, a page, a report or a notebook shows about a request, a price or a proposal.

Whoever knows a subject writes its sections once; a renderer shows any of them and knows no subject. There are four:
the terminal's (`cli.framework.review_screen`), HTML (`tasks.reporting`, its template `sections.html`), and here text
and JSON, which the HTML is made of.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import ClassVar, Final, Literal, TypeAlias

from models_db.values.canonical_json import Json
from models_db.values.untrusted_text import escape_controls

Audience: TypeAlias = Literal["reader", "steward"]
"""Who reads a section: whoever uses the ledger, or those alone from whom the policy hides no balance."""


@dataclass(frozen=True)
class Section:
    """A titled part of what is shown.

    Attributes:
        signed: whether an approval's signature covers it; False for what only the ledger says (balances, people).
        detail: whether a screen may leave it out until its reader asks for details.
        audience: who may read it. A section that says how much of a budget is spent or left is for stewards.
    """

    kind: ClassVar[str]
    title: str
    _: KW_ONLY
    signed: bool = True
    detail: bool = False
    audience: Audience = "reader"


@dataclass(frozen=True)
class Summary(Section):
    """Sentences about the subject; the other sections have the exact facts."""

    kind: ClassVar[str] = "summary"
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Warnings(Section):
    """Warnings that a reader must not miss."""

    kind: ClassVar[str] = "warnings"
    lines: tuple[str, ...]


@dataclass(frozen=True)
class FieldList(Section):
    """Names and values, one on each line."""

    kind: ClassVar[str] = "fields"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table(Section):
    """Rows under headings.

    Attributes:
        empty: what is shown in place of no rows.
        released: whether the rows are of the release itself: as confidential as its texts until it is published.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str = "None."
    released: bool = False


@dataclass(frozen=True)
class Samples(Section):
    """Texts to read; the title says of how many. `names` are their topics, where known."""

    kind: ClassVar[str] = "samples"
    texts: tuple[str, ...]
    names: tuple[str | None, ...] = ()


WARNINGS: Final = "Look twice"
"""The title of warnings."""


def sections_for(sections: Iterable[Section], *, balances: bool) -> tuple[Section, ...]:
    """Return the sections that somebody reads; `balances`: whether the policy lets them see those."""
    return tuple(section for section in sections if balances or section.audience == "reader")


def sections_to_json(sections: Iterable[Section]) -> list[dict[str, Json]]:
    """Return sections for programs and templates: `kind` and the fields of each."""
    return [
        {"kind": section.kind} | {field.name: getattr(section, field.name) for field in fields(section)}
        for section in sections
    ]


def sections_to_text(title: str, sections: Iterable[Section]) -> str:
    """Return sections below a title as lines of text; control characters are spelt out."""
    return escape_controls("\n".join([title, *(line for section in sections for line in _lines(section))]))


def _lines(section: Section) -> Iterator[str]:
    match section:
        case Summary(lines=lines):
            yield from lines
        case Warnings(title=title, lines=lines):
            yield from ("", title, *(f"  ! {line}" for line in lines))
        case FieldList(title=title, rows=rows):
            yield from ("", title, *_aligned(rows))
        case Table(title=title, rows=(), empty=empty):
            yield from ("", f"{title}: {empty}")
        case Table(title=title, columns=columns, rows=rows):
            yield from ("", title, *_aligned([columns, *rows]))
        case Samples(title=title):
            yield from ("", f"{title}; their texts are not shown here.")
        case _:
            raise TypeError(f"{type(section).__name__} cannot be shown as text")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows with their cells below each other, the last one as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        yield "  " + "  ".join([*cells, row[-1]])
