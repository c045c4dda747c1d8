"""Sections as HTML and as plain text: everything is escaped, no script, nothing loaded from elsewhere."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from flows.approvals.review import FieldList, ReviewSection, Samples, Summary, Table, Warnings
from models_db.values.printable_text import escape_controls

_LEFT = ' style="text-align:left;vertical-align:top"'
_VALUE = ' style="text-align:left;vertical-align:top;overflow-wrap:anywhere"'
_CAPTION = ' style="text-align:left;font-weight:bold;padding-top:1em"'


def html(title: str, sections: Iterable[ReviewSection]) -> str:
    """Return a fragment of HTML for a notebook."""
    return f"<section><h4>{_text(title)}</h4>{''.join(map(_section_html, sections))}</section>"


def plain(title: str, sections: Iterable[ReviewSection]) -> str:
    """Return the same as lines of text; control characters are spelt out."""
    return escape_controls("\n".join([title, *(line for section in sections for line in _section_lines(section))]))


def _text(value: object) -> str:
    return escape(escape_controls(value))


def _section_html(section: ReviewSection) -> str:
    match section:
        case Summary(lines=lines):
            return "".join(f"<p>{_text(line)}</p>" for line in lines)
        case Warnings(title=title, lines=lines):
            items = "".join(f"<li>{_text(line)}</li>" for line in lines)
            return f"<p><strong>{_text(title)}</strong></p><ul>{items}</ul>"
        case FieldList(title=title, rows=rows):
            cells = (f'<th scope="row"{_LEFT}>{_text(n)}</th><td{_VALUE}>{_text(v)}</td>' for n, v in rows)
            return _table_html(title, "", cells)
        case Table(title=title, rows=()):
            return f"<p>{_text(title)}: {_text(section.empty or 'none')}</p>"
        case Table(title=title, columns=columns, rows=rows):
            head = "".join(f'<th scope="col"{_LEFT}>{_text(column)}</th>' for column in columns)
            cells = ("".join(f"<td{_VALUE}>{_text(cell)}</td>" for cell in row) for row in rows)
            return _table_html(title, f"<thead><tr>{head}</tr></thead>", cells)
        case Samples(title=title):
            return f"<p>{_text(title)}: {section.count:,} of them, not shown</p>"


def _table_html(title: str, head: str, rows: Iterable[str]) -> str:
    body = "".join(f"<tr>{cells}</tr>" for cells in rows)
    return f"<table><caption{_CAPTION}>{_text(title)}</caption>{head}<tbody>{body}</tbody></table>"


def _section_lines(section: ReviewSection) -> Iterator[str]:
    match section:
        case Summary(lines=lines):
            yield from lines
        case Warnings(title=title, lines=lines):
            yield from ("", title, *(f"  ! {line}" for line in lines))
        case FieldList(title=title, rows=rows):
            yield from ("", title, *_aligned(rows))
        case Table(title=title, rows=()):
            yield from ("", f"{title}: {section.empty or 'none'}")
        case Table(title=title, columns=columns, rows=rows):
            yield from ("", title, *_aligned([columns, *rows]))
        case Samples(title=title):
            yield f"{title}: {section.count:,} of them, not shown"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows with their cells below each other, the last one as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        yield "  " + "  ".join([*cells, row[-1]])
