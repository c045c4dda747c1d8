"""What the screen looks like, at any width, whatever is in names and texts."""

import pytest
from rich.console import Console

from cli.framework.review_screen import UNSIGNED_NOTE, render_review
from flows.approvals.build_review import build_spend_review
from flows.approvals.review import Review
from models_db.policies.policy import Policy
from models_db.values.request_state import Gate
from tasks.release.sections import FieldList, Samples, Section, Table, Warnings
from tests.unit.flows.asking import a_question, text_of


def shown(asked: Review, width: int = 100, *, elsewhere: bool = False) -> str:
    console = Console(width=width, color_system=None, force_terminal=True, highlight=False)
    with console.capture() as captured:
        for part in render_review(asked, elsewhere=elsewhere):
            console.print(part)
    return captured.get()


def with_sections(*sections: Section) -> Review:
    return Review(1, Gate.SPEND, "clinic", "submitted", "ab" * 32, Policy(), sections)


@pytest.mark.parametrize("width", [80, 100, 150])
def test_nothing_is_lost_at_any_width(width: int) -> None:
    asked = build_spend_review(a_question(), None)
    screen = shown(asked, width)
    assert max(len(line) for line in screen.splitlines()) <= width
    words = "".join(screen.split())
    for line in text_of(asked).splitlines():
        for cell in line.split(" | "):
            if width >= 100:
                assert all(word in words for word in cell.split()), cell
    assert asked.subject_digest in screen


def test_the_dataset_and_the_warnings_come_first() -> None:
    screen = shown(build_spend_review(a_question(notices=("Careful.",)), None))
    assert screen.index("Dataset clinic") < screen.index("! Careful.") < screen.index("Privacy cost")


def test_out_of_a_file_it_says_what_the_signature_does_not_cover() -> None:
    asked = build_spend_review(a_question(), None)
    assert UNSIGNED_NOTE not in shown(asked)
    told = "".join(shown(asked, 300, elsewhere=True))
    assert f"Who{UNSIGNED_NOTE}" in told
    assert f"Privacy cost{UNSIGNED_NOTE}" not in told


HOSTILE = "[red]x[/red] \x1b[2J\x1b]0;title\x07 \u202eabc\u2066 a\rb \u2028 z\u200bw \ud800"


def test_nothing_that_is_shown_steers_the_terminal() -> None:
    everything = with_sections(
        Warnings("Look twice", (HOSTILE,)),
        FieldList("Lines", ((HOSTILE, HOSTILE), (HOSTILE, "again"))),
        Table(HOSTILE, ("a", "b"), ((HOSTILE, HOSTILE),)),
        Table("None", ("a",), (), empty=HOSTILE),
        Samples("Samples", (HOSTILE,)),
    )
    screen = shown(everything, 400)
    assert "[red]x[/red]" in screen
    for sign in "\x1b\x07\r\u202e\u2066\u2028\u200b\ud800":
        assert sign not in screen
    assert screen.count("\\x1b[2J") == 9
    assert "again" in screen  # two lines of one name are both there


def test_lines_and_letters_of_other_languages_stay_as_they_are() -> None:
    text = "first\nsecond\tthird \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u00e9"
    screen = shown(with_sections(Samples("Samples", (text,))))
    assert "first" in screen
    assert "\\n" not in screen
    assert "\u0645\u06cc\u200c\u062e" in screen


def test_a_sample_says_what_it_is_about_where_that_is_known() -> None:
    screen = shown(with_sections(Samples("Samples", ("It boils.", "It stands."), names=("Kettle", None))))
    assert "Text 1: Kettle" in screen
    assert "Text 2 " in screen
    assert "Text 1 " in shown(with_sections(Samples("Samples", ("It boils.",))))
