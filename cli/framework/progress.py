"""How far long work is, on stderr: a bar on a terminal, elsewhere a line a minute, under --json nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import RenderableType
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

from cli.framework.command import CommandContext
from tasks.common import progress

SECONDS_BETWEEN_LINES = 60.0
"""Without a terminal: seldom enough for the journal of a service, often enough to see that something is going on."""


@contextmanager
def progress_bar(context: CommandContext) -> Iterator[None]:
    """Show what the work inside the block reports and tells.

    On a terminal the time runs from the first moment on, also while libraries and models are loaded.
    """
    if context.as_json or not context.console.is_terminal:
        with progress_lines(context):
            yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _StepsColumn(), _TimeColumn())
    with Progress(*columns, console=context.console, transient=True) as bar:
        bars: dict[str, TaskID] = {}
        preparing = bar.add_task("preparing", total=None)

        def show(what: str, done: int, total: int) -> None:
            if what not in bars:
                bar.update(preparing, visible=False)
                bars[what] = bar.add_task(what, total=total)
            bar.update(bars[what], completed=done, total=total)

        with progress.listening(show, context.print_progress):
            yield


@contextmanager
def progress_lines(context: CommandContext) -> Iterator[None]:
    """As `progress_bar` does without a terminal, with or without one: for what works now and then, for days."""
    reporter = _ignore_progress if context.as_json else ProgressLines(context.print_progress)
    with progress.listening(reporter, context.print_progress):
        yield


def _ignore_progress(what: str, done: int, total: int) -> None:
    """Nobody is told."""


class _StepsColumn(ProgressColumn):
    """How many of how many steps; nothing where nobody knows how many there will be."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{int(task.completed)}/{int(task.total)}")


class _TimeColumn(ProgressColumn):
    """The time that is left; what has passed, where nobody knows how long it will take."""

    def __init__(self) -> None:
        super().__init__()
        self._left, self._passed = TimeRemainingColumn(), TimeElapsedColumn()

    def render(self, task: Task) -> Text:
        return (self._passed if task.total is None else self._left).render(task)


@dataclass
class ProgressLines:
    """Says a line when a minute has passed since the last, so that short work says none.

    In hundredths and not in steps: such lines end up in logs, and how many documents a corpus has belongs in none.
    """

    print_line: Callable[[RenderableType], None]
    now: Callable[[], float] = time.monotonic
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.last = self.now()

    def __call__(self, what: str, done: int, total: int) -> None:
        """So far is `what`."""
        if (now := self.now()) - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            self.print_line(f"{what}: {100 * done // max(total, 1)} %")
