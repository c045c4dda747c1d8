"""Signs of a wrongly chosen unit: told where they are, and not of ordinary data."""

from pathlib import Path

import pytest

from tasks.corpus.readers.documents import SourceDocument
from tasks.corpus.readers.sources import Shard
from tasks.corpus.unit_notes import RepeatSurvey, UnitSurvey, other_spellings

SENTENCE = "The patient came with a cough, and left without it."


def told(rows: list[tuple[str, str]]) -> str:
    survey = UnitSurvey("pid")
    for number, (unit, text) in enumerate(rows, 1):
        survey.see(SourceDocument(None, unit, text, number, 0, Path("a.jsonl")))
    return " ".join(survey.notes())


@pytest.mark.parametrize(
    ("rows", "sign"),
    [
        ([(f"{n}", SENTENCE) for n in range(20)], "its own value in 'pid'"),
        ([(f"{SENTENCE} {n}", f"P{n % 7}") for n in range(20)], "look swapped"),
        ([(f"Good dog {n}", f"P{n % 7}") for n in range(20)], "look swapped"),
        ([(f"{SENTENCE} {n % 9}", SENTENCE) for n in range(20)], "holds sentences"),
        ([(f"患者因咳嗽就诊，现已好转。{n % 9}", SENTENCE) for n in range(20)], "holds sentences"),
    ],
)
def test_a_sign_is_told(rows: list[tuple[str, str]], sign: str) -> None:
    assert sign in told(rows)
    assert "cough" not in told(rows)


@pytest.mark.parametrize(
    "rows",
    [
        [(f"P{n % 7}", SENTENCE) for n in range(20)],
        [(f"Ana Maria {n % 7}", "ok") for n in range(20)],  # a chat
        [("Dr. Anna B. Miller", SENTENCE)] * 20,
        [(f"{n}", SENTENCE) for n in range(4)],  # too few to say
        [("0" * 64, SENTENCE)] * 20,
    ],
)
def test_ordinary_records_have_no_sign(rows: list[tuple[str, str]]) -> None:
    assert told(rows) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("007", "7"), ("7", "007"), ("P007", "P7"), ("7", "7.0"), ("007", "7.0"), ("ana b", "ANA B"),
        ("0000000000001234", "1234"), ("M\u00fcller", "M\u00c3\u00bcller"),
        ("\u0141ukasz", "\u00a3ukasz"), ("Ren\u00e9", "Ren\u017d"),
    ],
)  # fmt: skip
def test_spellings_of_one_id_find_each_other(one: str, other: str) -> None:
    assert other in other_spellings(one)
    assert one in other_spellings(other)
    assert one not in other_spellings(one)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([[f"{SENTENCE} {n}" for n in range(9)]] * 2, True),
        ([[f"{SENTENCE} {n}" for n in range(9)], [f"{SENTENCE} {n}" for n in range(3, 99)]], True),
        ([[f"{SENTENCE} {n}" for n in range(9)], [f"{SENTENCE} {n}" for n in range(6, 99)]], False),
        ([["fine"] * 9] * 2, False),
        ([[SENTENCE] * 99], False),
        ([[SENTENCE] * 99] * 2, False),
    ],
)
def test_records_that_come_again_in_another_file_are_a_sign(texts: list[list[str]], told: bool) -> None:
    survey = RepeatSurvey()
    for number, file in enumerate(texts, 1):
        shard = Shard(Path("a.jsonl"), Path("notes"), number, {"snapshot": str(number)})
        for position, text in enumerate(file, 1):
            survey.see(SourceDocument(None, None, text, position, 0, shard))
    assert bool(list(survey.notes())) is told
