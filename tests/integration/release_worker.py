"""A worker of releases in a process of its own, whose flow runs use the tiny model: POOL DESTINATION."""

import sys
from datetime import timedelta

from flows.orchestration import reconciliation, worker
from flows.orchestration.worker import serve_pool
from models_db.home import ProjectHome

if __name__ == "__main__":
    worker.PROCESS_MODULE = "tests.integration.release_process"  # type: ignore[misc]
    reconciliation.DELAY = timedelta(seconds=1)  # type: ignore[misc]
    serve_pool(ProjectHome.locate(), sys.argv[1], sys.argv[2])
