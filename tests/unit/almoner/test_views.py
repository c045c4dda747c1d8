"""Views as HTML and as text: escaped, without scripts, and nothing loaded from elsewhere."""

import sys
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from almoner.bundle import TEXT_COLUMNS, TOPIC_COLUMNS, Rows
from almoner.views import Price, Review
from flows.approvals.review import Review as GateReview
from models_db.policies.policy import Policy
from models_db.values.request_state import Gate
from tasks.release.sections import FieldList, Samples, Summary, Table, Warnings, sections_to_text
from tasks.reporting.html_report import sections_html
from tests.refusals import refusal

EVIL = "<script>alert(1)</script>\u202e\x1b[31m\"'&<img src=//x onerror=y>"
PRICE: dict[str, Any] = {
    "dataset": "shop", "mechanism": EVIL, "rho": "0.5", "epsilon": "4", "delta": "0.1", "unit": EVIL,
    "expected_seconds": 75, "facts": {"clip norm C": "16"}, "prompt": {"description": EVIL},
    "public_metadata": {"language": ["en", EVIL]},
    "budget": {"rho_cap": "2", "affordable": False}, "cost": "The budget does not afford it.", "warnings": [EVIL],
    "choices": {"samples": {"value": 3, "reason": EVIL}},
    "groups": {EVIL: EVIL},
}  # fmt: skip
SECTIONS = (
    Summary(EVIL, (EVIL,)),
    Warnings(EVIL, (EVIL,)),
    FieldList(EVIL, ((EVIL, EVIL),)),
    Table(EVIL, (EVIL, EVIL), ((EVIL, EVIL),)),
    Table(EVIL, (EVIL,), (), empty=EVIL),
    Samples(EVIL, (EVIL,)),
)


class Elements(HTMLParser):
    """The elements and attributes of a fragment, and whether each one is closed."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(fragment)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(fragment: str) -> None:
    found = Elements(fragment)
    assert found.open == []
    assert found.elements <= {
        "section", "style", "h4", "h5", "p", "strong", "ul", "li", "div", "article", "table", "caption", "thead",
        "tbody", "tr", "th", "td", "wbr", "details", "summary",
    }  # fmt: skip
    assert found.attributes <= {"class", "scope", "dir", "aria-label"}
    assert "url(" not in fragment
    assert "\x1b" not in fragment
    assert "\u202e" not in fragment
    assert "<script>alert(1)</script>\\u202e\\x1b[31m" in found.text


def test_every_part_of_every_section_is_escaped() -> None:
    assert_harmless(sections_html(EVIL, SECTIONS))
    said = sections_to_text(EVIL, SECTIONS)
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_a_price_is_shown_with_its_warnings_first() -> None:
    price = Price(PRICE)
    assert_harmless(price._repr_html_())
    said = repr(price)
    assert said.index("Look twice") < said.index("does not afford") < said.index("Price\n")
    assert "clip norm C" not in said
    assert "Left out: Public parameters;" in said
    assert (price.rho, price.affordable, price["facts"]) == ("0.5", False, {"clip norm C": "16"})
    with pytest.raises(TypeError):
        price.facts["rho"] = "0"  # type: ignore[index]


def test_texts_of_samples_are_in_no_view() -> None:
    sections = (
        Samples("Texts: the first 2 of 1,000", ("zanzibarquux", "b")),
        Table("Insights: all 1", ("name",), (("zanzibarquux",),), released=True),
    )
    review = Review(GateReview(1, Gate.PUBLISH, "clinic", "produced", "ab" * 32, Policy(), sections))
    for said in (repr(review), review._repr_html_()):
        assert "Texts: the first 2 of 1,000; not shown here: read `texts()` first." in said
        assert "Insights: all 1; not shown here: read `topics()` first." in said
        assert "zanzibarquux" not in said


TEXTS = Rows(
    (
        {"id": 1, "label": None, "text": "zanzibarquux", "doubts": ["a loop"]},
        {"id": 2, "label": "b", "text": "c", "doubts": []},
    ),
    "texts of request 1",
    TEXT_COLUMNS,
)


def test_rows_are_a_sequence_that_does_not_show_its_content() -> None:
    assert repr(TEXTS) == "<2 texts of request 1: id, label, text, doubts>"
    assert repr(Rows(TEXTS.rows, "texts", TEXT_COLUMNS, "1 of 2 texts.")).endswith("doubts. 1 of 2 texts.>")
    assert not hasattr(TEXTS, "_repr_html_")
    assert (len(TEXTS), TEXTS[1]["text"], [row["id"] for row in TEXTS], len(TEXTS[:1])) == (2, "c", [1, 2], 1)
    with pytest.raises(TypeError):
        TEXTS[0]["text"] = "other"  # type: ignore[index]
    TEXTS.to_dicts()[0]["text"] = "other"
    assert TEXTS[0]["text"] == "zanzibarquux"


def test_rows_become_tables_of_four_libraries() -> None:
    table = TEXTS.to_arrow()
    assert table.schema.field("id").type == pa.int64()
    assert table.schema.field("doubts").type == pa.list_(pa.string())
    frame, other, dataset = TEXTS.to_pandas(), TEXTS.to_polars(), TEXTS.to_datasets()
    assert isinstance(frame, pd.DataFrame)
    assert isinstance(other, pl.DataFrame)
    assert (frame["text"].tolist(), frame["label"].isna().tolist()) == (["zanzibarquux", "c"], [True, False])
    assert other["doubts"].to_list() == dataset["doubts"][:] == [["a loop"], []]
    assert dataset.cache_files == []
    assert [list(each) for each in (table.column_names, frame.columns, other.columns, dataset.column_names)] == [
        ["id", "label", "text", "doubts"]
    ] * 4


def test_no_rows_are_a_table_too() -> None:
    empty = Rows((), "topics of request 1", TOPIC_COLUMNS)
    for table in (empty.to_arrow(), empty.to_pandas(), empty.to_polars(), empty.to_datasets()):
        assert len(table) == 0


@pytest.mark.parametrize("library", ["pandas", "polars", "datasets"])
def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with refusal("LibraryMissing") as refused:
        getattr(TEXTS, f"to_{library}")()
    assert f"pip install {library}" in refused.value.advice
    assert refused.value.exit_code == 3
