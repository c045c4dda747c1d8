"""Membership in real prompts of in-context learning, where labels tell nothing and where they do.

    python -m benchmarks.in_context.membership_and_labels            # appends what the file in docs/figures lacks
    python -m benchmarks.in_context.membership_and_labels --table    # the table of docs/attacks.md

The attack of Bhusal et al. (`prompt_membership.py`) on AG News: four real texts with their labels are in the prompt,
and these are the members.

    equal labels    one text of each label is shown, and non-members are one of each label, so that labels tell nothing.
                    Labels take turns in being the last of a prompt, which the model likes to repeat
    any labels      four texts are shown whatever their labels, and non-members are any four others: a member's label is
                    in the prompt and another text's often is not, which the attack may see without seeing the text

Each line has the scores of all members and non-members, those of equal labels in the order of the labels.
"""

import argparse
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.controls import permuted
from benchmarks.common.figures_parser import model_figures_parser
from benchmarks.common.json_lines import DATA, append_lines, read_lines_if_there
from benchmarks.common.open_bench import KEY
from benchmarks.in_context.demonstrations import public_labels, store
from benchmarks.in_context.prompt_membership import Answerer, PromptRound, right_answers
from tasks.attacks.roc import Separation, separation
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.evaluation.in_context.demonstrations import Example
from tasks.evaluation.in_context.labelled_files import read_examples
from tasks.evaluation.in_context.task_definitions import TASKS
from tasks.inference.loading.loading import load

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "membership_and_labels.jsonl"
CORPUS = DATA / "agnews.jsonl"
TASK = TASKS["agnews"]
PROMPTS, UNITS_OF_A_BATCH, TEXT_TOKENS = 60, 7, 64
EQUAL, ANY = "equal labels", "any labels"


def main() -> None:
    parser = model_figures_parser(__doc__, OUT)
    parser.add_argument("--data", type=Path, default=CORPUS)
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    print("\n".join(table(read_lines_if_there(arguments.out))))


def measure(arguments: argparse.Namespace) -> None:
    """Append every line that is missing."""
    examples = read_examples(TASK, arguments.data)
    answer = right_answers(load(arguments.model, arguments.device), TASK, TEXT_TOKENS)
    for labels, rounds in ((EQUAL, equal_rounds(sides(examples))), (ANY, any_rounds(examples))):
        if labels in [line["labels"] for line in read_lines_if_there(arguments.out)]:
            continue
        line = {"labels": labels, **asked(answer, rounds)}
        append_lines(arguments.out, [line])
        print(labels, separation(line["members"], line["nonmembers"]).line(), flush=True)


def sides(examples: Sequence[Example]) -> list[list[Example]]:
    """Return 2 * `PROMPTS` sets of one text of each label: the first of the batches that a release would read."""
    words = public_labels(TASK)
    batches = round(len(examples) / (len(words) * UNITS_OF_A_BATCH))
    places = [(0, label, number) for number in range(2 * PROMPTS) for label in range(len(words))]
    with tempfile.TemporaryDirectory() as folder:
        corpus = store(TASK, examples, Path(folder))
        rows = corpus.batches(PartitionScheme(KEY, 1), BatchSplit(KEY, "benchmark"), batches, places, tuple(words))
    labels = list(words.values())
    found = [Example(rows[place][0].text, labels[place[1]]) for place in places]
    return [found[start : start + len(words)] for start in range(0, len(found), len(words))]


def equal_rounds(sides: Sequence[Sequence[Example]]) -> list[PromptRound]:
    """One text of each label in each prompt; others are one of each label that is in no prompt."""
    pairs = zip(sides[:PROMPTS], sides[PROMPTS:], strict=True)
    return [PromptRound(turned(own, number), own, others) for number, (own, others) in enumerate(pairs)]


def any_rounds(examples: Sequence[Example]) -> list[PromptRound]:
    """Four texts in each prompt, and four others, each drawn without a look at labels."""
    mixed = permuted(examples, seed=0)
    quarters = [mixed[start : start + 4] for start in range(0, 8 * PROMPTS, 4)]
    return [PromptRound(own, own, others) for own, others in zip(quarters[::2], quarters[1::2], strict=True)]


def turned(demonstrations: Sequence[Example], number: int) -> list[Example]:
    """Return the demonstrations, begun at another one in each prompt."""
    start = number % len(demonstrations)
    return [*demonstrations[start:], *demonstrations[:start]]


def asked(answer: Answerer, rounds: Sequence[PromptRound]) -> dict[str, Any]:
    """Return the scores of members and non-members over all prompts."""
    scores: dict[str, list[float]] = {"members": [], "nonmembers": []}
    for each in rounds:
        found = [round(score, 4) for score in answer(each.shown, [*each.members, *each.nonmembers])]
        scores["members"] += found[: len(each.members)]
        scores["nonmembers"] += found[len(each.members) :]
    return {"prompts": len(rounds), **scores}


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row for each kind of labels, and for each of the equal labels, with 95 % intervals over both sides."""
    yield "| labels | prompts | members, non-members | AUC | TPR at FPR 1 % |"
    yield "| --- | --- | --- | --- | --- |"
    words = list(public_labels(TASK))
    for line in lines:
        parts = {line["labels"]: slice(None)}
        if line["labels"] == EQUAL:  # the texts of a prompt stand label by label
            parts |= {f"{EQUAL}, {word} alone": slice(place, None, len(words)) for place, word in enumerate(words)}
        for name, part in parts.items():
            yield _row(name, line["prompts"], separation(line["members"][part], line["nonmembers"][part]))


def _row(name: str, prompts: int, found: Separation) -> str:
    rate, (low, high) = found.rates["tpr_at_1_percent"], found.interval or (math.nan, math.nan)
    shown = f"{rate.value:.2f} ({rate.interval[0]:.2f} to {rate.interval[1]:.2f})" if rate else ""
    counts = f"{prompts} | {found.members}, {found.nonmembers}"
    return f"| {name} | {counts} | {found.auc:.3f} ({low:.3f} to {high:.3f}) | {shown} |"


if __name__ == "__main__":
    main()
