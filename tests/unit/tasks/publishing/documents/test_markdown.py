"""What people typed stays text when it is rendered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tasks.publishing.documents.markup import block, code, table

NASTY = [
    "plain",
    "`tick`",
    "```\n# heading",
    "</td><script>alert(1)</script>",
    "[link](http://evil.example)",
    "http://evil.example",
    "a | b",
    "back\\slash | \\| pipe \\",
    "two\nlines",
    "\u202eright to left",
    " ",
    "",
]
TEXT = st.one_of(st.sampled_from(NASTY), st.text("`|\\\n #<a*_", max_size=12), st.text(max_size=12))
RENDERER = MarkdownIt("commonmark").enable("table")


def inline_tokens(markdown: str) -> list[str]:
    (inline,) = [token for token in RENDERER.parse(markdown) if token.type == "inline"]
    return [child.type for child in inline.children or ()]


@given(TEXT)
def test_a_value_is_one_code_span_on_one_line(value):
    shown = code(value)
    assert len(shown.splitlines()) == 1
    assert inline_tokens(f"before {shown} after") == ["text", "code_inline", "text"]


@given(st.lists(st.lists(TEXT, min_size=2, max_size=2), min_size=1, max_size=3))
def test_a_cell_stays_in_its_cell(rows):
    tokens = RENDERER.parse(table(("a", "b"), [[code(cell) for cell in row] for row in rows]))
    assert sum(token.type == "td_open" for token in tokens) == 2 * len(rows)
    cells = [token for token in tokens if token.type == "inline"][2:]
    assert {child.type for cell in cells for child in cell.children or ()} == {"code_inline"}


@given(TEXT)
def test_a_block_is_one_fence(value):
    tokens = RENDERER.parse(f"before\n\n{block(value)}\n\nafter")
    assert [token.type for token in tokens if token.type in ("fence", "html_block", "heading_open")] == ["fence"]


@pytest.mark.parametrize("sign", ["\u202e", "\u200b", "\x1b", "\u2028", "\x00"])
def test_invisible_signs_become_spaces(sign):
    for shown in (code(f"a{sign}b"), block(f"a{sign}b")):
        assert sign not in shown
