"""What a request gains that asks by the epsilon while the assignment is secret, at equal claim and processor time.

    python -m benchmarks.secret_assignment.utility --out docs/figures/secret_claim.jsonl
    python -m benchmarks.secret_assignment.utility --out docs/figures/secret_claim.jsonl --table

Along held-out real texts (`next_tokens`), InvisibleInk with `USUAL_ROWS` private rows at a claim of epsilon 1, 2 and 4:
once the unconditional claim, as by default, and once the claim while the assignment is secret, of a release of 100
texts from 100 batches and from 1,000. The unconditional epsilon of the latter is the one that a price gives. All of
them are computed from the same logits, so they take the same passes of the model; the processor time of a rule along
all texts is in the output. Controls: the public model alone, and the mean of the same rows without clipping.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch

from benchmarks.common.intervals import written
from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.utility.next_tokens import AT_ONCE, NAMES, USUAL_ROWS, Logits, along, interval
from benchmarks.utility.systems import DELTA, INK, MEAN, PUBLIC, TOKENS, Setting, bind
from benchmarks.utility.texts import DESCRIPTIONS, choose, read, read_texts
from tasks.accounting.zcdp import release_amount
from tasks.inference.loading.load_model import load
from tasks.pricing.secret_claim import SecretClaim
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import Plan, PlanInputs

CLAIMS = ("1", "2", "4")
SAMPLES, BATCHES = 100, (100, 1000)
UNCONDITIONAL = "unconditional"
FIGURES = ("kl", "loss", "covered")


def unconditional_epsilon(claim: str, parameters: Mapping[str, Any]) -> str:
    """The unconditional epsilon of a request that asks for a claim while its assignment is secret, as it is priced."""
    system = SYSTEMS["invisible_ink"]
    wanted = system.parameters.model_validate(parameters)

    def plan_at(epsilon: Decimal) -> Plan:
        return system.plan(PlanInputs(release_amount(epsilon, DELTA), wanted, 1, None, governed=True))

    return str(SecretClaim(Decimal(claim), DELTA, None, system.name).unconditional_epsilon(plan_at))


def epsilon_for(claim: str, batches: int) -> str:
    """The unconditional epsilon of the release that is measured here, of so many batches."""
    sizes = {"samples": SAMPLES, "references": USUAL_ROWS, "batches": batches, "max_new_tokens": TOKENS}
    return unconditional_epsilon(claim, sizes | {"temperature": "1"})


def lines_of(data: str) -> Iterator[dict[str, Any]]:
    """What is measured: the controls, then each claim in each meaning."""
    yield {"data": data, "claim": None, "meaning": PUBLIC, "epsilon": None}
    yield {"data": data, "claim": None, "meaning": MEAN, "epsilon": None}
    for claim in CLAIMS:
        yield {"data": data, "claim": claim, "meaning": UNCONDITIONAL, "epsilon": claim}
        for batches in BATCHES:
            epsilon = epsilon_for(claim, batches)
            yield {"data": data, "claim": claim, "meaning": str(batches), "epsilon": epsilon}


@torch.inference_mode()
def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    model = load(arguments.model, arguments.device, arguments.precision)
    for data, description in DESCRIPTIONS.items():
        lines = list(lines_of(data))
        settings = [Setting(INK if line["claim"] else line["meaning"], line["epsilon"], USUAL_ROWS) for line in lines]
        bound = [None if setting.epsilon is None else bind(setting) for setting in settings]
        for line, rule in zip(lines, bound, strict=True):
            line |= {"clip_norm": None if rule is None else float(rule.draw.clip_norm), "seconds": 0.0}
            line |= {name: [] for name in FIGURES}
        model_seconds = 0.0
        for text in choose(model.tokenizer, read_texts(data), arguments.texts, rows=USUAL_ROWS):
            started = time.process_time()
            trace = read(model, description, text)
            logits = Logits(trace.logits(model), trace.following)
            parts = [logits.part(slice(at, at + AT_ONCE)) for at in range(0, logits.positions, AT_ONCE)]
            model_seconds += time.process_time() - started
            for setting, rule, line in zip(settings, bound, lines, strict=True):
                started = time.process_time()
                found = along(setting, rule, parts, f"{data}-{text.number}")
                line["seconds"] += time.process_time() - started
                for name in FIGURES:
                    line[name].append(float(f"{found[name]:.5g}"))
            print(f"{data}: text {text.number + 1} of {arguments.texts}", flush=True)
        for line in lines:
            yield line | {"seconds": round(line["seconds"], 2), "model_seconds": round(model_seconds, 1)}


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: every claim in each meaning, and the difference to the unconditional claim, paired by text."""
    yield "| claim | epsilon holds | epsilon if the key leaks | clip norm C | KL | less KL | loss | less loss | CPU s |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for data, name in NAMES.items():
        mine = {(line["claim"], line["meaning"]): line for line in lines if line["data"] == data}
        if not mine:
            continue
        floor = mine[None, MEAN]
        yield f"| **{name}** |" + " |" * 8
        for (claim, meaning), line in mine.items():
            losses = [own - other for own, other in zip(line["loss"], floor["loss"], strict=True)]
            cells = [_claim_name(claim, meaning), _meaning(meaning), line["epsilon"] or ""]
            cells += ["" if line["clip_norm"] is None else f"{line['clip_norm']:.2f}", written(interval(line["kl"]), 3)]
            cells += [_gain(mine, claim, meaning, "kl"), "" if line is floor else written(interval(losses), 3)]
            yield "| " + " | ".join([*cells, _gain(mine, claim, meaning, "loss"), f"{line['seconds']:.1f}"]) + " |"


def _claim_name(claim: str | None, meaning: str) -> str:
    return f"epsilon {claim}" if claim else {PUBLIC: "public only", MEAN: "no privacy, unclipped"}[meaning]


def _meaning(meaning: str) -> str:
    return f"while secret, of {meaning} batches" if meaning.isdigit() else meaning if meaning == UNCONDITIONAL else ""


def _gain(mine: Mapping[Any, Mapping[str, Any]], claim: str | None, meaning: str, figure: str) -> str:
    """How much lower a figure is than with the unconditional claim, paired by text."""
    if not meaning.isdigit():
        return ""
    before, after = mine[claim, UNCONDITIONAL][figure], mine[claim, meaning][figure]
    return written(interval([one - other for one, other in zip(before, after, strict=True)]), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each claim and data set")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    arguments = parser.parse_args()
    if not arguments.table:
        write_lines(arguments.out, measure(arguments))
    lines = read_lines(arguments.out)
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
