"""Requests to the Hugging Face hub, with named errors in place of its client's."""

from collections.abc import Callable
from typing import TypeVar

from models_db.errors import AlmonerError

Answer = TypeVar("Answer")


def ask_hub(
    ask: Callable[[], Answer], hidden: Callable[[], AlmonerError], failed: Callable[[str], AlmonerError]
) -> Answer:
    """Return what the hub answers.

    Args:
        hidden: makes the error about a repository that is gated, private or not there.
        failed: makes the error about anything else, from the name of its type.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return ask()
    except RepositoryNotFoundError as error:  # of which a gated one is a kind
        raise hidden() from error
    except Exception as error:  # the hub's client raises its own errors, httpx's and the system's
        raise failed(type(error.__cause__ or error).__name__) from error
