"""The documentation site: it builds without a broken link, and no page loads anything from elsewhere."""

import json
import re
import struct
from pathlib import Path

import pytest

from tests.site import ROOT, Page, built, foreign

CONCERNS = ("almoner", "docs", "mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "pictures").iterdir())
MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; strict, so that a warning would have failed it."""
    folder = tmp_path_factory.mktemp("site")
    done = built(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.mark.slow
def test_every_page_of_docs_is_a_page_of_the_site(site: Path) -> None:
    written = {path.relative_to(DOCS) for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"))}
    pages = {path.with_name("index") if path.name == "README.md" else path.with_suffix("") for path in written}
    assert len(pages) > 50
    assert [str(page) for page in pages if not (site / f"{page}.html").is_file()] == []


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert list(foreign(site)) == []


@pytest.mark.slow
def test_the_browser_is_told_to_load_nothing_from_elsewhere(site: Path) -> None:
    policies = {Page(path.read_text()).policy for path in site.rglob("*.html")}
    (policy,) = policies
    assert policy.startswith("default-src 'none'; ")
    sources = {source for rule in policy.split(";") for source in rule.split()[1:]}
    assert sources == {"'none'", "'self'", "'unsafe-inline'", "data:"}


@pytest.mark.slow
def test_every_picture_says_what_it_shows(site: Path) -> None:
    silent = {str(path.relative_to(site)): Page(path.read_text()).without_alt for path in site.rglob("*.html")}
    assert {page: found for page, found in silent.items() if found} == {}


@pytest.mark.slow
def test_search_finds_a_page_of_each_kind(site: Path) -> None:
    """Prose, a decision, the changelog, a name from a docstring, a notebook."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    wanted = {"policy.html", "changelog.html", "python-reference.html", "notebooks/insights.html"}
    assert wanted <= found
    assert any(place.startswith("decisions/0131") for place in found)
    names = {entry["location"].partition("#")[2] for entry in index["docs"]}
    assert {"almoner.request.Request.publish", "almoner.dataset.Dataset.ingest"} <= names


@pytest.mark.slow
def test_lists_and_code_are_read_as_on_github(site: Path) -> None:
    """No line of a page shows the marks of a list or the fence of a block."""
    shown = {
        str(path.relative_to(site)): re.findall(r"<p>(?:[^<]*\n)?(?:[*-] \w|```)[^<]*", path.read_text())
        for path in site.rglob("*.html")
    }
    assert {page: found for page, found in shown.items() if found} == {}


@pytest.mark.slow
def test_a_notebook_is_shown_with_its_output(site: Path) -> None:
    page = (site / "notebooks" / "first-release.html").read_text()
    assert page.count('<div class="notebook-output">') >= 4
    assert "almoner.open" in re.sub(r"<[^>]+>", "", page)


@pytest.mark.parametrize("page", ["analyst", "steward", "operator"])
def test_a_path_is_on_the_first_page_and_in_the_readme(page: str) -> None:
    assert f"(paths/{page}.md)" in (DOCS / "index.md").read_text()
    assert f"(docs/paths/{page}.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_is_shown(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    assert f"(pictures/{path.name})" in (DOCS / "index.md").read_text()
    if path.suffix == ".png":
        assert struct.unpack(">I", path.read_bytes()[16:20]) == (1280,)


@pytest.mark.parametrize(
    "text",
    [
        '<link rel="stylesheet" href="https://fonts.googleapis.com/css">',
        '<script src="//cdn.example/x.js"></script>',
        '<img alt="x" srcset="a.png 1x, https://cdn.example/a.png 2x">',
        "<style>@import 'https://cdn.example/x.css'</style>",
        '<p style="background: url(http://cdn.example/x.png)">',
    ],
)
def test_a_page_that_loads_something_is_noticed(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(text)
    (tmp_path / "link.html").write_text('<a href="https://example.org">followed by a person</a>')
    assert [page for page, _ in foreign(tmp_path)] == ["page.html"]


def test_a_stylesheet_that_loads_something_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "page.css").write_text("@font-face { src: url(https://cdn.example/f.woff2) }")
    assert list(foreign(tmp_path)) == [("page.css", "https://cdn.example/f.woff2")]
