"""What a record holds is private: where one cannot be taken in, no error, log or file repeats any of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.corpus.readers import documents
from tasks.corpus.units import LONGEST_LABEL, UnitInvalid, normalise_label, normalise_unit
from tests.integration.story import Almoner

pytestmark = pytest.mark.contract

PLANT = "zq-planted-7f3a"
GOOD = {"id": "1", "patient_id": "p1", "text": "plain words", "ward": "north"}
SURROGATE = f"\ud800{PLANT}"
BAD: dict[str, dict[str, object]] = {
    "a unit in a list": {"patient_id": [PLANT]},
    "a unit in an object": {"patient_id": {PLANT: PLANT}},
    "a unit beside half a pair": {"patient_id": SURROGATE},
    "a unit that is true": {"patient_id": True, "text": PLANT},
    "a unit that is nothing": {"patient_id": None, "text": PLANT},
    "a unit that is blank": {"patient_id": "  ", "text": PLANT},
    "a unit that is a fraction": {"patient_id": 1.5, "text": PLANT},
    "a label that is long": {"ward": PLANT * LONGEST_LABEL},
    "a label in a list": {"ward": [PLANT]},
    "a label beside half a pair": {"ward": SURROGATE},
    "a text in a list": {"text": [PLANT]},
    "a text that is nothing": {"text": None, "patient_id": PLANT},
    "a text beside half a pair": {"text": SURROGATE},
    "an id in a list": {"id": [PLANT]},
}
LINES = {
    "a line that is cut": '{"id": "2", "patient_id": "' + PLANT,
    "a line that is no object": f'["{PLANT}"]',
    "a key of its own": json.dumps({"id": "2", PLANT: PLANT}),
}


def traces(almoner: Almoner, caplog: pytest.LogCaptureFixture, line: str) -> bytes:
    """Everything that a refused command says and leaves behind."""
    told = almoner.type(line, expected=None)
    assert told.code in (1, 2), told
    files = [path.read_bytes() for path in almoner.home.root.rglob("*") if path.is_file()]
    rows = repr(almoner.everything()[0]).encode()
    return b"".join([told.out.encode(), told.err.encode(), caplog.text.encode(), rows, *files])


@pytest.fixture
def recorded(any_almoner: Almoner, shelf: Path, caplog: pytest.LogCaptureFixture) -> Almoner:
    """A home with an empty dataset, copied if one was made before; what was logged on the way there is cleared."""
    almoner = replace(any_almoner, shelf=shelf)
    almoner.registered()
    caplog.clear()
    return almoner


@pytest.mark.parametrize("what", [*BAD, *LINES])
@pytest.mark.parametrize("json_option", ["", " --json"])
def test_a_record_that_cannot_be_taken_in_is_not_repeated(
    recorded: Almoner, caplog: pytest.LogCaptureFixture, what: str, json_option: str
) -> None:
    second = json.dumps(GOOD | {"id": "2"} | BAD[what]) if what in BAD else LINES[what]
    source = recorded.write("bad.jsonl", json.dumps(GOOD) + "\n" + second + "\n")
    line = f"dataset ingest clinic {source} --label-field ward{json_option}"
    assert PLANT.encode() not in traces(recorded, caplog, line)


def test_a_unit_in_an_error_would_be_noticed(
    almoner: Almoner, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_NO_UNIT", replace(documents._NO_UNIT, problem=f"has the unit {PLANT}"))
    almoner.registered()
    source = almoner.write("bad.jsonl", json.dumps(GOOD | {"patient_id": [PLANT]}))
    assert PLANT.encode() in traces(almoner, caplog, f"dataset ingest clinic {source}")


@pytest.mark.parametrize("value", [[PLANT], {PLANT: 1}, SURROGATE, (PLANT,), PLANT.encode()])
@pytest.mark.parametrize("normalise", [normalise_unit, normalise_label])
def test_errors_of_units_and_labels_hold_no_value(normalise: Callable[[object], object], value: object) -> None:
    with pytest.raises((UnitInvalid, ValueError)) as raised:
        normalise(value)
    assert PLANT not in content(raised.value)


def content(error: BaseException) -> str:
    """All that somebody who has an error can read in it, and in what it came from."""
    before = error.__cause__ or error.__context__
    return f"{error!r}{error}{vars(error)}" + (content(before) if before else "")


def test_a_value_in_a_cause_would_be_noticed() -> None:
    error = UnitInvalid()
    error.__cause__ = ValueError(PLANT)
    assert PLANT in content(error)
