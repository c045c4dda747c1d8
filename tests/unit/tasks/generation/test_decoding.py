"""The decoding loop, with a session and a decoder that only keep count."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from tasks.generation.decoding import DrawMeter, decode
from tasks.generation.interface import GeneratedText

END, OTHER_END = 1, 2


class Script:
    """Session and decoder in one: the tokens of each step are given, and what happens is written down."""

    def __init__(self, steps: Sequence[Sequence[int]]) -> None:
        self.steps, self.generations = list(steps), len(steps[0])
        self.seen: list[Any] = []

    def next_tokens(self, session: "Script") -> tuple[list[int], None]:
        assert session is self
        tokens = list(self.steps[sum(what == "draw" for what, _ in self.seen)])
        self.seen.append(("draw", tokens))
        return tokens, None

    def finish(self, generation: int) -> None:
        self.seen.append(("finish", generation))

    def advance(self, tokens: Tensor) -> None:
        self.seen.append(("advance", tokens.tolist()))

    def of(self, kind: str) -> list[Any]:
        return [value for what, value in self.seen if what == kind]


def run(script: Script, steps: int, size: int = 2, progress: Any = lambda step: None) -> list[GeneratedText]:
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: " " + "".join(map(chr, ids)) + "\n")
    model: Any = SimpleNamespace(stop_tokens=(END, OTHER_END), tokenizer=tokenizer)
    meter = DrawMeter(size, steps, lambda number: script.seen.append(("arm", number)))
    session: Any = script
    decoder: Any = script
    return decode(session, model, decoder, meter, steps, progress)


def letters(*rows: str) -> list[list[int]]:
    """One row a step, one letter a generation; `.` ends a text, and so does `!`."""
    return [[{".": END, "!": OTHER_END}.get(letter, ord(letter)) for letter in row] for row in rows]


def test_the_end_token_ends_a_text_and_is_no_part_of_it() -> None:
    made = run(Script(letters("ax", "b.", "!z")), steps=5)
    assert made == [GeneratedText("ab", 2, True), GeneratedText("x", 1, True)]


def test_what_is_drawn_after_the_end_is_ignored() -> None:
    script = Script(letters("a.", "bq", "c.", "d."))
    assert run(script, steps=4)[1] == GeneratedText("", 0, True)
    assert script.of("finish") == [1]


def test_at_most_the_planned_draws_are_made() -> None:
    script = Script(letters("a", "b", "c", "d", "e"))
    assert run(script, steps=3) == [GeneratedText("abc", 3, False)]
    assert len(script.of("draw")) == 3
    assert len(script.of("advance")) == 2  # the last token is never read back


def test_when_all_texts_have_ended_nothing_more_is_drawn_armed_or_read() -> None:
    script = Script(letters("a.", ".x"))
    run(script, steps=9)
    assert len(script.of("draw")) == 2
    assert len(script.of("advance")) == 1
    assert script.of("arm") == [0]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_each_draw_is_armed_before_it_is_made(size: int) -> None:
    script = Script(letters(*"abcdefg"))
    run(script, steps=7, size=size)
    armed = drawn = 0
    for what, _ in script.seen:
        armed += size * (what == "arm")
        drawn += what == "draw"
        assert drawn <= armed
    assert drawn == 7


def test_an_instalment_is_armed_before_the_step_it_pays_for_is_read() -> None:
    """`advance` only takes the token; what it makes readable is read by the next draw, after the arming."""
    script = Script(letters(*"abc"))
    run(script, steps=3, size=1)
    assert [what for what, _ in script.seen] == ["arm", "draw", "advance", "arm", "draw", "advance", "arm", "draw"]


def test_progress_counts_the_steps() -> None:
    told: list[int] = []
    run(Script(letters("a", "b", ".")), steps=9, progress=told.append)
    assert told == [1, 2, 3]


def test_a_refused_instalment_stops_before_the_draw() -> None:
    script = Script(letters(*"abcd"))

    def arm(number: int) -> None:
        if number == 1:
            raise PermissionError

    session: Any = script
    model: Any = SimpleNamespace(stop_tokens=(END,), tokenizer=None)
    with pytest.raises(PermissionError):
        decode(session, model, session, DrawMeter(2, 4, arm), 4, lambda step: None)
    assert len(script.of("draw")) == 2
