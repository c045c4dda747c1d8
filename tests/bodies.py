"""What workers of tests do: functions of a module, so that they can be told of them."""

import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models_db.errors import Refused
from tasks.workers.pool import Channel, Disconnected

if TYPE_CHECKING:  # torch, which workers of most tests need not import
    from tasks.inference.embeddings.parallel import Tool, WorkerEnvironment


class OnlyHere(Refused):
    """An error with arguments of its own."""

    def __init__(self, who: str, number: int) -> None:
        super().__init__(f"{who} may do it.", "Ask.", {"number": number})


def counting(name: str, times: int, line: Channel) -> tuple[str, list[Any]]:
    return name, [line.request((name, number)) for number in range(times)]


def growing(line: Channel) -> list[int]:
    """What it hears is its own: it may change it."""
    heard: list[int] = line.request("a list")
    heard.append(1)
    return heard


def clumsy(line: Channel) -> None:
    line.request("ready")
    raise ValueError("Mrs. Smith, of all people")


def refused(line: Channel) -> None:
    raise OnlyHere("nobody", 7)


def killed(line: Channel) -> None:
    """As the system kills for want of memory."""
    line.request("ready")
    os.kill(os.getpid(), signal.SIGKILL)


def exact(line: Channel) -> int:
    """Who it is; it waits for an answer."""
    line.request("ready")
    return os.getpid()


def faithful(sign: Path, line: Channel) -> None:
    """It leaves a sign when nobody listens any more."""
    try:
        while True:
            line.request("still there?")
            time.sleep(0.01)
    except Disconnected:
        sign.touch()
        raise


def gpus_seen(line: Channel) -> str | None:
    """Which GPUs are shown to it."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def lengths_tool(kit: "WorkerEnvironment", who: int, pause: float) -> "Tool":
    """What a worker of `ParallelMap` can do: say who it is and how long a text is, after a while."""
    return kit, partial(_lengths, who, pause)


def _lengths(who: int, pause: float, texts: Sequence[str]) -> list[tuple[int, int]]:
    time.sleep(pause)
    return [(who, len(text)) for text in texts]


def shouting(deadly: str | None, line: Channel) -> None:
    """Serve texts in capitals; die on a text that says so, once: its place is taken by others, who survive it."""
    texts = line.request("ready")
    while True:
        if deadly is not None and deadly in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        texts = line.request([text.upper() for text in texts])
