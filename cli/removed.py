"""Commands and options that almoner once had, and what takes the place of each."""

from collections.abc import Mapping

REMOVED: Mapping[str, str] = {
    "metrics": "`almoner doctor` and the dashboard say what needs a person.",
    "audit mechanism": "The tests audit every mechanism; docs/python-flows.md shows one audit from Python.",
    "plan --label-rule": "Ingest the corpus with `--label-field`, and name the labels with `--label`.",
    "insights compare --level": "The comparison shows every level that both releases have.",
    "insights compare --likeness": "Topics are matched from a likeness of 0.2 on.",
    "insights compare --noise-only": "`p_value` under --json is the test against the noise of counts alone.",
}
"""A removed command ("audit mechanism") or a command with a removed option ("approve --scope"), and a sentence."""


def explain_removed(command: str, name: str) -> str | None:
    """Return what takes the place of a command or an option; None for a name that never was one.

    Args:
        command: the group or command that was called, such as `audit`; empty for the first page.
        name: the name that it does not know.
    """
    return REMOVED.get(f"{command} {name}".strip())
