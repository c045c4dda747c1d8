"""Next-token distributions along court decisions, the legal domain of InvisibleInk's paper (there TAB; here ECHR).

    python -m benchmarks.reproductions.court --kept traces         # writes docs/figures/utility_court.jsonl
    python -m benchmarks.reproductions.court --control             # writes docs/figures/utility_court_control.jsonl
    python -m benchmarks.reproductions.court --table               # the tables of docs/utility.md

As `next_tokens.py`, at 7 rows and 100 candidates. The corpus has 38 long documents, so the texts are passages of
PASSAGE_WORDS words: TEXTS held-out ones, each of another document, and references from the documents that are left. In
the control, private rows along the same texts have reviews of Yelp as their references (`foreign_references`).
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks import foreign_references
from benchmarks.common.json_lines import write_lines
from benchmarks.utility import next_tokens
from benchmarks.utility.next_tokens import EPSILONS, USUAL_CANDIDATES, USUAL_ROWS, Measured
from benchmarks.utility.systems import AMIN, ICL, INK, MEAN, PAPER, PUBLIC, SINGLE, Setting
from benchmarks.utility.texts import POSITIONS, REFERENCE_TOKENS, SEED, STRIDE, Forced, Trace, read, read_texts
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import reference_tokens

DATA = "echr_communicated"
OTHER = "yelp"
"""Whose texts the control's rows read."""
OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "utility_court.jsonl"
CONTROL = OUT.with_name("utility_court_control.jsonl")
DESCRIPTION = (
    "Passages of decisions of a court on human rights: the facts of a case, and what the applicant complains of."
)
TEXTS, PASSAGE_WORDS = 12, 150
SYSTEMS = (PUBLIC, MEAN, SINGLE, INK, PAPER, AMIN, ICL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--kept", type=Path, help="folder for what was read")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--control", action="store_true", help="only measure rows of another corpus")
    parser.add_argument("--control-out", type=Path, default=CONTROL)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.control:
        write_lines(arguments.control_out, control(load(arguments.model, arguments.device, arguments.precision)))
    elif not arguments.table:
        if arguments.kept is None:
            parser.error("--kept is needed to read texts")
        found = measure(arguments)
        arguments.out.write_text("".join(json.dumps(line.to_json()) + "\n" for line in found), encoding="utf-8")
    own = next_tokens.read_results(arguments.out)
    print("\n".join(table(own)))
    if arguments.control_out.exists():
        print("\n".join(foreign_references.table(own, next_tokens.read_results(arguments.control_out), (DATA,))))


def settings() -> list[Setting]:
    """Every system at every epsilon, 7 rows and 100 candidates."""
    free = [Setting(name, None, USUAL_ROWS) for name in (PUBLIC, MEAN, SINGLE)]
    return free + [Setting(name, epsilon, USUAL_ROWS) for epsilon in EPSILONS for name in (INK, PAPER, AMIN, ICL)]


def passages(document: str) -> list[str]:
    """Cut a document into passages of `PASSAGE_WORDS` words; the rest at its end is left out."""
    words = document.split()
    starts = range(0, len(words) - PASSAGE_WORDS + 1, PASSAGE_WORDS)
    return [" ".join(words[start : start + PASSAGE_WORDS]) for start in starts]


def choose(tokenizer: object, documents: Sequence[str]) -> list[Forced]:
    """One passage of each of `TEXTS` documents, with 7 passages of other documents; these have none held out."""
    source = random.Random(SEED)
    cut = [found for found in map(passages, documents) if found]
    source.shuffle(cut)
    others = source.sample([passage for of_one in cut[TEXTS:] for passage in of_one], TEXTS * USUAL_ROWS)
    needed = STRIDE * (POSITIONS - 1) + 1
    return [
        Forced(
            number,
            reference_tokens(tokenizer, source.choice(cut[number]), needed),
            tuple(
                reference_tokens(tokenizer, passage, REFERENCE_TOKENS)
                for passage in others[number * USUAL_ROWS : (number + 1) * USUAL_ROWS]
            ),
        )
        for number in range(TEXTS)
    ]


def measure(arguments: argparse.Namespace) -> list[Measured]:
    """All settings along all texts; a trace is read once and then kept."""
    model = load(arguments.model, arguments.device, arguments.precision)
    return next_tokens.measured_along(model, DATA, settings(), traces(model, arguments.kept))


def traces(model: LanguageModel, kept: Path) -> Iterator[tuple[int, Trace]]:
    """Yield the numbered traces of all texts, from `kept` where they are there."""
    kept.mkdir(parents=True, exist_ok=True)
    for text in choose(model.tokenizer, read_texts(DATA)):
        path = kept / f"{DATA}-{text.number}.npz"
        if not path.exists():
            read(model, DESCRIPTION, text).save(path)
        yield text.number, Trace.load(path)


def control(model: LanguageModel) -> Iterator[dict[str, Any]]:
    """Yield the lines of the settings of `foreign_references` along the same texts, with rows of another corpus."""
    texts = foreign(model.tokenizer, choose(model.tokenizer, read_texts(DATA)), read_texts(OTHER))
    numbered = ((text.number, read(model, DESCRIPTION, text)) for text in texts)
    for line in next_tokens.measured_along(model, DATA, foreign_references.SETTINGS, numbered):
        yield line.to_json() | {"references_of": OTHER}


def foreign(tokenizer: object, held_out: Sequence[Forced], others: Sequence[str]) -> Iterator[Forced]:
    """Yield the held-out texts, each with as many references of other texts, none of which comes twice."""
    chosen = random.Random(SEED).sample(others, len(held_out) * USUAL_ROWS)
    for place, text in enumerate(held_out):
        own = chosen[place * USUAL_ROWS : (place + 1) * USUAL_ROWS]
        yield replace(text, references=tuple(reference_tokens(tokenizer, each, REFERENCE_TOKENS) for each in own))


def table(results: Sequence[Measured]) -> Iterator[str]:
    """Yield rows by epsilon: KL to the private mean, and the loss of real tokens less public only's."""
    names = {DATA: "KL"}
    yield from next_tokens.systems_table(results, "kl", USUAL_CANDIDATES, SYSTEMS, names)
    rows = list(
        next_tokens.systems_table(results, "loss", USUAL_CANDIDATES, SYSTEMS[1:], {DATA: "loss less public only's"})
    )
    yield from rows[2:]


if __name__ == "__main__":
    main()
