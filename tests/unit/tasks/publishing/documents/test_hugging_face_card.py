"""The front matter: what the Hub reads, from what was declared and from the kind."""

from typing import Any

import pytest
import yaml

from tasks.publishing.documents.card import _size, front_matter, hub_licence, licence_address
from tests.unit.tasks.publishing.builders import INK, SUMMARIES, a_record, a_request
from tests.unit.tasks.release.test_text_rows import LABELS, asked


def front(request: dict[str, Any] | None = None) -> Any:
    text = front_matter(a_record(request))
    assert text.startswith("---\n")
    assert text.endswith("\n---")
    return yaml.safe_load(text.strip("-"))


def test_what_is_not_declared_is_not_made_up() -> None:
    assert front() == {
        "pretty_name": "clinic, release 1",
        "task_categories": ["text-generation"],
        "size_categories": ["n<1K"],
        "tags": ["synthetic", "differential-privacy", "almoner"],
        "configs": [{"config_name": "default", "data_files": "texts.parquet"}],
    }
    assert "# license: for the owner of the data to choose" in front_matter(a_record())


def test_what_is_declared_is_in_the_hubs_words() -> None:
    said = {"name": "Visits", "licence": "cc-by-4.0", "language": ["en-GB", "en-US", "de"]}
    found = front(a_request(public_metadata=said))
    assert found["pretty_name"] == "Visits, release 1"
    assert found["license"] == "cc-by-4.0"
    assert (found["language"], found["language_bcp47"]) == (["en", "de"], ["en-GB", "en-US", "de"])
    assert "language_bcp47" not in front(a_request(public_metadata={"language": ["en"]}))
    assert "# license" not in front_matter(a_record(a_request(public_metadata=said)))


@pytest.mark.parametrize(
    ("declared", "fields", "address"),
    [
        ("MIT", {"license": "mit"}, "https://spdx.org/licenses/MIT.html"),
        ("odbl-1.0", {"license": "odbl"}, "https://spdx.org/licenses/ODbL-1.0.html"),
        (
            "https://example.org/terms",
            {"license": "other", "license_name": "see-link", "license_link": "https://example.org/terms"},
            "https://example.org/terms",
        ),
        ("Our terms: none", {"license": "other", "license_name": "Our terms: none"}, "Our terms: none"),
    ],
)
def test_licences_are_named_as_catalogues_name_them(declared: str, fields: dict[str, str], address: str) -> None:
    assert hub_licence(declared) == fields
    assert licence_address(declared) == address
    found = front(a_request(public_metadata={"licence": declared}))
    assert {name: found[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("kind", "labels", "tasks"),
    [
        ("synthetic_corpus", [], ["text-generation"]),
        ("synthetic_corpus", LABELS, ["text-generation", "text-classification"]),
        ("demonstrations", LABELS, ["text-classification"]),
        ("records", [], None),
    ],
)
def test_tasks_follow_from_the_kind(kind: str, labels: list[str], tasks: list[str] | None) -> None:
    assert front(asked(kind, labels)).get("task_categories") == tasks


@pytest.mark.parametrize(
    ("texts", "size"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (9999, "1K<n<10K"), (10**4, "10K<n<100K"), (10**12, "100M<n<1B")],
)
def test_sizes_are_in_decades(texts: int, size: str) -> None:
    assert _size(texts) == size


def test_the_size_is_of_what_was_asked_for() -> None:
    request = a_request(parameters=INK | {"samples": 1234})
    assert front(request)["size_categories"] == ["1K<n<10K"]


@pytest.mark.parametrize("nasty", ['x"\n---\ntags: []', "\u202e", "{a: [", "# no"])
def test_nothing_somebody_typed_adds_a_field(nasty: str) -> None:
    request = a_request(dataset={"name": nasty, "version": 1, "uid": "4d"}, public_metadata={"licence": "x\"'{}: #"})
    found = front(request)
    assert set(found) == {*front(), "license", "license_name"}
    assert found["license_name"] == "x\"'{}: #"


def test_groups_are_no_classes() -> None:
    assert front(a_request(**SUMMARIES))["task_categories"] == ["summarization"]
