"""Texts of several fields."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tasks.corpus.readers.documents import TextTemplate
from tasks.corpus.readers.readers import read_documents
from tests.refusals import refusal


def text(written: str, **record: object) -> str | None:
    return TextTemplate.parse(written).text_of(record)


def test_a_field_stands_as_it_is() -> None:
    assert text("note", note=" as it is\n") == " as it is\n"
    assert [text("note", note=value) for value in (None, "", " \n", 7, ["x"])] == [None] * 5
    assert TextTemplate.parse("note").fields == ("note",)


def test_a_template_joins_fields() -> None:
    written = r"{title}\n\n{body} ({stars} {{of}} 5, {title})"
    assert TextTemplate.parse(written).fields == ("title", "body", "stars")
    assert text(written, title="Fine", body="A good place.", stars=4) == "Fine\n\nA good place. (4 {of} 5, Fine)"
    assert str(TextTemplate.parse(written)) == written


def test_a_missing_field_is_empty_and_white_space_around_is_removed() -> None:
    assert text(r"{title}\n\n{body}", body="Only a body.") == "Only a body."
    assert text(r"{title}\n\n{body}", title="Only a title.", body=None) == "Only a title."


@pytest.mark.parametrize("value", ["", " ", None])
def test_without_a_filled_field_there_is_no_text(value: object) -> None:
    assert text("Title: {title}, body: {body}", title=value) is None


@pytest.mark.parametrize("value", [1.5, True, ["x"], {"x": 1}])
def test_other_values_are_no_text(value: object) -> None:
    assert text("{title} {body}", title="x", body=value) is None


def test_a_value_is_never_read_as_a_template() -> None:
    assert text("{title}: {body}", title="{body}", body=r"a\nb") == r"{body}: a\nb"


@pytest.mark.parametrize(
    "written", ["{", "}", "{title", "title}", "{}", "{title!r}", "{title:>9}", "{{title}}", "a {0:} {"]
)
def test_what_is_no_template_is_refused(written: str) -> None:
    with refusal("TextTemplateInvalid"):
        TextTemplate.parse(written)


@pytest.mark.parametrize(
    ("name", "write"), [("a.parquet", pq.write_table), ("a.feather", pyarrow.feather.write_feather)]
)
def test_a_column_that_is_no_text_is_refused_as_in_jsonl(tmp_path: Path, name: str, write: object) -> None:
    """It would be missing in every text; a column without any value is no more than that."""
    assert callable(write)
    for body in (pa.array([4.5, 3.0]), pa.array([b"x", b"y"])):
        write(pa.table({"title": ["one", "two"], "body": body}), tmp_path / name)
        with refusal("ColumnUnfit", match="'body'"):
            list(read_documents(tmp_path / name, None, "{title} {body}"))
    write(pa.table({"title": ["one", "two"], "body": pa.nulls(2)}), tmp_path / name)
    assert [document.text for document in read_documents(tmp_path / name, None, "{title} {body}")] == ["one", "two"]


def written(path: Path, records: list[dict[str, object]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_field_that_no_record_has_is_refused_at_the_end(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", [{"title": f"secret {n}"} for n in range(3)])
    documents = read_documents(source, None, "{title} {bodi}")
    assert len([next(documents) for _ in range(3)]) == 3
    with refusal("TemplateFieldMissing", match="'bodi'") as refused:
        next(documents)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("value", ["", "x", 7, None])
def test_a_field_that_one_record_has_is_no_mistake(tmp_path: Path, value: object) -> None:
    source = written(tmp_path / "a.jsonl", [{"title": "one"}, {"title": "two", "body": value}])
    assert len(list(read_documents(source, None, "{title} {body}"))) == 2


def test_fields_are_looked_for_in_all_files_of_a_folder_and_in_their_paths(tmp_path: Path) -> None:
    for number, record in enumerate([{"title": "one"}, {"title": "two", "body": "x"}]):
        written(tmp_path / "stars=5" / f"{number}.jsonl", [record])
    assert len(list(read_documents(tmp_path, None, "{title} {body} {stars}"))) == 2
    with refusal("TemplateFieldMissing", match="'pages'"):
        list(read_documents(tmp_path, None, "{title} {pages}"))


def test_of_the_first_records_one_has_to_have_it(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", [{"title": "one"}, {"title": "two"}, {"title": "three", "body": "x"}])
    assert len(list(read_documents(source, None, "{title} {body}", most=3))) == 3
    with refusal("TemplateFieldMissing", match="that was read"):
        list(read_documents(source, None, "{title} {body}", most=2))
    assert len(list(read_documents(source, None, "title", most=2))) == 2
