"""Progress bar of long work on a terminal, for commands and for scripts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from tasks.common import progress


@contextmanager
def progress_on_terminal(console: Console, print_line: Callable[[RenderableType], None]) -> Iterator[None]:
    """Show the progress of the work inside the block as a bar, and print its messages.

    The clock starts at once, so it also counts the loading of libraries and models.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), _StepsColumn(), _TimeColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        bars: dict[str, TaskID] = {}
        preparing = bar.add_task("preparing", total=None)

        def show(what: str, done: int, total: int) -> None:
            if what not in bars:
                bar.update(preparing, visible=False)
                bars[what] = bar.add_task(what, total=total)
            bar.update(bars[what], completed=done, total=total)

        with progress.listening(show, print_line):
            yield


class _StepsColumn(ProgressColumn):
    """Column with the finished and total steps; empty if the total is unknown."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{int(task.completed)}/{int(task.total)}")


class _TimeColumn(ProgressColumn):
    """Column with the remaining time, or with the elapsed time if the total is unknown."""

    def __init__(self) -> None:
        super().__init__()
        self._left, self._passed = TimeRemainingColumn(), TimeElapsedColumn()

    def render(self, task: Task) -> Text:
        return (self._passed if task.total is None else self._left).render(task)
