"""Control of utility along real texts: what private rows add that read the texts of another corpus.

    python -m benchmarks.foreign_references --out docs/figures/foreign_references.jsonl

As `utility.next_tokens`, along the same held-out texts and with the same prompt, but each private row has a text of the
other corpus as its reference: of Yelp along mts_dialog, and the other way round. What such rows gain over the public
model is form, or chance; what the corpus's own rows gain beyond it is the corpus. Own rows are those of utility.jsonl.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks.common.json_lines import write_lines
from benchmarks.utility.next_tokens import (
    EPSILONS,
    TITLES,
    USUAL_ROWS,
    Measured,
    interval,
    measured_along,
)
from benchmarks.utility.systems import INK, MEAN, PAPER, PUBLIC, Setting
from benchmarks.utility.texts import DESCRIPTIONS, Trace, choose, read, read_texts
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel

OTHER = {"mts_dialog": "yelp", "yelp": "mts_dialog"}
SETTINGS = (
    Setting(PUBLIC, None, USUAL_ROWS),
    Setting(MEAN, None, USUAL_ROWS),
    *(Setting(system, epsilon, USUAL_ROWS) for system in (INK, PAPER) for epsilon in EPSILONS),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each setting and data set")
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    model = load(arguments.model, arguments.device, "bfloat16")
    write_lines(arguments.out, (line for data in OTHER for line in measured(model, data, arguments.texts)))


def measured(model: LanguageModel, data: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each setting: the figures of `next_tokens` by text."""
    for line in measured_along(model, data, SETTINGS, foreign_traces(model, data, count)):
        yield line.to_json() | {"references_of": OTHER[data]}


def foreign_traces(model: LanguageModel, data: str, count: int) -> Iterator[tuple[int, Trace]]:
    """Yield the numbered traces of texts whose rows have references of the other corpus."""
    own, others = (choose(model.tokenizer, read_texts(name), count) for name in (data, OTHER[data]))
    for text, other in zip(own, others, strict=True):
        references = other.references[:USUAL_ROWS]
        yield text.number, read(model, DESCRIPTIONS[data], replace(text, references=references))


def gains(results: Sequence[Measured]) -> dict[tuple[str, Setting], list[float]]:
    """Return by data set and setting the loss of the real token less public only's, by text."""
    losses = {(found.data, found.setting): found.figures["loss"] for found in results}
    return {
        (data, setting): [mine - public for mine, public in zip(values, _public(losses, data), strict=True)]
        for (data, setting), values in losses.items()
        if setting in SETTINGS and setting.system != PUBLIC
    }


def _public(losses: Mapping[tuple[str, Setting], list[float]], data: str) -> list[float]:
    return losses[data, Setting(PUBLIC, None, USUAL_ROWS)]


def table(own: Sequence[Measured], foreign: Sequence[Measured], corpora: Iterable[str] = tuple(OTHER)) -> Iterator[str]:
    """Yield the rows of docs/utility.md: the gain of own rows, that of the control, and their paired difference."""
    ours, theirs = gains(own), gains(foreign)
    yield "| data | system | epsilon | own references | another corpus's | difference |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for data in corpora:
        for setting in SETTINGS[1:]:
            mine, other = ours[data, setting], theirs[data, setting]
            paired = [one - two for one, two in zip(mine, other, strict=True)]
            shown = ["{:.3f} [{:.3f}, {:.3f}]".format(*interval(values)) for values in (mine, other, paired)]
            yield f"| {data} | {TITLES[setting.system]} | {setting.epsilon or '-'} | {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
