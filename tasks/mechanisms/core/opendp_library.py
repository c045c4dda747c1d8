"""OpenDP, loaded when a mechanism draws, without its wrappers of other libraries.

A price needs none of it. OpenDP loads scikit-learn and polars where it finds them, for wrappers that nobody here uses,
and with them pandas and much of scipy; so these libraries are not to be found while OpenDP loads.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

WRAPPED = ("polars", "sklearn.decomposition", "sklearn.linear_model")


@contextmanager
def _not_to_be_found(names: tuple[str, ...]) -> Iterator[None]:
    """Make imports of these modules fail as if they were not installed; loaded modules stay."""
    modules = cast("dict[str, Any]", sys.modules)
    hidden = [name for name in names if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            modules.pop(name, None)


@cache
def load_opendp() -> Any:
    """Return OpenDP's prelude; a run loads it before it pays for anything."""
    with _not_to_be_found(WRAPPED):
        import opendp.prelude as dp
    dp.enable_features("contrib")  # whatever has no complete proof document yet
    return dp
