"""Selection of published texts: each criterion, their order, shares of labels; it is a function of the texts."""

import subprocess
import sys
from itertools import permutations
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.requests import SELECTION_CRITERIA, Selection
from tasks.evaluation.selection import (
    ALIKE,
    CRITERION_OF_DOUBT,
    Selected,
    distances_to_median,
    duplicates,
    failed_criteria,
    select,
)
from tasks.release.record import LEFT_OUT, RELEASED_FIGURES
from tasks.text import doubts
from tests.unit.tasks.evaluation.subjects import Text, nats_per_word, texts

PROMPT = ("Short notes that a doctor writes after a visit.",)
SOUND = (
    "The knee is better and the swelling has gone down.",
    "Cough for two weeks, worse at night, no fever so far.",
    "She sleeps well again since the dose was halved.",
    "Blood pressure is stable, the next visit is in spring.",
    "A rash on both arms, probably from the new soap.",
)
NONSENSE, EMPTY = "no no no no no no", " "
COPY = "Here are short notes that a doctor writes after a visit to somebody."
ADDRESS = "Please write to someone@example.org about the results."


def selection(keep: int, *criteria: str) -> Selection:
    return Selection.model_validate({"keep": keep, **({"criteria": criteria} if criteria else {})})


def chosen(keep: int, *drawn: str, criteria: tuple[str, ...] = SELECTION_CRITERIA) -> Selected:
    return select(texts(*drawn), selection(keep, *criteria), PROMPT, nats_per_word(2.0))


def test_every_doubt_belongs_to_a_criterion() -> None:
    assert set(doubts.LOOKED_FOR) == set(CRITERION_OF_DOUBT)


@pytest.mark.parametrize("text", ["I'm sorry, but I can't help with that.", "Dear [Name],", "Sure, here is a note."])
def test_a_text_that_answers_the_prompt_fails_by_it(text: str) -> None:
    assert failed_criteria([text], selection(1), ()) == ["prompt"]


def test_each_criterion_leaves_out_what_fails_it() -> None:
    drawn = (NONSENSE, SOUND[0], SOUND[0], COPY, ADDRESS, EMPTY, SOUND[1])
    found = failed_criteria(drawn, selection(1), PROMPT)
    assert found == ["nonsense", None, "duplicates", "prompt", "identifiers", "nonsense", None]
    result = chosen(2, *drawn)
    assert result.places == (1, 6)
    assert result.left_out == {"nonsense": 2, "duplicates": 1, "prompt": 1, "identifiers": 1, "perplexity": 0}
    assert result.in_doubt == 0
    assert result.figures["texts_drawn"] == "7"


@pytest.mark.parametrize("criterion", [one for one in SELECTION_CRITERIA if one != "perplexity"])
def test_a_criterion_that_is_not_asked_for_leaves_nothing_out(criterion: str) -> None:
    drawn = (NONSENSE, SOUND[0], SOUND[0], COPY, ADDRESS)
    others = tuple(one for one in SELECTION_CRITERIA if one != criterion)
    assert criterion in failed_criteria(drawn, selection(1), PROMPT)
    assert criterion not in failed_criteria(drawn, selection(1, *others), PROMPT)
    assert criterion not in chosen(1, *drawn, criteria=others).left_out


def test_where_too_few_pass_the_least_severe_failures_are_published() -> None:
    drawn = (EMPTY, SOUND[0], SOUND[0], COPY, ADDRESS)
    for keep, places in enumerate([(1,), (1, 4), (1, 3, 4), (1, 2, 3, 4), (0, 1, 2, 3, 4)], 1):
        result = chosen(keep, *drawn)
        assert (result.places, result.in_doubt) == (places, keep - 1)
        assert sum(result.left_out.values()) == len(drawn) - keep


def test_both_ends_of_perplexity_are_left_out() -> None:
    losses = dict(zip(SOUND, (1.0, 3.0, 3.2, 2.9, 9.0), strict=True))

    def score(given: Any) -> list[tuple[float, int]]:
        return [(-10 * losses[text], 10) for text in given]

    assert select(texts(*SOUND), selection(3), PROMPT, score).places == (1, 2, 3)
    assert select(texts(*SOUND), selection(4), PROMPT, score).places == (0, 1, 2, 3)
    assert distances_to_median([(-30.0, 10), (0.0, 0), (-inf, 4), (-50.0, 10)]) == [1.0, inf, inf, 1.0]
    assert distances_to_median([]) == []
    assert distances_to_median([(0.0, 0)]) == [inf]


def test_scores_that_differ_by_what_else_was_scored_do_not_change_the_order() -> None:
    assert distances_to_median([(-20.0001, 10), (-30.0, 10), (-40.0, 10)])[0] == 1.0


def test_only_texts_that_fail_nothing_are_scored() -> None:
    scored: list[str] = []

    def score(given: Any) -> list[tuple[float, int]]:
        scored.extend(given)
        return [(-1.0, 1) for _ in given]

    select(texts(NONSENSE, SOUND[0], ADDRESS), selection(1), PROMPT, score)
    assert scored == [SOUND[0]]


def test_without_perplexity_the_first_drawn_are_published_and_no_model_is_needed() -> None:
    asked = selection(2, "nonsense")
    result = select(texts(NONSENSE, *SOUND), asked, PROMPT)
    assert (result.places, result.left_out) == ((1, 2), {"nonsense": 1, "surplus": 3})
    with pytest.raises(ValueError, match="needs a public model"):
        select(texts(*SOUND), selection(2), PROMPT)


def test_near_duplicates_by_resemblance() -> None:
    words = [f"w{number}" for number in range(40)]
    base = " ".join(words)
    near, far = " ".join([*words[:-5], *"abcde"]), " ".join([*words[:20], *(f"v{number}" for number in range(20))])
    assert duplicates([base, near, far]) == [1]
    assert duplicates([base, base.upper(), f"{base}!"]) == [1, 2]
    assert duplicates(["", "", "one", "one", "two"]) == [3]
    assert 0.4 < ALIKE < 1


def test_a_copy_of_a_duplicate_is_compared_with_the_original_alone() -> None:
    words = [f"w{number}" for number in range(30)]
    steps = [" ".join(words[start : start + 20]) for start in (0, 5, 10)]
    assert duplicates(steps) == [1]  # the third resembles the second, which is left out already


def test_labels_keep_their_shares() -> None:
    drawn = [
        Text(SOUND[0], 9, label="a"),
        *(Text(text, 9, label="b") for text in SOUND[1:]),
        Text(NONSENSE, 6, label="a"),
    ]
    result = select(drawn, selection(3, "nonsense"), PROMPT)
    assert [drawn[place].label for place in result.places] == ["a", "b", "b"]
    result = select([Text(NONSENSE, 6, label="a"), Text(SOUND[0], 9, label="b")], selection(2, "nonsense"), PROMPT)
    assert (result.places, result.in_doubt) == ((0, 1), 1)  # a label is not left without texts


def test_more_to_keep_than_there_is_keeps_everything() -> None:
    assert chosen(9, *SOUND).places == (0, 1, 2, 3, 4)
    assert chosen(1).places == ()


def test_all_figures_may_be_published() -> None:
    for criteria in ((), ("nonsense",), ("duplicates", "prompt", "identifiers")):
        figures = chosen(2, *SOUND, criteria=criteria or SELECTION_CRITERIA).figures
        assert set(figures) <= RELEASED_FIGURES
        assert sum(int(count) for name, count in figures.items() if name.startswith(LEFT_OUT)) == 3


@given(st.lists(st.sampled_from([*SOUND, NONSENSE, COPY, ADDRESS, EMPTY]), max_size=12), st.integers(1, 12))
def test_it_publishes_as_many_as_asked_and_accounts_for_every_text(drawn: list[str], keep: int) -> None:
    result = chosen(keep, *drawn)
    assert len(result.places) == min(keep, len(drawn))
    assert list(result.places) == sorted(set(result.places))
    assert len(result.places) + sum(result.left_out.values()) == len(drawn)
    assert chosen(keep, *drawn) == result


def test_the_order_of_criteria_in_a_request_means_nothing() -> None:
    drawn = (EMPTY, SOUND[0], SOUND[0], COPY, ADDRESS)
    assert {chosen(3, *drawn, criteria=order).places for order in permutations(SELECTION_CRITERIA)} == {(1, 3, 4)}


IMPORTS = """
import sys
import tasks.evaluation.selection
print(sorted(name for name in sys.modules if name.startswith(("tasks.corpus.store", "flows", "torch"))))
"""


def test_its_module_does_not_know_the_store() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout
