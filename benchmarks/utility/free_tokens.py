"""What free tokens change at equal epsilon: length, perplexity under the public model, MAUVE.

    python -m benchmarks.utility.free_tokens --texts texts.jsonl --out docs/figures/free_tokens.jsonl
    python -m benchmarks.utility.free_tokens --model gemma3-270m --form completion --settings none 0.7 \\
        --texts texts.jsonl --out docs/figures/free_tokens.jsonl
    python -m benchmarks.utility.free_tokens --out docs/figures/free_tokens.jsonl --table

Releases of InvisibleInk from public data, at a bench in memory as in `sampled`, with and without `free_above`, and of
the public model alone as control. Texts are appended to `--texts` when a release is made, and one that is there
already is not made again; `--out` gets one line a release: figures of each text (none of its words), and MAUVE. MAUVE
is of the first `MAUVE_TOKENS` tokens of all texts, because it follows length: it tells whether free tokens take texts
away from the real ones, not that they are longer. All releases of a data set by one model
are measured together, so their differences from the one without free tokens are paired. Perplexity is SmolLM2's,
whichever model wrote the texts. `--out` has the lines of other models kept.
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.drawn_releases import (
    DEFAULT_MODEL,
    append_missing,
    beginning,
    draw_release,
    drawing_parser,
    parsed,
)
from benchmarks.common.intervals import difference_of_means, written
from benchmarks.common.json_lines import read_lines, read_lines_if_there, write_lines
from benchmarks.utility.sampled import interval, perplexity, real_texts, store
from benchmarks.utility.texts import DESCRIPTIONS, SEED
from models_db.values.requests import Prompt
from tasks.corpus.store import Corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.log_likelihood import log_likelihoods
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel

EPSILON, TEXTS, REFERENCES, REFERENCE_TOKENS = Decimal(4), 48, 7, 64
DRAWS, FEWER_DRAWS = 48, 36
MAUVE_TOKENS = 36
"""The fewest charged draws of a release, so that no text but one that ended by itself is shorter."""


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        draws: T, charged draws of a text.
        free_above: None for a release without free tokens.
        system: the mechanism; `public_only` is the control, which reads no private text.
    """

    model: str
    data: str
    draws: int
    free_above: str | None
    system: str = "invisible_ink"

    @property
    def name(self) -> str:
        """The cell without its data set."""
        if self.system == CONTROL:
            return f"public only, T = {self.draws}"
        return f"T = {self.draws}, {'no free tokens' if self.free_above is None else f'above {self.free_above}'}"


CONTROL = "public_only"
SETTINGS = {
    "none": (DRAWS, None),
    "0.9": (DRAWS, "0.9"),
    "0.7": (DRAWS, "0.7"),
    "0.7-fewer-draws": (FEWER_DRAWS, "0.7"),
}
"""Charged draws and `free_above`, by name.

The same T makes longer texts; fewer draws make texts of about the same length with a larger clip norm.
"""


def main() -> None:
    parser = drawing_parser(__doc__, "release", TEXTS)
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    arguments = parsed(parser)
    if not arguments.table:
        model = load(arguments.model, arguments.device, arguments.precision)
        draw(model, arguments)
        other = arguments.model != DEFAULT_MODEL
        scorer = load(DEFAULT_MODEL, arguments.device, arguments.precision) if other else model
        measure(scorer, arguments.texts, arguments.out)
    print("\n".join(table(read_lines(arguments.out))))


def draw(model: LanguageModel, arguments: argparse.Namespace) -> None:
    """Append every release that is missing."""
    engine = Engine(model)
    with tempfile.TemporaryDirectory() as folder:
        stores = {data: store(data, Path(folder) / data) for data in DESCRIPTIONS}
        charged = [(*SETTINGS[name], "invisible_ink") for name in arguments.settings]
        cells = [
            Cell(arguments.model, data, *setting)
            for setting in (*charged, (DRAWS, None, CONTROL))
            for data in DESCRIPTIONS
        ]
        append_missing(
            arguments.texts,
            cells,
            lambda row: Cell(**row["cell"]),
            lambda cell: release(engine, *stores[cell.data], cell, arguments),
        )


def release(engine: Engine, corpus: Corpus, units: int, cell: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """One release's clip norm and texts."""
    parameters = {
        "samples": arguments.samples,
        "references": REFERENCES,
        "max_new_tokens": cell.draws,
        "max_reference_tokens": REFERENCE_TOKENS,
        "precision": arguments.precision,
        **({} if cell.free_above is None else {"free_above": cell.free_above}),
    }
    prompt = Prompt.model_validate({"description": DESCRIPTIONS[cell.data], "form": arguments.form})
    plan, made, seconds = draw_release(engine, corpus, units, cell.system, parameters, EPSILON, prompt, split=cell.name)
    texts = [{"text": text.text, "tokens": text.tokens, "complete": text.complete, **text.facts} for text in made.texts]
    return {
        "cell": asdict(cell),
        "clip_norm": None if cell.system == CONTROL else float(plan.facts["clip norm C"]),
        "texts": texts,
        "seconds": seconds,
    }


def measure(model: LanguageModel, texts: Path, out: Path) -> None:
    """Write the figures of all releases that are there, behind those of other models that have been written before.

    Args:
        model: it scores every text, and its tokens are those that texts are cut by.
    """
    from benchmarks.utility.mauve import embedder, measured_together  # only figures need it

    embed, rows = embedder(), read_lines(texts)
    drawn = dict.fromkeys((row["cell"]["model"], row["cell"]["data"]) for row in rows)
    lines = [line for line in read_lines_if_there(out) if (line["model"], line["data"]) not in drawn]
    for writer, data in drawn:
        own = [row for row in rows if (row["cell"]["model"], row["cell"]["data"]) == (writer, data)]
        cells = {Cell(**row["cell"]): row for row in own}
        _, real = real_texts(model.tokenizer, data, max(len(row["texts"]) for row in own), MAUVE_TOKENS)
        sides = {
            cell.name: [beginning(model, text["text"], MAUVE_TOKENS) for text in row["texts"]]
            for cell, row in cells.items()
        }
        similar = measured_together(embed, sides, real)
        plain = similar[Cell(writer, data, DRAWS, None).name]
        for cell, row in cells.items():
            scores = log_likelihoods(model, [text["text"] for text in row["texts"]])
            lines.append({
                **asdict(cell),
                "clip_norm": row["clip_norm"],
                "seconds": row["seconds"],
                "tokens": [text["tokens"] for text in row["texts"]],
                "free": [int(text.get("free_tokens", 0)) for text in row["texts"]],
                "complete": [text["complete"] for text in row["texts"]],
                "log_likelihood": [[round(total, 3), count] for total, count in scores],
                "mauve": [round(value, 4) for value in similar[cell.name].shown],
                "mauve_difference": [round(value, 4) for value in similar[cell.name].less(plain).shown],
                "real_texts": len(real),
            })  # fmt: skip
    write_lines(out, lines)


def figures(line: Mapping[str, Any]) -> dict[str, list[float]]:
    """Figures of a release with their 95 % intervals over texts drawn with replacement."""
    pairs = list(zip(line["free"], line["tokens"], strict=True))
    return {
        "free": interval(pairs, free_share),
        "tokens": interval(line["tokens"], fmean),
        "perplexity": interval(line["log_likelihood"], perplexity),
        "mauve": line["mauve"],
        "mauve_difference": line["mauve_difference"],
    }


def free_share(pairs: Sequence[tuple[int, int]]) -> float:
    """The share of free tokens in all tokens of texts, from (free, tokens) of each."""
    return sum(free for free, _ in pairs) / max(1, sum(tokens for _, tokens in pairs))


def longer_by(tokens: Sequence[float], usual: Sequence[float]) -> list[float]:
    """How much longer texts are than others on average, and a 95 % interval over texts of both drawn anew."""
    return difference_of_means(tokens, usual, SEED)


def table(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a release; differences are from the first of its model and data, without free tokens."""
    named = ("model", "data", "release", "C", "texts", "free", "tokens", "longer by", "ended", "perplexity")
    yield f"| {' | '.join((*named, 'MAUVE', 'MAUVE, difference', 'CPU s a text'))} |"
    yield "|" + 13 * " --- |"
    plain: dict[tuple[str, str], Sequence[int]] = {}
    for line in lines:
        found, cell = figures(line), Cell(*(line[field.name] for field in fields(Cell)))
        first = (cell.model, cell.data) not in plain
        usual = plain.setdefault((cell.model, cell.data), line["tokens"])
        shown = [
            "" if line["clip_norm"] is None else f"{line['clip_norm']:.2f}",
            str(len(line["tokens"])),
            written(found["free"], 2),
            written(found["tokens"], 1),
            "" if first else written(longer_by(line["tokens"], usual), 1),
            f"{fmean(line['complete']):.0%}",
            written(found["perplexity"], 1),
            written(found["mauve"], 2),
            "" if first else written(found["mauve_difference"], 2),
            "" if line["seconds"] is None else f"{line['seconds'] / len(line['tokens']):.1f}",
        ]
        yield f"| {cell.model} | {cell.data} | {cell.name} | {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
