"""Answers about private texts: each a function of its own text, bit for bit, and always of the grammar."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tasks.analysis.facets import constrained_completion
from tasks.analysis.facets.constrained_completion import complete_constrained
from tasks.inference.catalogue.model_check import PRECISIONS, ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import RowLogits, Session
from tasks.inference.prompt_rendering import private_prompt, reference_tokens
from tasks.inference.prompt_spec import PromptSpec
from tasks.inference.structured_output.grammar_constraint import Answer, GrammarConstraint, TokenLimitTooSmall, lines_of
from tests.refusals import refusal
from tests.tiny_model import tiny_model

CONCERNS = ("tasks/inference/engine", "tasks/inference/structured_output")

pytestmark = pytest.mark.dear

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "keywords": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 6}, "maxItems": 2},
        "summary": {"type": "string", "maxLength": 9},
    },
    "required": ["keywords", "summary"],
}
MOST, NEW = 24, 60
PROMPT = private_prompt(tiny_model().tokenizer, PromptSpec("x", private="Say: {reference}\nJSON:"))
TEXTS = [f"text {number} " + "abc"[number % 3] * (number * 5 % 31) for number in range(11)]


def grammar(most: int = NEW, **changes: Any) -> GrammarConstraint:
    return GrammarConstraint.of_schema(SCHEMA, replace(tiny_model(), **changes), most)


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of four rows, so that a few texts need several of them and move between them."""
    monkeypatch.setitem(constrained_completion.ROWS, "cpu", 4)


class Heard:
    """Every logit that any text's row has said, by the text's tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_text: dict[tuple[int, ...], list[torch.Tensor]] = {}
        plain = Session.private_logits

        def listening(session: Session, candidates: torch.Tensor | None = None) -> RowLogits:
            said = plain(session, candidates)
            of_texts = said.values.view(len(session.numbers), -1) if session.numbers else []
            for number, rows in zip(session.numbers, of_texts, strict=True):
                tokens = session._generations[number].references[0]
                self.by_text.setdefault(tokens, []).append(rows.clone())
            return said

        monkeypatch.setattr(Session, "private_logits", listening)

    def take(self) -> dict[tuple[int, ...], torch.Tensor]:
        found = {tokens: torch.stack(rows) for tokens, rows in self.by_text.items()}
        self.by_text = {}
        return found


def asked(texts: Sequence[str], *, precision: Any = "float32", contrast: float = 0.0) -> list[str | None]:
    model = tiny_model(precision)
    made = GrammarConstraint.of_schema(SCHEMA, model, NEW)
    return complete_constrained(Engine(model, memory=2**30), PROMPT, texts, made, MOST, contrast=contrast)


OTHERS: Mapping[str, Sequence[str]] = {
    "removed": TEXTS[:3],
    "permuted": TEXTS[::-1],
    "replaced": [*TEXTS[:3], *("another one" for _ in TEXTS[3:])],
    "lengthened": [*TEXTS[:3], *(text + " and much more of it" for text in TEXTS[3:])],
    "more": [*(f"stranger {number}" for number in range(17)), *TEXTS],
    "alone": TEXTS[:1],
    "null rows": ["", *TEXTS[:3], "", ""],
}


@cache
def undisturbed(precision: Any, contrast: float) -> tuple[dict[str, str | None], dict[tuple[int, ...], torch.Tensor]]:
    """The answers to all texts, and their rows' bits; an engine is asked once for all changes."""
    with pytest.MonkeyPatch.context() as patch:
        heard = Heard(patch)
        answers = asked(TEXTS, precision=precision, contrast=contrast)
        return dict(zip(TEXTS, answers, strict=True)), heard.take()


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "contrast"), [*((each, 0.0) for each in PRECISIONS), ("float32", 1.0)])
@pytest.mark.parametrize("change", OTHERS)
def test_a_texts_logits_do_not_depend_on_the_others(monkeypatch, precision, contrast, change):
    """PRIVACY §4.2 point 1: to the last bit, at every step of the answer."""
    before, bits = undisturbed(precision, contrast)
    heard = Heard(monkeypatch)
    others = OTHERS[change]
    after = dict(zip(others, asked(others, precision=precision, contrast=contrast), strict=True))
    bits_after = heard.take()
    same = [text for text in others if text in before]
    assert same
    for text in same:
        tokens = reference_tokens(tiny_model().tokenizer, text, MOST)
        assert before[text] == after[text]
        assert torch.equal(bits[tokens], bits_after[tokens])


@pytest.mark.slow
@pytest.mark.parametrize("places", [1, 2, 5, 64])
def test_it_does_not_matter_who_is_in_which_wave(monkeypatch, places):
    heard = Heard(monkeypatch)
    expected, bits = asked(TEXTS), heard.take()
    monkeypatch.setattr(constrained_completion, "MOST_PLACES", places)
    assert asked(TEXTS) == expected
    found = heard.take()
    assert all(torch.equal(found[tokens], bits[tokens]) for tokens in bits)


def test_the_test_would_notice_a_text_that_enters_late(monkeypatch):
    """Where texts entered whenever a place is free, their bits would depend on how long others' answers are."""
    heard = Heard(monkeypatch)
    asked(TEXTS)
    bits = heard.take()
    query = constrained_completion._Question.of(Engine(tiny_model(), memory=2**30), PROMPT, grammar(), MOST)
    session = query.session(4)
    early, late = (reference_tokens(tiny_model().tokenizer, text, MOST) for text in TEXTS[:2])
    answer = Answer(query.grammar, query.grammar.automaton.start)
    with torch.inference_mode():
        session.enter(0, query.public, query.private, [early])
        for _ in range(55):
            session.advance([40])
        session.private_logits()
        session.enter(1, query.public, query.private, [late])
        session.private_logits()
        session.leave(0)
        heard.take()
        for _ in bits[late]:
            row = session.private_logits().values[0]
            answer.take(answer.best(row.numpy(), []))
            if not answer.ended:
                session.advance(answer.drawn[-1:])
    found = heard.take()[late]
    assert torch.allclose(found, bits[late], atol=1e-4)
    assert not torch.equal(found, bits[late])


def test_answers_are_of_the_schema():
    answers = asked([*TEXTS, "语言", "a\x00b"])
    for answer in answers:
        read = json.loads(answer or "")
        assert list(read) == ["keywords", "summary"]
        assert len(read["keywords"]) <= 2
        assert len(read["summary"]) <= 9


def test_texts_without_tokens_have_no_answer():
    assert asked(["", TEXTS[0], ""]) == [None, *asked(TEXTS[:1]), None]
    assert asked([]) == []
    assert asked([""]) == asked(["\ud800"]) == [None]


def test_a_text_that_cannot_be_tokenised_stops_nobody(monkeypatch):
    plain = constrained_completion.reference_tokens
    monkeypatch.setattr(
        constrained_completion,
        "reference_tokens",
        lambda made, text, most: () if text == TEXTS[1] else plain(made, text, most),
    )
    answers = asked(TEXTS[:4])
    assert answers[1] is None
    assert None not in (answers[0], answers[2], answers[3])


@pytest.mark.parametrize("few", [[], [92, 93, 94], list(range(60, 100))])
def test_a_contrast_prefers_what_the_text_makes_likelier(few):
    """Among the plausible of the allowed tokens, whatever forbidden ones may say."""
    made = grammar()
    answer = Answer(made, made.automaton.after(made.automaton.start, b'{"keywords":["'))
    a, b, c, d, forbidden = (tiny_model().tokenizer(letter)["input_ids"][0] for letter in ("a", "b", "c", "d", "\n"))
    logits, without = np.full((2, tiny_model().vocabulary), -20.0, np.float32)
    logits[[forbidden, a, b, c, d]] = 9.0, 5.0, 4.9, 4.8, 0.5
    without[[forbidden, a, b, c, d]] = -9.0, 5.0, 1.0, 4.8, -9.0
    assert answer.best(logits, few) == a
    assert answer.best(logits, few, without, contrast=0.0) == a
    assert answer.best(logits, few, without, contrast=1.0) == b


@pytest.mark.slow
@pytest.mark.parametrize("contrast", [0.5, 4.0])
def test_with_a_contrast_answers_are_of_the_schema_and_others(contrast):
    plain, found = asked(TEXTS), asked(TEXTS, contrast=contrast)
    assert all(set(json.loads(answer or "")) == {"keywords", "summary"} for answer in found)
    assert found != plain


@pytest.mark.slow_except("0-1.0")
@pytest.mark.parametrize("contrast", [0.0, 1.0])
@pytest.mark.parametrize("step", [0, 3])
def test_a_text_about_which_the_model_says_nothing_stops_nobody(monkeypatch, step, contrast):
    """Logits that are not finite, at once or later."""
    expected = asked(TEXTS[:6], contrast=contrast)
    ill = reference_tokens(tiny_model().tokenizer, TEXTS[2], MOST)
    plain = Session.private_logits

    def failing(session: Session, candidates: torch.Tensor | None = None) -> RowLogits:
        said = plain(session, candidates)
        for place, generation in enumerate(said.generation.tolist()):
            known = session._generations[session.numbers[generation]]
            if known.references[0] == ill and len(known.drawn) == step:
                said.valid[place] = False
                said.values[place] = 0.0
        return said

    monkeypatch.setattr(Session, "private_logits", failing)
    answers = asked(TEXTS[:6], contrast=contrast)
    assert answers[2] is None
    assert [*answers[:2], *answers[3:]] == [*expected[:2], *expected[3:]]


def test_the_token_is_the_likeliest_of_all_allowed_ones(monkeypatch):
    """As if the whole set had been asked for at every step; and the few that are tried first change nothing."""
    expected = asked(TEXTS)
    constraint = grammar()
    checked = 0
    plain = Answer.best

    def checking(answer: Answer, logits: Any, *rest: Any, **more: Any) -> int:
        nonlocal checked
        token = plain(answer, logits, *rest, **more)
        allowed = constraint.allowed(id(answer), answer.drawn)
        assert token == int(torch.from_numpy(logits).masked_fill(~allowed, -torch.inf).argmax())
        checked += 1
        return token

    monkeypatch.setattr(Answer, "best", checking)
    assert asked(TEXTS) == expected
    assert checked > 100


@pytest.mark.slow
@pytest.mark.parametrize("contrast", [0.0, 1.0])
@pytest.mark.parametrize("few", [1, 4, 10_000])
def test_how_many_tokens_are_tried_first_changes_nothing(monkeypatch, contrast, few):
    expected = asked(TEXTS, contrast=contrast)
    monkeypatch.setattr(constrained_completion, "_FEW", few)
    assert asked(TEXTS, contrast=contrast) == expected


def test_of_equal_logits_the_first_token_is_taken():
    made = grammar()
    answer = Answer(made, made.automaton.start)
    size = tiny_model().vocabulary
    first = min(token for token in range(size) if made.allows(answer.state, 0, token))
    for few in ([], [size - 1, size - 2], list(range(size))[::-1]):
        assert answer.best(np.zeros(size, np.float32), few) == first


@pytest.mark.parametrize("most", [grammar().fewest_draws, 40, 90])
def test_every_answer_ends_in_time(most):
    """At the limit that is just enough, too."""
    made = grammar(most)
    for answer in complete_constrained(Engine(tiny_model(), memory=2**30), PROMPT, TEXTS, made, MOST):
        assert set(json.loads(answer or "")) == {"keywords", "summary"}


def test_what_cannot_be_is_refused_before_anything_is_read():
    fewest = grammar().fewest_draws
    with pytest.raises(TokenLimitTooSmall):
        grammar(fewest - 1)
    with refusal("EndTokenMissing"):
        grammar(stop_tokens=())
    with pytest.raises(ContextTooLong):
        complete_constrained(Engine(tiny_model(), memory=2**30), PROMPT, [], grammar(), 1000)


@pytest.mark.slow
def test_short_memory_means_smaller_waves_and_the_same_answers(monkeypatch):
    """A pass fails now and then; what had begun begins again, to the same bits."""
    expected = asked(TEXTS)
    inner, passes, fails = tiny_model().decoder, 0, set[int]()

    def failing(**inputs: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes in fails:
            raise MemoryError
        return inner(**inputs)

    engine = Engine(replace(tiny_model(), decoder=failing), memory=2**30)
    assert complete_constrained(engine, PROMPT, [], grammar(), MOST) == []
    fails = {passes + 20, passes + 60}
    assert complete_constrained(engine, PROMPT, TEXTS, grammar(), MOST) == expected
    assert passes > max(fails)


def test_no_memory_at_all_has_a_named_error():
    def failing(**inputs: Any) -> Any:
        raise MemoryError

    model = replace(tiny_model(), decoder=failing)
    engine = Engine(model, memory=2**30)
    engine.isolation = Engine(tiny_model(), memory=2**30).isolation  # it has a model of its own
    with refusal("NotEnoughMemory"):
        complete_constrained(engine, PROMPT, TEXTS, grammar(), MOST)


def test_progress_is_told_wave_by_wave(monkeypatch):
    monkeypatch.setattr(constrained_completion, "MOST_PLACES", 4)
    heard: list[tuple[int, int]] = []
    complete_constrained(
        Engine(tiny_model(), memory=2**30),
        PROMPT,
        ["", *TEXTS[:6]],
        grammar(),
        MOST,
        lambda done, of: heard.append((done, of)),
    )
    assert heard == [(5, 7), (7, 7)]


class TestLines:
    """The grammar of chosen lines."""

    def ends(self, made: Any, text: str) -> bool:
        return bool(made.final[made.after(made.start, text.encode())])

    def test_some_lines_or_the_other_word(self):
        made = lines_of(["art", "art history", "语言"], 2, "none")
        for text in ("art", "art history", "art\nart history", "语言\nart", "none"):
            assert self.ends(made, text), text
        for text in ("", "ar", "art\n", "art\nart\nart", "none\nart", "art\nnone", "history"):
            assert not self.ends(made, text), text

    def test_without_choices_there_is_the_other_word(self):
        made = lines_of([], 3, "none")
        assert self.ends(made, "none")
        assert not self.ends(made, "")
