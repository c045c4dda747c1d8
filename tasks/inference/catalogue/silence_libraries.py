"""Silence for progress bars and advice of the libraries; errors still come as exceptions."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Silence transformers inside the block."""
    import transformers  # slow, and not every command that may have to be silent reads a model

    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
