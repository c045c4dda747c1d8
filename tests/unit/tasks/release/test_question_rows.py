"""A release of counted answers in its files: verified, told with margins, and refused when a row is altered."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from models_db.values.requests import model_to_json
from tasks.publishing.documents.card import card
from tasks.publishing.verify import VerificationReport, verify_release
from tasks.release.record import ReleaseRecord, planned_events, second_opinion
from tasks.reporting.html_explorer import explorer_html
from tasks.reporting.release_sections import samples, texts_of
from tasks.systems.question_histogram.questions import QuestionHistogramParameters, answer_rows
from tasks.values.results import Insight
from tests.insights_rows import described, insights_record, insights_request
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import a_release

WANTED = QuestionHistogramParameters.model_validate({
    "questions": [
        {"question": "What is <b>it</b>?", "answers": [{"name": "kettle", "keywords": ["kettle"]}]},
        {"question": "Angry?", "rule": "model", "answers": [{"name": "yes"}, {"name": "no"}]},
    ]
})  # fmt: skip
COUNTS = [312, -7, 100, 200, 5]


def record_of(wanted: QuestionHistogramParameters = WANTED) -> ReleaseRecord:
    changes: dict[str, Any] = {"parameters": model_to_json(wanted), "mechanism": "question_histogram"}
    request = insights_request(**changes)
    return insights_record(request, second_opinion=second_opinion(planned_events(request), "1e-7"), released={})


def rows_of(record: ReleaseRecord, counts: Sequence[int] = COUNTS) -> tuple[Insight, ...]:
    return answer_rows(WANTED.questions, counts, Decimal(record.facts["standard deviation of a size"]))


def published(folder: Path, record: ReleaseRecord, rows: tuple[Insight, ...]) -> VerificationReport:
    folder.mkdir()
    made = a_release(folder, record, tuple(described(rows)), insights=rows)
    return verify_release(made.publish(folder / "out").folder, made.key.public_key)


def test_a_release_verifies_and_an_altered_row_does_not(tmp_path: Path) -> None:
    """A publisher verifies what it writes, as whoever receives it does."""
    record = record_of()
    nodes = rows_of(record)
    report = published(tmp_path / "good", record, nodes)
    assert report.holds, [check for check in report.checks if not check.ok]
    for name, rows in (("altered", (*nodes[:2], replace(nodes[2], size=3), *nodes[3:])), ("fewer", nodes[:-1])):
        with refusal("BundleInvalid"):
            published(tmp_path / name, record, rows)


def test_margins_stand_beside_counts_and_shown_counts_begin_at_zero() -> None:
    record = record_of()
    margin = record.facts["margin of error of a count, 95 %"]
    page = explorer_html(record, rows_of(record))
    assert f"312 ±{margin} units" in page
    assert f"0 ±{margin} units" in page
    assert "What is &lt;b&gt;it&lt;/b&gt;?" in page
    assert "3 answers in 1 question" not in page
    assert "5 answers in 2 questions" in page
    assert "language model" not in page.partition("<main")[0]
    shown = list(samples(texts_of([(text, None) for text in described(rows_of(record))], rows_of(record)), record))
    assert [one.insight.counted for one in shown if one.insight][1:3] == [f"312 ±{margin} units", f"0 ±{margin} units"]
    assert len(shown) == 7


@pytest.mark.parametrize("rules", [("keywords",), ("model",), ("keywords", "model")])
def test_the_card_says_who_answered(rules: tuple[str, ...]) -> None:
    asked = [question for question in WANTED.questions if question.rule in rules]
    told = card(record_of(QuestionHistogramParameters(questions=tuple(asked))), ())
    assert ("No language model was used" in told) == (rules == ("keywords",))
    assert ("A model answered" in told) == ("model" in rules)
    assert ("Words decide" in told) == ("keywords" in rules)
    assert "**the margin of error is ±" in told
    assert "named and described" not in told
    assert '"counts"' in told
