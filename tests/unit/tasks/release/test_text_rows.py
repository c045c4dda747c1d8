"""The lines of `texts.jsonl`: one form for each kind, made again by whoever verifies."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models_db.values.requests import Prompt
from tasks.common.files import FileUnfit, parse_object
from tasks.inference.prompt_spec import prompt_json
from tasks.mechanisms.core.uncharged import uncharged
from tasks.publishing.documents.card import card
from tasks.publishing.draft import write_draft
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import CARD, TEXTS, labels_of_texts, read_labelled, text_line
from tasks.reporting.release_sections import texts_of
from tests.unit.tasks.publishing.builders import INK, Release, a_record, a_release, a_request, invocation, metrics_of
from tests.unit.tasks.publishing.forging import reseal

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/release",)

LABELS = ["sports", "world"]
FILM = '{"title": "Alien", "year": 1979, "score": 8.5, "cast": ["S. Weaver"]}'
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
UNLABELLED = {"description": "Films."}


def asked(kind: str, labels: list[str], **prompt: str) -> dict[str, Any]:
    written = prompt_json(Prompt.model_validate(UNLABELLED | prompt), labels)
    parameters = INK | ({"labels": labels} if labels else {}) | ({"schema": SCHEMA} if kind == "records" else {})
    return a_request(kind=kind, parameters=parameters, prompt=written)


def drafted(folder: Path, texts: tuple[str, ...], request: dict[str, Any]) -> list[dict[str, Any]]:
    labels = labels_of_texts("synthetic_corpus", request["parameters"].get("labels", []), len(texts), 1)
    write_draft(folder, a_record(request), texts, metrics_of(texts, "length"), labels)
    return [json.loads(row) for row in (folder / TEXTS).read_bytes().splitlines()]


# --- one line ----------------------------------------------------------------------------------------------


def test_a_line_of_each_kind() -> None:
    assert text_line("synthetic_corpus", 1, "a é", None) == '{"id":1,"text":"a é"}\n'.encode()
    assert text_line("demonstrations", 2, "a", "x") == b'{"id":2,"label":"x","text":"a"}\n'
    assert text_line("records", 3, "no record", None) == b'{"id":3,"raw":"no record"}\n'
    assert json.loads(text_line("records", 4, FILM, "x")) == {
        "id": 4, "label": "x", "raw": FILM, "record": json.loads(FILM),
    }  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        "", "Alien, 1979", "[1]", '"x"', "7", "null", '{"a": 1', '{"a": 1} and more', '{"a": 1, "a": 2}', '{"a": NaN}',
        '{"a": 1e999}', '{"a": "\\ud800"}', '{"\\ud800": 1}', "{" * 100_000, '{"a": ' + "9" * 5000 + "}", "{'a': 1}",
        '```json\n{"a": 1}\n```',
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_raw_only(raw: str) -> None:
    assert parse_object(raw) is None


def test_a_record_keeps_its_types_and_the_order_of_its_fields() -> None:
    found = parse_object(f"  {FILM}\n")
    assert found == {"title": "Alien", "year": 1979, "score": 8.5, "cast": ["S. Weaver"]}
    assert list(found) == ["title", "year", "score", "cast"]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@pytest.mark.slow
@given(st.dictionaries(st.text(), JSON))
def test_whatever_a_model_writes_as_an_object_comes_back(value: dict[str, Any]) -> None:
    row = json.loads(text_line("records", 1, json.dumps(value), None))
    expected = json.loads(json.dumps(value))
    assert row.get("record", expected) == expected
    assert ("record" in row) == (parse_object(json.dumps(value)) is not None)


@given(st.text())
def test_every_text_makes_a_line_that_reads_back(raw: str) -> None:
    row = json.loads(text_line("records", 1, raw, None))
    assert row["raw"] == raw


# --- a draft -----------------------------------------------------------------------------------------------


def test_labels_of_texts_follow_from_public_numbers() -> None:
    assert labels_of_texts("synthetic_corpus", LABELS, 4, 1) == ["sports", "sports", "world", "world"]
    assert labels_of_texts("synthetic_corpus", LABELS, 3, 1) == ["sports", "sports", "world"]
    assert labels_of_texts("synthetic_corpus", LABELS, 2, 2) == ["sports", "world"]
    assert labels_of_texts("synthetic_corpus", [], 3, 2) == [None, None, None]


def test_a_draft_has_a_label_in_every_line_only_where_labels_were_asked(tmp_path: Path) -> None:
    rows = drafted(tmp_path / "a", ("one", "two"), asked("demonstrations", LABELS))
    assert rows == [{"id": 1, "label": "sports", "text": "one"}, {"id": 2, "label": "world", "text": "two"}]
    rows = drafted(tmp_path / "b", ("one", "two"), asked("synthetic_corpus", []))
    assert rows == [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}]


def test_a_steward_sees_what_was_generated_of_records(tmp_path: Path) -> None:
    rows = drafted(tmp_path / "a", (FILM, "no"), asked("records", []))
    assert [set(row) for row in rows] == [{"id", "raw", "record"}, {"id", "raw"}]
    assert [text for text, _ in read_labelled(tmp_path / "a")] == [FILM, "no"]


def test_texts_are_read_again_with_their_labels_and_numbers(tmp_path: Path) -> None:
    rows = drafted(tmp_path / "a", ("one", FILM), asked("records", LABELS))
    found = list(read_labelled(tmp_path / "a"))
    assert found == [("one", "sports"), (FILM, "world")]
    assert [text.number for text in texts_of(found)] == [row["id"] for row in rows]
    assert list(read_labelled(tmp_path / "a", 1)) == found[:1]
    drafted(tmp_path / "b", ("one",), asked("synthetic_corpus", []))
    assert list(read_labelled(tmp_path / "b")) == [("one", None)]
    with pytest.raises(FileUnfit):
        list(read_labelled(tmp_path))


# --- a bundle ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["demonstrations", "records"])
def labelled(request: pytest.FixtureRequest, tmp_path: Path) -> Release:
    texts = (FILM, "Nothing.")
    return a_release(tmp_path, a_record(asked(request.param, LABELS)), texts, LABELS)


def test_a_labelled_release_verifies_and_says_so_on_its_card(labelled: Release, tmp_path: Path) -> None:
    made = labelled.publish(tmp_path / "out")
    report = verify_release(made.folder, labelled.key.public_key)
    assert report.holds, [check for check in report.checks if not check.ok]
    told = (made.folder / CARD).read_text()
    assert "a public set that the request declares" in told
    assert "`sports`, `world`" in told
    assert "(`id`, `label`, " in told
    assert "Category: {label}" in told


Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
FORGERIES: dict[str, tuple[Change, str]] = {
    "labels exchanged": (lambda r: [r[0] | {"label": "world"}, r[1] | {"label": "sports"}], "another label"),
    "another label": (lambda r: [r[0] | {"label": "war"}, r[1]], "another label"),
    "no label": (lambda r: [{k: v for k, v in r[0].items() if k != "label"}, r[1]], "line 1 is not"),
    "a number for a label": (lambda r: [r[0] | {"label": 7}, r[1]], "another label"),
    "one field more": (lambda r: [r[0] | {"unit": "p1"}, r[1]], "line 1 is not"),
    "a record of its own": (lambda r: [r[0], r[1] | {"record": {"title": "Alien"}}], "one form"),
}


@pytest.mark.parametrize(("change", "said"), FORGERIES.values(), ids=list(FORGERIES))
def test_forged_rows_are_found(labelled: Release, tmp_path: Path, new_key: Any, change: Change, said: str) -> None:
    folder = labelled.publish(tmp_path / "out").folder
    rows = [json.loads(row) for row in (folder / TEXTS).read_bytes().splitlines()]
    forged = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in change(rows)]
    (folder / TEXTS).write_text("".join(f"{row}\n" for row in forged))
    reseal(folder, new_key("forger"))
    (texts,) = [check for check in verify_release(folder).checks if check.name == "texts"]
    assert not texts.ok
    assert said in texts.detail


# --- templates on the card -----------------------------------------------------------------------------------


def test_templates_are_on_the_card_word_for_word_and_in_the_request(tmp_path: Path) -> None:
    request = asked("synthetic_corpus", [], private="Say: {description}\n{reference}\nAgain.", system="Be `brief`.")
    release = a_release(tmp_path, a_record(request))
    made = release.publish(tmp_path / "out")
    assert verify_release(made.folder, release.key.public_key).holds
    told = (made.folder / CARD).read_text()
    assert "```text\nSay: {description}\n{reference}\nAgain.\n```" in told
    assert "Be `brief`." in told
    assert request["prompt"]["public"] == "{description}\n\nWrite one."


def test_a_prompt_that_is_not_written_out_is_not_a_request_of_ours(tmp_path: Path) -> None:
    request = asked("synthetic_corpus", [], preset="review")
    del request["prompt"]["system"]
    release = a_release(tmp_path, a_record(request))
    with pytest.raises(Exception, match="prompt is not written out"):
        release.publish(tmp_path / "out")


def test_how_documents_are_cut_is_on_the_card_and_how_many_were_is_not() -> None:
    text = card(a_record(), ())
    assert "cut: at 256 tokens, and before that at 64 characters for each" in text
    with pytest.raises(ValidationError, match="private wherever something is claimed"):
        a_record(released={"references_cut": "3"})


def test_public_data_without_a_claim_may_tell_how_many_were_cut() -> None:
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("non_private"))]}
    request = a_request(mechanism="non_private", governed=False, epsilon=None, delta=None, plan=plan)
    record = a_record(request, lifetime=None, second_opinion=None, released={"references_cut": "3"})
    assert record.released == {"references_cut": "3"}
