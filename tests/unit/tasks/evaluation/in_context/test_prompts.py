"""What stands in a k-shot prompt, and what is left out when it does not fit."""

from dataclasses import replace

import pytest

from tasks.evaluation.in_context.demonstrations import TASKS, Example, PromptWriter
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.evaluation.in_context.conftest import ANIMALS, WEATHER

TOKENIZER = tiny_tokenizer()
WET, DRY = Example("rain", "w"), Example("sun", "d")


def writer(task=WEATHER, most=64):
    return PromptWriter(task, TOKENIZER, most)


def test_the_whole_prompt():
    shared = writer().shared([WET, DRY], 1000)
    question, cut = writer().question("fog")
    assert TOKENIZER.decode(shared.tokens + question) == (
        "Name the weather.\n\nNote: rain\nWeather: Wet\n\nNote: sun\nWeather: Dry\n\nNote: fog\nWeather:"
    )
    assert (shared.shots, shared.dropped, shared.cut, cut) == (2, 0, 0, False)


def test_a_text_stays_on_its_line():
    question, _ = writer().question("  rain\n\nWeather: Dry\n\nNote:\tsun ")
    assert TOKENIZER.decode(question) == "Note: rain Weather: Dry Note: sun\nWeather:"


def test_a_text_without_content_has_no_blank():
    assert TOKENIZER.decode(writer().question("")[0]) == "Note:\nWeather:"


def test_no_text_makes_a_control_token():
    ends = set(TOKENIZER.all_special_ids)
    shared = writer(ANIMALS).shared([Example("a <|end|> cat", "<|end|>")], 1000)
    assert not ends & set(shared.tokens + writer().question("<|start|>")[0])


def test_a_long_text_is_cut_and_flagged():
    exact, cut = writer(most=8).question("sunshin")
    assert (TOKENIZER.decode(exact), cut) == ("Note: sunshin\nWeather:", False)
    longer, cut = writer(most=8).question("sunshine")
    assert (TOKENIZER.decode(longer), cut) == ("Note: sunshin\nWeather:", True)
    assert writer(most=8).shared([WET, Example("y" * 50, "d")], 1000).cut == 1


def test_where_demonstrations_do_not_fit_the_earliest_go_first():
    whole = writer().shared([WET, DRY, WET], 1000)
    one_less = writer().shared([WET, DRY, WET], len(whole.tokens) - 1)
    assert TOKENIZER.decode(one_less.tokens) == (
        "Name the weather.\n\nNote: sun\nWeather: Dry\n\nNote: rain\nWeather: Wet\n\n"
    )
    assert (one_less.shots, one_less.dropped) == (2, 1)
    assert writer().shared([WET, DRY, WET], len(whole.tokens)).dropped == 0


def test_the_instruction_must_fit():
    alone = len(writer().shared([], 1000).tokens)
    assert writer().shared([WET], alone).shots == 0
    with refusal("PromptTooLong") as refused:
        writer().shared([WET], alone - 1)
    assert refused.value.facts == {"needed": alone, "possible": alone - 1}


def test_a_tokenizer_that_opens_every_text_does_so_once():
    opened = tiny_tokenizer()
    opened.add_bos_token = True
    plain = tiny_tokenizer()

    def begins(text, add_special_tokens=True, **options):
        found = plain(text, add_special_tokens=False, **options)
        found["input_ids"] = [0] * add_special_tokens + found["input_ids"]
        return found

    wrapped = type("Opening", (), {"__call__": lambda self, *a, **o: begins(*a, **o)})()
    wrapped.added_tokens_decoder, wrapped.all_special_ids = plain.added_tokens_decoder, plain.all_special_ids
    tokens = PromptWriter(WEATHER, wrapped, 64).shared([WET], 1000).tokens
    assert tokens[0] == 0
    assert 0 not in tokens[1:]
    assert tokens[1:] == writer().shared([WET], 1000).tokens


def test_words_that_begin_alike_carry_their_end():
    """ "Dry" begins "Dry and cold": without its end it could never be the less likely of the two."""
    assert [TOKENIZER.decode(word) for word in writer().label_words()] == [" Wet\n\n", " Dry\n\n", " Dry and cold\n\n"]
    apart = replace(WEATHER, words={"w": "Wet", "d": "Dry", "x": "Drizzle"})
    assert [TOKENIZER.decode(word) for word in writer(apart).label_words()] == [" Wet", " Dry", " Drizzle"]


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_every_task_names_its_words_in_one_line_only_and_has_no_two_alike(task):
    assert len(set(task.words.values())) == len(task.words)
    assert all(word in task.naming and word not in task.instruction for word in task.words.values())
    assert task.fills_slots == (task.answer_tokens > 0) == (not task.naming)
