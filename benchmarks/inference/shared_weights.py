"""How much memory the weights of one model take in a run and its workers together.

    python -m benchmarks.inference.shared_weights --layers 6 --width 1792 --precision float32

A synthetic model (as in `benchmarks.inference.loading`) is loaded by this process and then by workers, as `almoner run
--workers` does it: once with a segment of memory that all of them map (`weight_segment`), once without. The figure is
the proportional set size (PSS) that the system gives for each process, in which a page that k processes have counts a
k-th for each; what a process takes before it loads the model is subtracted. "Peak" is the largest sum while workers
load.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch

from benchmarks.inference.loading import NAME, write_network
from tasks.inference.catalogue.precision import PRECISIONS, Precision
from tasks.inference.loading.add_model import add_model
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.weight_segment import WeightSegment
from tasks.workers.pool import Channel
from tasks.workers.processes import ProcessRunner

MIB = 2**20


@dataclass(frozen=True)
class Loaded:
    """What a process holds: PSS in bytes before and after the load, and its processor seconds."""

    process: int
    before: int
    after: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512, help="of a hidden state; a multiple of 256")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--in", dest="place", type=Path, help="where the temporary folder is made")
    parser.add_argument("--private", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(measured(arguments.precision, arguments.workers, arguments.private))
        return
    with TemporaryDirectory(dir=arguments.place) as place:
        folder = Path(place) / "network"
        network = write_network(folder, arguments.layers, arguments.width)
        os.environ["ALMONER_MODELS"] = str(Path(place) / "models")
        add_model(NAME, folder, "none")
        parameters = sum(weight.numel() for weight in network.parameters())
        print(f"{parameters / 1e6:.0f} million parameters, {arguments.precision}, {arguments.workers} workers")
        print("| weights | run | each worker | all | peak while workers load | CPU s of a worker |")
        print("| --- | --- | --- | --- | --- | --- |")
        for private in (True, False):
            command = [sys.executable, "-m", "benchmarks.inference.shared_weights", "--run"]
            options = ["--precision", arguments.precision, "--workers", str(arguments.workers)]
            line = subprocess.run(
                [*command, *options, *["--private"] * private], stdout=subprocess.PIPE, check=True, text=True
            ).stdout
            print(f"| {'a copy each' if private else 'shared'} | {line.strip()} |", flush=True)


def measured(precision: Precision, workers: int, private: bool) -> str:
    """Load here and in workers; the row of the table."""
    segment = None if private else WeightSegment.create()
    loading = partial(load, NAME, "cpu", precision, segment)
    own = pss()
    model = loading()
    runner = ProcessRunner()
    highest = Highest([os.getpid()])
    with runner.start([partial(work, loading)] * workers) as pool:
        first: list[Loaded] = pool.receive_all()
        highest.processes += [loaded.process for loaded in first]
        highest.start()
        for number in range(workers):
            pool.reply(number, None)
        loaded: list[Loaded] = pool.receive_all()
        peak, run = highest.stop(), pss()
        each = [pss(one.process) - one.before for one in loaded]
    assert model.vocabulary
    before = own + sum(one.before for one in loaded)
    seconds = max(one.seconds for one in loaded)
    sizes = [run - own, sum(each) // workers, run - own + sum(each), peak - before]
    return " | ".join([*(f"{size / MIB:.0f} MiB" for size in sizes), f"{seconds:.1f}"])


def work(loading: "partial[LanguageModel]", line: Channel) -> None:
    """Load in a worker, and keep the model until the run has measured."""
    line.request(Loaded(os.getpid(), before := pss(), 0, 0))
    start = time.process_time()
    model = loading()
    line.request(Loaded(os.getpid(), before, pss(), time.process_time() - start))
    assert isinstance(model.head_weight, torch.Tensor)


class Highest:
    """The largest sum of the PSS of some processes, looked at all the time."""

    def __init__(self, processes: list[int]) -> None:
        self.processes, self._most, self._ended = processes, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self._most = max(self._most, sum(map(pss, self.processes)))


def pss(process: int | str = "self") -> int:
    """The proportional set size of a process in bytes."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
