"""`make soak`: so many small scheduled releases while things go wrong; ends with 1 if anything did not hold."""

import argparse
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import tiny_model
from tests.conftest import in_memory
from tests.integration.story import Almoner
from tests.soak import world
from tests.soak.faults import plan
from tests.soak.ledgers import ledger_on
from tests.soak.report import as_text, figures, written
from tests.soak.soak import Soak, soak


def asked() -> Any:
    """The options."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--releases", type=int, default=1000)
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--seed", type=int, default=None, help="of the plan of faults; drawn if it is not given")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so many, however far it came")
    parser.add_argument("--check-every", type=int, default=50, help="releases between two looks at everything")
    parser.add_argument("--report", type=Path, default=Path("out/soak"), help="the folder of the report")
    parser.add_argument("--keep", action="store_true", help="leave the home where it is")
    return parser.parse_args()


def say(line: str) -> None:
    """A line at once, also through a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Soak, and report."""
    given = asked()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="almoner-soak-", dir=in_memory()))
    os.environ |= {"ALMONER_HOME": str(folder / "home"), "ALMONER_THREADS": "1", "DO_NOT_TRACK": "1"}
    os.environ.pop("ALMONER_DATABASE_URL", None)
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="almoner-run-"))  # for a server's socket
    torch.set_num_threads(1)
    almoner, begun = Almoner(folder), time.monotonic()
    with pytest.MonkeyPatch.context() as patch, ledger_on(given.backend, almoner.home, in_memory()) as ledger:
        tiny_model.install(patch)
        if ledger.own is not None:
            patch.setenv("ALMONER_DATABASE_URL", ledger.own)
        it = Soak(almoner, ledger, given.backend, world.made(almoner), random.Random(seed), say)
        soak(it, plan(seed, given.backend), given.releases, given.check_every, 60 * given.minutes)
        told = figures(it, seed, time.monotonic() - begun)
    for file in written(told, given.report):
        say(f"written: {file}")
    say(as_text(told))
    if given.keep:
        say(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if told["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
