"""Tables and fact lists in one style for all commands; text from outside is never interpreted as markup."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from models_db.values.untrusted_text import escape_controls, value_text


class _WordTable(Table):
    """A table; where its columns would be narrower than their words, each row as a paragraph instead."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.__rich_measure__(console, options).minimum <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title), "italic")
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            first, *others = (
                Text.assemble((f"{column.header} ", "dim"), cast(Text, cell))
                for column, cell in zip(self.columns, cells, strict=True)
                if str(cell)
            )
            yield first
            yield Padding(Text(", ").join(others), (0, 0, 0, 2))
        if self.caption:
            yield Text(str(self.caption), "dim")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> Table:
    """Return rows under headings, numbers right-aligned; without rows, a line that says that there are none.

    A terminal that is too narrow for the words of all columns shows each row as a paragraph: no word is folded.
    """
    kept = [list(row) for row in rows]
    none = None if kept else " none"
    rich_table = _WordTable(
        title=title, title_justify="left", caption=none, caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for number, heading in enumerate(columns):
        numeric = bool(kept) and all(_is_number(row[number]) for row in kept)
        rich_table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in kept:
        rich_table.add_row(*(plain_text("" if value is None else value) for value in row))
    return rich_table


def fact_list(pairs: Mapping[str, object] | Iterable[tuple[str, object]], title: str | None = None) -> Table:
    """Return names and values, one pair in each row; those of a mapping are spelt as words, `rho cap` for `rho_cap`."""
    grid = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _in_words(pairs) if isinstance(pairs, Mapping) else pairs:
        grid.add_row(plain_text(name), plain_text(value_text(value)))
    return grid


def _in_words(facts: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield program's names without underscores, and yes and no; a name behind a colon is somebody's and stays."""
    for name, value in facts.items():
        own, colon, given = name.partition(":")
        answer = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        yield f"{own.replace('_', ' ')}{colon}{given}", answer


def groups_table(shown: Iterable[tuple[object, object]], title: str) -> Table:
    """Return public groups by id, each with its description in the prompt."""
    return table(("group", "description in the prompt"), shown, title)


def warning_panel(lines: Iterable[str], title: str = "Look twice") -> Panel:
    """Return warnings in a frame, one on each line."""
    text = plain_text("\n".join(f"! {line}" for line in lines))
    text.stylize("bold yellow")
    return Panel(text, title=plain_text(title), title_align="left", border_style="yellow")


def plain_text(value: object) -> Text:
    """Return `value` as text that cannot steer a terminal: control and bidirectional characters are spelt out."""
    return Text(escape_controls(value))


def _is_number(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return True
    return isinstance(value, str) and value.replace(".", "", 1).isdigit()
