"""What a request may ask for with `selection`: kinds, mechanisms, numbers, shares of labels."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.requests import SELECTION_CRITERIA, FileInvalid, Selection, model_to_json, parse_model
from tasks.planning.batches import BatchLayout
from tasks.planning.selection import (
    KeepTooLarge,
    KeepTooSmall,
    SelectionUnfit,
    kept_per_label,
    published_texts,
    require_selection,
)
from tasks.values.release_kinds import ReleaseKind

FIVE = Selection(keep=5)


def check(
    selection: Selection | None = FIVE,
    kind: str = ReleaseKind.SYNTHETIC_CORPUS,
    mechanism: str = "invisible_ink",
    *,
    external: bool = False,
    **parameters: Any,
) -> None:
    fields: Any = SimpleNamespace(**{"samples": 9, "labels": (), "form": None, **parameters})
    require_selection(selection, kind, mechanism, fields, external=external)


def test_texts_of_running_text_can_be_selected() -> None:
    for kind in (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS):
        check(kind=kind, labels=("a", "b"))
    check(samples=5)
    check(Selection(keep=5, criteria=("nonsense",)), external=True)
    check(None, ReleaseKind.SUMMARIES, samples=0)


@pytest.mark.parametrize("kind", [ReleaseKind.SUMMARIES, ReleaseKind.INSIGHTS, ReleaseKind.RECORDS])
def test_other_kinds_have_no_text_to_spare(kind: ReleaseKind) -> None:
    with pytest.raises(SelectionUnfit, match=kind):
        check(kind=kind)


def test_requests_whose_texts_cannot_be_selected() -> None:
    with pytest.raises(SelectionUnfit, match="noisy votes"):
        check(mechanism="private_evolution")
    with pytest.raises(SelectionUnfit, match="form"):
        check(form="It is {type}.")
    with pytest.raises(SelectionUnfit, match="API"):
        check(external=True)
    with pytest.raises(KeepTooLarge, match="draws 4"):
        check(samples=4)
    with pytest.raises(KeepTooSmall, match="6 labels"):
        check(labels=tuple("abcdef"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keep": 0}, "keep"),
        ({}, "keep"),
        ({"keep": 3, "criteria": []}, "criteria"),
        ({"keep": 3, "criteria": ["beauty"]}, "criteria"),
        ({"keep": 3, "criteria": ["prompt", "prompt"]}, "each criterion once"),
        ({"keep": 3, "drop": 1}, "drop"),
    ],
)
def test_an_unfit_selection_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(FileInvalid, match=said):
        parse_model(Selection, fields, "`selection`")


def test_criteria_are_stored_in_one_order_and_written_out() -> None:
    assert model_to_json(Selection(keep=3)) == {"keep": 3, "criteria": list(SELECTION_CRITERIA)}
    backwards = parse_model(Selection, {"keep": 3, "criteria": list(reversed(SELECTION_CRITERIA))}, "it")
    assert backwards == Selection(keep=3)


def test_the_number_of_published_texts() -> None:
    assert [published_texts(chosen, 9) for chosen in (None, FIVE, Selection(keep=20))] == [9, 5, 9]


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 4), st.data())
def test_every_label_keeps_its_share(samples: int, labels: int, blocks: int, data: Any) -> None:
    """Of texts spread over labels as a release spreads them, no label loses all of its texts or more than its share."""
    samples = max(samples, labels, blocks)
    keep = data.draw(st.integers(labels, samples))
    names = BatchLayout(samples, blocks, labels).labels_of_texts([f"label {number}" for number in range(labels)])
    kept = kept_per_label(keep, names)
    assert sum(kept.values()) == keep
    for label, count in kept.items():
        assert 1 <= count <= names.count(label)
        assert abs(count - keep * names.count(label) / samples) < 1


def test_without_labels_all_are_kept_together() -> None:
    assert kept_per_label(3, [None] * 7) == {None: 3}
    assert kept_per_label(0, []) == {}
