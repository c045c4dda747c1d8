"""Findings of an examination."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Result of one check: its subject, whether it holds, and a line about it without private values.

    Attributes:
        warning: the check holds, under conditions that an administrator should know.
    """

    check: str
    ok: bool
    detail: str
    warning: bool = False
