"""True and phantom disclosures, by words and by meaning, of sides that can be counted by hand."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from tasks.evaluation.core.subject import EvaluationInput, HoldOut
from tasks.evaluation.lexical.disclosures import disclosures
from tasks.evaluation.semantic.closeness import closeness
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.subjects import Text

READ = ["the grey cat sat on a mat", "we met in the old town hall", "shared words of two people here"]
HELD_OUT = ["he keeps bees in a high tower", "shared words of two people there"]


def subject(
    *released: str, read: Sequence[str] = READ, held_out: Sequence[str] = HELD_OUT, epsilon: float | None = 1.0
) -> EvaluationInput:
    return EvaluationInput(
        [Text(text) for text in released],
        documents=lambda: [*read, *held_out],
        embed=Letters(),
        hold_out=HoldOut(lambda: read, lambda: held_out, 0.5, epsilon, 1e-6),
    )


def test_units_are_named_by_runs_that_nobody_else_has() -> None:
    found = disclosures(subject("The grey cat sat in the old town hall", "bees in a high tower", "words of two people"))
    counted = {name: found.values[name] for name in ("read", "held_out", "true", "phantom")}
    assert counted == {"read": 3, "held_out": 2, "true": 2, "phantom": 1}
    assert found.values["true_share"] == "0.6667"
    assert found.exposure == "internal"


def test_a_run_of_several_units_of_one_side_names_none() -> None:
    both = ["one two three four five", "zero one two three four"]
    assert disclosures(subject("one two three four", read=both)).values["true"] == 0
    assert disclosures(subject("one two three four", held_out=both)).values["phantom"] == 0


def test_texts_name_the_unit_that_is_nearest_once() -> None:
    found = closeness(subject(READ[0], READ[0] + " .", HELD_OUT[0], READ[1]))
    assert (found.values["true"], found.values["phantom"]) == (2, 1)
    assert (found.values["read"], found.values["held_out"]) == (3, 2)


def test_equal_units_of_both_sides_are_named_without_regard_to_the_side() -> None:
    """The same texts on both sides: which of the two is named must not depend on who was read."""
    same = [f"{letter * 9} {letter * 5}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    found = closeness(subject(*same, read=same, held_out=same))
    true, phantom = found.values["true"], found.values["phantom"]
    assert isinstance(true, int)
    assert isinstance(phantom, int)
    assert min(true, phantom) >= 5


@pytest.mark.parametrize("metric", [disclosures, closeness])
def test_copies_contradict_a_claim_and_chance_does_not(metric: Any) -> None:
    texts = [f"{a * 3} {b * 3} {c * 3} {a + b + c}" for a, b, c in combinations("abcdefghijkl", 3)]
    read, held_out = texts[:120:2], texts[1:120:2]
    copied = metric(subject(*read[:40], read=read, held_out=held_out))
    assert "more than chance" in copied.line
    assert "CONTRADICTS" in copied.line
    assert float(copied.values["epsilon_at_least"]) > 1
    assert "CONTRADICTS" not in metric(subject(*read[:40], read=read, held_out=held_out, epsilon=None)).line
    mixed = metric(subject(*read[:20], *held_out[:20], read=read, held_out=held_out))
    assert "indistinguishable from chance" in mixed.line
    assert mixed.values["epsilon_at_least"] == "0.0000"


@pytest.mark.parametrize("metric", [disclosures, closeness])
def test_without_a_hold_out_or_a_text_nothing_is_measured(metric: Any) -> None:
    without = metric(EvaluationInput([Text("a")], documents=lambda: READ, embed=Letters()))
    assert set(without.values.values()) == {None}
    assert "rotate_over" in without.line
    empty = metric(subject())
    assert (empty.values["true"], empty.values["phantom"], empty.values["true_share"]) == (0, 0, None)
    with pytest.raises(ValueError, match="private documents"):
        metric(EvaluationInput([], embed=Letters()))
