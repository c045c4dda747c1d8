"""OpenDP without its wrappers of other libraries: mechanisms draw with `dp`.

OpenDP loads scikit-learn and polars where it finds them, for wrappers that nobody here uses, and with them pandas and
much of scipy: a second or more before any command can name a price. So these libraries are not to be found while OpenDP
loads.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

__all__ = ["dp"]

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


with _not_to_be_found(WRAPPED):
    import opendp.prelude as dp
