"""Tables and figures of the results pages are those of the data in docs/figures."""

import importlib
import json
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONCERNS = ("benchmarks", "docs/figures")
NO_RESULTS = {
    "attacks": 2,
    "capacity": 1,
    "planning": 3,
    "proofs/secret-assignment": 7,
    "records": 1,
}
"""How many tables of a page no script writes: parameters, errors, steps, and results of settled experiments."""


@pytest.fixture(scope="module")
def results() -> ModuleType:
    return importlib.import_module("benchmarks.results")


@pytest.fixture(scope="module")
def of_pages() -> ModuleType:
    return importlib.import_module("benchmarks.common.regions")


def copied(results: ModuleType, folder: Path) -> Path:
    """A copy of what the command compares, without the drawings."""
    for name in results.marked_pages():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "docs" / f"{name}.md", folder / f"{name}.md")
    return folder


def test_every_table_is_that_of_its_data(results: ModuleType) -> None:
    assert list(results.pages(results.DOCS, write=False)) == []


@pytest.mark.slow
def test_every_figure_is_that_of_its_data(results: ModuleType) -> None:
    assert list(results.figures(results.DOCS, write=False)) == []


def test_an_altered_figure_of_a_table_is_named_and_put_right(results: ModuleType, tmp_path: Path) -> None:
    docs = copied(results, tmp_path / "docs")
    page = docs / "utility.md"
    right = page.read_text()
    kl = "| InvisibleInk, log-probability | 0.079 [0.071, 0.089]"
    assert right.count(kl) == 1
    page.write_text(right.replace(kl, kl.replace("0.079", "0.078")))
    differing = ["docs/utility.md: table kl differs"]
    assert list(results.pages(docs, write=False)) == differing
    assert list(results.pages(docs, write=True)) == differing
    assert list(results.pages(docs, write=False)) == []
    assert page.read_text() == right


def test_a_region_without_data_and_a_lost_mark_are_named(results: ModuleType, tmp_path: Path) -> None:
    docs = copied(results, tmp_path / "docs")
    for name, old, new in (
        ("records", "<!-- table: films -->", "<!-- table: movies -->"),
        ("attacks", "<!-- end -->", ""),
    ):
        path = docs / f"{name}.md"
        path.write_text(path.read_text().replace(old, new))
    assert list(results.pages(docs, write=True)) == [
        "docs/attacks.md: a mark has no partner",
        "docs/records.md: a region without data, or data without a region: films, movies",
    ]


def test_the_command_fails_where_a_page_differs(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = copied(results, tmp_path / "docs")
    page = docs / "utility.md"
    page.write_text(page.read_text().replace("0.079 [0.071, 0.089]", "0.078 [0.071, 0.089]"))
    monkeypatch.setattr(results, "drawings", lambda: iter(()))  # they have a test of their own, which is slow
    for check, code in ((True, 1), (False, 0), (True, 0)):
        monkeypatch.setattr("sys.argv", ["results", "--docs", str(docs), *(["--check"] if check else [])])
        with pytest.raises(SystemExit) as ended:
            results.main()
        assert ended.value.code == code
    assert capsys.readouterr().out.splitlines() == [
        "docs/utility.md: table kl differs",
        "docs/utility.md: table kl differs",
        "every table and figure is that of the data",
    ]


def test_every_table_of_results_stands_in_a_region(results: ModuleType, of_pages: ModuleType) -> None:
    """A page may have as many other tables as it is known to have."""
    pages = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in results.marked_pages()}
    counted = {name: len(list(of_pages.unmarked(page))) for name, page in pages.items()}
    assert {name: count for name, count in counted.items() if count} == NO_RESULTS


def test_every_figure_is_drawn_from_data(results: ModuleType) -> None:
    shown = {
        name
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"\]\(figures/([a-z_]+)\.svg\)", page.read_text())
    }
    source = (ROOT / "benchmarks" / "results.py").read_text()
    assert {name for name in shown if name not in source} == set()
    assert {path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")} - shown == set()


def test_transcribed_tables_say_that_they_are(results: ModuleType) -> None:
    for path in results.TRANSCRIBED.glob("*.jsonl"):
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert {line["source"] for line in found} == {"table"}
        page = (ROOT / "docs" / f"{path.stem}.md").read_text()
        assert f"figures/transcribed/{path.name}" in page, f"{path.stem} does not say that its draws were not kept"


def test_a_table_is_the_same_after_it_was_transcribed(of_pages: ModuleType, tmp_path: Path) -> None:
    rows = ["| a |  | `x \\| y` |", "| --- | --- | --- |", "| 1 | 2 [1, 3] | † |", "|  | - | 50 % |"]
    lines = of_pages.transcribed("t", "\n".join(rows))
    path = tmp_path / "page.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert of_pages.transcribed_tables(path) == {"t": rows}
    with pytest.raises(of_pages.RegionError, match="rows of different lengths"):
        of_pages.transcribed("t", "| a | b |\n| --- | --- |\n| 1 |")


def test_drawings_may_differ_in_the_last_digits_alone(results: ModuleType) -> None:
    drawn = '<path id="m0123456789" d="M 1.25 300"/><use xlink:href="#m0123456789" x="7.000001"/><text>0.35</text>'
    other = drawn.replace("m0123456789", "mfedcba9876").replace("7.000001", "7.000002").replace("300", "300.004")
    assert results.alike(drawn, other)
    assert not results.alike(drawn, drawn.replace("7.000001", "7.1"))
    assert not results.alike(drawn, drawn.replace("text", "tspan"))
    assert not results.alike(drawn, drawn.replace('href="#m0123456789"', 'href="#mfedcba9876"'))
