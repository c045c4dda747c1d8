"""What a person gives with a decision: a reason, and the dataset's name typed as confirmation.

A confirmation is compared under every policy, from a terminal, a pipe, an option or Python.
"""

import unicodedata

from models_db.errors import Refused, UsageError
from models_db.values.untrusted_text import require_storable

LONGEST_ANSWER = 1000


def require_confirmation(name: str, typed: str | None) -> None:
    """Compare the typed confirmation with `name`, the name of the dataset under decision.

    Raises:
        ConfirmationMissing: nothing was typed.
        ConfirmationWrong: the confirmation differs from `name`.
    """
    if typed is None or not typed.strip():
        raise UsageError(
            "This decision is confirmed by typing the dataset's name, and nothing was typed; nothing was recorded.",
            "Type the name at a terminal, or give it as `--confirm NAME`; in a pipe `echo NAME | almoner approve ...`;"
            " in Python `confirm=NAME`.",
            {"dataset": name},
            code="ConfirmationMissing",
        )
    if len(typed) > LONGEST_ANSWER or unicodedata.normalize("NFC", typed.strip()) != unicodedata.normalize("NFC", name):
        raise confirmation_wrong()


def require_reason(reason: str | None) -> str:
    """Return the reason of a decision without outer spaces.

    Raises:
        DecisionReasonMissing: it is missing or blank.
        UnreadableArgument: it is not UTF-8, or holds a control character.
    """
    if reason is None or not reason.strip():
        raise UsageError("A decision needs a reason.", 'Say why: --reason "...".', code="DecisionReasonMissing")
    require_storable({"reason": reason})
    return reason.strip()


def confirmation_wrong() -> Refused:
    """Return the refusal of a typed confirmation that is not the dataset's name."""
    return Refused(
        "The typed name is not the name of the dataset under decision; nothing was recorded.",
        "Read the review again: its first line names the dataset.",
        code="ConfirmationWrong",
    )
