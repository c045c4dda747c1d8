"""What an examination has found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was checked, whether it holds, and a line about it without private values."""

    check: str
    ok: bool
    detail: str
