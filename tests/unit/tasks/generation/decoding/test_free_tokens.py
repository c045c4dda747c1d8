"""Free tokens: which positions are free, what they are drawn from, and what is charged beside them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from tasks.generation.decoding.free_tokens import FreeTokens
from tasks.generation.decoding.loop import DrawMeter, GenerationJob, Step, decode
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompts.render import PromptPieces
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.tokens.sampler import Kind, public_sampler
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.dear

PUBLIC, PRIVATE = PromptPieces((10, 11), (12,)), PromptPieces((10, 11, 13), (14,))
ROWS = ((30, 31, 32, 33), (77, 78, 200))
LIKELIEST = torch.tensor([[3.0, 1.5, 1.0, 0.0, -40.0]])  # 0.71, 0.16, 0.10 and 0.04 at temperature 1


def free(
    above: str = "0.7", temperature: str = "1", top_k: int = 0, draws: int = 100, kind: Kind = "table"
) -> FreeTokens:
    draw = public_sampler(temperature, kind)
    return FreeTokens(Fraction(above), draw, top_k, draws, DeterministicRandom("free"))


@pytest.mark.parametrize(
    ("above", "temperature", "is_free"),
    [("0.7", "1", True), ("0.72", "1", False), ("0.72", "0.9", True), ("0.6", "1.5", False)],
)
def test_a_position_is_free_above_the_threshold_at_the_temperature_of_the_request(
    above: str, temperature: str, is_free: bool
) -> None:
    (token,) = free(above, temperature).next_tokens([0], LIKELIEST)
    assert (token is not None) == is_free


def test_the_threshold_is_on_the_whole_vocabulary_whatever_the_candidates() -> None:
    assert free("0.72", top_k=1).next_tokens([0], LIKELIEST) == [None]


def test_each_generation_has_its_own_position_and_its_own_count() -> None:
    tokens = free()
    flat = torch.zeros((1, 5))
    drawn = tokens.next_tokens([3, 5, 8], torch.cat([flat, LIKELIEST, flat]))
    assert [token is None for token in drawn] == [True, False, True]
    assert [tokens.count(number) for number in (3, 5, 8)] == [0, 1, 0]
    assert tokens.facts(5) == {"free_tokens": 1.0}
    again = free()
    again.resume(5, tokens.kept(5))
    assert again.count(5) == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_are_no_token(bad: float) -> None:
    public = torch.cat([LIKELIEST, torch.full((1, 5), bad)])
    public[0, 4] = bad
    first, second = free().next_tokens([0, 1], public)
    assert first in (0, 1, 2, 3)
    assert second is None  # the rule refuses such a row by name


@pytest.mark.parametrize("kind", ["table", "opendp"])
@pytest.mark.parametrize(("temperature", "top_k"), [("1", 0), ("0.8", 0), ("1", 2)])
def test_free_tokens_have_the_law_of_the_public_model(kind: Kind, temperature: str, top_k: int) -> None:
    trials = 4000
    drawn = free("0.6", temperature, top_k, kind=kind).next_tokens(range(trials), LIKELIEST.expand(trials, -1))
    logits = LIKELIEST[0].double() / float(temperature)
    if top_k:
        logits[top_k:] = -torch.inf
    expected = (logits.softmax(0) * trials).tolist()
    counts = Counter(drawn)
    likely = [token for token in range(5) if expected[token] > 5]
    assert sum(counts[token] for token in likely) == trials
    seen, wanted = [counts[token] for token in likely], [expected[token] for token in likely]
    scaled = [each * trials / sum(wanted) for each in wanted]
    assert chisquare(seen, scaled).pvalue > 1e-4


# --- in the loop ------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """A rule that takes the second likeliest public token, and writes down what it is asked."""

    meter: DrawMeter
    seen: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int, torch.Tensor]] = field(default_factory=list)
    forced: Mapping[int, Sequence[int]] | None = None
    session: Any = None

    def next_tokens(self, step: Step) -> list[int]:
        self.meter.admit(max(step.positions))
        self.seen += zip(step.numbers, step.positions, strict=True)
        rows = step.private(None)
        for index, number in enumerate(step.numbers):
            place = len(self.session.drawn(number))
            self.rows.append((number, place, rows.values[rows.generation == index]))
        if self.forced is not None:
            return [self.forced[number][len(self.session.drawn(number))] for number in step.numbers]
        return [int(token) for token in step.public.topk(2, 1).indices[:, 1]]

    def facts(self, number: int) -> Mapping[str, float]:
        return {}


def run(
    most: int, total: int, texts: int = 6, tokens: FreeTokens | None = None, **options: Any
) -> tuple[Watch, list[Any], dict[int, list[int]]]:
    """`texts` texts that never end by themselves; what they drew comes last."""
    drawn: dict[int, list[int]] = {number: list(of) for number, of in options.get("earlier", {}).items()}

    def keep(step: Mapping[int, int]) -> None:
        for number, token in step.items():
            drawn.setdefault(number, []).append(token)

    watch = Watch(DrawMeter(1, most, lambda number: None), forced=options.pop("forced", None))
    sizes = Sizes.of([PUBLIC], [PRIVATE], 8, total, references=len(ROWS))
    engine = Engine(tiny_model(stops=False), memory=2**26)
    watch.session = engine.session(sizes, texts)
    jobs = [GenerationJob(PUBLIC, PRIVATE, ROWS)] * texts
    made = decode(engine, jobs, texts, sizes, watch, free=tokens, on_tokens=keep, session=watch.session, **options)
    return watch, made, drawn


def confident(draws: int) -> FreeTokens:
    """At this temperature the tiny model is sure of about half of its tokens."""
    return free("0.6", "0.25", draws=draws)


def test_a_text_ends_with_its_last_charged_draw_or_at_its_last_token() -> None:
    tokens = confident(5)
    watch, made, drawn = run(5, 10, tokens=tokens)
    charged = Counter(number for number, _ in watch.seen)
    for number, text in enumerate(made):
        assert charged[number] <= 5
        assert charged[number] + tokens.count(number) == text.tokens == len(drawn[number]) <= 10
        assert charged[number] == 5 or text.tokens == 10
        assert [place for other, place in watch.seen if other == number] == list(range(charged[number]))
        assert text.facts == {"free_tokens": float(tokens.count(number))}
        assert not text.complete
    assert sum(charged.values()) < sum(text.tokens for text in made)


def test_a_meter_that_has_no_further_draw_is_never_asked_for_one() -> None:
    """The plan is the second guard: were the limit of the text wrong, the meter would end the run."""
    run(5, 10, tokens=confident(5))
    with pytest.raises(ValueError, match="not among the plan's 5"):
        run(5, 50, tokens=confident(6))


def test_where_all_positions_are_free_private_rows_are_read_for_the_first_token_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So they are read in shapes that the device was asked about when the session was opened."""
    read, score = [], Session.private_logits
    monkeypatch.setattr(FreeTokens, "_confident", lambda self, public: list(range(len(public))))
    monkeypatch.setattr(Session, "private_logits", lambda *given: read.append(1) or score(*given))
    watch, made, _ = run(5, 10, tokens=confident(5))
    assert watch.seen == [(number, 0) for number in range(6)]
    assert read == [1]
    assert [text.tokens for text in made] == [10] * 6


def test_private_rows_read_free_tokens_like_any_other() -> None:
    """The rows before a charged draw are those of a run in which the rule was asked for every token of the text."""
    watch, _, drawn = run(5, 10, tokens=confident(5))
    length = max(map(len, drawn.values()))
    padded = {number: [*tokens, *[7] * (length - len(tokens))] for number, tokens in drawn.items()}
    every, _, _ = run(length, 10, forced=padded)
    all_rows = {(number, place): rows for number, place, rows in every.rows}
    behind = 0
    for number, place, rows in watch.rows:
        assert torch.equal(rows, all_rows[number, place])
        behind += place > 0
    assert behind > 6


def test_a_text_that_goes_on_has_the_charged_draws_that_it_had() -> None:
    """What it has to know is the count of its free tokens; its next token is charged, for its rows are read anew."""
    earlier = {0: [7, 8, 9, 10], 1: [7, 8, 9, 10], 2: [7, 8, 9, 10, 11, 12]}
    tokens = confident(5)
    for number, count in {0: 3, 1: 0, 2: 1}.items():
        tokens.resume(number, [count])
    watch, made, _ = run(5, 10, texts=3, tokens=tokens, earlier=earlier)
    assert watch.seen[:2] == [(0, 1), (1, 4)]
    assert [place for number, place in watch.seen if number == 1] == [4]
    assert (made[1].tokens, made[2].tokens) == (5, 6)  # the third had drawn all five
    assert tokens.count(0) >= 3
