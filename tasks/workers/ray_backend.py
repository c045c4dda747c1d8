"""Workers on a Ray cluster: the user's, or one of this machine that lives as long as the run.

A worker is an actor that is never restarted and whose calls are never repeated: Ray would give the same answer twice.
When the run dies, Ray ends its actors; when an actor dies, the call that waits for it says so.

A cluster of this machine listens on 127.0.0.1 (`tasks.workers.backend_settings`) and accepts only a token that its
own processes have; it has no dashboard, no usage statistics and no spilling to disk, and its files lie in a private
folder that is removed with it.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when it is imported

import ray
from ray.exceptions import RayError

from tasks.common.faults import TaskFailed
from tasks.workers.pool import (
    Body,
    Channel,
    Message,
    NumberedMessage,
    WorkerDied,
    WorkerPool,
    cluster_unreachable,
    deserialize,
    no_gpus,
    no_workers,
    serialize,
)
from tasks.workers.processes import ThreadMailbox

BEGIN_S = 300
LOOPBACK = "127.0.0.1"
QUIET = {"configure_logging": False, "log_to_driver": False, "logging_level": logging.CRITICAL}


class RayRunner:
    """Runner whose workers are actors, which Ray spreads over the nodes.

    Args:
        address: of the head; None for a cluster of this machine.
        count: workers of a cluster of this machine.
        gpus: how many each worker has for itself. Ray shows it no others, and starts it where they are free on one
            machine.

    Raises:
        ClusterUnreachable: there is no head there.
    """

    def __init__(self, address: str | None, count: int, gpus: int = 0) -> None:
        self.elsewhere = address is not None
        self._gpus = gpus
        self._folder: str | None = None
        self._pools: list[WorkerPool] = []
        try:
            if address is None:
                self._folder = tempfile.mkdtemp(prefix="almoner-ray-")  # 0700; sockets need a short path
                _start_local_cluster(count, self._folder)
            else:
                ray.init(address=address, **QUIET)
        except (OSError, RuntimeError, ValueError, RayError) as problem:
            self.close()
            raise cluster_unreachable("ray", type(problem).__name__) from None

    def start(self, bodies: Sequence[Body]) -> WorkerPool:
        """Start one actor for each body.

        Raises:
            NoWorkers, NoGpus: Ray cannot place them.
        """
        messages: SimpleQueue[NumberedMessage] = SimpleQueue()
        options = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 0, "num_gpus": self._gpus}
        kind = ray.remote(scheduling_strategy="SPREAD", **options)(_WorkerActor)
        actors = [kind.remote() for _ in bodies]
        ready, _ = ray.wait([actor.ready.remote() for actor in actors], num_returns=len(actors), timeout=BEGIN_S)
        if len(ready) < len(actors):
            for actor in actors:
                ray.kill(actor)  # it would take a place as soon as one is free
            raise no_gpus("ray", len(bodies), self._gpus) if self._gpus else no_workers("ray")
        pairs = zip(actors, bodies, strict=True)
        pool = WorkerPool([_Worker(number, *pair, messages) for number, pair in enumerate(pairs)], messages)
        self._pools.append(pool)
        return pool

    def close(self) -> None:
        """End all workers, disconnect, and end a cluster of this machine."""
        for pool in self._pools:
            pool.end()
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _start_local_cluster(count: int, folder: str) -> None:
    """Start a cluster of this machine that no other machine can reach.

    Raises:
        NotOnLoopback: it listens elsewhere, because Ray was imported before its settings were made.
    """
    ray.init(
        num_cpus=count,
        num_gpus=0,
        include_dashboard=False,
        _node_ip_address=LOOPBACK,
        _temp_dir=folder,
        _system_config={"automatic_object_spilling_enabled": False},
        **QUIET,
    )
    if ray.util.get_node_ip_address() != LOOPBACK:
        raise NotOnLoopback


class NotOnLoopback(RuntimeError):
    """A cluster of this machine that other machines could reach."""


class _Worker:
    """Handle of one actor, with a thread that waits for its next message."""

    def __init__(self, number: int, actor: Any, body: Body, messages: "SimpleQueue[NumberedMessage]") -> None:
        self._number, self._actor, self._messages = number, actor, messages
        self._ask(actor.begin.remote(serialize(body)))

    def send(self, what: object) -> None:
        """Send an answer to the actor."""
        self._ask(self._actor.answer.remote(serialize(what)))

    def end(self) -> None:
        """Kill the actor's process."""
        with suppress(RayError, ValueError):
            ray.kill(self._actor)

    def _ask(self, reference: Any) -> None:
        Thread(target=self._listen, args=(reference,), daemon=True).start()

    def _listen(self, reference: Any) -> None:
        message: Message | WorkerDied | TaskFailed
        try:
            message = deserialize(ray.get(reference))
        except RayError as problem:
            message = WorkerDied(type(problem).__name__)
        except Exception as problem:  # noqa: BLE001 - what cannot be read may be quoted in it
            message = TaskFailed.of("listen", problem)
        self._messages.put((self._number, message))


class _WorkerActor:
    """Ray actor that runs a body behind a mailbox."""

    def ready(self) -> None:
        """Return once the actor has been placed."""

    def begin(self, body: bytes) -> bytes:
        """Start the body and return its first message, serialized."""
        self._mailbox = ThreadMailbox(partial(_run_serialized, body))
        return serialize(self._mailbox.begin().result())

    def answer(self, what: bytes) -> bytes:
        """Answer the body's request and return its next message, serialized."""
        return serialize(self._mailbox.answer(deserialize(what)).result())


def _run_serialized(body: bytes, line: Channel) -> object:
    function: Body = deserialize(body)
    return function(line)
