"""Drawing the texts of a release, in this process or in several; who draws a text makes no difference to it.

What a system has to say about its texts is a `Drawing`: how tokens are drawn, and within what sizes. It can be sent to
another process; the budget, the journal and the corpus stay in the one that runs the release.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from tasks.generation.decoding.journal import Earlier
from tasks.generation.decoding.loop import Drawing, DrawMeter, Drawn, DrawReady, Job, Meter, decode, open_session
from tasks.generation.decoding.run_context import Bench
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import Session
from tasks.values.generated import GeneratedText


def draw_some(
    engine: Engine,
    session: Session,
    drawing: Drawing,
    jobs: Iterable[Job],
    numbers: Sequence[int],
    meter: Meter,
    earlier: Earlier,
    keep: Callable[[Drawn], None],
    progress: Callable[[int], None],
) -> list[GeneratedText]:
    """Draw the texts with these numbers, ascending, each going on from what is drawn of it `earlier`.

    Args:
        session: opened for these texts (`decoding.open_session`).
        jobs: one for each number, in that order; read as places become free.
        keep: told after each step what it has drawn; the next step begins when it returns.
        progress: told how many tokens are behind us.
    """
    rule = drawing.rule(meter)
    for number in numbers:
        if number in earlier.kept:
            rule.resume(number, earlier.kept[number])
    return decode(
        engine,
        jobs,
        len(numbers),
        drawing.sizes,
        rule,
        constraint=drawing.constraint,
        progress=progress,
        numbers=numbers,
        earlier=earlier.tokens,
        on_tokens=lambda tokens: keep({n: (token, *rule.kept(n)) for n, token in tokens.items()}),
        session=session,
    )


class Draw(Protocol):
    """Draws all texts of a release."""

    def __call__(self, jobs: Iterable[Job], meter: DrawMeter) -> list[GeneratedText]:
        """In the order of their jobs; they are read when the first is needed."""


@contextmanager
def ready_to_draw(bench: Bench, drawing: Drawing, count: int, earlier: Earlier, lost: int = 0) -> Iterator[Draw]:
    """What draws `count` texts, by the bench's workers if it has some; nothing may be armed before this has begun.

    Every device has been asked about every shape, and for memory: who is refused here has paid nothing.

    Args:
        earlier: what an interrupted run has drawn of them.
        lost: draws of each text that it has lost, one for each attempt.

    Raises:
        ContextTooLong, RowsNotIsolated, NotEnoughMemory: as `decoding.open_session`.
        WorkerDied, WorkerDiffers: as `Workers.ready`.
    """
    total = count * drawing.sizes.max_new_tokens

    def progress(done: int) -> None:
        bench.progress("tokens", done, total)

    def draw(by: DrawReady, jobs: Iterable[Job], meter: DrawMeter) -> list[GeneratedText]:
        texts = by(jobs, meter, lambda drawn: bench.drawn(meter.armed, drawn), progress)
        progress(total)
        return texts

    if bench.workers is None:
        session = open_session(bench.engine, count, drawing.sizes, earlier.tokens, lost)
        yield partial(draw, partial(_draw_here, bench.engine, session, drawing, count, earlier))
    else:
        with bench.workers.ready(drawing, count, earlier, lost, bench.engine.model) as by:
            yield partial(draw, by)


def _draw_here(
    engine: Engine,
    session: Session,
    drawing: Drawing,
    count: int,
    earlier: Earlier,
    jobs: Iterable[Job],
    meter: DrawMeter,
    keep: Callable[[Drawn], None],
    progress: Callable[[int], None],
) -> list[GeneratedText]:
    return draw_some(engine, session, drawing, jobs, range(count), meter, earlier, keep, progress)
