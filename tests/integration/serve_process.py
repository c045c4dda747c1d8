"""`almoner serve` in a process of its own, on a Prefect server of its own, whose flow runs use the tiny model."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.app import main
from flows.orchestration import local_server
from tests import tiny_model

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        tiny_model.install(patch)
        start = local_server.start_local_server

        @contextmanager
        def start_and_replace(folder: Path, port: int | None) -> Iterator[str]:
            with start(folder, port) as page:
                from flows.orchestration import worker  # Prefect reads the environment when it is imported

                patch.setattr(worker, "PROCESS_MODULE", "tests.integration.release_process")
                yield page

        patch.setattr(local_server, "start_local_server", start_and_replace)
        sys.argv = ["almoner", "serve", *sys.argv[1:]]
        main()
