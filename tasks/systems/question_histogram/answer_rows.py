"""Rows of a question histogram: a node for each question, and below it one for each bin.

A function of the questions and of the noisy counts alone, so verification makes the same rows again. `size` is the
noisy value as it was drawn; words show a count from 0 on, with its margin of error. A question's size is the sum of its
bins: the number of units that were asked, with the noise of all of them.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from tasks.common.files import FileUnfit
from tasks.systems.question_histogram.parameters import Question
from tasks.values.results import TEXTS_FILE, Insight, Origin, Topic, size_with_margin

_ASKED = {
    "keywords": {
        "most": "Asked by keywords: the answer with the most matches in a unit's text.",
        "first": "Asked by keywords: the answer of the first match in a unit's text.",
    },
    "model": {
        "most": "Asked of the language model: the likeliest answer about a unit's text.",
        "first": "Asked of the language model: the likeliest answer about a unit's text.",
    },
}


def answer_rows(questions: Sequence[Question], counts: Sequence[int], deviation: Decimal) -> tuple[Insight, ...]:
    """Return the nodes: each question, followed by its bins in the order of the request.

    Args:
        counts: the noisy counts of all bins, question after question.
        deviation: the standard deviation of the noise in each, in units.

    Raises:
        ValueError: not one count for each bin.
    """
    return tuple(_rows(questions, counts, deviation))


def _rows(questions: Sequence[Question], counts: Sequence[int], deviation: Decimal) -> Iterator[Insight]:
    if len(counts) != sum(len(question.names) for question in questions):
        raise ValueError("every bin has a count")
    rest, number = iter(counts), 0
    for question in questions:
        own = [next(rest) for _ in question.names]
        parent = number = number + 1
        asked = size_with_margin(sum(own), deviation, len(own))
        text = f"{_ASKED[question.rule][question.match]} Units asked: {asked}."
        yield Insight(number, None, 1, Topic(question.question, text), (), sum(own), clusters=len(own))
        listed = [*(answer.keywords for answer in question.answers), ()]
        for name, keywords, count in zip(question.names, listed, own, strict=True):
            number += 1
            text = f"Units with this answer: {size_with_margin(count, deviation)}."
            origins = tuple[Origin, ...](["request"] * len(keywords))
            yield Insight(number, parent, 0, Topic(name, text), keywords, count, origins=origins)


def require_answer_rows(nodes: Sequence[Insight], questions: Sequence[Question], deviation: Decimal) -> None:
    """Check that nodes are the questions and bins of the request, in order, with a count each and its words.

    Raises:
        FileUnfit: they are others.
    """
    counts = [node.size for node in nodes if node.level == 0]
    measured = [count for count in counts if count is not None]
    expected = sum(len(question.names) for question in questions)
    if len(measured) != len(counts) or len(counts) != expected:
        raise FileUnfit(TEXTS_FILE, f"has {len(measured)} counts, and the request has {expected} bins")
    for node, row in zip(nodes, answer_rows(questions, measured, deviation), strict=False):
        if node != row:
            raise FileUnfit(TEXTS_FILE, f"has a line {row.number} that does not follow from the request and counts")
    if len(nodes) != expected + len(questions):
        raise FileUnfit(TEXTS_FILE, "has other lines than the questions and bins of the request")
