"""The checklist: every question has an answer and what it rests on, and what a ledger cannot know is said so."""

import re
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tasks.mechanisms.core.uncharged import uncharged
from tasks.publishing.documents.nist_800_226 import Basis, checklist
from tasks.release.record import CapChange, PublicContent, ReleaseRecord
from tests.unit.tasks.publishing.builders import SUMMARIES, a_record, a_request, invocation, metrics_of, standing

RENDERER = MarkdownIt("commonmark").enable("table")
NASTY = "x | y\n\n## z <b> [a](http://evil.example) `c` www.evil.example \u202e"


def text(record: ReleaseRecord | None = None, *names: str) -> str:
    return checklist(PublicContent(record or a_record(), tuple(metrics_of(["a"], *names)), {}))


def rows(shown: str) -> list[tuple[str, str, str]]:
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in shown.splitlines() if line.startswith("| ")]
    found = [(cell[0], cell[1], cell[2]) for cell in cells if cell[0] not in ("question", "---")]
    assert all(len(cell) == 3 for cell in cells)
    return found


def answer(question: str, record: ReleaseRecord | None = None, *names: str) -> tuple[str, str]:
    (found,) = [(said, basis) for asked, said, basis in rows(text(record, *names)) if asked.startswith(question)]
    return found


def test_every_level_of_the_pyramid_has_questions_and_every_answer_a_ground() -> None:
    shown = text()
    assert len(re.findall("^## ", shown, re.M)) == 7
    assert len(rows(shown)) > 30
    assert {basis for _, _, basis in rows(shown)} == {one.value for one in Basis}
    assert all(said.strip() for _, said, _ in rows(shown))


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What is epsilon", "4. Any finding in the release is at most 54.6 times as likely"),
        ("What is delta", "Times the declared population of 14: 0.0000014."),
        ("Which variant", "zCDP with rho 0.266311880304"),
        ("What is the unit", "all records of the dataset with one value of the field 'id'"),
        ("What are neighbouring", "epsilon 8.705414862406 at delta 0.0000001"),
        ("How do losses", "any release that would exceed epsilon 8 at delta 0.000001"),
        ("Is the budget ever", "Changes that stewards approved: none"),
        ("Which mechanisms", "48 invocations, rho 0.266311880304"),
        ("Does an independent accountant", "computes epsilon 4.000068"),
        ("Where do random", "the operating system's"),
        (
            "Who requested",
            "At least 1 stewards approved before private text was read. At least 2 approved exactly these files",
        ),
        ("What is the standing", "The dataset is governed"),
    ],
)
def test_what_the_record_answers(question: str, said: str) -> None:
    found, basis = answer(question)
    assert said in found.replace("\\", "")
    assert basis == Basis.RECORD.value


@pytest.mark.parametrize(
    "question",
    [
        "Is a person",
        "Were parameters tuned",
        "What had the model",
        "Who can watch",
        "How was it collected",
        "How is it kept",
    ],
)
def test_what_no_ledger_can_answer_is_said_so(question: str) -> None:
    assert answer(question)[1] == Basis.OPEN.value


def test_a_private_number_of_units_is_not_divided_by() -> None:
    request = a_request(plan=a_request()["plan"], population=None)
    assert "no outsider can compare delta with it" in answer("What is delta", a_record(request))[0]


def test_changes_of_the_budget_and_standing_authorisations_are_told() -> None:
    change = CapChange(old_epsilon="2", old_delta="0.1", new_epsilon="8", new_delta="0.000001")
    assert "epsilon 2 became 8, delta 0.1 became 0.000001" in answer("Is the budget", a_record(cap_changes=[change]))[0]
    assert "A standing authorisation replaced the decision" in answer("Who requested", a_record(standing=standing()))[0]


def test_measurements_are_named_with_their_exposure() -> None:
    assert "length (public), distinct (public)" in answer("How good", None, "length", "distinct")[0]
    assert answer("How good")[0].endswith("none.")


def test_a_declared_use_is_the_records_and_another_is_unknown() -> None:
    assert answer("Fit for") == ("Unknown here.", Basis.OPEN.value)
    record = a_record(a_request(public_metadata={"intended_use": "Teaching."}))
    assert answer("Fit for", record) == ("Teaching.", Basis.RECORD.value)


def test_a_release_without_claim_answers_that() -> None:
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("non_private"))]}
    request = a_request(mechanism="non_private", governed=False, epsilon=None, delta=None, plan=plan)
    shown = text(a_record(request, lifetime=None, second_opinion=None, released={}))
    assert "No differential privacy is claimed for this release" in shown
    assert "times as likely" not in shown
    assert "marked the dataset as public" in shown


def test_nothing_somebody_typed_changes_a_row() -> None:
    changes: dict[str, Any] = {"unit": NASTY, "public_metadata": {"intended_use": NASTY}}
    named = {"dataset": {"name": NASTY, "version": 1, "uid": "4d"}, "plan": a_request()["plan"]}
    shown = text(a_record(a_request(**changes, **named)))
    assert len(rows(shown)) == len(rows(text()))
    html = RENDERER.render(shown)
    assert html.count("<h2>") == 7
    for sign in ("<b>", "<a ", "<script", "\u202e"):
        assert sign not in html
    assert not re.search(
        r"(?<!\\):(//)|www\.evil", shown.replace("# Checklist of release 1 from", "").split("\n", 1)[1]
    )


@pytest.mark.parametrize(
    ("most", "rows_said", "charged"), [(1, "a unit has one row.", "1 time."), (2, "at most 2 rows", "2 times.")]
)
def test_of_summaries_it_says_in_how_many_groups_a_unit_counts(most: int, rows_said: str, charged: str) -> None:
    parameters = SUMMARIES["parameters"] | {"groups_per_unit": most}
    record = a_record(a_request(**SUMMARIES | {"parameters": parameters}))
    assert rows_said in answer("How much can one unit contribute?", record)[0]
    composed = answer("How do losses of several releases add up?", record)[0]
    assert f"for at most {most} of the groups that it wrote in" in composed
    assert f"the cost of one group is charged {charged}" in composed
    assert "batch" not in composed
