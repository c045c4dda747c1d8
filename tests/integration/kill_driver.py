"""A process that types one command and, at a given point, dies: by its own kill -9, or waiting for a signal.

It runs in a child of multiprocessing's fork server, which has imported this module (and with it torch) once.
"""

import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import flows.backup.backup
import flows.backup.restore
import flows.releases.attempt
import flows.releases.execute
import flows.releases.publish
import flows.schedules.slots
import tasks.analysis.facets.rule_based
import tasks.common.faults
import tasks.corpus.ingest
import tasks.ingest
import tasks.publishing.bundle
from cli.app import app
from tasks.decoding.journal import Journal
from tasks.decoding.run_context import RunContext
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.evaluation.registry import METRICS
from tasks.inference.backends.chat_completions import Answers
from tasks.object_storage.bucket import Store
from tasks.systems.private_evolution import run
from tasks.systems.registry import SYSTEMS
from tests import tiny_embedder, tiny_model
from tests.contract.driver import WITHIN
from tests.faults import Failing, temporary
from tests.support import PATIENCE

Place = tuple[Any, str, int]
"""Whose function, its name, and which of its calls."""

AFTER: dict[str, Place] = {
    **WITHIN,
    "after hold": (flows.releases.attempt.RunningAttempt, "hold", 1),
    "after arm": (flows.releases.attempt.RunningAttempt, "arm", 1),
    "mid generation": (InvisibleInkRule, "next_tokens", 6),
    "after a step is kept": (Journal, "step", 9),
    "after the first result is kept": (Journal, "result", 1),
    "after the second result is kept": (Journal, "result", 2),
    "after the third result is kept": (Journal, "result", 3),
    "after the fourth result is kept": (Journal, "result", 4),
    "among facets": (tasks.analysis.facets.rule_based, "tidy_facets", 5),
    "among units": (run, "points_of", 1),
    "among units for a vector": (RunContext, "unit_chunks", 1),
    "while the first result is drawn": (Journal, "drawing", 1),
    "while the second result is drawn": (Journal, "drawing", 2),
    "while the third result is drawn": (Journal, "drawing", 3),
    "while the fourth result is drawn": (Journal, "drawing", 4),
    "after two answers are kept": (Answers, "keep", 2),
    "after three answers are kept": (Answers, "keep", 3),
    "after eight answers are kept": (Answers, "keep", 8),
    "between two tries of a metric": (tasks.common.faults, "tell", 1),  # after the fault, before the wait
    "after draft": (flows.releases.execute, "write_draft", 1),
    "after commit": (flows.releases.execute, "commit_artifact", 1),
    "with half a bundle": (tasks.publishing.bundle, "verify_release", 1),
    "with a claim in the store": (Store, "create", 1),
    "with half a bundle in the store": (Store, "create", 7),
    "before the seal": (tasks.publishing.bundle, "measured", 2),
    "with a sealed bundle": (tasks.publishing.bundle._Place, "fill", 1),
    "before delivery is recorded": (flows.releases.publish, "deliver", 1),
    "before a version is recorded": (tasks.corpus.ingest, "put_in_place", 1),
    "in the middle of an ingest": (tasks.corpus.ingest, "_insert", 20),
    "in the middle of a backup": (flows.backup.backup.ArchiveWriter, "add", 2),
    "before a backup is named": (flows.backup.backup.ArchiveWriter, "close", 1),
    "in the middle of a restoration": (flows.backup.backup, "_unpack_member", 2),
    "before a home is in place": (flows.backup.restore, "_record_restoration", 1),
    "after a slot is decided": (flows.schedules.slots, "decide_slot", 1),
}
BEFORE: dict[str, Place] = {
    "before the first result is kept": (Journal, "result", 1),
    "before hold": (flows.releases.attempt.RunningAttempt, "hold", 1),
    "before delivery": (flows.releases.publish, "deliver", 1),
}


def die() -> None:
    """What no handler can catch."""
    os.kill(os.getpid(), signal.SIGKILL)


def plant(point: str, act: Callable[[], None]) -> None:
    """Have `act` called at a point."""
    room, name, number = (AFTER | BEFORE)[point]
    real, calls = getattr(room, name), 0

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if point in BEFORE and calls == number:
            act()
        result = real(*args, **kwargs)
        if point in AFTER and calls == number:
            act()
        return result

    setattr(room, name, watched)


def type_and_die(
    environment: dict[str, str],
    line: str,
    point: str,
    *,
    stops: bool = False,
    systems: Sequence[type] = (),
    fails: str | None = None,
) -> None:
    """One command that is killed at `point`; anything else is exit code 99.

    Args:
        stops: the tiny model ends its texts.
        systems: a test's own, in place of ours of the same names.
        fails: a metric that meets a temporary fault.
    """
    if fails is not None:
        faulty = Failing(METRICS[fails].compute, temporary())
        METRICS._entries[fails] = replace(METRICS[fails], compute=faulty)
    SYSTEMS._entries.update({made.name: made for made in (kind() for kind in systems)})
    _run(environment, line, point, die, stops=stops)
    os._exit(99)


def type_and_wait(environment: dict[str, str], line: str, point: str, sign: Path, output: Path) -> None:
    """One command that, at `point`, leaves a sign and waits for a signal; its exit code and all it says are kept."""
    # A test run started in the background has SIGINT ignored, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("w", buffering=1) as told:
        sys.stdout = sys.stderr = told

        def wait() -> None:
            sign.touch()
            time.sleep(PATIENCE)

        sys.exit(_run(environment, line, point, wait))


def _run(environment: dict[str, str], line: str, point: str, act: Callable[[], None], *, stops: bool = False) -> int:
    # The fork server keeps the environment of the test that started it, a database's address among it.
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    patch = pytest.MonkeyPatch()
    tiny_model.install(patch, stops=stops)
    tiny_embedder.install(patch)
    plant(point, act)
    try:
        app(shlex.split(line))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
