"""Base classes of every error that almoner shows to a person, and findings of an examination.

The one base, `AlmonerError`, has a message, which states what happened, and `advice`, which states what to do. Only the
command line catches it; `exit_code` is what the process then returns (1 refused by a rule, 2 wrong usage,
3 environment). `facts` holds public values only: errors reach logs, Prefect and the terminal, so an error must never
contain text of a private record.

A program tells errors apart by their `code`. A class of its own is for an error that code catches; every other one is
raised as one of these three, with a code. Docstrings say under "Raises:" by which code an error is known, which for an
error with a class of its own is the name of that class.

    AlmonerError
    ├── Refused            (1) a rule forbids it
    ├── UsageError         (2) the request, file or argument is wrong
    └── EnvironmentProblem (3) something that this machine lacks
"""

from collections.abc import Mapping
from dataclasses import dataclass


class AlmonerError(Exception):
    """Base of all errors: the message, the advice, and the public facts behind both.

    Attributes:
        message: one sentence, what was asked and why it cannot be.
        advice: one sentence, what to do.
        facts: public values a program may read (`--json`).
        code: the stable name of the error for programs, in the form of a class's name; by default that of its class.
        temporary: whether the same step may succeed in a minute, although nobody has changed anything.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        advice: str = "",
        facts: Mapping[str, object] | None = None,
        code: str | None = None,
        *,
        temporary: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.facts = dict(facts or {})
        self.code = code or type(self).__name__
        self.temporary = temporary
        self.advise(advice)

    def __reduce__(self) -> tuple[object, ...]:
        """Make errors of all kinds picklable, with any arguments of their constructors."""
        return _rebuild_error, (type(self), self.message, self.advice, self.facts, self.code, self.temporary)

    def advise(self, advice: str) -> None:
        """Set the advice, which tracebacks show with the code, below the name of the class and the message."""
        self.advice = advice
        named = "" if self.code == type(self).__name__ else self.code
        note = ": ".join(filter(None, (named, advice)))
        self.__notes__ = [note] if note else []

    def diagnostics(self) -> str:
        """Return the message and the advice, as a person reads them."""
        return f"{self.message}\n{self.advice}" if self.advice else self.message


def _rebuild_error(
    kind: type[AlmonerError], message: str, advice: str, facts: Mapping[str, object], code: str, temporary: bool
) -> AlmonerError:
    error = kind.__new__(kind)
    AlmonerError.__init__(error, message, advice, facts, code, temporary=temporary)
    return error


class Refused(AlmonerError):
    """Refusal by a rule; nothing was changed."""

    exit_code = 1


class UsageError(AlmonerError):
    """Input that cannot be understood; nothing was changed."""

    exit_code = 2


class EnvironmentProblem(AlmonerError):
    """Missing or faulty part of this machine or project home."""

    exit_code = 3


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
