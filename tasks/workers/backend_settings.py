"""Settings of a worker backend, and the runner that follows from them."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.network import is_loopback
from tasks.workers.pool import Runner
from tasks.workers.processes import ProcessRunner
from tasks.workers.threads import ThreadRunner

PROCESSES, THREADS, DASK, RAY = KINDS = ("processes", "threads", "dask", "ray")
CLUSTERS: Final = (DASK, RAY)


@dataclass(frozen=True)
class WorkerBackend:
    """Backend of a run's workers.

    Attributes:
        kind: one of `KINDS`.
        address: of a cluster's scheduler or head; None for one of this machine that lives as long as the run.
    """

    kind: str = PROCESSES
    address: str | None = None

    @classmethod
    def of(cls, kind: str, address: str | None = None) -> "WorkerBackend":
        """As somebody has written it; without an address where there is none or an empty one.

        Raises:
            RunnerUnknown: there is no such kind.
            RunnerAddressUnfit: no cluster is asked for, or its address is not protected.
        """
        if kind not in KINDS:
            raise RunnerUnknown(kind)
        if not address:
            return cls(kind)
        if kind not in CLUSTERS:
            raise RunnerAddressUnfit(f"the runner {kind!r} has no address")
        _require_protected(kind, address)
        return cls(kind, address)


HERE: Final = WorkerBackend()
"""Processes of this machine; with one worker the run works by itself."""


def _require_protected(kind: str, address: str) -> None:
    """Private text travels there: over TLS, or not beyond this machine.

    Raises:
        RunnerAddressUnfit.
    """
    try:
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise RunnerAddressUnfit("it is not HOST:PORT") from None
    if not host or port is None or parts.username or parts.path.strip("/") or parts.scheme not in ("tcp", "tls"):
        raise RunnerAddressUnfit("it is not HOST:PORT, with tls:// or tcp:// before it")
    over_tls = parts.scheme == "tls" if kind == DASK else os.environ.get("RAY_USE_TLS") == "1"
    if not (over_tls or is_loopback(host)):
        raise RunnerAddressUnfit("it is another machine's, and the connection is not protected by TLS")


@contextmanager
def opened(where: WorkerBackend, count: int, scratch: Path, device: str = "cpu") -> Iterator[Runner | None]:
    """The runner, and the end of all that it has started; none where the run works by itself.

    Args:
        count: how many workers there will be at the same time, for a cluster of this machine.
        scratch: a private folder for what a cluster of this machine puts on disk.
        device: what workers compute on, `cpu` or `cuda`; a Ray cluster gives each of them a GPU of its own.

    Raises:
        RunnerNotInstalled: its library is not here.
        ClusterUnreachable, NoWorkers: nobody answers at the address, or nobody works there.
        NoGpus: when workers are started, and the cluster has too few.
    """
    if where == HERE and count == 1:
        yield None
        return
    runner = _made(where, count, scratch, device)
    try:
        yield runner
    finally:
        runner.close()


def _made(where: WorkerBackend, count: int, scratch: Path, device: str) -> Runner:
    # Local imports: only who asks for a cluster has the library, and pays for its import.
    try:
        match where.kind:
            case "dask":
                from tasks.workers.dask_backend import DaskRunner

                return DaskRunner(where.address, count, scratch)
            case "ray":
                if where.address is None:
                    _lock_local_ray()
                from tasks.workers.ray_backend import RayRunner

                # On this machine each worker is told which GPU is its own, and several may share one.
                return RayRunner(where.address, count, gpus=int(where.address is not None and device == "cuda"))
            case "threads":
                return ThreadRunner()
    except ModuleNotFoundError as missing:
        raise RunnerNotInstalled(where.kind) from missing
    return ProcessRunner()


def _lock_local_ray() -> None:
    """A token that only processes of this one have, and no address but the loopback one.

    Ray reads both when it is imported. It lets in who knows the token. Where clusters of several machines are switched
    off, as they are by default on macOS and Windows, each of its servers listens on 127.0.0.1; given that address alone
    (`_node_ip_address`) it looks for another one that other machines can reach.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


class RunnerUnknown(UsageError):
    """No such runner."""

    def __init__(self, given: str) -> None:
        super().__init__(f"There is no runner {given!r}.", f"Use {', '.join(KINDS)}.", {"runner": given})


class RunnerAddressUnfit(UsageError):
    """An address that private text may not be sent to."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The address of the runner cannot be used: {reason}.",
            "Use tls://HOST:PORT with --runner dask, HOST:PORT and RAY_USE_TLS=1 with --runner ray"
            " (docs/distributed.md), or no address for a cluster of this machine.",
            {"reason": reason},
        )


class RunnerNotInstalled(EnvironmentProblem):
    """The library of a cluster is not here."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"The runner {kind!r} needs a library that is not installed.",
            f'Install it: pip install "almoner[{kind}]".',
            {"runner": kind, "extra": kind},
        )
