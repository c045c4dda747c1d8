"""The decoding loop, with a rule that follows a script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.decoding.loop import DrawMeter, GenerationJob, Step, decode, open_session
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.shapes import Sizes, generations_at_once
from tasks.inference.prompt_rendering import PromptPieces
from tasks.values.results import GeneratedText
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.dear

PUBLIC = PromptPieces((10, 11), (12,))
PRIVATE = PromptPieces((10, 11, 13), (14,))


def token(letter: str) -> int:
    """The tiny model has a token for each letter."""
    (found,) = tiny_model().tokenizer(letter, add_special_tokens=False)["input_ids"]
    return int(found)


def engine(memory: int = 2**30) -> Engine:
    """Two letters end a text."""
    return Engine(replace(tiny_model(), stop_tokens=(token("."), token("!"))), memory=memory)


@dataclass
class Script:
    """A rule that draws given letters for each number and writes down what happens."""

    texts: Sequence[str]
    meter: DrawMeter | None = None
    seen: list[Any] = field(default_factory=list)
    lets_go: tuple[int, int] | None = None
    """(live index, position) after which its rows are not needed."""

    def next_tokens(self, step: Step) -> list[int]:
        if self.meter is not None:
            self.meter.admit(max(step.positions))
        rows = step.private(None)
        self.seen.append(("draw", step.numbers, step.positions, rows.generation.tolist(), step.public))
        if self.lets_go and step.positions[0] == self.lets_go[1]:
            step.drop_private_rows(self.lets_go[0])
        return [token(self.texts[n][p]) for n, p in zip(step.numbers, step.positions, strict=True)]

    def facts(self, number: int) -> Mapping[str, float]:
        return {"number": float(number)}

    def of(self, place: int) -> list[Any]:
        return [what[place] for what in self.seen if what[0] == "draw"]


def run(
    script: Script, steps: int, references: Sequence[int] = (), places: int | None = None, **options: Any
) -> list[GeneratedText]:
    """Each text has as many references as `references` says, 1 unless it does."""
    counts = references or [1] * len(script.texts)
    jobs = [GenerationJob(PUBLIC, PRIVATE, tuple((20 + n, 30) for n in range(count))) for count in counts]
    sizes = Sizes.of([PUBLIC], [PRIVATE], 4, steps, references=1)
    memory = 2**30 if places is None else memory_of(places, sizes)
    return decode(engine(memory), jobs, len(jobs), sizes, script, **options)


def memory_of(places: int, sizes: Sizes) -> int:
    """The least memory in which so many generations are decoded at once."""
    return next(size for size in range(0, 2**20, 2**8) if generations_at_once(tiny_model(), sizes, size) == places)


def test_the_end_token_ends_a_text_and_is_no_part_of_it() -> None:
    made = run(Script(["ab!", "x."]), steps=5)
    assert made == [
        GeneratedText("ab", 2, True, facts={"number": 0.0}),
        GeneratedText("x", 1, True, facts={"number": 1.0}),
    ]


def test_an_ended_generation_is_not_asked_about_again() -> None:
    script = Script(["abcd", "."])
    assert run(script, 4, references=[2, 3])[1] == GeneratedText("", 0, True, facts={"number": 1.0})
    assert script.of(1) == [(0, 1), (0,), (0,), (0,)]
    assert script.of(3) == [[0, 0, 1, 1, 1], [0, 0], [0, 0], [0, 0]]


def test_at_most_the_planned_draws_are_made() -> None:
    script = Script(["abcde"])
    assert run(script, steps=3) == [GeneratedText("abc", 3, False, facts={"number": 0.0})]
    assert script.of(2) == [(0,), (1,), (2,)]


def test_when_all_texts_have_ended_nothing_more_is_drawn_or_armed() -> None:
    armed: list[int] = []
    script = Script(["a.", "."], DrawMeter(1, 9, armed.append))
    run(script, steps=9)
    assert len(script.seen) == 2
    assert armed == [0, 1]


def test_progress_counts_tokens_and_an_ended_text_counts_in_full() -> None:
    told: list[int] = []
    run(Script(["abcd", "x."]), steps=4, progress=told.append)
    assert told == [2, 2 + 4, 3 + 4, 4 + 4]


def test_a_refused_instalment_stops_before_the_draw() -> None:
    def arm(number: int) -> None:
        if number == 1:
            raise PermissionError

    script = Script(["abcd"], DrawMeter(2, 4, arm))
    with pytest.raises(PermissionError):
        run(script, 4)
    assert len(script.seen) == 2


@dataclass
class OnlyLetters:
    """Allows `a` after an even number of tokens and `b` after an odd one, and beside them, in some places, `z`."""

    open_at: frozenset[int] = frozenset({0, 1, 2, 3})
    asked: list[Any] = field(default_factory=list)

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        self.asked.append((number, tuple(drawn)))
        allowed = torch.zeros(tiny_model().vocabulary, dtype=torch.bool)
        allowed[token("ab"[len(drawn) % 2])] = True
        allowed[token("z")] = len(drawn) in self.open_at
        return allowed

    def choices(self, drawn: Sequence[int]) -> int:
        return len(self.open_at & set(range(len(drawn))))

    def before_choice(self, drawn: Sequence[int]) -> int:
        return len(drawn)


def test_a_constraint_leaves_its_tokens_only() -> None:
    constraint, script = OnlyLetters(), Script(["ab", "ab"])
    run(script, 2, constraint=constraint)
    assert constraint.asked == [(0, ()), (1, ()), (0, (token("a"),)), (1, (token("a"),))]
    finite = [step.isfinite().nonzero().tolist() for step in script.of(4)]
    assert finite == [[[n, token(one)] for n in (0, 1) for one in sorted([letter, "z"], key=token)] for letter in "ab"]


def test_a_token_without_a_choice_is_no_draw_and_reads_nothing() -> None:
    """Of four tokens the second and third are fixed: the rule is asked twice, and two draws are paid for."""
    armed: list[int] = []
    script = Script(["az", "aa"], DrawMeter(1, 4, armed.append))
    texts = run(script, 4, constraint=OnlyLetters(frozenset({0, 3})))
    assert [text.text for text in texts] == ["abaz", "abaa"]
    assert script.of(2) == [(0, 0), (1, 1)]
    assert armed == [0, 1]


def test_who_has_no_choice_is_left_out_of_a_step() -> None:
    """The second text is a token behind, so that the two have their choices at different steps."""
    constraint = ByNumber({0: OnlyLetters(frozenset({1})), 1: OnlyLetters(frozenset({0, 2}))})
    script = Script(["z", "zz"])
    texts = run(script, 3, references=[1, 2], constraint=constraint)
    assert [text.text for text in texts] == ["aza", "zbz"]
    assert [(step[1], step[2], step[3]) for step in script.seen] == [
        ((1,), (0,), [0, 0]), ((0,), (0,), [0]), ((1,), (1,), [0, 0]),
    ]  # fmt: skip


def test_who_goes_on_has_made_the_draws_that_were_a_choice() -> None:
    earlier = {0: [token("a"), token("b"), token("a")]}
    script = Script(["xz"])
    run(script, 5, constraint=OnlyLetters(frozenset({0, 3})), earlier=earlier)
    assert script.of(2) == [(1,)]


@dataclass
class ByNumber:
    """A constraint for each generation."""

    of: Mapping[int, OnlyLetters]

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        return self.of[number].allowed(number, drawn)

    def choices(self, drawn: Sequence[int]) -> int:
        assert not drawn, "nobody goes on here"
        return 0

    def before_choice(self, drawn: Sequence[int]) -> int:
        return len(drawn)


TEXTS = ["ab.", "c.", "defg", ".", "hi.", "jklm"]


def test_who_waits_enters_as_soon_as_a_text_has_ended() -> None:
    script = Script(TEXTS)
    made = run(script, 4, places=2)
    assert script.of(1) == [(0, 1), (0, 1), (0, 2), (2, 3), (2, 4), (2, 4), (4, 5), (5,), (5,), (5,)]
    assert [text.text for text in made] == ["ab", "c", "defg", "", "hi", "jklm"]


@pytest.mark.parametrize("references", [(1, 0, 9, 2, 0, 1), (5, 5, 0, 0, 0, 0), (0,) * 6])
def test_how_many_rows_there_are_decides_neither_who_is_live_nor_any_public_logit(references: tuple[int, ...]) -> None:
    usual, other = Script(TEXTS), Script(TEXTS)
    run(usual, 4, [2] * 6, places=2)
    run(other, 4, references, places=2)
    assert (other.of(1), other.of(2)) == (usual.of(1), usual.of(2))
    assert all(torch.equal(*pair) for pair in zip(usual.of(4), other.of(4), strict=True))


def test_an_interrupted_attempt_goes_on_and_draws_nothing_again() -> None:
    kept: dict[int, list[int]] = {}

    def keep(tokens: Mapping[int, int]) -> None:
        for number, drawn in tokens.items():
            kept.setdefault(number, []).append(drawn)
        if sum(map(len, kept.values())) > 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Script(TEXTS), 4, places=2, on_tokens=keep)
    assert {number: len(drawn) for number, drawn in kept.items()} == {0: 3, 1: 2, 2: 2, 3: 1}
    script = Script(TEXTS)
    made = run(script, 4, places=2, earlier=kept)
    assert [text.text for text in made] == ["ab", "c", "defg", "", "hi", "jklm"]
    assert script.of(1) == [(2, 4), (2, 4), (4, 5), (5,), (5,), (5,)]
    assert script.of(2)[0] == (2, 0)


def test_rows_that_are_let_go_are_not_offered_again() -> None:
    script = Script(["abc", "abc"], lets_go=(1, 1))
    run(script, 3, references=[2, 1])
    assert script.of(3) == [[0, 0, 1], [0, 0, 1], [0, 0]]


def test_sizes_beyond_the_model_are_refused_before_any_job_is_read() -> None:
    sizes = Sizes.of([PUBLIC], [PRIVATE], 4, 5000)
    jobs = (pytest.fail("read") for _ in range(1))
    with pytest.raises(ContextTooLong):
        decode(engine(), jobs, 1, sizes, Script(["a"]))


def test_a_separator_ends_a_text_and_is_no_part_of_it() -> None:
    script = Script(["ab\n#\ncd", "#\nx", "a#\n#b\n"])
    made = run(script, steps=6, separator="#")
    assert [(text.text, text.complete) for text in made] == [("ab", True), ("", True), ("a#\n#b", False)]
    assert [text.tokens for text in made] == [5, 2, 6]  # the separator's are drawn and paid for


def test_a_separator_without_its_line_feed_ends_a_text_that_may_not_go_on() -> None:
    made = run(Script(["ab\n#", "ab\n#.", "abc#"]), steps=4, separator="#")
    assert [(text.text, text.complete) for text in made] == [("ab", True), ("ab", True), ("abc#", False)]


def test_without_a_separator_the_same_tokens_are_text() -> None:
    assert [text.text for text in run(Script(["a\n#\nb"]), steps=5)] == ["a\n#\nb"]


def test_after_a_separator_nothing_is_drawn_or_armed() -> None:
    armed: list[int] = []
    run(Script(["a\n#\nbcd"], DrawMeter(1, 9, armed.append)), steps=9, separator="#")
    assert armed == [0, 1, 2, 3]


def test_a_text_that_had_ended_at_its_separator_is_not_gone_on_with() -> None:
    earlier = {0: [token(letter) for letter in "a\n#\n"], 1: [token(letter) for letter in "a\n#"]}
    script = Script(["", "a\n#\nb"])
    made = run(script, steps=9, separator="#", earlier=earlier)
    assert [(text.text, text.tokens) for text in made] == [("a", 4), ("a", 4)]
    assert script.of(1) == [(1,)]


def test_what_is_held_to_a_grammar_does_not_end_at_a_separator() -> None:
    class Anything:
        def before_choice(self, drawn: Sequence[int]) -> int:
            return len(drawn)

        def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
            return torch.ones(tiny_model().vocabulary, dtype=torch.bool)

        def choices(self, drawn: Sequence[int]) -> int:
            return len(drawn)

    made = run(Script(["a\n#\nb"]), steps=5, separator="#", constraint=Anything())
    assert [text.text for text in made] == ["a\n#\nb"]


class ForcedAtFirst:
    """Five tokens are forced; then every letter is allowed."""

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        mask = torch.zeros(tiny_model().vocabulary, dtype=torch.bool)
        mask[[token(letter) for letter in ("z" if len(drawn) < 5 else "abc.")]] = True
        return mask

    def choices(self, drawn: Sequence[int]) -> int:
        return max(0, len(drawn) - 5)

    def before_choice(self, drawn: Sequence[int]) -> int:
        return max(5, len(drawn))


def test_the_device_was_asked_about_rows_that_are_read_amid_forced_tokens() -> None:
    """A text goes on amid its forced tokens, beside one with a choice: the rows of both are read at that step."""
    own, sizes = engine(), Sizes.of([PUBLIC], [PRIVATE], 8, 12, 2)
    earlier = {0: [token("z")] * 2, 1: [token("z")] * 5 + [token("a")]}
    jobs = [GenerationJob(PUBLIC, PRIVATE, ((20, 21), (22,)))] * 2
    session = open_session(own, 2, sizes, earlier, 0, ForcedAtFirst())
    asked, script = own.isolation.tested_shapes, Script(["ab.", "ab."])
    made = decode(own, jobs, 2, sizes, script, constraint=ForcedAtFirst(), earlier=earlier, session=session)
    assert [text.tokens for text in made] == [7, 7]
    assert script.of(1)[0] == (1,)  # the first step has a choice for the second text alone
    assert own.isolation.tested_shapes == asked
