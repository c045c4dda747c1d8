"""Generation of a release's texts, in one process or several; the assignment changes no text.

A system describes its texts by a `DecodingSpec`: the sampling rule and the sizes. It can be
sent to another process; the budget, the journal and the corpus stay in the one that runs the release.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from tasks.decoding.journal import ResumeState
from tasks.decoding.loop import (
    BudgetMeter,
    DecodingSpec,
    DrawMeter,
    Drawn,
    DrawReady,
    GenerationJob,
    ResumableSamplingRule,
    decode,
    open_session,
)
from tasks.decoding.run_context import RunContext
from tasks.decoding.sentence_completion import SentenceCompletion
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import Session
from tasks.values.results import GeneratedText


def decode_some(
    engine: Engine,
    session: Session,
    drawing: DecodingSpec,
    jobs: Iterable[GenerationJob],
    numbers: Sequence[int],
    meter: BudgetMeter,
    earlier: ResumeState,
    keep: Callable[[Drawn], None],
    progress: Callable[[int], None],
) -> list[GeneratedText]:
    """Draw the texts with these numbers, ascending, each continued from its `earlier` draws.

    Args:
        session: opened for these texts (`decoding.open_session`).
        jobs: one for each number, in that order; read as places become free.
        keep: called after each step with its draws; the next step begins when it returns.
        progress: called with the numbers of tokens done and of all tokens.
    """
    rule = drawing.rule(meter)
    completion = drawing.completion() if drawing.completion else None
    for number in numbers:
        if number in earlier.kept:
            _resume(rule, completion, number, earlier.kept[number])
    return decode(
        engine,
        jobs,
        len(numbers),
        drawing.sizes,
        rule,
        constraint=drawing.constraint,
        separator=drawing.separator,
        completion=completion,
        progress=progress,
        numbers=numbers,
        earlier=earlier.tokens,
        on_tokens=lambda tokens: keep({n: (token, *_kept(rule, completion, n)) for n, token in tokens.items()}),
        session=session,
    )


def _kept(rule: ResumableSamplingRule, completion: SentenceCompletion | None, number: int) -> Sequence[float]:
    """Return the journal's values of a generation beside its token; the count of its public tokens comes first."""
    return (*([] if completion is None else [completion.count(number)]), *rule.kept(number))


def _resume(
    rule: ResumableSamplingRule, completion: SentenceCompletion | None, number: int, kept: Sequence[float]
) -> None:
    """Go on with a generation of which `_kept` was written down."""
    if completion is not None:
        completion.resume(number, kept[0])
        kept = kept[1:]
    rule.resume(number, kept)


class Draw(Protocol):
    """Draws all texts of a release."""

    def __call__(self, jobs: Iterable[GenerationJob], meter: DrawMeter) -> list[GeneratedText]:
        """Return the texts in the order of their jobs, which are read when the first is needed."""


@contextmanager
def open_decoder(
    context: RunContext, drawing: DecodingSpec, count: int, earlier: ResumeState, lost: int = 0
) -> Iterator[Draw]:
    """Yield a function that draws `count` texts, on the context's workers if it has any. Arm nothing before.

    Every device has been checked for isolation and memory by then, so that a refusal costs no budget.

    Args:
        earlier: what an interrupted run has drawn of them.
        lost: draws of each text that it has lost, one for each attempt.

    Raises:
        ContextTooLong, RowsNotIsolated, NotEnoughMemory: as `decoding.open_session`.
        WorkerDied, WorkerDiffers: as `Workers.ready`.
    """
    total = count * drawing.sizes.max_new_tokens

    def progress(done: int) -> None:
        context.progress("tokens", done, total)

    def draw(by: DrawReady, jobs: Iterable[GenerationJob], meter: DrawMeter) -> list[GeneratedText]:
        texts = by(jobs, meter, lambda drawn: context.journal.step(meter.armed, drawn), progress)
        progress(total)
        return texts

    if context.workers is None:
        session = open_session(context.engine, count, drawing.sizes, earlier.tokens, lost, drawing.constraint)
        yield partial(draw, partial(_draw_here, context.engine, session, drawing, count, earlier))
    else:
        with context.workers.ready(drawing, count, earlier, lost, context.engine.model) as by:
            yield partial(draw, by)


def _draw_here(
    engine: Engine,
    session: Session,
    drawing: DecodingSpec,
    count: int,
    earlier: ResumeState,
    jobs: Iterable[GenerationJob],
    meter: DrawMeter,
    keep: Callable[[Drawn], None],
    progress: Callable[[int], None],
) -> list[GeneratedText]:
    return decode_some(engine, session, drawing, jobs, range(count), meter, earlier, keep, progress)
