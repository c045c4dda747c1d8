"""Keywords chosen by the model: of the set, not too many, and a function of the unit's own summary."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tasks.analysis.keywords import assign_with_model
from tasks.analysis.keywords.assign_with_model import OTHERWISE, ModelKeywordAssigner
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.structured_output.grammar_constraint import GrammarConstraint
from tasks.values.results import Facets
from tests.refusals import refusal
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/analysis/keywords",)

KEYWORDS = ["art", "art history", "c++", "cooking", "语言", "zoology"]
UNITS = [
    Facets({"summary": ("abcxyz"[number % 6] * (3 * number + 2) + f" summary {number}",), "keywords": ()})
    for number in range(7)
]


def points(count: int) -> np.ndarray:
    return np.full((count, 2), np.nan, np.float32)  # whoever looked at them would notice


@pytest.fixture
def chooser() -> ModelKeywordAssigner:
    return ModelKeywordAssigner.of(Engine(tiny_model(), memory=2**30))


def chosen(
    chooser: ModelKeywordAssigner, units: Sequence[Facets] = UNITS, keywords: Sequence[str] = KEYWORDS, most: int = 3
) -> list[tuple[int, ...]]:
    return chooser(units, points(len(units)), keywords, points(len(keywords)), most)


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], str | None]) -> None:
    def fake(engine: object, prompt: object, texts: Sequence[str], *rest: object) -> list[str | None]:
        return [answer(text) for text in texts]

    monkeypatch.setattr(assign_with_model, "complete_constrained", fake)


@pytest.mark.slow_except("3")
@pytest.mark.parametrize("most", [1, 3, 5])
def test_at_most_so_many_of_the_set(chooser, most):
    found = chosen(chooser, most=most)
    assert len(found) == len(UNITS)
    for indices in found:
        assert len(indices) == len(set(indices)) <= most
        assert all(0 <= index < len(KEYWORDS) for index in indices)
    assert any(found)


@pytest.mark.slow
def test_a_units_choice_is_its_own(chooser):
    """Others removed, permuted, replaced."""
    expected = chosen(chooser, most=1)
    assert len(set(expected)) > 2
    assert chosen(chooser, UNITS[:2], most=1) == expected[:2]
    assert chosen(chooser, UNITS[::-1], most=1) == expected[::-1]
    strangers = [Facets({"summary": ("a much longer summary of somebody else " * 3,)}) for _ in UNITS]
    mixed = chosen(chooser, [UNITS[0], *strangers, UNITS[1]], most=1)
    assert [mixed[0], mixed[-1]] == expected[:2]


@pytest.mark.slow_except(
    "zoology\\nart-indices0", "art\\ncooking\\nzoology\\nc++-indices8", "none of these-indices2", "None-indices3"
)
@pytest.mark.parametrize(
    ("answer", "indices"),
    [
        ("zoology\nart", (5, 0)),
        ("art\nart\nart history", (0, 1)),
        (OTHERWISE, ()),
        (None, ()),
        ("", ()),
        ("NA", ()),
        ("Art", ()),
        ("poetry\nart", (0,)),
        ("art\ncooking\nzoology\nc++", (0, 3, 5)),
    ],
)
def test_what_an_answer_means(monkeypatch, chooser, answer, indices):
    """Whatever is not of the set is nothing; more than were allowed are cut."""
    answering(monkeypatch, lambda text: answer)
    assert chosen(chooser) == [indices] * len(UNITS)


def test_a_unit_without_a_summary_has_none(chooser):
    empty = Facets({"summary": (), "keywords": ("art",)})
    expected = chosen(chooser)
    assert chosen(chooser, [UNITS[0], empty, UNITS[1]]) == [expected[0], (), expected[1]]


def test_nothing_to_choose_from_and_nobody_to_choose_for(chooser):
    assert chosen(chooser, keywords=[]) == [()] * len(UNITS)
    assert chosen(chooser, units=[]) == []
    assert len(chosen(chooser, keywords=["art"])) == len(UNITS)


def test_the_other_word_may_be_a_keyword(monkeypatch, chooser):
    answering(monkeypatch, lambda text: OTHERWISE)
    assert chosen(chooser, keywords=["art", OTHERWISE]) == [(1,)] * len(UNITS)


def test_the_model_sees_the_whole_set_and_may_say_nothing_else(monkeypatch, chooser):
    prompts: list[str] = []

    def fake(engine: Engine, prompt, texts, grammar: GrammarConstraint, *rest: object) -> list[str | None]:
        prompts.append(engine.model.tokenizer.decode(prompt.prefix))
        for said, admitted in (("art\nzoology", True), ("poetry", False), (OTHERWISE, True), ("art\n", False)):
            state = grammar.automaton.after(grammar.automaton.start, said.encode())
            assert bool(grammar.automaton.final[state]) == admitted
        return ["art"] * len(texts)

    monkeypatch.setattr(assign_with_model, "complete_constrained", fake)
    chosen(chooser)
    assert "\n".join(KEYWORDS) in prompts[0]


def test_a_long_list_is_shown_in_parts(monkeypatch, chooser):
    """The first of each part, then the second of each: a public rule."""
    keywords = [f"keyword number {number}" for number in range(300)]
    seen: list[int] = []

    def fake(engine: Engine, prompt, texts, grammar: GrammarConstraint, *rest: object) -> list[str | None]:
        own = [word for word in keywords if f"{word}\n" in engine.model.tokenizer.decode(prompt.prefix)]
        seen.extend(keywords.index(word) for word in own)
        return ["\n".join(own[:2])] * len(texts)

    monkeypatch.setattr(assign_with_model, "complete_constrained", fake)
    found = chosen(chooser, keywords=keywords, most=3)
    assert seen == list(range(300))
    assert len(set(found)) == 1
    assert found[0][0] == 0
    assert found[0][1] > 5
    assert len(found[0]) == 3


@pytest.mark.slow
def test_a_long_list_fits_the_model(chooser):
    """Of the size that settings allow: no error after something was spent."""
    keywords = [f"{'long ' * 11}{number}" for number in range(60)]
    assert all(len(indices) <= 2 for indices in chosen(chooser, UNITS[:1], keywords, 2))


def test_what_does_not_fit_is_refused_when_it_is_made():
    with refusal("EndTokenMissing"):
        ModelKeywordAssigner.of(Engine(tiny_model(stops=False), memory=2**30))
    with pytest.raises(ContextTooLong):
        ModelKeywordAssigner.of(Engine(replace(tiny_model(), positions=400), memory=2**30))
