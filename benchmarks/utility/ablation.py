"""What completed sentences, public examples and a presence penalty change at equal epsilon.

    python -m benchmarks.utility.ablation --texts texts.jsonl --out docs/figures/ablation.jsonl
    python -m benchmarks.utility.ablation --out docs/figures/ablation.jsonl --table

Releases of InvisibleInk from public data, at a bench in memory as in `free_tokens`. All are drawn with
`complete_sentence`; a text without the tokens that finish its sentence is the text that the same request would have
drawn without it, so the two lines of a release are paired by text. Texts are appended to `--texts` when a release is
made, and one that is there already is not made again; `--out` gets the figures of each text (none of its words). MAUVE
is of the first `DRAWS` tokens of all texts. The examples are those of `wording`: they come from no corpus.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.intervals import written
from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.utility.free_tokens import DRAWS, EPSILON, REFERENCE_TOKENS, REFERENCES
from benchmarks.utility.sampled import DELTA, interval, perplexity, real_texts, store
from benchmarks.utility.texts import DESCRIPTIONS
from benchmarks.utility.wording import EXAMPLES
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus
from tasks.generation.decoding.journal import RunJournal
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.log_likelihood import log_likelihoods
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import reference_tokens
from tasks.pricing.registry import SYSTEMS
from tasks.text.doubts import find_doubts
from tasks.text.output_cleaning import ends_sentence
from tasks.values.plan import PlanInputs

COMPLETE = 32
TODAY = "as it was"
SETTINGS: Mapping[str, tuple[dict[str, str], bool, str | None]] = {
    TODAY: ({}, False, None),
    "two public examples": ({}, True, None),
    "preset `brief`": ({"preset": "brief"}, False, None),
    "presence penalty 0.5": ({}, False, "0.5"),
}
"""Fields of the prompt, whether it has examples, and the penalty."""


@dataclass
class Tokens(RunJournal):
    """The tokens of each text, and how many of them finish its last sentence."""

    drawn: dict[int, list[int]] = field(default_factory=dict)
    completing: dict[int, int] = field(default_factory=dict)

    def step(self, armed: int, drawn: Mapping[int, Sequence[float]]) -> None:
        """As `RunJournal`; the count of tokens that finish the sentence stands behind the token."""
        for number, (token, count, *_) in drawn.items():
            self.drawn.setdefault(number, []).append(int(token))
            self.completing[number] = int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="JSON lines, the texts of each release; not for publication")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, figures of each release")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--table", action="store_true", help="only print the figures of what is there")
    arguments = parser.parse_args()
    if not arguments.table:
        if arguments.texts is None:
            parser.error("--texts is needed to draw texts")
        model = load(arguments.model, arguments.device, arguments.precision)
        draw(model, arguments)
        measure(model, arguments.texts, arguments.out)
    print("\n".join(table(_rows(arguments.out))))


def draw(model: LanguageModel, arguments: argparse.Namespace) -> None:
    """Append every release that is missing."""
    out: Path = arguments.texts
    there = [(row["data"], row["setting"]) for row in _rows(out)] if out.exists() else []
    engine = Engine(model)
    with tempfile.TemporaryDirectory() as folder:
        stores = {data: store(data, Path(folder) / data) for data in DESCRIPTIONS}
        for setting in arguments.settings:
            for data, (corpus, units) in stores.items():
                if (data, setting) not in there:
                    row = release(engine, corpus, units, data, setting, arguments)
                    with out.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(row) + "\n")
                    print(f"{data}, {setting}: {row['seconds']} s", flush=True)


def release(
    engine: Engine, corpus: Corpus, units: int, data: str, setting: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One release's texts, each with and without the tokens that finish its last sentence."""
    words, examples, penalty = SETTINGS[setting]
    system = SYSTEMS["invisible_ink"]
    wanted = {
        "samples": arguments.samples,
        "references": REFERENCES,
        "max_new_tokens": DRAWS,
        "max_reference_tokens": REFERENCE_TOKENS,
        "temperature": "1",
        "sampler": "table",
        "precision": arguments.precision,
        "complete_sentence": COMPLETE,
        **({} if penalty is None else {"presence_penalty": penalty}),
    }
    parameters = system.parameters.model_validate(wanted)
    started, tokens = time.process_time(), Tokens()
    plan = system.plan(PlanInputs(release_amount(EPSILON, DELTA), parameters, 1, units, governed=True))
    asked = Prompt.model_validate({
        "description": DESCRIPTIONS[data],
        **words,
        **({"examples": EXAMPLES[data]} if examples else {}),
    })  # fmt: skip
    bench = open_bench(engine, corpus, PromptSpec.of(asked))
    made = system.generate(plan, parameters, replace(bench, split=BatchSplit(KEY, setting), journal=tokens))
    numbers = sorted(tokens.drawn)
    if len(numbers) != len(made.texts):
        raise AssertionError("a text has no token")
    own = {number: len(tokens.drawn[number]) - tokens.completing[number] for number in numbers}
    return {
        "data": data,
        "setting": setting,
        "clip_norm": float(plan.facts["clip norm C"]),
        "completed": [text_of(engine.model, tokens.drawn[number]) for number in numbers],
        "cut": [text_of(engine.model, tokens.drawn[number][: own[number]]) for number in numbers],
        "seconds": round(time.process_time() - started, 1),
    }


def text_of(model: LanguageModel, tokens: Sequence[int]) -> dict[str, Any]:
    """A text as it is released, and whether its last sentence has ended."""
    decoded, complete = model.tokenizer.decode(tokens, skip_special_tokens=True), tokens[-1] in model.stop_tokens
    return {"text": decoded.strip(), "tokens": len(tokens), "ended": complete or ends_sentence(decoded)}


def measure(model: LanguageModel, texts: Path, out: Path) -> None:
    """Write the figures of all releases that are there."""
    from benchmarks.utility.mauve import embedder, measured_together  # only figures need it

    embed, rows, lines = embedder(), _rows(texts), []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = {row["setting"]: row for row in rows if row["data"] == data}
        _, real = real_texts(model.tokenizer, data, max(len(row["cut"]) for row in own.values()), DRAWS)
        sides = {name: [_beginning(model, text["text"]) for text in row["completed"]] for name, row in own.items()}
        similar = measured_together(embed, sides, real)
        for name, row in own.items():
            prompt = " ".join([DESCRIPTIONS[data], *(EXAMPLES[data] if SETTINGS[name][1] else ())])
            for end in ("cut", "completed"):
                found = [text["text"] for text in row[end]]
                doubts = [find_doubts(text, prompt) for text in found]
                lines.append({
                    "data": data,
                    "setting": name,
                    "completed": end == "completed",
                    "clip_norm": row["clip_norm"],
                    "tokens": [text["tokens"] for text in row[end]],
                    "ended": [text["ended"] for text in row[end]],
                    "log_likelihood": [[round(total, 3), count] for total, count in log_likelihoods(model, found)],
                    "copies": sum("copies the prompt" in each for each in doubts),
                    "repeats": sum("repeats itself" in each for each in doubts),
                    "mauve": [round(value, 4) for value in similar[name].shown],
                    "mauve_difference": [round(value, 4) for value in similar[name].less(similar[TODAY]).shown],
                    "real_texts": len(real),
                })  # fmt: skip
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _beginning(model: LanguageModel, text: str) -> str:
    beginning: str = model.tokenizer.decode(reference_tokens(model.tokenizer, text, DRAWS), skip_special_tokens=True)
    return beginning


def figures(line: Mapping[str, Any]) -> dict[str, list[float]]:
    """Figures of a release with their 95 % intervals over texts drawn with replacement."""
    return {
        "tokens": interval(line["tokens"], fmean),
        "ended": interval(line["ended"], fmean),
        "perplexity": interval(line["log_likelihood"], perplexity),
    }


def table(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a release with cut sentences and one with completed ones."""
    yield "| data | release | sentences | texts | tokens | sentence ended | perplexity | copies | MAUVE | difference |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for line in lines:
        found = figures(line)
        shown = [
            line["data"],
            line["setting"],
            "completed" if line["completed"] else "cut",
            str(len(line["tokens"])),
            written(found["tokens"], 1),
            written([100 * value for value in found["ended"]], 0, " %"),
            written(found["perplexity"], 1),
            str(line["copies"]),
            "" if line["completed"] else written(line["mauve"], 2),
            "" if line["completed"] or line["setting"] == TODAY else written(line["mauve_difference"], 2),
        ]
        yield f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
