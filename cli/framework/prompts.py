"""Questions that a command puts to the person at the keyboard: a passphrase, a name typed as confirmation.

A confirmation is compared under every policy, with or without a terminal.

Questions go to stderr, so that the answer of a command (`--json`) stands alone on stdout.
"""

import getpass
import sys

from flows.approvals.confirmation import LONGEST_ANSWER, confirmation_wrong, require_confirmation
from models_db.errors import UsageError


def is_interactive() -> bool:
    """Return whether standard input is a terminal, so that questions can be answered."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def read_passphrase() -> str:
    """Read the passphrase of a key file from the terminal, without echo.

    Raises:
        PassphraseMissing: standard input is no terminal.
    """
    if not is_interactive():
        raise _passphrase_missing()
    try:
        return getpass.getpass("Passphrase of the key file: ", stream=sys.stderr)
    except EOFError:
        raise _passphrase_missing() from None


def confirm(name: str, question: str, option: str | None = None) -> None:
    """Require the typed confirmation `name`: from the option `--confirm`, else from a line of standard input.

    `question` is printed first if standard input is a terminal and the option is absent.

    Raises:
        ConfirmationMissing: there is no option, no typed line and no piped line.
        ConfirmationWrong: the confirmation differs from `name`.
    """
    try:
        require_confirmation(name, read_line(question) if option is None else option)
    except LineUnreadable:
        raise confirmation_wrong() from None


def read_line(question: str) -> str:
    """Read one line of standard input; empty at its end.

    `question` is printed first if standard input is a terminal.

    Raises:
        LineUnreadable: it is longer than the longest valid confirmation, or not UTF-8.
    """
    if is_interactive():
        sys.stderr.write(f"{question}: ")
        sys.stderr.flush()
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        line = sys.stdin.readline(LONGEST_ANSWER + 1)
    except UnicodeDecodeError:
        raise LineUnreadable from None
    if len(line) > LONGEST_ANSWER:
        raise LineUnreadable
    return line


class LineUnreadable(UsageError):
    """A line of standard input that is no text."""

    def __init__(self) -> None:
        super().__init__(
            f"The line of standard input is not UTF-8, or has more than {LONGEST_ANSWER} characters.",
            "Give one line of text in UTF-8.",
        )


def _passphrase_missing() -> UsageError:
    return UsageError(
        "The key file has a passphrase, and there is no terminal at which to ask for it.",
        "Run `almoner init --key FILE` at a terminal; the passphrase is asked for once, when the key is imported.",
        code="PassphraseMissing",
    )
