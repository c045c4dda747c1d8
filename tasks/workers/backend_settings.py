"""Settings of a worker backend, and the runner that follows from them."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.network import is_loopback
from tasks.workers.pool import Runner
from tasks.workers.processes import ProcessRunner, ThreadRunner

PROCESSES, THREADS, RAY = KINDS = ("processes", "threads", "ray")


@dataclass(frozen=True)
class WorkerBackend:
    """Backend of a run's workers.

    Attributes:
        kind: one of `KINDS`.
        address: of a Ray cluster's head; None for one of this machine that lives as long as the run.
    """

    kind: str = PROCESSES
    address: str | None = None

    @classmethod
    def of(cls, kind: str, address: str | None = None) -> "WorkerBackend":
        """Return the backend of a kind and an address; an empty address counts as none.

        Raises:
            RunnerUnknown: there is no such kind.
            RunnerAddressUnfit: the kind is not `ray`, or the connection to its address is not protected.
        """
        if kind not in KINDS:
            raise UsageError(
                f"There is no runner {kind!r}.", f"Use {', '.join(KINDS)}.", {"runner": kind}, code="RunnerUnknown"
            )
        if not address:
            return cls(kind)
        if kind != RAY:
            raise _runner_address_unfit(f"the runner {kind!r} has no address")
        _require_protected(address)
        return cls(kind, address)


HERE: Final = WorkerBackend()
"""Worker processes of this machine; a run with one worker starts none and computes by itself."""


def _require_protected(address: str) -> None:
    """Check that private text reaches the address over TLS only, or stays on this machine.

    Raises:
        RunnerAddressUnfit.
    """
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _runner_address_unfit("it is not of the form HOST:PORT") from None
    if not host or port is None or parts.netloc != address or parts.username is not None:
        raise _runner_address_unfit("it is not of the form HOST:PORT")
    if not (os.environ.get("RAY_USE_TLS") == "1" or is_loopback(host)):
        raise _runner_address_unfit("it belongs to another machine, and the connection is not protected by TLS")


@contextmanager
def open_runner(backend: WorkerBackend, count: int, gpus: int = 0) -> Iterator[Runner | None]:
    """Open the runner of a backend and close it with all its workers at the end of the block.

    Yields None if the run computes by itself.

    Args:
        count: how many workers there will be at the same time, for a cluster of this machine.
        gpus: how many GPUs a worker computes on; a Ray cluster gives each worker so many of its own.

    Raises:
        RunnerNotInstalled: its library is not installed.
        ClusterUnreachable, NoWorkers: no cluster answers at the address, or it places no workers.
        NoGpus: when workers are started, and the cluster has too few.
    """
    if backend == HERE and count == 1:
        yield None
        return
    runner = _create_runner(backend, count, gpus)
    try:
        yield runner
    finally:
        runner.close()


def _create_runner(backend: WorkerBackend, count: int, gpus: int) -> Runner:
    # A local import: the library is optional and slow to import.
    try:
        match backend.kind:
            case "ray":
                if backend.address is None:
                    _lock_local_ray()
                from tasks.workers.ray_backend import RayRunner

                # On this machine each worker is told which GPUs are its own, and several may share one.
                return RayRunner(backend.address, count, gpus=0 if backend.address is None else gpus)
            case "threads":
                return ThreadRunner()
    except ModuleNotFoundError as missing:
        raise EnvironmentProblem(
            f"The runner {backend.kind!r} needs a library that is not installed.",
            f'Install it: pip install "almoner[{backend.kind}]".',
            {"runner": backend.kind, "extra": backend.kind},
            code="RunnerNotInstalled",
        ) from missing
    return ProcessRunner()


def _lock_local_ray() -> None:
    """Set Ray's environment so that a local cluster needs a token and listens on the loopback address only.

    Ray reads both when it is imported. It accepts connections with the token only. Where clusters of several machines
    are switched off, as they are by default on macOS and Windows, each of its servers listens on 127.0.0.1; given that
    address alone (`_node_ip_address`) it looks for another one that other machines can reach.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = _local_token()


@cache
def _local_token() -> str:
    """Return the token of this process' clusters: Ray keeps the first that it reads, also for later clusters."""
    return secrets.token_hex(32)


def _runner_address_unfit(reason: str) -> UsageError:
    return UsageError(
        f"The address of the runner cannot be used: {reason}.",
        "Use HOST:PORT and RAY_USE_TLS=1 with --runner ray (docs/distributed.md), or no address for a cluster of"
        " this machine.",
        {"reason": reason},
        code="RunnerAddressUnfit",
    )
