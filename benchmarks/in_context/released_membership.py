"""Membership behind released demonstrations: does a prompt of them give away whose texts they were made from?

    python -m benchmarks.in_context.released_membership            # appends what the file in docs/figures lacks
    python -m benchmarks.in_context.released_membership --table    # the table of docs/attacks.md

The second half of the attack of Bhusal et al. (`prompt_membership.py`): AG News, one release of ROUNDS texts of each
label, at epsilon 4 as in the paper. Each prompt has one text of each label. Members are units of the batches that these
texts were drawn from, non-members units of batches that no text was drawn from; as many of each label.

    real          one member of each label is shown itself, and the members are these: the attack works
    released      private ICL, or InvisibleInk
    public only   the public model's own texts, which are from nobody: the control

Each line has the scores of all members and non-members, and the shown texts where these were generated.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.open_bench import open_bench
from benchmarks.in_context.demonstrations import DELTA, DESCRIPTIONS, Sizes, public_labels, store, wanted_parameters
from benchmarks.in_context.prompt_membership import Answerer, right_answers
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.attacks.roc import separation
from tasks.corpus.store import Corpus
from tasks.evaluation.in_context.demonstrations import Example
from tasks.evaluation.in_context.labelled_files import read_examples
from tasks.evaluation.in_context.task_definitions import TASKS, Task
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.pricing.registry import SYSTEMS
from tasks.values.plan import PlanInputs

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "released_membership.jsonl"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "agnews.jsonl"
TASK = TASKS["agnews"]
EPSILON, ROUNDS, OF_A_LABEL = "4", 20, 3
SIZES = Sizes(
    samples=ROUNDS * len(TASK.labels),
    references=7,
    max_new_tokens=24,
    max_reference_tokens=64,
    temperature="1",
    precision="bfloat16",
)
REAL, PUBLIC_ONLY = "real", "public_only"
MECHANISMS = ("private_icl", "invisible_ink")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    print("\n".join(table(_lines(arguments.out))))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def measure(arguments: argparse.Namespace) -> None:
    """Append every column that is missing."""
    examples = read_examples(TASK, arguments.data)
    batches = round(len(examples) / (len(TASK.labels) * SIZES.references))
    answer = right_answers(load(arguments.model, arguments.device), TASK, SIZES.max_reference_tokens)
    engine = Engine(load(arguments.model, arguments.device, SIZES.precision))
    with tempfile.TemporaryDirectory() as folder:
        corpus = store(TASK, examples, Path(folder))
        bench = open_bench(engine, corpus, PromptSpec.of(_prompt(TASK), tuple(public_labels(TASK))))
        inside = [units_of_batches(corpus, bench, batches, number) for number in range(ROUNDS)]
        outside = [units_of_batches(corpus, bench, batches, ROUNDS + number) for number in range(ROUNDS)]
        for column in (REAL, PUBLIC_ONLY, *MECHANISMS):
            if column in [line["column"] for line in _lines(arguments.out)]:
                continue
            shown = None if column == REAL else demonstrations(column, bench, len(examples))
            line = {"column": column, **asked(answer, shown, inside, outside)}
            with arguments.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
            print(column, separation(line["members"], line["nonmembers"]).values(), flush=True)


def _prompt(task: Task) -> Prompt:
    return Prompt(description=DESCRIPTIONS[task.name])


def units_of_batches(corpus: Corpus, bench: RunContext, batches: int, number: int) -> list[list[Example]]:
    """Return, for each label, the texts of the units in its batch of a number; `OF_A_LABEL` at most."""
    words = public_labels(TASK)
    places = [(0, label, number) for label in range(len(words))]
    rows = corpus.batches(bench.scheme, bench.split, batches, places, tuple(words))
    return [
        [Example(unit.text, words[word]) for unit in rows[place]][:OF_A_LABEL]
        for place, word in zip(places, words, strict=True)
    ]


def demonstrations(name: str, bench: RunContext, units: int) -> list[list[Example]]:
    """Return the texts of one release by batch, one of each label; an empty text stays, for its batch has members."""
    words, system = public_labels(TASK), SYSTEMS[name]
    parameters = system.parameters.model_validate(wanted_parameters(SIZES) | {"labels": tuple(words)})
    amount = release_amount(Decimal(EPSILON), DELTA) if system.charges else None
    plan = system.plan(PlanInputs(amount, parameters, 1, units, governed=True))
    made = [text.text for text in system.generate(plan, parameters, bench).texts]  # label by label
    columns = [made[label * ROUNDS : (label + 1) * ROUNDS] for label in range(len(words))]
    return [[Example(text, label) for text, label in zip(texts, words.values(), strict=True)]
            for texts in zip(*columns, strict=True)]  # fmt: skip


def asked(
    answer: Answerer,
    shown: Sequence[Sequence[Example]] | None,
    inside: Sequence[Sequence[Sequence[Example]]],
    outside: Sequence[Sequence[Sequence[Example]]],
) -> dict[str, Any]:
    """Return the scores of members and non-members over all prompts.

    Args:
        shown: the demonstrations of each prompt; None for one member of each label, who then are the only ones asked
            about, with as many non-members.
        inside, outside: of each prompt, by label, the units of its batches and of unread ones.
    """
    scores: dict[str, list[float]] = {"members": [], "nonmembers": []}
    for number, sides in enumerate(zip(inside, outside, strict=True)):
        members, others = (
            [unit for of_label in side for unit in (of_label[:1] if shown is None else of_label)] for side in sides
        )
        found = list(answer(members if shown is None else shown[number], [*members, *others]))
        scores["members"] += [round(score, 4) for score in found[: len(members)]]
        scores["nonmembers"] += [round(score, 4) for score in found[len(members) :]]
    texts = [] if shown is None else [example.text for prompt in shown for example in prompt]
    return {"epsilon": EPSILON, "prompts": len(inside), **scores, "texts": texts}


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row for each column, with DeLong's 95 % interval over members and non-members."""
    yield "| demonstrations in the prompt | epsilon | prompts | members, non-members | AUC | TPR at FPR 1 % |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for line in lines:
        found = separation(line["members"], line["nonmembers"]).values()
        auc = f"{float(found['auc']):.3f} ({float(found['auc_low']):.3f} to {float(found['auc_high']):.3f})"
        epsilon = line["epsilon"] if line["column"] in MECHANISMS else "-"
        counts = f"{len(line['members'])}, {len(line['nonmembers'])}"
        rate = separation(line["members"], line["nonmembers"]).rates["tpr_at_1_percent"]
        shown = f"{rate.value:.2f} ({rate.interval[0]:.2f} to {rate.interval[1]:.2f})" if rate else ""
        yield f"| {line['column'].replace('_', ' ')} | {epsilon} | {line['prompts']} | {counts} | {auc} | {shown} |"


if __name__ == "__main__":
    main()
