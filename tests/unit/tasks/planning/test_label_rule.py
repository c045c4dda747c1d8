"""`label_rule` in a request: its answers are the labels, and what contradicts it is refused by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from models_db.errors import AlmonerError
from models_db.values.requests import model_to_json
from tasks.planning.closed_answers import AnswerRepeated, AnswersMissing, AnswerWithoutKeywords, TooManyAnswers
from tasks.planning.keyword_rule import DocumentLabeller, LabelRule
from tasks.planning.labels_and_groups import (
    GroupsContradicted,
    LabelRuleUnreadable,
    LabelsContradictRule,
    labelled_corpus,
    part_facts,
)
from tasks.summarization.token_level import TokenLevelParameters
from tests.unit.tasks.generation.asking import ink

MONEY = {"name": "money", "keywords": ["invoice", "pay back"]}
PARCELS = {"name": "Cafe\u0301 parcels", "keywords": ["parcel"]}
RULE: dict[str, Any] = {"answers": [MONEY, PARCELS]}


def test_the_answers_are_the_labels_in_their_spelling() -> None:
    settings = ink(label_rule=RULE)
    assert settings.labels == ("money", "Caf\u00e9 parcels")
    assert ink(label_rule={**RULE, "default": " other "}).labels == ("money", "Caf\u00e9 parcels", "other")
    assert part_facts(settings)["labels"] == "money, Caf\u00e9 parcels"
    assert "most keywords" in part_facts(settings)["label rule"]
    assert "label rule" not in part_facts(ink(labels=("a", "b")))


def test_a_stored_request_is_read_as_it_was() -> None:
    stored = model_to_json(ink(label_rule={**RULE, "default": "other"}))
    assert isinstance(stored, dict)
    assert stored["labels"] == ["money", "Caf\u00e9 parcels", "other"]
    assert model_to_json(ink(**stored)) == stored  # type: ignore[arg-type]
    assert "label_rule" not in model_to_json(ink(labels=("a",)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("match", "default", "text", "label"),
    [
        ("most", None, "Parcel, parcel, invoice", "Caf\u00e9 parcels"),
        ("first", None, "An INVOICE about parcels, parcels", "money"),
        ("most", None, "good morning", None),
        ("most", "other", "good morning", "other"),
        ("most", "other", "pay back", "money"),
        ("most", "other", "", "other"),
    ],
)
def test_the_label_of_a_document(match: str, default: str | None, text: str, label: str | None) -> None:
    rule = LabelRule.model_validate({**RULE, "match": match, "default": default})
    assert DocumentLabeller.of(rule)(text) == label


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"label_rule": {"answers": []}}, AnswersMissing),
        ({"label_rule": {}}, AnswersMissing),
        ({"label_rule": {"answers": [{"name": "a"}]}}, AnswerWithoutKeywords),
        ({"label_rule": {"answers": [MONEY, {**MONEY, "name": "Money"}]}}, AnswerRepeated),
        ({"label_rule": {**RULE, "default": "MONEY"}}, AnswerRepeated),
        ({"label_rule": {**RULE, "default": "No answer"}}, AnswerRepeated),
        ({"label_rule": {"answers": [{"name": str(n), "keywords": ["a"]} for n in range(51)]}}, TooManyAnswers),
        ({"label_rule": RULE, "labels": ["money"]}, LabelsContradictRule),
        ({"label_rule": RULE, "labels": ["Caf\u00e9 parcels", "money"]}, LabelsContradictRule),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(changes: dict[str, Any], error: type[AlmonerError]) -> None:
    with pytest.raises(error) as refused:
        ink(**changes)
    assert "label_rule" in str(refused.value)


@pytest.mark.parametrize(
    "rule",
    [
        {**RULE, "rule": "model"},
        {"answers": 1},
        [],
        {**RULE, "default": ""},
        {**RULE, "default": " "},
        {"answers": [{**MONEY, "name": " "}, PARCELS]},
        "money",
    ],
)
def test_what_is_no_rule_is_refused_with_its_field(rule: object) -> None:
    with pytest.raises(ValidationError, match="label_rule"):
        ink(label_rule=rule)


def test_groups_have_no_rule() -> None:
    with pytest.raises(GroupsContradicted, match="label_rule"):
        TokenLevelParameters.model_validate(
            {"groups": [{"id": "a"}], "references": 2, "max_new_tokens": 8, "temperature": 1, "label_rule": RULE}
        )


@pytest.mark.parametrize("stored", ["most", 1, [], {"own": 1}], ids=str)
def test_a_stored_rule_that_is_none_is_named(stored):
    with pytest.raises(LabelRuleUnreadable):
        labelled_corpus(None, {"label_rule": stored})


def test_without_a_stored_rule_the_labels_are_those_of_the_version():
    corpus = object()
    assert labelled_corpus(corpus, {}) is corpus
    assert labelled_corpus(corpus, {"label_rule": None}) is corpus
