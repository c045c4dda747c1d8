"""How prompts change the next tokens of real texts at equal epsilon.

    python -m benchmarks.utility.wording --stage tuning --kept traces --out docs/figures/wording.jsonl
    python -m benchmarks.utility.wording --stage reported --kept traces --out docs/figures/wording.jsonl
    python -m benchmarks.utility.wording --stage reported --model gemma3-270m --wordings completion --kept traces ...
    python -m benchmarks.utility.wording --out docs/figures/wording.jsonl --table

Words and penalties are chosen by their figures on the corpora of `tuning`, which no other page reports; those of
`reported` are the corpora of the other pages on utility, read once with what was chosen. As in `next_tokens`, the
logits along held-out real texts are computed once for a wording, and the distributions from them: `public`, that of the
public model, and `private`, InvisibleInk's with 7 rows at epsilon 4. Each figure is the loss of the real token
(`next_tokens`). What was read of a text is kept. The examples are written for this benchmark and come from no corpus.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch

from benchmarks.common.intervals import written
from benchmarks.common.json_lines import append_lines, read_lines
from benchmarks.utility.next_tokens import compare, interval
from benchmarks.utility.systems import INK, Setting, bind, private_distribution, unprotected
from benchmarks.utility.texts import DESCRIPTIONS, NOTES, STRIDE, Forced, Trace, choose, read_texts
from models_db.values.requests import Prompt
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.rows import RowBatch
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import prompts_for
from tasks.inference.prompt_spec import PromptSpec

EPSILON, ROWS, REFERENCE_TOKENS, DRAWS, CANDIDATES = "4", 7, 64, 48, 100
TUNING = {
    "aci_bench": "Clinical notes that a physician writes after a visit.",
    "personal_reddit_synth": "Comments that people write in an online forum about their lives.",
}
STAGES: Mapping[str, Mapping[str, str]] = {"tuning": TUNING, "reported": DESCRIPTIONS}
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "aci_bench": (
        (
            "CHIEF COMPLAINT\n\nSore throat.\n\nHISTORY OF PRESENT ILLNESS\n\nThe patient is a 27-year-old"
            " female with three days of throat pain and a low fever. She denies cough.\n\nPHYSICAL"
            " EXAM\n\nThroat: Mild redness, no exudate."
        ),
        (
            "CHIEF COMPLAINT\n\nFollow-up of high blood pressure.\n\nHISTORY OF PRESENT ILLNESS\n\nThe patient"
            " is a 64-year-old male who takes lisinopril 10 mg daily. Home readings are about"
            " 135/85.\n\nASSESSMENT AND PLAN\n\n1. Hypertension. We will continue the present dose."
        ),
    ),
    NOTES: (
        "The patient is a 61-year-old man with a cough for two weeks. He does not smoke.",
        "She takes ramipril for high blood pressure and reports no allergies.",
    ),
    "personal_reddit_synth": (
        (
            "Honestly my commute is the best part of the day lol. Forty minutes on the tram with a podcast and"
            " nobody asking me for anything. My sister thinks I'm mad for not driving."
        ),
        (
            "We tried the whole homemade bread thing after my second was born and gave up within a week. Now I"
            " just get a loaf from the bakery round the corner, worth every penny!"
        ),
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
WORDINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "imitate": {
        "system": "You write texts of a given kind as different people would write them. Reply with the text alone.",
        "public": "{description}\n\nWrite one such text, true to life and with concrete details.",
        "again": "Write one by a different author, in the same style and of about the same length.",
    },
    "brief": {"preset": "brief"},
    "completion": {"form": "completion"},
}
_ROWS_AT_ONCE = 7


@dataclass(frozen=True)
class Cell:
    """One way to ask.

    Attributes:
        wording: one of `WORDINGS`.
        examples: whether the prompt has the two examples.
    """

    data: str
    wording: str
    examples: bool

    def prompt(self, description: str) -> PromptSpec:
        examples = {"examples": EXAMPLES[self.data]} if self.examples else {}
        return PromptSpec.of(Prompt.model_validate({"description": description, **WORDINGS[self.wording], **examples}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=list(STAGES), default="tuning")
    parser.add_argument("--wordings", nargs="+", default=list(WORDINGS), choices=list(WORDINGS))
    parser.add_argument("--kept", type=Path, help="folder for what was read")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each way to ask and data set")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--table", action="store_true", help="only print the figures of what is there")
    arguments = parser.parse_args()
    if not arguments.table:
        if arguments.kept is None:
            parser.error("--kept is needed to read texts")
        model = load(arguments.model, arguments.device, arguments.precision)
        with torch.inference_mode():
            for line in measured(model, arguments):
                append_lines(arguments.out, [line])
    print("\n".join(table(read_lines(arguments.out))))


def measured(model: LanguageModel, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line for each way to ask on each data set of the stage."""
    kept: Path = arguments.kept / arguments.model
    kept.mkdir(parents=True, exist_ok=True)
    for data, description in STAGES[arguments.stage].items():
        texts = choose(model.tokenizer, read_texts(data), arguments.texts, rows=ROWS)
        for wording in arguments.wordings:
            for examples in (False, True):
                asked = Cell(data, wording, examples).prompt(description)
                by_text: dict[str, list[float]] = {"public": [], "private": []}
                for text in texts:
                    path = kept / f"{data}-{wording}-{examples}-{text.number}.npz"
                    if not path.exists():
                        read(model, asked, text).save(path)
                    for name, value in along(Trace.load(path), model, text).items():
                        by_text[name].append(float(f"{value:.5g}"))
                print(f"{data}, {wording}, examples {examples}", flush=True)
                cell = {"data": data, "wording": wording, "examples": examples, "penalty": "0"}
                yield {"model": arguments.model, **cell, **by_text}


def read(model: LanguageModel, asked: PromptSpec, text: Forced) -> Trace:
    """The states of all rows before every `STRIDE`-th token of the text, the public row first (`texts.read`)."""
    public, private = prompts_for(model.tokenizer, asked)
    references = [reference[:REFERENCE_TOKENS] for reference in text.references]
    prompts = [public.tokens, *map(private.around, references)]
    found = []
    for some in ([0], list(range(1, len(prompts)))):
        rows = [(*prompts[index], *text.tokens[:-1]) for index in some]
        longest = max(map(len, rows))
        states = RowBatch(model, len(rows), longest).read_all(rows, longest)
        found.append(states[:, -len(text.tokens) :: STRIDE].float().cpu())
    return Trace(torch.cat(found), torch.tensor(text.tokens[::STRIDE], dtype=torch.int64))


def along(trace: Trace, model: LanguageModel, text: Forced) -> dict[str, float]:
    """The mean losses along one text."""
    logits = trace.logits(model)
    public, rows = logits[0], logits[1:]
    setting = Setting(INK, EPSILON, ROWS, top_k=CANDIDATES)
    bound = bind(setting, DRAWS)
    floor = public.double().log_softmax(1).gather(1, trace.following[:, None])[:, 0]

    def loss(found: Any) -> float:
        return float(compare(found, torch.zeros_like(found.log), trace.following, floor)["loss"].mean())

    private, _ = private_distribution(setting, bound, public, rows)
    return {"public": loss(unprotected(public, "1", CANDIDATES)), "private": loss(private)}


def table(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a way to ask; differences are paired by text, from the first wording of the model alone.

    Lines with a presence penalty, which almoner no longer has, are shown beside that wording without examples.
    """
    named = ("model", "data", "wording", "examples", "penalty", "texts")
    yield f"| {' | '.join((*named, 'public, loss', 'difference', 'private, loss', 'difference'))} |"
    yield "|" + 10 * " --- |"
    usual: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in lines:
        first = usual.setdefault((line["model"], line["data"]), line)
        plain = (line["wording"], line["examples"]) == (first["wording"], first["examples"])
        if line["penalty"] != "0" and not plain:
            continue
        cell = (line["model"], line["data"], line["wording"], "2" if line["examples"] else "-", line["penalty"])
        shown = [*cell, str(len(line["private"]))]
        for name in ("public", "private"):
            shown.append(written(interval(line[name]), 3))
            less = [own - other for own, other in zip(line[name], first[name], strict=True)]
            shown.append("" if line is first else written(interval(less), 3))
        yield f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
