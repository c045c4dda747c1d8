"""Workers on a Dask cluster: the user's, or one of this machine that lives as long as the run.

Nothing is handed to Dask's scheduler as a task: it would do it again when a worker dies, and keep what it was given.
The scheduler says which workers there are; each is then called directly, through Dask's own connections (TLS and all),
and one connection is one worker of ours. When either end dies, the other sees the connection close.

A cluster of this machine listens on the loopback address, with keys that only its own processes have, no dashboard and
no spilling to disk.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import dask

_QUIET = ("distributed", "distributed.client", "distributed.worker", "distributed.scheduler", "distributed.nanny")
dask.config.set({"logging": dict.fromkeys(_QUIET, "critical")})  # read once, when `distributed` is imported

from distributed import Client, LocalCluster  # noqa: E402
from distributed.comm import connect  # noqa: E402
from distributed.core import Status  # noqa: E402

from tasks.common.task_errors import TaskFailed  # noqa: E402
from tasks.workers.errors import ClusterUnreachable, NoWorkers  # noqa: E402
from tasks.workers.mailbox import ThreadMailbox  # noqa: E402
from tasks.workers.pool import Body, Channel, NumberedMessage, Request, WorkerDied, WorkerPool, deserialize, serialize  # noqa: E402
from tasks.workers.time_limit import within  # noqa: E402

OPERATION = "almoner_worker"
CONNECT_S = 10
LOCAL = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.http.routes": [],  # pages about tasks, and requests that end workers
    "distributed.worker.http.routes": [],
}


class DaskRunner:
    """Runner whose workers run on the workers of a Dask cluster, assigned in turn in the order of their addresses.

    Args:
        address: the scheduler's; None for a cluster of this machine.
        count: workers of a cluster of this machine.
        scratch: a private folder, for what Dask puts on disk.

    Raises:
        ClusterUnreachable: there is no scheduler there.
        NoWorkers: the cluster has none.
    """

    def __init__(self, address: str | None, count: int, scratch: Path) -> None:
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.elsewhere = address is not None
        self._folder, self._pools = scratch / f"dask-{os.getpid()}", list[WorkerPool]()
        self._cluster: Any = None
        self._client: Any = None
        # Not the client's own loop: when the scheduler goes away, connections to workers are no affair of it.
        self._loop = asyncio.new_event_loop()
        self._looping = Thread(target=self._loop.run_forever, name="dask seats", daemon=True)
        self._looping.start()
        try:
            if address is None:
                self._cluster = _start_local_cluster(count, self._folder)
            where = address or self._cluster
            client = partial(Client, where, timeout=CONNECT_S, direct_to_workers=True, set_as_default=False)
            self._client = within(2 * CONNECT_S, client)
            self._places()
        except NoWorkers:
            self.close()
            raise
        except Exception as problem:  # noqa: BLE001 - its words may be those of any layer below
            self.close()
            raise ClusterUnreachable("dask", type(problem).__name__) from None

    def start(self, bodies: Sequence[Body]) -> WorkerPool:
        """Start one worker for each body.

        Raises:
            NoWorkers: the cluster has none.
            WorkerDied: a worker of the cluster went away before its body began.
        """
        client, places = self._client, self._places()
        chosen = [places[number % len(places)] for number in range(len(bodies))]
        try:
            within(CONNECT_S, partial(client.run, _register_operation, workers=sorted(set(chosen))))
        except Exception as problem:  # noqa: BLE001 - whatever the cluster says of a worker that went away
            raise WorkerDied(type(problem).__name__) from None
        messages: SimpleQueue[NumberedMessage] = SimpleQueue()
        connections = [
            _WorkerConnection(number, messages, address, client.connection_args, serialize(body))
            for number, (address, body) in enumerate(zip(chosen, bodies, strict=True))
        ]
        pool = WorkerPool([_DaskWorker(connection, self._loop) for connection in connections], messages)
        self._pools.append(pool)
        return pool

    def _places(self) -> list[str]:
        client = self._client
        with suppress(Exception):  # what it says of a scheduler that went away is not for us to tell apart
            within(2 * CONNECT_S, partial(client.wait_for_workers, 1, timeout=CONNECT_S))
            if addresses := sorted(within(CONNECT_S, client.nthreads)):
                return addresses
        raise NoWorkers("dask")

    def close(self) -> None:
        """Close all connections and end a cluster of this machine."""
        for pool in self._pools:
            pool.end()
        for resource in (self._client, self._cluster):
            if resource is not None:
                with suppress(Exception):  # it may be gone already
                    within(2 * CONNECT_S, partial(resource.close, timeout=CONNECT_S))
        if not self.elsewhere:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._looping.join()
        self._loop.close()


def _start_local_cluster(count: int, folder: Path) -> LocalCluster:
    folder.mkdir(mode=0o700, parents=True)
    with dask.config.set(LOCAL):
        return LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            security=True,  # keys made now, for these processes alone
            dashboard_address="127.0.0.1:0",  # an empty server: `http.routes` has none
            memory_limit=0,
            local_directory=str(folder),
            silence_logs=logging.CRITICAL,
        )


@dataclass(frozen=True)
class _WorkerConnection:
    """One connection to one of Dask's workers.

    Attributes:
        number: of the worker in its pool.
        messages: the queue that receives its messages.
        address, how: of Dask's worker, and the connection arguments that authenticate to it.
        body: serialized.
    """

    number: int
    messages: "SimpleQueue[NumberedMessage]"
    address: str
    how: dict[str, Any]
    body: bytes

    async def hold(self, answers: "asyncio.Queue[bytes]") -> None:
        """Forward messages until the last one or the loss of the connection; either goes into the queue."""
        try:
            comm = await connect(self.address, timeout=CONNECT_S, **self.how)
            try:
                await comm.write({"op": OPERATION, "reply": False, "body": self.body})
                while isinstance(message := deserialize((await comm.read())["said"]), Request):
                    self.messages.put((self.number, message))
                    await comm.write({"answer": await answers.get()})
                self.messages.put((self.number, message))
            finally:
                comm.abort()
        except (OSError, asyncio.CancelledError) as problem:  # Dask's errors of connections are among them
            self.messages.put((self.number, WorkerDied(type(problem).__name__)))
        except Exception as problem:  # noqa: BLE001 - what cannot be read may be quoted in it
            self.messages.put((self.number, TaskFailed.of("listen", problem)))


class _DaskWorker:
    """Handle of one worker, on the side of the run."""

    def __init__(self, connection: _WorkerConnection, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._answers = loop, asyncio.Queue[bytes]()
        self._talking = asyncio.run_coroutine_threadsafe(connection.hold(self._answers), loop)

    def send(self, what: object) -> None:
        """Send an answer to the worker."""
        self._loop.call_soon_threadsafe(self._answers.put_nowait, serialize(what))

    def end(self) -> None:
        """Close the connection; the worker ends at its next request."""
        self._talking.cancel()
        with suppress(CancelledError, TimeoutError):
            self._talking.result(CONNECT_S)


# --- On the workers --------------------------------------------------------------------------------------------


def _register_operation(dask_worker: Any) -> None:
    """Register the operation on a Dask worker, through the scheduler, which gets no data in return."""
    dask_worker.handlers[OPERATION] = _serve_worker


async def _serve_worker(comm: Any, body: bytes) -> Status:
    """Serve one connection: run a body until it has ended or the caller is gone."""
    mailbox = ThreadMailbox(partial(_run_serialized, body))
    pending = mailbox.begin()
    try:
        while isinstance(message := await asyncio.wrap_future(pending), Request):
            await comm.write({"said": serialize(message)})
            pending = mailbox.answer(deserialize((await comm.read())["answer"]))
        await comm.write({"said": serialize(message)})
    except OSError:
        pass  # the run is gone
    finally:
        mailbox.leave()
    return Status.dont_reply


def _run_serialized(body: bytes, line: Channel) -> object:
    """Deserialize and run a body; in the mailbox's own thread, because this may have to import a lot."""
    function: Body = deserialize(body)
    return function(line)
