"""Process of one flow run: `python -m flows.orchestration.flow_run_process ID FLOW`.

Prefect's own engine process imports the code that the server names, and runs in the environment that the server
gives. This one knows only `flows.orchestration.release_flow.FLOWS`, and takes from the server a request's number.

The process ends as with Ctrl-C when its standard input is closed. Its worker holds the other end, so that the process
never outlives the worker.
"""

import os
import signal
import sys
import threading
from uuid import UUID

from tasks.common.progress import ignore, listening


def run_flow_run(flow_run_id: UUID, flow_name: str) -> None:
    """Run a flow run by Prefect's engine; its exit code is 0 when Prefect knows how the run ended or waits.

    Raises:
        SystemExit: it ended otherwise.
    """
    from prefect.engine import handle_engine_signals
    from prefect.flow_engine import load_flow_run, run_flow

    from flows.orchestration.release_flow import FLOWS

    with handle_engine_signals(flow_run_id):
        flow_run = load_flow_run(flow_run_id)
        run_flow(FLOWS[flow_name], flow_run=flow_run)


def interrupt_at_end_of_input() -> None:
    """Interrupt this process, as Ctrl-C does, when its standard input is closed."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Carry out the flow run that the command line names."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a script inherits it ignored
    threading.Thread(target=interrupt_at_end_of_input, name="end of input", daemon=True).start()
    with listening(ignore, lambda line: print(line, file=sys.stderr)):  # noqa: T201  # Prefect learns names alone
        run_flow_run(UUID(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    main()
