"""Completed sentences: when a text goes on, what is drawn then, and what is charged and read beside it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from tasks.decoding.loop import DrawMeter, GenerationJob, Step, decode
from tasks.decoding.sentence_completion import SentenceCompletion, completion_figures
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.tokens.integer_table import public_sampler
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.dear

PUBLIC, PRIVATE = PromptPieces((10, 11), (12,)), PromptPieces((10, 11, 13), (14,))
ROWS = ((30, 31, 32, 33), (77, 78, 200))
T, N = 5, 6


def finishes(most: int = N, temperature: str = "1", top_k: int = 0) -> SentenceCompletion:
    return SentenceCompletion(most, public_sampler(temperature), top_k, DeterministicRandom("completion"))


def token(letter: str) -> int:
    (found,) = tiny_model().tokenizer(letter, add_special_tokens=False)["input_ids"]
    return int(found)


class Scripted(SentenceCompletion):
    """Finishes sentences with given tokens in place of draws."""

    def next_tokens(self, numbers: Sequence[int], public: torch.Tensor) -> list[int]:
        super().next_tokens(numbers, public)
        script: Sequence[int] = self.__dict__["script"]
        return [script[self.count(number) - 1] for number in numbers]


def scripted(*letters: str | int, most: int = N) -> Scripted:
    made = Scripted(most, public_sampler("1"), 0, DeterministicRandom("completion"))
    made.__dict__["script"] = [each if isinstance(each, int) else token(each) for each in letters]
    return made


@dataclass
class Watch:
    """A rule that reads all private rows and writes down what it is asked.

    It draws the letters in turn; where there are none, the second likeliest public token.
    """

    meter: DrawMeter
    letters: str
    seen: list[tuple[int, int]] = field(default_factory=list)

    def next_tokens(self, step: Step) -> list[int]:
        self.meter.admit(max(step.positions))
        self.seen += zip(step.numbers, step.positions, strict=True)
        step.private(None)
        if not self.letters:
            return [int(token) for token in step.public.topk(2, 1).indices[:, 1]]
        return [token(self.letters[place % len(self.letters)]) for place in step.positions]

    def facts(self, number: int) -> Mapping[str, float]:
        return {}


def run(
    completion: SentenceCompletion | None,
    letters: str = "a",
    texts: int = 4,
    total: int = T + N,
    draws: int = T,
    **options: Any,
) -> tuple[Watch, list[Any]]:
    watch = Watch(DrawMeter(1, draws, lambda number: None), letters)
    sizes = Sizes.of([PUBLIC], [PRIVATE], 8, total, references=len(ROWS))
    engine = Engine(tiny_model(), memory=2**26)
    session = engine.session(sizes, texts)
    jobs = [GenerationJob(PUBLIC, PRIVATE, ROWS)] * texts
    made = decode(engine, jobs, texts, sizes, watch, completion=completion, session=session, **options)
    return watch, made


@pytest.mark.parametrize(("temperature", "top_k"), [("1", 0), ("0.8", 0), ("1", 2)])
def test_tokens_have_the_law_of_the_public_model(temperature: str, top_k: int) -> None:
    public, trials = torch.tensor([[3.0, 1.5, 1.0, 0.0, -40.0]]), 4000
    drawn = Counter(finishes(N, temperature, top_k).next_tokens(range(trials), public.expand(trials, -1)))
    logits = public[0].double() / float(temperature)
    if top_k:
        logits[top_k:] = -torch.inf
    likely = [place for place in range(5) if logits[place] > -5]
    expected = [chance * trials for chance in logits.softmax(0)[likely].tolist()]
    assert sum(drawn[place] for place in likely) == trials
    seen = [drawn[place] for place in likely]
    assert chisquare(seen, [each * trials / sum(expected) for each in expected]).pvalue > 1e-4


def test_a_cut_sentence_goes_on_up_to_its_end_and_nothing_more_is_charged() -> None:
    watch, made = run(scripted("b", "c", ".", "d"))
    assert [text.text for text in made] == ["aaaaabc."] * 4
    assert [(text.tokens, text.complete, text.facts) for text in made] == [(8, False, {"completion_tokens": 3.0})] * 4
    assert Counter(number for number, _ in watch.seen) == dict.fromkeys(range(4), T)
    assert completion_figures(made) == {"completion_tokens_per_text": "3.00"}


def test_a_sentence_that_has_no_end_is_cut_at_the_last_token() -> None:
    _, made = run(scripted(*"bcdefg"))
    assert [text.text for text in made] == ["aaaaabcdefg"] * 4


@pytest.mark.parametrize("letters", ["aaaa.", 'aaa."', "aaaa\n"], ids=["stop", "quote", "line"])
def test_a_text_whose_last_sentence_is_whole_does_not_go_on(letters: str) -> None:
    _, made = run(scripted(*"bcdefg"), letters)
    assert [(text.text, text.facts) for text in made] == [(letters.strip(), {"completion_tokens": 0.0})] * 4


def test_an_earlier_end_of_a_sentence_ends_nothing() -> None:
    watch, made = run(scripted("b", "."), "aa. c")
    assert made[0].text == "aa. cb."
    assert len(watch.seen) == 4 * T


def test_an_end_token_ends_the_text_as_anywhere() -> None:
    _, made = run(scripted("b", tiny_model().stop_tokens[0]))
    assert [(text.text, text.tokens, text.complete) for text in made] == [("aaaaab", 6, True)] * 4


def test_a_separator_ends_the_text_as_anywhere() -> None:
    _, made = run(scripted("\t", *"#\nc"), separator="#", letters="aaaa\n")
    assert made[0].text == "aaaa"  # its line has ended
    _, made = run(scripted(*"*\n"), separator="b*", letters="aaa\nb")
    assert (made[0].text, made[0].complete) == ("aaa", True)


def test_private_rows_are_dropped_before_the_first_such_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the other texts go on: here the second enters when the first has ended."""
    log: list[tuple[str, Any]] = []
    let_go, score = Session.let_go, Session.private_logits
    draw = SentenceCompletion.next_tokens

    def private_logits(session: Session, candidates: Any = None) -> Any:
        rows = score(session, candidates)
        log.append(("read", [session.numbers[place] for place in sorted(set(rows.generation.tolist()))]))
        return rows

    monkeypatch.setattr(Session, "private_logits", private_logits)
    monkeypatch.setattr(Session, "let_go", lambda *given: log.append(("drop", given[1])) or let_go(*given))
    monkeypatch.setattr(
        SentenceCompletion, "next_tokens", lambda *given: log.append(("public", list(given[1]))) or draw(*given)
    )
    run(scripted("b", "."), texts=1)
    assert log == [("read", [0])] * T + [("drop", 0), ("public", [0]), ("public", [0])]
    log.clear()
    watch = run(scripted("b", "c", "."), texts=2, earlier={1: [token("a")] * 3})[0]
    assert [number for number, _ in watch.seen] == [0, 1, 0, 1, 0, 0, 0]
    dropped = log.index(("drop", 1))
    assert all(1 not in numbers for what, numbers in log[dropped + 1 :] if what == "read")
    assert ("public", [1]) in log


def test_a_text_that_goes_on_knows_which_tokens_are_its_own() -> None:
    """One is killed inside its own tokens, one while its sentence is completed, one behind its last token."""
    a, earlier = token("a"), {}
    completion = scripted("b", "c", "d", ".")
    for number, (own, more) in enumerate([(4, 0), (T, 2), (T, N)]):
        earlier[number] = [a] * (own + more)
        completion.resume(number, more)
    watch, made = run(completion, texts=3, earlier=earlier)
    assert watch.seen == [(0, 4)]
    assert [text.tokens for text in made] == [T + 4, T + 4, T + N]
    assert [completion.count(number) for number in range(3)] == [4, 4, N]


def test_a_lost_draw_is_no_draw_of_the_public_model() -> None:
    """After an interruption all texts are one draw shorter; what had all its draws keeps them."""
    a = token("a")
    completion = scripted("b", "c", "d", "e", "f", "g")
    completion.resume(1, 1)
    watch, made = run(completion, texts=2, total=T - 1 + N, draws=T, earlier={0: [a] * 2, 1: [a] * (T + 1)})
    assert [place for number, place in watch.seen if number == 1] == []
    assert (made[0].tokens, made[0].facts) == (T - 1 + N, {"completion_tokens": float(N)})
    assert (made[1].tokens, made[1].facts) == (T - 1 + N, {"completion_tokens": float(N - 1)})
