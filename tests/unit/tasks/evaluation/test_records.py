"""Parse rate, validity and number raw of released records."""

from dataclasses import dataclass
from typing import Any

import pytest

from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.lexical import records

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
VALID, PARSES = '{"year": 1974}', '{"year": "1974"}'


@dataclass(frozen=True)
class Text:
    text: str
    tokens: int = 9
    complete: bool = True


def measured(*texts: str, schema: dict[str, Any] | None = SCHEMA) -> dict[str, Any]:
    return dict(records(EvaluationInput([Text(text) for text in texts], schema=schema)).values)


def test_texts_are_counted_raw_then_parsed_then_valid() -> None:
    found = measured(VALID, PARSES, "{year: 1974}", "", VALID)
    assert (found["raw"], found["parsed"], found["valid"]) == (5, 3, 2)
    assert (found["parsed_share"], found["valid_share"]) == ("0.6000", "0.4000")


@pytest.mark.parametrize(
    "text",
    [
        VALID + VALID,
        VALID + " and so on",
        "[1]",
        "null",
        '{"year": NaN}',
        '{"year": 1, "year": 2}',
        "{" * 100_000,
        '{"year": 1e999}',
        '{"a": "\\ud800"}',
    ],
)
def test_what_is_not_one_json_object_does_not_parse(text: str) -> None:
    assert measured(text)["parsed"] == 0


def test_intervals_are_wilsons() -> None:
    found = measured(*[VALID] * 9, "")
    # (9 + z^2/2) / (10 + z^2) -+ z sqrt(9 * 1 / 10 + z^2/4) / (10 + z^2), z = 1.959964
    assert (found["valid_low"], found["valid_high"]) == ("0.5958", "0.9821")
    assert measured(*[VALID] * 40)["valid_low"] == "0.9124"
    assert measured(*[VALID] * 40)["valid_high"] == "1.0000"


def test_without_a_schema_nothing_is_valid_or_invalid() -> None:
    found = measured(VALID, "", schema=None)
    assert found["parsed_share"] == "0.5000"
    assert [found[name] for name in ("valid", "valid_share", "valid_low", "valid_high")] == [None] * 4


def test_without_texts_there_are_counts_and_no_shares() -> None:
    found = measured()
    assert (found["raw"], found["parsed"], found["valid"], found["complete"]) == (0, 0, 0, 0)
    assert all(found[f"{name}_{figure}"] is None for name in ("parsed", "valid") for figure in ("share", "low", "high"))


def test_texts_cut_at_the_limit_are_raw_and_not_complete() -> None:
    found = records(EvaluationInput([Text(VALID), Text('{"year": 19', complete=False)], schema=SCHEMA))
    assert (found.values["complete"], found.values["raw"]) == (1, 2)
    assert found.line == "2 raw, 1 parse, 1 valid under the schema"
    assert found.exposure == "public"
