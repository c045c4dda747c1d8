"""A run journal that calls what a test wants to watch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class WatchedJournal:
    """Each line of a `RunJournal` as a function; what a test does not watch does nothing."""

    begin: Callable[..., Any] = lambda first, released: None
    step: Callable[..., Any] = lambda armed, drawn: None
    drawing: Callable[..., Any] = lambda name: None
    result: Callable[..., Any] = lambda name, result: None
