"""Commands and options that almoner once had, and what takes the place of each."""

from collections.abc import Mapping

REMOVED_COMMANDS: Mapping[str, str] = {
    "metrics": "`almoner doctor` and the dashboard say what needs a person.",
    "dataset forget": "`almoner dataset register` may be repeated, with other settings, until the first ingest.",
    "audit mechanism": "The tests audit every mechanism; docs/python-flows.md shows one audit from Python.",
    "plan --label-allocation": "Each label has equally many texts.",
    "user delegate": "An admin grants a deputy the role for a time: `almoner user grant NAME steward --until DAY`.",
    "user undelegate": "An admin takes the deputy's role back: `almoner user revoke NAME steward`.",
    "approve --on-behalf-of": "Whoever has the role of steward decides in their own name.",
    "reject --on-behalf-of": "Whoever has the role of steward decides in their own name.",
    "budget scope": "A dataset has one lifetime budget; a standing authorisation bounds a series of releases.",
    "budget forecast --scope": "A dataset has one lifetime budget, and the forecast is of that.",
    "budget simulate --scope": "A dataset has one lifetime budget, and the releases draw on that.",
    "budget simulate --rotate-over": "A release reads every block of its cohorts; `--cohorts` chooses them.",
    "plan --scope": "A dataset has one lifetime budget, and every release draws on it.",
    "plan --label-rule": "Ingest the corpus with `--label-field`, and name the labels with `--label`.",
    "insights compare --level": "The comparison shows every level that both releases have.",
    "insights compare --likeness": "Topics are matched from a likeness of 0.2 on.",
    "insights compare --noise-only": "`p_value` under --json is the test against the noise of counts alone.",
}
"""A removed command ("audit mechanism") or a command with a removed option ("plan --label-rule"), and a sentence."""
