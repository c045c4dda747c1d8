"""Labelled texts as bundles and public sets have them."""

import pytest

from tasks.evaluation.in_context.demonstrations import Example, read_examples
from tasks.release.bundle_format import text_line
from tests.refusals import refusal
from tests.unit.tasks.evaluation.in_context.conftest import ANIMALS, WEATHER


def written(folder, *lines: bytes):
    file = folder / "texts.jsonl"
    file.write_bytes(b"".join(lines))
    return file


@pytest.mark.parametrize("kind", ["demonstrations", "synthetic_corpus"])
def test_the_texts_of_a_bundle(tmp_path, kind):
    file = written(tmp_path, text_line(kind, 1, "pluie à midi", "Wet"), text_line(kind, 2, "", "d"), b"\n")
    assert read_examples(WEATHER, file) == [Example("pluie à midi", "w"), Example("", "d")]


def test_a_slots_label_is_any_text(tmp_path):
    assert read_examples(ANIMALS, written(tmp_path, b'{"text": "a cat", "label": "cat", "id": 7}')) == [
        Example("a cat", "cat")
    ]


@pytest.mark.parametrize(
    "bad", [b'{"text": "sun"}', b'{"text": 1, "label": "d"}', b'{"label": "d"}', b"[]", b"sun", b'{"text": "\xff"}']
)
def test_a_line_that_is_no_labelled_text(tmp_path, bad):
    with refusal("NoExample") as refused:
        read_examples(WEATHER, written(tmp_path, text_line("demonstrations", 1, "sun", "d"), bad))
    assert refused.value.facts == {"file": "texts.jsonl", "line": 2}


def test_a_label_of_another_task(tmp_path):
    with refusal("UnknownLabel"):
        read_examples(WEATHER, written(tmp_path, b'{"text": "hail", "label": "Hail"}'))
