"""Token-level summaries: whose documents are read, what one unit can move, and what the rule makes of the rows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.corpus.store import Corpus
from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens import utility_scores
from tasks.systems.summaries.token_level_rule import TokenLevelRule
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.systems.summaries.summing import (
    GROUPS,
    UNIT,
    UNITS,
    Diary,
    equal_but,
    kept,
    norms,
    notes,
    notes_with,
    one_thread,
    written,
)
from tests.unit.tasks.systems.summaries.test_token_level import SYSTEM, make, plan_of, reviews, wanted
from tests.unit.tasks.systems.workshop import Workshop

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/systems/summaries", "tasks/inference/engine")

__all__ = ["one_thread", "reviews"]  # fixtures
SPACES = [("hidden", "public"), ("hidden", "none"), ("logits", "public"), ("logits", "none")]
spaces = pytest.mark.parametrize(("space", "centre"), SPACES)


@spaces
def test_a_group_nobody_wrote_in_has_a_text_like_any_other(tmp_path: Path, space: str, centre: str) -> None:
    """Not one unit in any group: every text is whole, and everything is armed."""
    empty = kept(tmp_path, [each | {"section": "elsewhere"} for each in notes()])
    workshop = Workshop(empty)
    made = make(workshop, wanted(space=space, centre=centre), rng=OS_RANDOM)
    assert [text.tokens for text in made.texts] == [12] * 4
    assert [step for step in workshop.seen if step[0] == "arm"] == [("arm", 0, number) for number in range(3)]


@pytest.mark.parametrize(("bound", "blocks"), [(1, 1), (2, 3), (3, 2)])
def test_a_unit_has_at_most_m_rows_over_all_groups_and_blocks(reviews: Corpus, bound: int, blocks: int) -> None:
    workshop = Workshop(reviews, blocks)
    parameters = wanted(groups_per_unit=bound, max_new_tokens=2)
    diary = written(SYSTEM, parameters, plan_of(parameters, blocks=blocks), workshop, stops=False)
    groups = [len({n["section"] for n in notes() if n["patient_id"] == f"u{unit}"}) for unit in range(UNITS)]
    rows = sum(min(bound, each) for each in groups)
    steps = 2
    assert sum(len(each) for each in diary.rows) == rows * steps
    assert len({id(each) for each in diary.mechanisms}) == 1


CHANGES = ["replaced", "lengthened", "removed"]


@pytest.mark.slow_except(
    "2-replaced-hidden-public", "1-removed-logits-none", "2-lengthened-logits-none", "1-lengthened-hidden-public"
)
@spaces
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("bound", [1, 2])
def test_one_unit_changes_its_own_contribution_and_nothing_else(
    reviews: Corpus, tmp_path: Path, space: str, centre: str, change: str, bound: int
) -> None:
    """Through the whole rule, tokens given: the exact sums of all other groups are the same to the last bit."""
    changed = kept(tmp_path, notes_with(change))
    parameters = wanted(space=space, centre=centre, groups_per_unit=bound, max_new_tokens=6, top_k=20)
    plan = plan_of(parameters)
    one, other = (written(SYSTEM, parameters, plan, Workshop(corpus), stops=False) for corpus in (reviews, changed))
    assert one.seen == other.seen
    apart = equal_but(one.sums, other.sums)
    steps = [0] * len(one.sums)
    (mean,) = one.mechanisms
    for number, row in apart:
        steps[number] += 1
        distance = norms((one.sums[number] - other.sums[number])[row][None])[0]
        assert 0 < distance <= (mean.clip_steps * (1 if change == "removed" else 2)) ** 2
    # Four texts, three at once: six steps of three groups, and six of one.
    assert len(steps) == 12
    assert max(steps) <= bound
    assert sum(steps) == bound * 6


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_are_isolated_at_every_precision(reviews: Corpus, tmp_path: Path, precision: Precision) -> None:
    if expect_refusal(precision):
        return
    changed = kept(tmp_path, notes_with("lengthened"))
    parameters = wanted(max_new_tokens=3, groups_per_unit=1)
    plan = plan_of(parameters)
    one, other = (
        written(SYSTEM, parameters, plan, Workshop(corpus), precision, stops=False) for corpus in (reviews, changed)
    )
    assert len(equal_but(one.sums, other.sums)) == 3
    for left, right in zip(one.rows, other.rows, strict=True):  # and so are all rows but the unit's own
        assert sum(not torch.equal(*pair) for pair in zip(left, right, strict=True)) <= 1


def test_the_order_of_the_source_changes_nothing(reviews: Corpus, tmp_path: Path) -> None:
    parameters = wanted(max_new_tokens=3)
    changed = kept(tmp_path, notes_with("first"))
    one, other = (
        written(SYSTEM, parameters, plan_of(parameters), Workshop(corpus), stops=False) for corpus in (reviews, changed)
    )
    assert equal_but(one.sums, other.sums) == []


# --- what it says ------------------------------------------------------------------------------------------------


@spaces
@pytest.mark.parametrize("clip", ["0.01", "5", "900000"])
def test_no_row_is_longer_than_the_clip_norm(reviews: Corpus, space: str, centre: str, clip: str) -> None:
    parameters = wanted(space=space, centre=centre, clip_norm=clip, max_new_tokens=3)
    diary = written(SYSTEM, parameters, plan_of(parameters), Workshop(reviews), stops=False)
    (mean,) = diary.mechanisms
    assert float(mean.clip_norm) == pytest.approx(float(clip), rel=1e-5)
    squares = [square for rows in diary.rows for square in norms(rows)]
    assert squares
    assert max(squares) <= mean.clip_steps**2
    if clip == "0.01":  # all of them are cut to it
        assert min(squares) > (0.9999 * mean.clip_steps) ** 2
    if clip == "900000":
        assert max(squares) < (0.01 * mean.clip_steps) ** 2


@pytest.mark.parametrize("centre", ["public", "none"])
def test_without_noise_and_clipping_it_says_the_mean_of_the_rows(
    reviews: Corpus, centre: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """h = base + (1/n) sum (h_i - base), n public: by hand, from what the session gives."""
    parameters = wanted(centre=centre, clip_norm="100", max_new_tokens=2)
    said: list[Any] = []
    honest = TokenLevelRule._mean

    def mean_of(rule: Any, rows: Any, public: Any) -> Any:
        found = honest(rule, rows, public)
        said.append((rows, public, found))
        return found

    monkeypatch.setattr(TokenLevelRule, "_mean", mean_of)
    written(SYSTEM, parameters, plan_of(parameters), Workshop(reviews), stops=False)
    for rows, public, found in said:
        base = public if centre == "public" else torch.zeros_like(public)
        for group in range(len(public)):
            own = rows.values[(rows.generation == group) & rows.valid]
            by_hand = base[group] + (own - base[group]).sum(0) / 4
            torch.testing.assert_close(found[group], by_hand, rtol=0, atol=9 * 100 / 2**20)
    assert {len(rows.values) for rows, _, _ in said} != {0}


def test_where_nobody_wrote_the_public_model_speaks(tmp_path: Path) -> None:
    """Without rows and without noise, the candidates' scores are those of the public logits, in either space."""
    empty = kept(tmp_path, [each | {"section": "elsewhere"} for each in notes()])
    found: dict[str, list[Any]] = {}
    for space in ("hidden", "logits"):
        parameters = wanted(space=space, max_new_tokens=4)
        scores = found.setdefault(space, [])
        diary = Diary()

        def choose(kind: Any, candidates: Any, summed: Any, rng: Any, scores: Any = scores, diary: Any = diary) -> Any:
            scores.append(summed.masked_fill(~candidates.allowed, 0))
            return diary.choose(kind, candidates, summed, rng)

        with diary.watching(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(utility_scores, "draw_tokens", choose)
            make(Workshop(empty), parameters)
    for hidden, logits in zip(found["hidden"], found["logits"], strict=True):
        unit = 2**20
        torch.testing.assert_close(hidden.double() / unit, logits.double() / unit, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_a_group_follows_its_own_rows(reviews: Corpus) -> None:
    """Groups enter in their order, and text i is made of the units of group i: the sums say who was read."""
    parameters = wanted(max_new_tokens=1, groups_per_unit=3)
    diary = written(SYSTEM, parameters, plan_of(parameters), Workshop(reviews), stops=False)
    by_group = [len({n["patient_id"] for n in notes() if n["section"] == group}) for group in GROUPS]
    counted = [
        torch.bincount(places, minlength=len(sums)) for places, sums in zip(diary.places, diary.sums, strict=True)
    ]
    assert torch.cat(counted).tolist() == by_group
    assert by_group[2] == 0
    assert UNIT in {n["patient_id"] for n in notes() if n["section"] == "sofa"}
