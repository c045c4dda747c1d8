"""Network addresses: their allowed form, the hosts of this machine, and names of external models.

Requests to the Hugging Face hub are here, too, with named errors in place of its client's (`ask_hub`).
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

from models_db.errors import AlmonerError

PREFIX: Final = "external:"

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:.]+", re.ASCII)


def split_url(url: str) -> SplitResult:
    """Split an address into its parts. Errors do not repeat the address: it may hold a secret."""
    if not url.isascii() or any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError("an address has no spaces and ASCII characters alone")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("this is not an address") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("an address begins with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError("an address holds no name and no password; name a variable with the key (key_env)")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError("an address has no query and no fragment")
    if not parts.hostname or not _HOST.fullmatch(parts.hostname) or port == 0:
        raise ValueError("an address names a host")
    return parts


def _address(url: str) -> str:
    split_url(url)
    return url.rstrip("/")


Address = Annotated[str, Field(max_length=500), AfterValidator(_address)]
Variable = Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]{0,99}$")]


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_external(model: str) -> bool:
    """Return whether a request's `model` names an endpoint."""
    return model.startswith(PREFIX)


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
