"""The process of one section; `benchmarks.gpu.run` writes its arguments. Imports no torch by itself.

python -m benchmarks.gpu.section_process NAME --record FILE --device cuda --seconds 120
"""

import argparse
import time
from pathlib import Path

from benchmarks.gpu.section import Bench, Record, run
from benchmarks.gpu.sections import find


def main() -> None:
    """Run the section, whose record is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    record = Record.read(arguments.record)
    assert record is not None, "the record is begun before the process"
    deadline = time.monotonic() + arguments.seconds
    folder = arguments.record.parent / "files"
    folder.mkdir(parents=True, exist_ok=True)
    run(
        find(arguments.name),
        Bench(arguments.device, arguments.small, deadline, folder, record, arguments.record),
    )


if __name__ == "__main__":
    main()
