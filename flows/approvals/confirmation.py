"""What a person gives with a decision: a reason, and the dataset's name typed as confirmation.

A confirmation is compared under every policy, from a terminal, a pipe, an option or Python.
"""

import unicodedata

from models_db.errors import Refused, UsageError
from models_db.values.arguments import require_storable

LONGEST_ANSWER = 1000


def require_confirmation(name: str, typed: str | None) -> None:
    """Compare the typed confirmation with `name`, the name of the dataset under decision.

    Raises:
        ConfirmationMissing: nothing was typed.
        ConfirmationWrong: the confirmation differs from `name`.
    """
    if typed is None or not typed.strip():
        raise ConfirmationMissing(name)
    if len(typed) > LONGEST_ANSWER or unicodedata.normalize("NFC", typed.strip()) != unicodedata.normalize("NFC", name):
        raise ConfirmationWrong


def require_reason(reason: str | None) -> str:
    """Return the reason of a decision without outer spaces.

    Raises:
        DecisionReasonMissing: it is missing or blank.
        UnreadableArgument: it is not UTF-8, or holds a control character.
    """
    if reason is None or not reason.strip():
        raise DecisionReasonMissing
    require_storable({"reason": reason})
    return reason.strip()


class ConfirmationMissing(UsageError):
    """A decision needs the dataset's name as confirmation, and none was typed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "This decision is confirmed by typing the dataset's name, and nothing was typed; nothing was recorded.",
            "Type the name at a terminal, or give it as `--confirm NAME`; in a pipe `echo NAME | almoner approve ...`;"
            " in Python `confirm=NAME`.",
            {"dataset": name},
        )


class ConfirmationWrong(Refused):
    """The typed confirmation is not the dataset's name."""

    def __init__(self) -> None:
        super().__init__(
            "The typed name is not the name of the dataset under decision; nothing was recorded.",
            "Read the review again: its first line names the dataset.",
        )


class DecisionReasonMissing(UsageError):
    """A decision without a reason."""

    def __init__(self) -> None:
        super().__init__("A decision needs a reason.", 'Say why: --reason "...".')
