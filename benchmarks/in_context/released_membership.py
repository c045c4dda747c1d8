"""Membership in released demonstrations: does a prompt of released texts tell whose texts they were made of?

    python -m benchmarks.in_context.released_membership            # appends what the file in docs/figures lacks
    python -m benchmarks.in_context.released_membership --table    # the table of docs/attacks.md

The attack of `prompt_membership.py` on the releases that `accuracy.py` has kept (AG News, its last `ITEMS` records read
by none). A prompt has one released text of each label. Members are the units behind these texts, 12 or so each;
non-members are as many texts of the same label among the records that were not read, so that labels tell nothing. The
attacker knows the units' texts and asks the model, with the prompt, how sure it is of each one's label.

Control: the same members and non-members, asked with demonstrations that the public model wrote by itself. These have
read nobody, so what an attack finds there is how the two sets of texts differ. Each line has the scores of one release,
label by label within each prompt.
"""

import argparse
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.figures_parser import model_figures_parser
from benchmarks.common.intervals import interval_of_difference, written
from benchmarks.common.json_lines import DATA, append_lines, read_lines, read_lines_if_there
from benchmarks.common.open_bench import KEY
from benchmarks.in_context.demonstrations import PUBLIC_ONLY, public_labels, store
from benchmarks.in_context.prompt_membership import PromptRound, right_answers
from tasks.attacks.roc import Separation, separation
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.evaluation.in_context.demonstrations import Example
from tasks.evaluation.in_context.labelled_files import read_examples
from tasks.evaluation.in_context.task_definitions import TASKS
from tasks.inference.loading.loading import load
from tasks.planning.batches import BatchLayout

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
OUT, POOLS = FIGURES / "released_membership.jsonl", FIGURES / "in_context_pools.jsonl"
TASK = TASKS["agnews"]
ITEMS, TEXT_TOKENS = 200, 64
"""Records that no release has read, and what the model sees of a text: as in `accuracy.py`."""


def main() -> None:
    parser = model_figures_parser(__doc__, OUT)
    parser.add_argument("--data", type=Path, default=DATA / "agnews.jsonl")
    parser.add_argument("--pools", type=Path, default=POOLS)
    parser.add_argument("--columns", nargs="+", default=[PUBLIC_ONLY, "private_icl, epsilon 8"])
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    print("\n".join(table(read_lines_if_there(arguments.out))))


def measure(arguments: argparse.Namespace) -> None:
    """Append the line of every release that is missing."""
    examples = read_examples(TASK, arguments.data)
    private, unread = examples[:-ITEMS], examples[-ITEMS:]
    answer = right_answers(load(arguments.model, arguments.device), TASK, TEXT_TOKENS)
    for pool in sorted(read_lines(arguments.pools), key=lambda pool: pool["column"].partition(", release ")[2]):
        kind = pool["column"].split(", release ")[0]
        there = [line["column"] for line in read_lines_if_there(arguments.out)]
        if pool["task"] != TASK.name or kind not in arguments.columns or pool["column"] in there:
            continue
        texts = [Example(text, label) for text, label in pool["texts"]]
        line: dict[str, Any] = {"column": pool["column"], "sizes": pool["sizes"], "prompts": []}
        for each in rounds(texts, units_behind(private, pool["sizes"]), unread):
            scores = [round(score, 4) for score in answer(each.shown, [*each.members, *each.nonmembers])]
            count = len(each.members)
            labels = [example.label for example in each.members]
            line["prompts"].append({"labels": labels, "members": scores[:count], "nonmembers": scores[count:]})
        append_lines(arguments.out, [line])
        print(pool["column"], len(line["prompts"]), flush=True)


def units_behind(private: Sequence[Example], sizes: Mapping[str, Any]) -> list[list[Example]]:
    """Return the units that each text of a release was made of, in the order of its texts.

    The split of a benchmark's bench has a public key, so it can be made again.
    """
    words = public_labels(TASK)
    layout = BatchLayout(sizes["samples"], 1, len(words))
    places = [place for (place,) in layout.sources()]
    batches = layout.per_block(len(private), sizes["references"])
    with tempfile.TemporaryDirectory() as folder:
        corpus = store(TASK, private, Path(folder))
        rows = corpus.batches(PartitionScheme(KEY, 1), BatchSplit(KEY, "benchmark"), batches, places, tuple(words))
    labels = list(words.values())
    return [[Example(unit.text, labels[place[1]]) for unit in rows[place]] for place in places]


def rounds(
    texts: Sequence[Example], units: Sequence[Sequence[Example]], unread: Sequence[Example]
) -> Iterator[PromptRound]:
    """Yield a prompt for each text of a label; each label's members and non-members are equally many.

    Raises:
        ValueError: a text has not the label of the units behind it, so that it was made of others.
    """
    if len(texts) != len(units) or any(
        unit.label != text.label for text, own in zip(texts, units, strict=True) for unit in own
    ):
        raise ValueError("the texts are not those of these units")
    labels = list(dict.fromkeys(text.label for text in texts))
    behind = {label: [place for place, text in enumerate(texts) if text.label == label] for label in labels}
    others = {label: iter([example for example in unread if example.label == label]) for label in labels}
    for number, places in enumerate(zip(*behind.values(), strict=True)):
        members: list[Example] = []
        nonmembers: list[Example] = []
        for place in places:
            outside = [example for _, example in zip(units[place], others[texts[place].label], strict=False)]
            members += units[place][: len(outside)]
            nonmembers += outside
        start = number % len(places)  # labels take turns in being the last, which the model likes to repeat
        yield PromptRound([texts[place] for place in (*places[start:], *places[:start])], members, nonmembers)


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row for each release, the control's first: AUC over all labels, and for each label alone.

    A release by a private system has a second row, its AUC less that of the control's release of the same number on the
    same texts: a bootstrap over members and over non-members, each text with both of its scores.
    """
    labels = list(public_labels(TASK).items())
    asked = [{label for _, label in labels}, *({label} for _, label in labels)]
    controls = {release_of(line): line for line in lines if line["column"].startswith(PUBLIC_ONLY)}
    yield f"| demonstrations | prompts | members, non-members | AUC | {' | '.join(word for word, _ in labels)} |"
    yield f"| --- | --- | --- | --- |{' --- |' * len(labels)}"
    for line in sorted(lines, key=lambda line: (line not in controls.values(), line["column"])):
        found = [separation(*sides(line, some)) for some in asked]
        counts = f"{len(line['prompts'])} | {found[0].members}, {found[0].nonmembers}"
        yield f"| {line['column'].replace('_', ' ')} | {counts} | {' | '.join(map(shown, found))} |"
        control = controls.get(release_of(line))
        if line is not control and control is not None:
            less = [written(difference(line, control, some), 3) for some in asked]
            yield f"| the same less public only |  |  | {' | '.join(less)} |"


def release_of(line: Mapping[str, Any]) -> str:
    """Return the number of a release, empty for the first."""
    return str(line["column"].partition(", release ")[2])


def sides(line: Mapping[str, Any], labels: Collection[str]) -> tuple[list[float], list[float]]:
    """Return the scores of members and of non-members with some of the labels, over all prompts."""
    inside, outside = (
        [
            score
            for prompt in line["prompts"]
            for score, label in zip(prompt[side], prompt["labels"], strict=True)
            if label in labels
        ]
        for side in ("members", "nonmembers")
    )
    return inside, outside


def difference(line: Mapping[str, Any], control: Mapping[str, Any], labels: Collection[str]) -> list[float]:
    """Return by how much the AUC of a release is larger than the control's, with its interval."""
    members, nonmembers = (
        list(zip(*each, strict=True)) for each in zip(sides(line, labels), sides(control, labels), strict=True)
    )

    def larger(inside: Sequence[tuple[float, float]], outside: Sequence[tuple[float, float]]) -> float:
        own, usual = (auc([pair[of] for pair in inside], [pair[of] for pair in outside]) for of in (0, 1))
        return own - usual

    return interval_of_difference(members, nonmembers, larger, seed=0, rounds=1000)


def auc(inside: Sequence[float], outside: Sequence[float]) -> float:
    """Return how often a member's score is above a non-member's, ties counting half."""
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
    return float(below.mean()) / (2 * len(ordered))


def shown(found: Separation) -> str:
    """Return an AUC with its 95 % interval."""
    low, high = found.interval or (math.nan, math.nan)
    return f"{found.auc:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
