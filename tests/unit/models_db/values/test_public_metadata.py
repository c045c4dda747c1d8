"""Declared public metadata: closed, small, and kept as it was written."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import MetadataAltered, PublicMetadata, model_to_json, parse_model
from tests.refusals import refusal

WRITTEN: dict[str, Any] = {
    "name": "Visits to a clinic",
    "description": "Short notes.\nIn two lines.",
    "licence": "CC-BY-4.0",
    "language": "en",
    "creators": ["The clinic"],
    "citation": "The clinic (2026)",
    "url": "https://example.org/notes",
    "intended_use": "Teaching.",
    "region": "Utopia",
    "sector": "Healthcare",
    "publication_date": "2026-12-01",
}


def read(**changes: Any) -> PublicMetadata:
    return parse_model(PublicMetadata, WRITTEN | changes, "The public metadata")


def test_what_is_written_is_kept() -> None:
    assert model_to_json(read()) == WRITTEN | {"language": ["en"]}
    assert model_to_json(PublicMetadata(licence="MIT")) == {"licence": "MIT"}
    assert model_to_json(PublicMetadata()) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"units": "154"},
        {"language": "English"},
        {"language": False},
        {"url": "javascript:alert(1)"},
        {"url": "https://a b"},
        {"publication_date": "1.12.2026"},
        {"publication_date": "2026-13-01"},
        {"name": "two\nlines"},
        {"name": ""},
        {"description": "x" * 4001},
        {"creators": [""]},
        {"licence": 5},
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, Any]) -> None:
    with refusal("FileInvalid"):
        read(**wrong)


def test_what_the_ledger_keeps_reads_back() -> None:
    assert PublicMetadata.stored(None) == PublicMetadata.stored("{}") == PublicMetadata()
    assert PublicMetadata.stored(encode_canonical(model_to_json(read())).decode()) == read()


@pytest.mark.parametrize("text", ["", "[]", "5", "null", "{", '{"language": "English"}', '{"title": "notes"}'])
def test_what_the_ledger_keeps_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(MetadataAltered):
        PublicMetadata.stored(text)


def test_a_request_says_otherwise_or_besides() -> None:
    dataset, request = (
        PublicMetadata(licence="MIT", region="Utopia"),
        PublicMetadata(licence="CC0-1.0", language=("en",)),
    )
    said = {"licence": "CC0-1.0", "region": "Utopia", "language": ["en"]}
    assert model_to_json(dataset.merged_over(request)) == said
    assert dataset.merged_over(None) == dataset
    assert PublicMetadata().merged_over(dataset) == dataset


def test_the_page_lists_every_field_and_its_example_is_one() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "bundle.md").read_text()
    table = page.partition("| field | meaning |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines()[2:] for name in re.findall("`([a-z_]+)`", row.split(" | ")[0])]
    assert listed == list(PublicMetadata.model_fields)
    (example,) = re.findall("```yaml\n(.*?)```", page, re.S)
    assert model_to_json(parse_model(PublicMetadata, yaml.safe_load(example), "The example"))
