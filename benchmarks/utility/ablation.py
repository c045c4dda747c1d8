"""What completed sentences and public examples change at equal epsilon.

    python -m benchmarks.utility.ablation --texts texts.jsonl --out docs/figures/ablation.jsonl
    python -m benchmarks.utility.ablation --out docs/figures/ablation.jsonl --table
    python -m benchmarks.utility.ablation --draw-only --model gemma3-270m --texts texts.jsonl --settings completion ...

Releases of InvisibleInk from public data, at a bench in memory. A text without the public tokens that finish its
sentence is the text of the draws alone, so the two lines of a release are paired by text. Texts are appended to
`--texts` when a release is made, and one that is there already is not made again; `--out` gets the figures of each text
(none of its words). MAUVE is of the first `DRAWS` tokens of all texts. The examples come from no corpus.
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.drawn_releases import (
    DEFAULT_MODEL,
    append_missing,
    beginning,
    draw_release,
    drawing_parser,
    parsed,
)
from benchmarks.common.intervals import written
from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.utility.sampled import interval, perplexity, real_texts, store
from benchmarks.utility.texts import DESCRIPTIONS, NOTES
from models_db.values.requests import Prompt
from tasks.corpus.store import Corpus
from tasks.decoding.journal import RunJournal
from tasks.evaluation.intervals import wilson
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.likelihood import log_likelihoods
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_spec import DEFAULT_SEPARATOR, text_before
from tasks.systems.registry import SYSTEMS
from tasks.text.doubts import find_doubts
from tasks.text.output_cleaning import ends_sentence
from tasks.values.results import GeneratedText

if TYPE_CHECKING:
    from benchmarks.utility.mauve import Estimate

EPSILON, REFERENCES, REFERENCE_TOKENS, DRAWS = Decimal(4), 7, 64, 48
MINILM, MPNET = "all-minilm-l6-v2", "all-mpnet-base-v2"
EMBEDDERS = (MINILM, MPNET)
TODAY = "as it was"
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    NOTES: (
        "The patient is a 61-year-old man with a cough for two weeks. He does not smoke.",
        "She takes ramipril for high blood pressure and reports no allergies.",
    ),
    "mts_dialog": (
        (
            "Doctor: What brings you in today?\nPatient: My left knee has been swelling since Sunday.\nDoctor:"
            " Did you fall on it?\nPatient: No, I think it was the stairs at work."
        ),
        (
            "Doctor: Any allergies to medicine?\nPatient: Penicillin. It gives me a rash.\nDoctor: And do you"
            " take anything every day?\nPatient: Just a water pill for my blood pressure."
        ),
    ),
    "yelp": (
        (
            "Stopped in for lunch on a Tuesday and waited ten minutes for a menu. The soup was lukewarm, but"
            " our waiter was kind about it and took it off the bill. Probably won't be back."
        ),
        (
            "Best haircut I've had in years! She listened to what I wanted and didn't rush. Parking is a pain,"
            " so give yourself some extra time."
        ),
    ),
}
"""Two for each corpus, written for this benchmark."""
DESCRIBED = {**DESCRIPTIONS, NOTES: "Short notes that a doctor writes after seeing a patient."}


Cell: TypeAlias = tuple[str, str, str | None, str]
"""Data set, setting, epsilon (None where nothing private is read) and model of a release."""


@dataclass(frozen=True)
class Setting:
    """What a release changes.

    Attributes:
        wording: fields of the prompt.
        examples: whether the prompt has the two examples.
        own: further parameters of the request.
        system: the mechanism.
    """

    wording: Mapping[str, str] = field(default_factory=dict)
    examples: bool = False
    own: Mapping[str, str | int] = field(default_factory=dict)
    system: str = "invisible_ink"

    @property
    def charges(self) -> bool:
        """Whether it reads private texts."""
        return SYSTEMS[self.system].charges


_BRIEF, _COMPLETION, _COOLER = {"preset": "brief"}, {"form": "completion"}, {"temperature": "0.7"}
SETTINGS: Mapping[str, Setting] = {
    TODAY: Setting(),
    "two public examples": Setting(examples=True),
    "preset `brief`": Setting(_BRIEF),
    "preset `brief`, temperature 0.7": Setting(_BRIEF, own=_COOLER),
    "public only": Setting(system="public_only"),
    "public only, `brief`, temperature 0.7": Setting(_BRIEF, own=_COOLER, system="public_only"),
    "public only, `brief`": Setting(_BRIEF, system="public_only"),
    "public only, two public examples": Setting(examples=True, system="public_only"),
    "completion": Setting(_COMPLETION),
    "completion, two public examples": Setting(_COMPLETION, examples=True),
    "completion, two public examples, temperature 0.7": Setting(_COMPLETION, examples=True, own=_COOLER),
    "public only, completion, two public examples, temperature 0.7": Setting(
        _COMPLETION, examples=True, own=_COOLER, system="public_only"
    ),
    "public only, completion": Setting(_COMPLETION, system="public_only"),
    "public only, completion, two public examples": Setting(_COMPLETION, examples=True, system="public_only"),
}


@dataclass
class Tokens(RunJournal):
    """The tokens of each text, and how many of them finish its last sentence."""

    drawn: dict[int, list[int]] = field(default_factory=dict)
    completing: dict[int, int] = field(default_factory=dict)

    def step(self, armed: int, drawn: Mapping[int, Sequence[float]]) -> None:
        """As `RunJournal`; the count of tokens that finish the sentence stands behind the token."""
        for number, (token, *others) in drawn.items():
            self.drawn.setdefault(number, []).append(int(token))
            self.completing[number] = int(others[0])


def main() -> None:
    parser = drawing_parser(__doc__, "release", 48)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS)[:4], choices=list(SETTINGS))
    parser.add_argument("--data", nargs="+", default=list(DESCRIPTIONS), choices=list(DESCRIBED))
    parser.add_argument("--epsilon", type=Decimal, default=EPSILON)
    parser.add_argument("--draw-only", action="store_true", help="measure nothing yet: further models are to follow")
    arguments = parsed(parser)
    if not arguments.table:
        model = load(arguments.model, arguments.device, arguments.precision)
        draw(model, arguments)
        if arguments.draw_only:
            return
        scorer = (
            model if arguments.model == DEFAULT_MODEL else load(DEFAULT_MODEL, arguments.device, arguments.precision)
        )
        measure(scorer, arguments.texts, arguments.out)
    print("\n".join(table(read_lines(arguments.out))))


def draw(model: LanguageModel, arguments: argparse.Namespace) -> None:
    """Append every release that is missing."""
    engine = Engine(model)
    with tempfile.TemporaryDirectory() as folder:
        stores = {data: store(data, Path(folder) / data) for data in arguments.data}
        cells = [
            (data, setting, str(arguments.epsilon) if SETTINGS[setting].charges else None, arguments.model)
            for setting in arguments.settings
            for data in stores
        ]
        append_missing(
            arguments.texts,
            cells,
            cell_of,
            lambda cell: release(engine, *stores[cell[0]], cell[0], cell[1], arguments),
        )


def release(
    engine: Engine,
    corpus: Corpus,
    units: int,
    data: str,
    setting: str,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """One release's texts, each with and without the tokens that finish its last sentence."""
    changed = SETTINGS[setting]
    parameters = {
        "samples": arguments.samples,
        "references": REFERENCES,
        "max_new_tokens": DRAWS,
        "max_reference_tokens": REFERENCE_TOKENS,
        "precision": arguments.precision,
        **changed.own,
    }
    tokens = Tokens()
    asked = Prompt.model_validate({
        "description": DESCRIBED[data],
        **changed.wording,
        **({"examples": EXAMPLES[data]} if changed.examples else {}),
    })  # fmt: skip
    plan, made, seconds = draw_release(
        engine, corpus, units, changed.system, parameters, arguments.epsilon, asked, setting, tokens
    )
    if changed.charges:
        numbers = sorted(tokens.drawn)
        drawn = [tokens.drawn[number] for number in numbers]
        own = [len(tokens.drawn[number]) - tokens.completing[number] for number in numbers]
    else:  # drawn free of charge, so the journal has nothing
        drawn = [_tokens_again(engine.model, text) for text in made.texts]
        own = [min(DRAWS, len(each)) for each in drawn]
    if len(drawn) != len(made.texts):
        raise AssertionError("a text has no token")
    separator = DEFAULT_SEPARATOR if asked.form == "completion" else None
    return {
        "data": data,
        "setting": setting,
        "epsilon": str(arguments.epsilon) if changed.charges else None,
        "model": arguments.model,
        "clip_norm": float(plan.facts["clip norm C"]) if changed.charges else None,
        "completed": [text_of(engine.model, each, separator) for each in drawn],
        "cut": [text_of(engine.model, each[:kept], separator) for each, kept in zip(drawn, own, strict=True)],
        "seconds": seconds,
    }


def cell_of(row: Mapping[str, Any]) -> Cell:
    """What tells a release from others."""
    return row["data"], row["setting"], row["epsilon"], row["model"]


def _tokens_again(model: LanguageModel, text: GeneratedText) -> list[int]:
    encoded: list[int] = model.tokenizer(text.text, add_special_tokens=False)["input_ids"]
    return [*encoded, model.stop_tokens[0]] if text.complete else encoded


def text_of(model: LanguageModel, tokens: Sequence[int], separator: str | None = None) -> dict[str, Any]:
    """A text as it is released, and whether its last sentence has ended."""
    decoded, complete = model.tokenizer.decode(tokens, skip_special_tokens=True), tokens[-1] in model.stop_tokens
    if separator is not None and (before := text_before(separator, decoded)) is not None:
        decoded, complete = before, True
    return {"text": decoded.strip(), "tokens": len(tokens), "ended": complete or ends_sentence(decoded)}


def measure(model: LanguageModel, texts: Path, out: Path) -> None:
    """Write the figures of all releases that are there; those of a data set are compared whichever model drew them.

    Args:
        model: it scores every text, and its tokens are those that texts are cut by.
    """
    from benchmarks.utility.mauve import embedder, measured_together  # only figures need it

    embedders = {name: embedder(name) for name in EMBEDDERS}
    rows, lines = read_lines(texts), []
    for data in DESCRIBED:
        if not (own := [row for row in rows if row["data"] == data]):
            continue
        count = min(len(row["cut"]) for row in own)
        _, real = real_texts(model.tokenizer, data, count, DRAWS)
        sides = {
            cell_of(row): [beginning(model, text["text"], DRAWS) for text in row["completed"][:count]] for row in own
        }
        similar = {by: measured_together(embed, sides, real) for by, embed in embedders.items()}
        for row in own:
            usual = base_of(cell_of(row))
            mauve, difference = {}, {}
            for by, found in similar.items():
                mauve[by] = _shown(found[cell_of(row)])
                if usual in found and usual != cell_of(row):
                    difference[by] = _shown(found[cell_of(row)].less(found[usual]))
            together = {"mauve": mauve, "mauve_difference": difference, "real_texts": len(real)}
            lines += [_figures_of(model, row, end) | together for end in ("cut", "completed")]
    write_lines(out, lines)


def base_of(cell: Cell) -> Cell:
    """The release that another is compared with: of the default model and wording, at the same epsilon."""
    data, setting, epsilon, _ = cell
    return data, TODAY if SETTINGS[setting].charges else "public only", epsilon, DEFAULT_MODEL


def _shown(estimate: "Estimate") -> list[float]:
    return [round(value, 4) for value in estimate.shown]


def _figures_of(model: LanguageModel, row: Mapping[str, Any], end: str) -> dict[str, Any]:
    """Figures of each text of a release, with its sentences cut or completed; none of its words."""
    examples = EXAMPLES[row["data"]] if SETTINGS[row["setting"]].examples else ()
    found = [text["text"] for text in row[end]]
    doubts = [find_doubts(text, (DESCRIBED[row["data"]], *examples)) for text in found]
    return {
        **{name: row[name] for name in ("data", "setting", "epsilon", "model", "clip_norm")},
        "completed": end == "completed",
        "tokens": [text["tokens"] for text in row[end]],
        "ended": [text["ended"] for text in row[end]],
        "log_likelihood": [[round(total, 3), count] for total, count in log_likelihoods(model, found)],
        "copies": sum("copies the prompt" in each for each in doubts),
        "repeats": sum("repeats itself" in each for each in doubts),
    }


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
            "" if line["completed"] else _mauve(line["mauve"], MINILM),
            "" if line["completed"] else _mauve(line["mauve_difference"], MINILM),
        ]
        yield f"| {' | '.join(shown)} |"


def wordings_table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a prompt at the usual epsilon: MAUVE beside that of the public model with it."""
    scored = (f"MAUVE, {by} | public only's" for by in ("MiniLM", "mpnet"))
    yield f"| model | data | prompt | perplexity | {' | '.join(scored)} |"
    yield "|" + 8 * " --- |"
    of = {cell_of(line): line for line in lines if line["completed"]}
    for (data, setting, epsilon, model), line in of.items():
        if epsilon == str(EPSILON):
            alone = "public only" if setting == TODAY else f"public only, {setting.removeprefix('preset ')}"
            control = of.get((data, alone, None, model))
            scores = (_mauve(each["mauve"], by) if each else "" for by in EMBEDDERS for each in (line, control))
            yield f"| {' | '.join([model, data, setting, written(figures(line)['perplexity'], 1), *scores])} |"


def coherence_table(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: the texts of a release that each of two blind readers called coherent, and that both did."""
    yield "| model | data | release | epsilon | texts | reader 1 | reader 2 | both |"
    yield "|" + 8 * " --- |"
    for line in lines:
        first, second = zip(*line["coherent"], strict=True)
        both, count = sum(map(all, line["coherent"])), len(first)
        share = written([100 * value for value in (both / count, *wilson(both, count))], 0, " %")
        named = (line[name] or "-" for name in ("model", "data", "setting", "epsilon"))
        yield f"| {' | '.join([*named, str(count), str(sum(first)), str(sum(second)), share])} |"


def _mauve(found: Mapping[str, list[float]], by: str) -> str:
    return written(found[by], 2) if by in found else ""


if __name__ == "__main__":
    main()
