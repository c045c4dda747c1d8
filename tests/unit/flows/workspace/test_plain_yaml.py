"""YAML that could be read in two ways is refused, or read as what it looks like; no error quotes it."""

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.workspace.yaml_files import MOST_DEPTH, MOST_DIGITS, InvalidYaml, parse_yaml

SECRET = "Quartermaine"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("Off", "Off"), ("y", "y"), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), ("2026-11-21", "2026-11-21"), ("2026-11-21T08:30:00Z",) * 2,
        ("7", 7), ("-7", -7), ("0", 0), ("4.0", 4.0), (".5", 0.5), ("1.0e-7", 1e-7), ("1e-7", "1e-7"), ("=", "="),
        ("'1:30'", "1:30"), ("'010'", "010"), ('"yes"', "yes"), ("a:30", "a:30"), ("1.2.3", "1.2.3"),
        ("0b5d376e", "0b5d376e"), ("0b12", "0b12"), ("0oil", "0oil"), ("0xylem", "0xylem"),
    ],
)  # fmt: skip
def test_words_are_what_they_look_like(text: str, value: object) -> None:
    assert parse_yaml(f"key: {text}") == {"key": value}


BAD = {
    "sexagesimal": ("key: 1:30", "YAML 1.1"),
    "sexagesimal float": ("key: 1:30.5", "YAML 1.1"),
    "octal": ("key: 010", "YAML 1.1"),
    "octal of 1.2": ("key: 0o17", "YAML 1.1"),
    "hexadecimal": ("key: 0x1F", "YAML 1.1"),
    "binary": ("key: 0b11", "YAML 1.1"),
    "underscores": ("key: 1_000", "YAML 1.1"),
    "infinity": ("key: -.inf", "YAML 1.1"),
    "no number": ("key: .nan", "YAML 1.1"),
    "too large": ("key: 1.0e999", "too large"),
    "digits": (f"key: {'9' * (MOST_DIGITS + 1)}", "digits"),
    "anchor": (f"key: &{SECRET} 1", "anchors"),
    "alias": (f"key: *{SECRET}", "aliases"),
    "bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "anchors"),
    "tag": (f"key: !{SECRET} 1", "tags"),
    "python": (f"key: !!python/object/apply:os.system [{SECRET}]", "tags"),
    "plain tag": ("key: !!str 1", "tags"),
    "flow lists": (f"key: {'[' * (MOST_DEPTH + 1)}{']' * (MOST_DEPTH + 1)}", "deeper"),
    "3,000 lists": (f"key: {'[' * 3000}", "deeper"),
    "block lists": (f"key:\n  {'- ' * 3000}x", "deeper"),
    "key twice": ("a: 1\na: 2", "repeated"),
    "key in two spellings": ("1: a\n'1': b", "repeated"),
    "key that is a list": ("? [a]\n: b", "not text"),
    "a colon": (f"key: {SECRET}: b", "`:`"),
    "a tab": (f"\t{SECRET}: 1", ""),
    "undefined handle": (f"key: !{SECRET}!x 1", ""),
    "escape": (f'key: "\\{SECRET}"', ""),
    "two documents": (f"a\n---\n{SECRET}", ""),
    "control": ("key: \x07", ""),
}


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=list(BAD))
def test_what_is_ambiguous_or_unbounded_is_refused_without_a_word_of_it(text: str, reason: str) -> None:
    with pytest.raises(InvalidYaml, match="not YAML") as refused:
        parse_yaml(text)
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidYaml):
        parse_yaml(text)


words = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")))
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | words
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_what_almoner_writes_is_read_back(value: object) -> None:
    assert parse_yaml(yaml.safe_dump(value, allow_unicode=True)) == value
