"""Any path through the masks is a finished record of the schema; and the masks cost nothing."""

import json
import random
from typing import Any

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from models_db.errors import UsageError
from tasks.inference.loading.load_model import ModelTokens
from tasks.inference.structured_output import automaton as constraints_automaton
from tasks.inference.structured_output import grammar_constraint
from tasks.inference.structured_output.grammar_constraint import GrammarConstraint, TokenLimitTooSmall
from tasks.inference.structured_output.json_schema import grammar_schema
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.systems.record_schemas import FILM, SHORTEST_FILM, is_valid, schemas

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/inference/structured_output",)

TOKENIZER = tiny_tokenizer()
STOP = TOKENIZER.eos_token_id
SIZE = len(TOKENIZER) + 3  # a model may have more logits than its tokenizer has tokens


def constrain(schema: dict[str, Any], draws: int, stops: tuple[int, ...] = (STOP,)) -> GrammarConstraint:
    return GrammarConstraint.of_schema(schema, ModelTokens(TOKENIZER, SIZE, stops), draws)


def tokens_of(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def draw(constraint: GrammarConstraint, draws: int, choice: random.Random, number: int = 0) -> str:
    """What one generation writes when every allowed token is equally likely."""
    drawn: list[int] = []
    for _ in range(draws):
        token = choice.choice(constraint.allowed(number, drawn).nonzero()[:, 0].tolist())
        if token == STOP:
            return str(TOKENIZER.decode(drawn, skip_special_tokens=True))
        drawn.append(token)
    raise AssertionError(f"not finished in {draws} draws")


@pytest.mark.slow
@settings(max_examples=40)
@given(schema=schemas, seed=st.integers(0, 2**32), spare=st.integers(0, 40))
def test_any_path_through_the_masks_is_a_finished_valid_record(schema: dict[str, Any], seed: int, spare: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            index = constraints_automaton._index(grammar_schema(schema))  # seconds, and both constraints have the same
            patch.setattr(constraints_automaton, "_index", lambda _: index)
            draws = constrain(schema, 20_000).fewest_draws + spare
        except UsageError as refused:  # nested arrays and names now and then are: refused by name, before any draw
            if refused.code != "SchemaTooLarge":
                raise
            reject()
        constraint = constrain(schema, draws)
    choice = random.Random(seed)
    for number in range(3):
        assert is_valid(schema, draw(constraint, draws, choice, number))


@pytest.mark.parametrize("draws", [len(SHORTEST_FILM) + 1, 64, 100, 160])
def test_every_film_is_finished_within_the_limit(draws: int) -> None:
    constraint, choice = constrain(FILM, draws), random.Random(draws)
    assert all(is_valid(FILM, draw(constraint, draws, choice, number)) for number in range(20))


def test_a_limit_one_below_the_shortest_record_is_refused() -> None:
    needed = len(SHORTEST_FILM) + 1  # one token a byte, and the end
    assert constrain(FILM, needed).fewest_draws == needed
    with pytest.raises(TokenLimitTooSmall) as refused:
        constrain(FILM, needed - 1)
    assert refused.value.facts == {"needed": needed, "max_new_tokens": needed - 1}


def test_with_no_draw_to_spare_only_the_shortest_record_is_left() -> None:
    assert draw(constrain(FILM, len(SHORTEST_FILM) + 1), len(SHORTEST_FILM) + 1, random.Random(1)) in {
        SHORTEST_FILM.replace('" "', f'"{letter}"', 1).replace("1900", year)
        for letter in map(chr, range(32, 127))
        for year in map(str, range(1900, 2024))
    }


@pytest.mark.parametrize("spare", [0, 3, 60])
def test_a_choice_comes_next_where_more_than_one_token_may_follow(spare: int) -> None:
    """Rows are read there first; a device is asked about each number of tokens that they may be read with."""
    constraint = constrain(FILM, len(SHORTEST_FILM) + 1 + spare)
    path = tokens_of(draw(constraint, len(SHORTEST_FILM) + 1 + spare, random.Random(spare)))
    allowed = [constraint.allowed(0, path[:end]) for end in range(len(path) + 1)]
    chosen = [end for end, mask in enumerate(allowed) if mask.sum() > 1 or mask[STOP]]
    assert len(chosen) < len(path)  # some tokens are forced
    for end in range(len(path) + 1):
        assert constraint.before_choice(path[:end]) == min(place for place in chosen if place >= end)


def test_the_end_is_allowed_where_a_record_may_end_and_nowhere_else() -> None:
    constraint = constrain({"type": "integer"}, 5)
    assert not constraint.allowed(0, [])[STOP]
    assert not constraint.allowed(1, tokens_of("-"))[STOP]
    assert constraint.allowed(2, tokens_of("1"))[STOP]
    last = constraint.allowed(3, tokens_of("1234"))
    assert last.nonzero()[:, 0].tolist() == [STOP]


def test_every_token_that_ends_a_text_is_an_end() -> None:
    constraint = constrain({"const": 7}, 3, stops=(0, STOP))
    assert constraint.allowed(0, tokens_of("7")).nonzero()[:, 0].tolist() == [0, STOP]


def test_control_tokens_and_places_without_a_token_are_never_allowed() -> None:
    constraint = constrain({"type": "string"}, 40)
    inside = constraint.allowed(0, tokens_of('"x'))
    assert not inside[:2].any()
    assert not inside[len(TOKENIZER) :].any()
    assert inside[tokens_of("x")].all()


@pytest.mark.parametrize("draws", [len(SHORTEST_FILM) + 1, 64, 100_000])
def test_a_single_token_is_allowed_where_it_is_in_the_set(draws: int) -> None:
    """Greedy decoding asks about single tokens, private draws for the set."""
    constraint = constrain(FILM, draws, stops=(0, STOP))
    path = tokens_of(draw(constrain(FILM, len(SHORTEST_FILM) + 1), len(SHORTEST_FILM) + 1, random.Random(1)))
    for count in range(len(path) + 1):
        state, mask = constraint.after(constraint.automaton.start, path[:count]), constraint.allowed(0, path[:count])
        assert [constraint.allows(state, count, token) for token in range(SIZE)] == mask.tolist()


def test_generations_are_kept_apart_and_in_any_order() -> None:
    constraint = constrain(FILM, 160)
    one, two = tokens_of('{"title": "A'), tokens_of('{"title": "A", "year": 19')
    expected = {prefix: constrain(FILM, 160).allowed(0, prefix) for prefix in (tuple(one), tuple(two))}
    for number, prefix in ((5, one), (2, two), (5, one), (2, one), (5, two)):
        assert torch.equal(constraint.allowed(number, prefix), expected[tuple(prefix)])


def test_only_new_tokens_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    constraint, read = constrain(FILM, 160), []
    step = constraint.automaton.after
    monkeypatch.setattr(type(constraint.automaton), "after", lambda self, s, text: read.append(text) or step(s, text))
    drawn = tokens_of('{"title": "A')
    for length in range(len(drawn) + 1):
        constraint.allowed(0, drawn[:length])
    assert b"".join(read) == b'{"title": "A'


def test_what_is_forgotten_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_constraint, "GENERATIONS", 2)
    monkeypatch.setattr(grammar_constraint, "CACHE_BYTES", 1)
    constraint, drawn = constrain(FILM, 160), tokens_of('{"title": "A')
    first = [constraint.allowed(number, drawn) for number in range(5)]
    assert len(constraint._reached) == 2
    assert len(constraint._needed_after) == 1
    assert all(torch.equal(constraint.allowed(number, drawn), mask) for number, mask in enumerate(first))


def test_tokens_that_no_mask_admitted_are_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be finished"):
        constrain(FILM, 160).allowed(0, tokens_of("no record"))
    with pytest.raises(ValueError, match="cannot be finished"):
        constrain(FILM, 160).allowed(0, [STOP])


def test_masks_that_are_given_away_are_no_ones_cache() -> None:
    constraint = constrain(FILM, 160)
    mask = constraint.allowed(0, [])
    kept = mask.clone()
    mask.fill_(True)
    assert torch.equal(constraint.allowed(0, []), kept)


def test_a_limit_above_every_distance_forbids_no_less() -> None:
    allowed = constrain(FILM, 100_000).allowed(0, [])
    assert [TOKENIZER.convert_ids_to_tokens(t) for t in allowed.nonzero()[:, 0].tolist()] == ["{"]


def test_a_model_without_an_end_cannot_make_records() -> None:
    with refusal("EndTokenMissing"):
        constrain(FILM, 160, stops=())


def test_properties_come_in_the_order_of_required_then_by_name() -> None:
    schema = {
        "type": "object",
        "properties": {name: {"const": name} for name in ("z", "a", "m", "b")},
        "required": ["m", "b"],
    }
    constraint, choice = constrain(schema, 64), random.Random(3)
    orders = {tuple(json.loads(draw(constraint, 64, choice, number))) for number in range(60)}
    assert orders == {("m", "b"), ("m", "b", "a"), ("m", "b", "z"), ("m", "b", "a", "z")}


def test_every_state_has_a_token_after_which_the_end_is_one_token_nearer() -> None:
    automaton = constrain(FILM, 160).automaton
    tokens = {bytes([byte]) for byte in range(256)} | {b'"}', b'"],"', b'"cast":[]}', b'","', "\u00e9".encode()}
    needed = automaton.tokens_to_end(tokens, 10)
    for state in range(len(automaton.final)):
        if 0 < needed[state] < constraints_automaton.NEVER:
            assert any(needed[automaton.after(state, token)] == needed[state] - 1 for token in tokens)
            assert needed[state] <= automaton.bytes_to_end[state]
