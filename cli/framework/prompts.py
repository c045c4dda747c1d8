"""Questions that a command puts to the person at the keyboard: a passphrase, a name typed as confirmation.

A confirmation is compared under every policy, with or without a terminal (decision 0071).

Questions go to stderr, so that the answer of a command (`--json`) stands alone on stdout.
"""

import getpass
import sys
import unicodedata

from models_db.errors import Refused, UsageError

LONGEST_ANSWER = 1000


def is_interactive() -> bool:
    """Whether somebody can be asked: standard input is a terminal."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def read_passphrase() -> str:
    """The passphrase of a key file, without showing it.

    Raises:
        PassphraseMissing: there is no terminal to ask at.
    """
    if not is_interactive():
        raise PassphraseMissing
    try:
        return getpass.getpass("Passphrase of the key file: ", stream=sys.stderr)
    except EOFError:
        raise PassphraseMissing from None


def confirm(name: str, question: str, given: str | None = None) -> None:
    """Compare a typed name with `name`, always: the option `--confirm`, else a line of standard input.

    Where standard input is a terminal and no option was given, `question` is put there first.

    Raises:
        ConfirmationMissing: nothing was typed, piped or given.
        ConfirmationWrong: something else was.
    """
    typed = _read_line(question) if given is None else given
    if not typed.strip():
        raise ConfirmationMissing(name)
    if len(typed) > LONGEST_ANSWER or unicodedata.normalize("NFC", typed.strip()) != unicodedata.normalize("NFC", name):
        raise ConfirmationWrong


def _read_line(question: str) -> str:
    """One line of standard input; at most one character more than the longest one that is compared."""
    if is_interactive():
        sys.stderr.write(f"{question}: ")
        sys.stderr.flush()
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        return sys.stdin.readline(LONGEST_ANSWER + 1)
    except UnicodeDecodeError:
        raise ConfirmationWrong from None


class PassphraseMissing(UsageError):
    """A key file is encrypted and nobody can be asked for its passphrase."""

    def __init__(self) -> None:
        super().__init__(
            "The key file has a passphrase, and there is no terminal to ask for it.",
            "Run `almoner init --key FILE` at a terminal; the passphrase is asked for once, when the key is imported.",
        )


class ConfirmationMissing(UsageError):
    """A decision that needs the dataset's name, and nobody typed it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "This decision is confirmed by typing the dataset's name, and nothing was typed; nothing was recorded.",
            "Type the name at a terminal, or give it as `--confirm NAME`; in a pipe `echo NAME | almoner approve ...`.",
            {"dataset": name},
        )


class ConfirmationWrong(Refused):
    """The name that was typed is not the dataset's."""

    def __init__(self) -> None:
        super().__init__(
            "What was typed is not the name of the dataset that is decided on; nothing was recorded.",
            "Look again at what is shown: its first line names the dataset.",
        )
