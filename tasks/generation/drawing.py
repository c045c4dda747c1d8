"""Drawing the texts of a release, in this process or in several; who draws a text makes no difference to it.

What a system has to say about its texts is a `Drawing`: how tokens are drawn, and within what sizes. It can be sent to
another process; the budget, the journal and the corpus stay in the one that runs the release.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tasks.generation.decoding import Constraint, DrawMeter, Job, LastingRule, Meter, decode
from tasks.generation.interface import Bench, GeneratedText
from tasks.generation.journal import Earlier
from tasks.inference.engine import Engine
from tasks.inference.plan import Sizes

Drawn = Mapping[int, Sequence[float]]
"""For each generation that has drawn its token, and what its rule has to know of it to go on."""


@dataclass(frozen=True)
class Drawing:
    """How the texts of a release are drawn; no private text is in it.

    Attributes:
        sizes: public sizes that hold for every text.
        rule: makes the rule of the meter it is given.
        constraint: what holds texts to a public grammar; None where nothing does.
    """

    sizes: Sizes
    rule: Callable[[Meter], LastingRule]
    constraint: Constraint | None


def draw_some(
    engine: Engine,
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
    )


def draw_texts(
    bench: Bench, drawing: Drawing, jobs: Iterable[Job], count: int, meter: DrawMeter, earlier: Earlier
) -> list[GeneratedText]:
    """All texts of a release, in the order of their jobs, by the bench's workers if it has some."""
    total = count * drawing.sizes.max_new_tokens

    def keep(drawn: Drawn) -> None:
        bench.drawn(meter.armed, drawn)

    def progress(done: int) -> None:
        bench.progress("tokens", done, total)

    if bench.workers is None:
        texts = draw_some(bench.engine, drawing, jobs, range(count), meter, earlier, keep, progress)
    else:
        texts = bench.workers.draw(drawing, jobs, count, meter, earlier, keep, progress, bench.engine.model)
    progress(total)
    return texts
