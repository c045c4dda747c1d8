"""What an outline changes in long texts at equal epsilon: perplexity, repetition, MAUVE.

    python -m benchmarks.outlines --texts texts.jsonl --out docs/figures/outlines.jsonl
    python -m benchmarks.outlines --model gemma3-270m --form completion --samples 8 --seeds 1 --texts gemma.jsonl \\
        --out docs/figures/outlines.jsonl
    python -m benchmarks.outlines --out docs/figures/outlines.jsonl --table

Releases of InvisibleInk from public data, at a bench in memory as in `free_tokens`, and of the public model alone as
control; each with and without an outline, of as many draws and as many texts, at the same epsilon. Systems read the
long texts of a data set alone, `LEAST_WORDS` words and more; the real texts are as long and were read by none. Released
without headings, since the real texts have none. Texts are appended to `--texts` when a release is made, and one that
is there already is not made again; `--out` gets one line a setting, of all its releases: figures of each text (none of
its words), and MAUVE. All settings of a data set and a length are measured together, so that their differences from
the one without an outline are paired. Perplexity is SmolLM2's, whichever model wrote the texts. `--texts` has releases
of one model; `--out` has the lines of other models kept.
"""

import argparse
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from benchmarks.common.intervals import interval_of_difference, written
from benchmarks.common.json_lines import read_lines, read_lines_if_there, write_lines
from benchmarks.utility.free_tokens import longer_by
from benchmarks.utility.sampled import UNREAD, distinct_2, interval, perplexity, store
from benchmarks.utility.texts import SEED, read_texts
from models_db.values.requests import Prompt
from tasks.corpus.store import Corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.log_likelihood import log_likelihoods
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import reference_tokens
from tasks.text.doubts import find_doubts

EPSILON, REFERENCES, REFERENCE_TOKENS, LEAST_WORDS = Decimal(8), 7, 128, 100
DESCRIPTIONS = {
    "mts_dialog": "Dialogues between a doctor and a patient about symptoms and history.",
    "yelp": "Reviews that customers write about restaurants, shops and other businesses.",
}
OUTLINES: Mapping[int, dict[str, Any]] = {200: {"sections": 3, "tokens": 40}, 400: {"sections": 5, "tokens": 65}}
"""By T: about 13 draws a title, and the rest in equal parts for the sections."""
SYSTEMS_MEASURED = ("public_only", "invisible_ink")


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        draws: T.
        seed: of the split of the units into batches.
    """

    data: str
    system: str
    draws: int
    outline: bool
    seed: int

    @property
    def setting(self) -> tuple[str, int, str, bool]:
        """The cell without its seed."""
        return self.data, self.draws, self.system, self.outline


def main() -> None:
    parser = drawing_parser(__doc__, "setting", 16)
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--seeds", type=int, default=2, help="releases of a setting")
    parser.add_argument("--draws", type=int, nargs="+", default=[200], choices=list(OUTLINES))
    parser.add_argument("--data", nargs="+", default=list(DESCRIPTIONS), choices=list(DESCRIPTIONS))
    arguments = parsed(parser)
    if not arguments.table:
        model = load(arguments.model, arguments.device, arguments.precision)
        draw(model, arguments)
        other = arguments.model != DEFAULT_MODEL
        scorer = load(DEFAULT_MODEL, arguments.device, arguments.precision) if other else model
        measure(scorer, arguments.model, arguments.texts, arguments.out)
    print("\n".join(table(read_lines(arguments.out))))


def long_texts(data: str) -> tuple[list[str], list[str]]:
    """The long texts of a data set: those that systems read, and those that they are compared with, mixed."""
    found = [text for text in read_texts(data) if len(text.split()) >= LEAST_WORDS]
    unread = found[::UNREAD]
    return [text for place, text in enumerate(found) if place % UNREAD], random.Random(SEED).sample(unread, len(unread))


def draw(model: LanguageModel, arguments: argparse.Namespace) -> None:
    """Append every release that is missing."""
    engine = Engine(model)
    with tempfile.TemporaryDirectory() as folder:
        stores = {data: store(data, Path(folder) / data, texts=long_texts(data)[0]) for data in arguments.data}
        cells = [
            Cell(data, system, draws, outline, seed)
            for seed in range(arguments.seeds)
            for draws in arguments.draws
            for data in arguments.data
            for system in SYSTEMS_MEASURED
            for outline in (False, True)
        ]
        append_missing(
            arguments.texts,
            cells,
            lambda row: Cell(**row["cell"]),
            lambda cell: release(engine, *stores[cell.data], cell, arguments),
        )


def release(engine: Engine, corpus: Corpus, units: int, cell: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """One release's clip norms and texts."""
    parameters = {
        "samples": arguments.samples,
        "references": REFERENCES,
        "max_new_tokens": cell.draws,
        "max_reference_tokens": REFERENCE_TOKENS,
        "precision": arguments.precision,
        **({"outline": OUTLINES[cell.draws] | {"headings": False}} if cell.outline else {}),
    }
    prompt = Prompt.model_validate({"description": DESCRIPTIONS[cell.data], "form": arguments.form})
    plan, made, seconds = draw_release(
        engine, corpus, units, cell.system, parameters, EPSILON, prompt, split=f"seed {cell.seed}"
    )
    return {
        "cell": asdict(cell),
        "clip_norms": [float(plan.facts[n]) for n in ("clip norm C", "clip norm of the outline") if n in plan.facts],
        "texts": [{"text": text.text, "complete": text.complete, "draws": text.facts["draws"]} for text in made.texts],
        "seconds": seconds,
    }


def measure(model: LanguageModel, writer: str, texts: Path, out: Path) -> None:
    """Write the figures of all settings that are there, behind those of other models that have been written before.

    Args:
        model: it scores every text, and its tokens are those that texts are cut by.
        writer: the name of the model that wrote them.
    """
    from benchmarks.utility.mauve import embedder, measured_together  # only figures need it

    embed, found = embedder(), [(Cell(**row["cell"]), row) for row in read_lines(texts)]
    lines = [line for line in read_lines_if_there(out) if line["model"] != writer]
    for data, draws in dict.fromkeys((cell.data, cell.draws) for cell, _ in found):
        own: dict[tuple[str, int, str, bool], list[dict[str, Any]]] = {}
        for cell, row in found:
            if (cell.data, cell.draws) == (data, draws):
                own.setdefault(cell.setting, []).append(row)
        sides = {setting: [text for row in rows for text in row["texts"]] for setting, rows in own.items()}
        real = [beginning(model, text, draws) for text in long_texts(data)[1]]
        written = {str(setting): [text["text"] for text in texts] for setting, texts in sides.items()}
        similar = measured_together(embed, written, real)
        for setting, made in sides.items():
            words = [text["text"] for text in made]
            plain = similar[str((*setting[:3], False))]
            lines.append({
                "model": writer,
                **dict(zip(("data", "draws", "system", "outline"), setting, strict=True)),
                "clip_norms": own[setting][0]["clip_norms"],
                "releases": len(own[setting]),
                "draws_made": [text["draws"] for text in made],
                "tokens": [len(reference_tokens(model.tokenizer, text, 10**4)) for text in words],
                "complete": [text["complete"] for text in made],
                "distinct_2": [round(distinct_2([text]), 4) for text in words],
                "repeats": sum("repeats itself" in find_doubts(text, DESCRIPTIONS[data]) for text in words),
                "log_likelihood": [[round(total, 3), count] for total, count in log_likelihoods(model, words)],
                "mauve": [round(value, 4) for value in similar[str(setting)].shown],
                "mauve_difference": [round(value, 4) for value in similar[str(setting)].less(plain).shown],
                "real_texts": len(real),
                "seconds": [row["seconds"] for row in own[setting]],
            })  # fmt: skip
    write_lines(out, lines)


def figures(line: Mapping[str, Any]) -> dict[str, list[float]]:
    """Figures of a setting with their 95 % intervals over texts drawn with replacement."""
    return {
        "tokens": interval(line["tokens"], fmean),
        "perplexity": interval(line["log_likelihood"], perplexity),
        "distinct_2": interval(line["distinct_2"], fmean),
    }


def perplexity_ratio(scores: Sequence[tuple[float, int]], usual: Sequence[tuple[float, int]]) -> list[float]:
    """Perplexity as a multiple of that of other texts, and a 95 % interval over texts of both drawn anew."""
    return interval_of_difference(scores, usual, lambda own, other: perplexity(own) / perplexity(other), SEED)


def table(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a setting; differences are from the setting without an outline before it."""
    heads = "model | data | T | texts | number | C | tokens | perplexity | ratio | distinct-2 | difference | repeat"
    yield f"| {heads} | MAUVE | difference | CPU s |"
    yield "|" + 15 * " --- |"
    plain: Mapping[str, Any] = {}
    for line in lines:
        found = figures(line)
        plain = plain if line["outline"] else line
        shown = [
            line["model"],
            line["data"],
            str(line["draws"]),
            line["system"].replace("_", " ") + (", outline" if line["outline"] else ""),
            str(len(line["tokens"])),
            ", ".join(f"{norm:.2f}" for norm in line["clip_norms"]),
            written(found["tokens"], 0),
            written(found["perplexity"], 1),
            written(perplexity_ratio(line["log_likelihood"], plain["log_likelihood"]), 2) if line["outline"] else "",
            written(found["distinct_2"], 2),
            written(longer_by(line["distinct_2"], plain["distinct_2"]), 2) if line["outline"] else "",
            str(line["repeats"]),
            written(line["mauve"], 2),
            written(line["mauve_difference"], 2) if line["outline"] else "",
            f"{sum(line['seconds']):.0f}",
        ]
        yield f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
