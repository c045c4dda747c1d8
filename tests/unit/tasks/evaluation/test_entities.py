"""Rates of entities by hand."""

import pytest

from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.lexical import KINDS, entities
from tasks.text.public_models import Entity
from tests.unit.tasks.evaluation.subjects import Capitals, texts


class Every:
    """Finds one mention of a given kind in each text."""

    name = "every 1"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, given):
        return [[Entity(self.kind, "x")] for _ in given]

    def noun_chunks(self, given):
        raise AssertionError("not asked for")


def test_rates_by_hand():
    """3 PERSON and 1 CARDINAL in 4 + 6 words; the resamples' ends are both texts twice: 2 in 4 and 1 in 6 PERSON."""
    found = entities(EvaluationInput(texts("Ann met Bob, 12", "and the doctor saw Eve today"), tag=Capitals()))
    values = found.values
    assert (values["entities"], values["words"], values["per_1000_words"]) == (4, 10, "400.000")
    assert (values["person"], values["person_low"], values["person_high"]) == ("300.000", "166.667", "500.000")
    assert (values["cardinal"], values["cardinal_low"], values["cardinal_high"]) == ("100.000", "0.000", "250.000")
    assert (values["date"], values["date_high"], values["other"]) == ("0.000", "0.000", "0.000")
    assert found.line == "400.000 entities per 1,000 words: PERSON 300.000, CARDINAL 100.000"
    assert "capitals 1" in found.method


def test_a_kind_that_is_not_ontonotes_is_other():
    values = entities(EvaluationInput(texts("a b"), tag=Every("DISEASE"))).values
    assert (values["other"], values["entities"], values["per_1000_words"]) == ("500.000", 1, "500.000")


@pytest.mark.parametrize("given", [[], ["", "  "], ["?!"]])
def test_without_words_no_tagger_is_called_and_all_is_null(given):
    values = entities(EvaluationInput(texts(*given))).values
    assert values["per_1000_words"] is None
    assert {values[kind.lower()] for kind in KINDS} == {None}


def test_the_figures_have_the_same_names_with_and_without_texts():
    assert set(entities(EvaluationInput(())).values) == set(
        entities(EvaluationInput(texts("Ann"), tag=Capitals())).values
    )


def test_one_text_has_no_interval():
    values = entities(EvaluationInput(texts("Ann met Bob"), tag=Capitals())).values
    assert (values["person"], values["person_low"]) == ("666.667", None)


def test_a_tagger_is_missed_where_there_is_something_to_read():
    with pytest.raises(ValueError, match="needs a tagger"):
        entities(EvaluationInput(texts("Ann")))
