"""Section on the labels of a release: the public set, the rule that gave them, and how texts were allocated to it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from models_db.errors import AlmonerError
from tasks.planning.keyword_rule import LabelRule
from tasks.planning.labels_and_groups import rule_sentence
from tasks.release.allocated_labels import allocated_labels
from tasks.release.record import ReleaseRecord
from tasks.values.insight import size_with_margin

PROPORTIONAL: Final = (
    "Texts were allocated to labels in proportion to a noisy histogram: how many units were read under each label, with"
    " the margin of error that the noise has at 95 %. Its cost is part of the claim, and the numbers of texts follow"
    " from it."
)
BY_RULE: Final = (
    "Documents got their labels from a public rule that reads each by itself: {rule}. It says that a document has the"
    " words, not that it is about the label."
)
UNREADABLE: Final = "The noisy counts of the labels are missing from the record, or do not fit it."


def allocation_rows(record: ReleaseRecord, code: Callable[[object], str]) -> list[tuple[str, str, str]] | None:
    """Return label, noisy units and texts for each label of a proportional allocation; None for an equal one.

    Negative counts are shown as 0. A record that a stranger made may have no such figures: the rows are empty then, and
    verification names what is wrong.

    Args:
        code: escapes a label.
    """
    try:
        allocated = allocated_labels(record)
    except (AlmonerError, KeyError, TypeError, ValueError, IndexError, ArithmeticError):
        return []
    if allocated is None:
        return None
    return [
        (code(label), size_with_margin(count, allocated.deviation), str(texts))
        for label, count, texts in zip(record.labels, allocated.counts, allocated.texts, strict=True)
    ]


def rule_section(
    parameters: Mapping[str, Any], code: Callable[[object], str]
) -> tuple[str, list[tuple[str, str]]] | None:
    """Return how documents got their labels, and each label with its keywords; None without a rule.

    A record that a stranger made may have no such rule: verification names what is wrong.

    Args:
        parameters: of the stored request.
        code: escapes a label or a keyword.
    """
    try:
        rule = LabelRule.model_validate(parameters["label_rule"])
    except (AlmonerError, KeyError, TypeError, ValueError):
        return None
    rows = [(code(answer.name), ", ".join(map(code, answer.keywords))) for answer in rule.answers]
    default = [] if rule.default is None else [(code(rule.default), "")]
    return BY_RULE.format(rule=rule_sentence(rule)), [*rows, *default]
