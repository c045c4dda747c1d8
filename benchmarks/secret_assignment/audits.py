"""Audits of releases while the assignment is secret, and of broken twins: the figures of the tests.

    python -m benchmarks.secret_assignment.audits --out docs/figures/secret_assignment_audits.jsonl
    python -m benchmarks.secret_assignment.audits --out docs/figures/secret_assignment_audits.jsonl --table

An audit that is there already is not made again. They are those of
`tests/statistical/test_secret_assignment_release_audit.py`: the shipped store, split, loop, engine, rule and sampler,
and a reader who knows everything but the unit's batch. A bound is a lower bound on epsilon at the
delta of the claim; of an honest release it stays below the claim, of a broken twin it exceeds it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.common.json_lines import append_lines, read_lines, read_lines_if_there


@dataclass(frozen=True)
class Audit:
    """Releases with a unit and without, and what a reader sees of them.

    Attributes:
        broken: whether the proof does not allow it.
        trials: releases of either kind.
        given: what is changed, as `bound_of` takes it.
    """

    broken: bool
    view: Callable[[Any], Any]
    trials: int
    given: Mapping[str, Any] = field(default_factory=dict)


def audits() -> dict[str, Audit]:
    """The audits of releases with the unit and without."""
    from tests.statistical import test_secret_assignment_release_audit as shipped  # only audits need it

    return {
        "secret": Audit(False, shipped.secret, 200),
        "secret, poisoned neighbours": Audit(
            False, shipped.secret, 200, shipped.FEW | {"neighbours": shipped.POISONED}
        ),
        "secret, two batches": Audit(False, shipped.secret, 2000, {"batches": 2}),
        "the batch is known": Audit(True, shipped.known, 9000),
        "texts in the order of their contents": Audit(True, shipped.ordered, 9000),
        "rows of each batch are printed": Audit(True, shipped.counted, 200),
        "denominator of the batch": Audit(True, shipped.secret, 320, shipped.OWN),
        "a unit in half of the batches": Audit(True, shipped.spread_out, 400, shipped.HALF),
        "a unit in all batches": Audit(True, shipped.spread_out, 200, {"spread": shipped.BATCHES}),
    }


ONE_RUN, ONE_RUN_KNOWN = "one release, a canary for each batch", "the same, the batches are known"
ONE_RUN_CONFIDENCE = 0.99


def measure(there: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the bound of each audit that is missing."""
    from tests.statistical import test_secret_assignment_release_audit as shipped  # only audits need it

    if ONE_RUN_KNOWN not in there:
        yield from one_run()
    for name, audit in audits().items():
        if name in there:
            continue
        started, batches = time.process_time(), audit.given.get("batches", shipped.BATCHES)
        with tempfile.TemporaryDirectory() as folder:
            bound = shipped.bound_of(Path(folder), audit.view, audit.trials, **audit.given)
        yield {
            "audit": name,
            "broken": audit.broken,
            "batches": batches,
            "trials": audit.trials,
            "delta": shipped.DELTA,
            "confidence": shipped.CONFIDENCE,
            "bound": round(bound, 3),
            "claim": round(shipped.claim(shipped.RHO, batches, shipped.DELTA), 3),
            "seconds": round(time.process_time() - started, 1),
        }


def one_run() -> Iterator[dict[str, Any]]:
    """Yield the bounds of one release with thousands of canaries."""
    from tests.statistical import test_secret_assignment_release_audit as shipped  # only audits need it

    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = shipped.OneRun(Path(folder) / "one")
    own = run.ratios[np.arange(run.BATCHES), run.places]
    seconds = round(time.process_time() - started, 1)
    for name, scores in ((ONE_RUN, shipped.log_mean(run.ratios)), (ONE_RUN_KNOWN, own)):
        yield {
            "audit": name,
            "broken": name == ONE_RUN_KNOWN,
            "batches": run.BATCHES,
            "trials": 1,
            "delta": run.DELTA,
            "confidence": ONE_RUN_CONFIDENCE,
            "bound": round(run.bound(scores), 3),
            "claim": round(run.CLAIM, 3),
            "seconds": seconds,
        }


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: every audit, honest ones first."""
    yield "| audit | batches N | releases with, without | delta | confidence | bound on epsilon | claim | CPU s |"
    yield "|" + 8 * " --- |"
    for line in sorted(lines, key=lambda line: line["broken"]):
        name = f"{line['audit']} (broken)" if line["broken"] else line["audit"]
        trials = "1" if line["trials"] == 1 else f"{line['trials']}, {line['trials']}"
        figures = (f"{line['bound']:.3f}", f"{line['claim']:.3f}", f"{line['seconds']:.0f}")
        cells = [name, str(line["batches"]), trials, line["delta"], str(line["confidence"]), *figures]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each audit")
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    arguments = parser.parse_args()
    if not arguments.table:
        for line in measure([line["audit"] for line in read_lines_if_there(arguments.out)]):
            append_lines(arguments.out, [line])
            print(line, flush=True)
    print("\n".join(table(read_lines(arguments.out))))


if __name__ == "__main__":
    main()
