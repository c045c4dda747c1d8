"""What an examination has found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was checked, whether it holds, and a line about it without private values.

    Attributes:
        warning: it holds, and somebody should know what it rests on.
    """

    check: str
    ok: bool
    detail: str
    warning: bool = False
