"""Each `PRIVACY §4.2` in code, tests and documentation is a section of the page that states the guarantee."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.test_layout import ROOT
from tests.test_weight import tracked

PAGE = (ROOT / "docs" / "privacy-guarantee.md").read_text()
ONE = r"§(\d[\d.]*\d|\d)(?: point (\d))?"
SEVERAL = re.compile(r" {0}(?:(?:,| and) {0})*".format(re.sub(r"\((?!\?)", "(?:", ONE)))
GOES_ON = re.compile(r",?(?: and)?\s*\n[\s#*>|]*§")


def points_of_sections() -> Mapping[str, frozenset[str]]:
    """Return the numbers of the page's sections, each with the numbers of the points below its heading."""
    parts = re.split(r"^#+ ", PAGE, flags=re.MULTILINE)
    numbered = [(found[1], part) for part in parts if (found := re.match(r"(\d+(?:\.\d+)?)\.? ", part))]
    assert len(dict(numbered)) == len(numbered)
    return {number: frozenset(re.findall(r"^(\d)\. ", part, re.MULTILINE)) for number, part in numbered}


SECTIONS = points_of_sections()


def faults(text: str) -> Iterator[str]:
    """Yield the references of a text to no section of the page, in another form, or broken over two lines."""
    for word in re.finditer(r"\bPRIVACY\b", text):
        cited = SEVERAL.match(text, word.end())
        if not cited or GOES_ON.match(text, cited.end()):
            yield text[word.start() : word.end() + 20]
            continue
        for number, point in re.findall(ONE, cited[0]):
            if number not in SECTIONS or (point and point not in SECTIONS[number]):
                yield f"{word[0]} §{number} point {point}"


def test_every_reference_leads_to_a_section() -> None:
    paths = [path for kind in ("*.py", "*.md", "*.json") for path in tracked(kind) if path != Path(__file__)]
    texts = {path: path.read_text(encoding="utf-8").replace("\\u00a7", "§") for path in paths}
    assert {str(path.relative_to(ROOT)): found for path, text in texts.items() if (found := list(faults(text)))} == {}
    assert sum(text.count("PRIVACY §") for text in texts.values()) > 150


def test_the_page_refers_to_its_own_sections_alone() -> None:
    assert {number for number, _ in re.findall(ONE, PAGE)} <= SECTIONS.keys()


@pytest.mark.parametrize("text", ["§2, §5", "§4.2 point 1 and §10.1", "§2's table", "§5; a paper, §9.9"])
def test_a_reference_has_one_form(text: str) -> None:
    assert list(faults(f"PRIVACY {text}")) == []


@pytest.mark.parametrize(
    "text",
    ["\n§1", " §1,\n    §7)", " §1 and\n# §7", " §12", " §4.2.3", " §4.2 point 9", " §3, §10.5", " section 4.2", ".md"],
)
def test_a_reference_that_leads_nowhere_is_noticed(text: str) -> None:
    assert list(faults(f"PRIVACY{text}"))
