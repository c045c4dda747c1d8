"""Progress of long work on stderr: a bar on a terminal, elsewhere one line per minute, under --json nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import RenderableType

from cli.framework.command import CommandContext
from flows.observability.progress_bar import progress_on_terminal
from tasks.common import progress

SECONDS_BETWEEN_LINES = 60.0
"""Interval without a terminal: rare enough for a service's journal, frequent enough to show progress."""


@contextmanager
def progress_bar(context: CommandContext) -> Iterator[None]:
    """Show the progress and the messages of the work inside the block."""
    if context.as_json or not context.console.is_terminal:
        with progress_lines(context):
            yield
        return
    with progress_on_terminal(context.console, context.print_progress):
        yield


@contextmanager
def progress_lines(context: CommandContext) -> Iterator[None]:
    """Show progress as lines, also on a terminal: for services that run for days and work now and then."""
    reporter = progress.ignore if context.as_json else ProgressLines(context.print_progress)
    with progress.listening(reporter, context.print_progress):
        yield


@dataclass
class ProgressLines:
    """Prints at most one line a minute, so that short work prints none.

    Progress is in percent, not in steps: such lines end up in logs, and the number of documents in a corpus is private.
    """

    print_line: Callable[[RenderableType], None]
    now: Callable[[], float] = time.monotonic
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.last = self.now()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps of `what` are finished."""
        if (now := self.now()) - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            self.print_line(f"{what}: {100 * done // max(total, 1)} %")
