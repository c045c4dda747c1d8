"""API key of an endpoint; no log, exception or repr ever shows it."""

import os
import re
from typing import Final

from tasks.inference.backends.endpoints import Endpoint
from tasks.inference.backends.errors import endpoint_key_missing

SHORTEST: Final = 8
"""Characters of a key that is looked for in answers. Servers that need none are given a word in its place."""

_KEY: Final = re.compile(r"[\x21-\x7e]{1,4000}", re.ASCII)


class Key:
    """A secret that its holder reads by name; its repr shows stars."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Key('***')"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a key is not stored and not sent")

    @property
    def header(self) -> str:
        """The value of `Authorization`."""
        return f"Bearer {self._text}"

    def is_in(self, text: str) -> bool:
        """Return whether a text repeats the key; one that any text may hold (`EMPTY`, `none`) is too short to count."""
        return len(self._text) >= SHORTEST and self._text in text


def key_for(endpoint: Endpoint) -> Key | None:
    """Return the key of an endpoint that has one, from the variable that its configuration names.

    Raises:
        EndpointKeyMissing: the variable is not set, or holds something that is no key.
    """
    if endpoint.key_env is None:
        return None
    value = os.environ.get(endpoint.key_env, "").strip()
    if not value:
        raise endpoint_key_missing(endpoint.name, endpoint.key_env, "is not set")
    if not _KEY.fullmatch(value):
        raise endpoint_key_missing(endpoint.name, endpoint.key_env, "holds spaces or characters that no key has")
    return Key(value)
