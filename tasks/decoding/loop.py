"""The decoding loop that every text-generating system shares: jobs in, one text for each out.

The loop knows generations, tokens and the end of a text. How a token is chosen is a `SamplingRule`: it sees the public
logits of all live generations, asks for the private rows' logits when it needs them, and meters its own draws.
`DrawMeter` stands between a rule and the budget: no draw happens that has not been armed, and a step is armed before
the private rows are read for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from tasks.decoding.sentence_completion import SentenceCompletion
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.session import RowHidden, RowLogits, RowValues, Session
from tasks.inference.engine.shapes import Sizes, generations_at_once
from tasks.inference.prompt_rendering import PromptPieces
from tasks.inference.prompt_spec import text_before
from tasks.values.results import GeneratedText

Rows = TypeVar("Rows", bound=RowValues)


@dataclass(frozen=True)
class LiveSubset:
    """A choice among L live generations.

    Attributes:
        chosen: their places among the live ones, ascending.
        live: L.
    """

    chosen: Sequence[int]
    live: int

    @property
    def all_chosen(self) -> bool:
        """Return whether the subset holds all live generations."""
        return len(self.chosen) == self.live

    def of(self, every: Tensor) -> Tensor:
        """Return the chosen generations' part of a tensor [L, ...]."""
        return every if self.all_chosen else every[list(self.chosen)]

    def all_of(self, candidates: Tensor | None) -> Tensor | None:
        """Candidates of the chosen, int64 [n, K] -> of all, [L, K]; the others' rows are not looked at again."""
        if candidates is None or self.all_chosen:
            return candidates
        every = candidates.new_zeros((self.live, candidates.shape[1]))
        every[list(self.chosen)] = candidates
        return every

    def rows(self, all_rows: Rows) -> Rows:
        """Return the chosen ones' rows, their generations counted anew from 0."""
        if self.all_chosen:
            return all_rows
        place = torch.full((self.live,), -1, dtype=torch.int64, device=all_rows.generation.device)
        place[list(self.chosen)] = torch.arange(len(self.chosen), device=place.device)
        kept = place[all_rows.generation] >= 0
        return type(all_rows)(all_rows.values[kept], place[all_rows.generation[kept]], all_rows.valid[kept])


@dataclass(frozen=True)
class GenerationJob:
    """One generation of a release.

    Attributes:
        public: what the public row reads.
        private: what stands around a reference in the private rows; None if this generation has none.
        references: token ids of each private row's text; an empty one makes a null row.
    """

    public: PromptPieces
    private: PromptPieces | None = None
    references: tuple[tuple[int, ...], ...] = ()


def _absent(*_: object) -> Any:
    raise NotImplementedError("this step has logits alone")


@dataclass(frozen=True)
class Step:
    """The input of a rule at one step; everything in the order of `numbers`, L live generations.

    Attributes:
        numbers: which generations draw, from 0 in the public order of the release.
        positions: how many draws each of them has made so far. A token that the constraint leaves no choice about is
            none: it says nothing that is not public, so no rule is asked for it and nothing is paid. Nor is a token
            that finishes a sentence (`sentence_completion`).
        public: float32 [L, V]; -inf where the constraint forbids a token.
        public_hidden: -> the public rows' last hidden states, float32 [L, D].
        private: candidates int64 [L, K], chosen from public logits alone, or None for the whole vocabulary in order
            -> the logits of their rows; `RowLogits.generation` counts 0..L-1. Not to be called before the draw is
            paid for.
        hidden: the last hidden states of those rows; not to be called before, either.
        head: hidden states float32 [..., D] -> logits float32 [..., V]: public, whatever it is used on.
        drop_private_rows: takes a live index whose private rows are not needed any more; its public row goes on.
    """

    numbers: tuple[int, ...]
    positions: tuple[int, ...]
    public: Tensor
    private: Callable[[Tensor | None], RowLogits]
    drop_private_rows: Callable[[int], None]
    public_hidden: Callable[[], Tensor] = _absent
    hidden: Callable[[], RowHidden] = _absent
    head: Callable[[Tensor], Tensor] = _absent

    def of(self, places: Sequence[int]) -> "Step":
        """Return the step of some of the generations, given by their places, ascending."""
        some = LiveSubset(tuple(places), len(self.numbers))
        if some.all_chosen:
            return self
        return replace(
            self,
            numbers=tuple(self.numbers[place] for place in places),
            positions=tuple(self.positions[place] for place in places),
            public=some.of(self.public),
            private=lambda candidates: some.rows(self.private(some.all_of(candidates))),
            drop_private_rows=lambda place: self.drop_private_rows(places[place]),
            public_hidden=lambda: some.of(self.public_hidden()),
            hidden=lambda: some.rows(self.hidden()),
        )


class SamplingRule(Protocol):
    """Rule by which a system turns logits into tokens. One object serves one release and may keep state per number."""

    def next_tokens(self, step: Step) -> list[int]:
        """Return one token id for each live generation; the rule admits each draw to its meter before it reads rows."""

    def facts(self, number: int) -> Mapping[str, float]:
        """Public figures of one finished generation: functions of its tokens and of public logits alone."""


class ResumableSamplingRule(SamplingRule, Protocol):
    """A rule whose release goes on after the process has died (docs/decisions/0023)."""

    def kept(self, number: int) -> Sequence[float]:
        """Return the state that the rule needs to resume a generation: public figures, journalled at each step."""

    def resume(self, number: int, kept: Sequence[float]) -> None:
        """Go on with a generation of which that was kept; called before the first step."""


class StatelessRule:
    """What a rule has beside its draws where they depend on the text so far alone: no figures, no state."""

    def facts(self, number: int) -> Mapping[str, float]:
        """Return no figures."""
        return {}

    def kept(self, number: int) -> Sequence[float]:
        """Return no state."""
        return ()

    def resume(self, number: int, kept: Sequence[float]) -> None:
        """Do nothing."""


class Constraint(Protocol):
    """Constraint on the next token: a function of a public grammar and of the tokens already released.

    Texts end as it says alone, and by no separator.
    """

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        """Return bool [V] for the generation `number` that has drawn `drawn`; at least one is true."""

    def choices(self, drawn: Sequence[int]) -> int:
        """Return how many of the tokens that a generation has drawn may have been a choice: asked when it goes on."""

    def before_choice(self, drawn: Sequence[int]) -> int:
        """Return how many tokens there will be, these included, when a choice comes next: rows are read by then."""


class BudgetMeter(Protocol):
    """Interface that admits each draw of a rule against the budget."""

    @property
    def lost(self) -> int:
        """Draws of each batch that earlier attempts may have made and that are missing."""

    def admit(self, draw: int) -> None:
        """Make sure that the batch's draw number `draw` (from 0) is paid for.

        Raises:
            ValueError: the plan has no such draw.
        """


class DrawMeter:
    """Arms instalments of `size` draws as they are needed, each once, however many generations take part.

    A unit is in one batch only, and its batch makes at most as many draws as are armed: prepaid instalments serve a
    generation that enters late as well as the first (docs/decisions/0003).

    Args:
        armed: instalments that an earlier attempt has paid for.
        lost: draws of each batch that earlier attempts may have made and that are missing: they are paid for, and
            draw number n of this attempt is the batch's number n + lost (docs/decisions/0023).
    """

    def __init__(self, size: int, draws: int, arm: Callable[[int], None], *, armed: int = 0, lost: int = 0) -> None:
        self._size, self._draws, self._arm = size, draws, arm
        self.armed, self.lost = armed, lost

    def admit(self, draw: int) -> None:
        """Implement `BudgetMeter`; each instalment is armed once."""
        if not 0 <= draw < self._draws - self.lost:
            raise ValueError(f"draw {draw} is not among the plan's {self._draws - self.lost}")
        while draw + self.lost >= self.armed * self._size:
            self._arm(self.armed)
            self.armed += 1


def decode(
    engine: Engine,
    jobs: Iterable[GenerationJob],
    count: int,
    sizes: Sizes,
    rule: SamplingRule,
    *,
    constraint: Constraint | None = None,
    separator: str | None = None,
    completion: SentenceCompletion | None = None,
    progress: Callable[[int], None] = lambda done: None,
    numbers: Sequence[int] | None = None,
    earlier: Mapping[int, Sequence[int]] = MappingProxyType({}),
    on_tokens: Callable[[Mapping[int, int]], None] = lambda tokens: None,
    session: Session | None = None,
) -> list[GeneratedText]:
    """Draw until every generation has ended, or has `sizes.max_new_tokens` tokens.

    Whenever a place is free the next job enters, before the next step. The number of places comes from public sizes
    and free memory, and a place becomes free when a token that was drawn ends a text: who enters when is a function
    of public facts and of outputs, never of how many private rows there are (docs/decisions/0017).

    Args:
        jobs: in the public order of the release; read as places become free, `count` of them.
        sizes: public sizes that hold for every job.
        separator: a line that ends a text as an end token does; what is held to a grammar ends by that alone.
        completion: finishes the last sentence of a text whose other tokens are used up, those of `sizes` less its own;
            not for what is held to a grammar, and it knows of what was drawn `earlier`.
        numbers: the jobs' numbers in the release, ascending, where they are only some of it; otherwise 0..count-1.
        progress: called with the tokens done of count * max_new_tokens; an ended text counts in full.
        earlier: tokens that generations drew in an attempt that was interrupted, by number, the end token included:
            they go on from there, and nothing of it is drawn again.
        on_tokens: called after each step with the token that each live generation has drawn.
        session: what `open_session` gave for the same; opened here if it is not given.

    Returns:
        one text per job, in their order. End token and separator are drawn and paid for like any other token, and no
        part of the text; the tokens of a text include those of its separator.

    Raises:
        ContextTooLong: the public sizes exceed the model's positions.
        RowsNotIsolated: this device cannot keep rows apart.
        NotEnoughMemory: not even one generation fits.
        MemoryRanOut: it did not hold the live generations; `on_tokens` has received all draws.
    """
    session = session or open_session(engine, count, sizes, earlier, constraint=constraint)
    ending = None if constraint else separator
    loop = _Loop(session, engine.model, sizes.max_new_tokens, rule, constraint, ending, completion)
    source = zip(range(count) if numbers is None else numbers, jobs, strict=False)
    while loop.fill(source, earlier):
        on_tokens(loop.step())
        progress(loop.done)
    return [loop.texts[number] for number in sorted(loop.texts)]


def open_session(
    engine: Engine,
    count: int,
    sizes: Sizes,
    earlier: Mapping[int, Sequence[int]] = MappingProxyType({}),
    interruptions: int = 0,
    constraint: Constraint | None = None,
) -> Session:
    """Open the session that `decode` needs, before anything is paid; arguments as there.

    Args:
        interruptions: number of earlier attempts.
        constraint: decides how many tokens of a text are there when its rows are first read.

    Raises:
        ContextTooLong, RowsNotIsolated, NotEnoughMemory: as `decode`.
    """
    sizes.check_fits(engine.model)
    places = min(count, generations_at_once(engine.model, sizes, engine.memory))
    begun = [(), *(tokens for tokens in earlier.values() if len(tokens) < sizes.max_new_tokens)]
    behind = (tokens for tokens in begun if not tokens or tokens[-1] not in engine.model.stop_tokens)
    drawn = {number for tokens in behind for number in _when_read(tokens, constraint)}
    return engine.session(sizes, max(1, places), drawn, interruptions)


def _when_read(tokens: Sequence[int], constraint: Constraint | None) -> range:
    """Return how many tokens a generation that enters with these may have when its private rows are first read.

    When it has a choice, or already amid the tokens that are forced before: one that is live beside it may have one.
    """
    last = len(tokens) if constraint is None else constraint.before_choice(tokens)
    return range(len(tokens), last + 1)


@dataclass
class _Loop:
    """Generations on their way through a session.

    Attributes:
        separator: the line that ends a text where there is no constraint; None where end tokens alone do.
        completion: finishes sentences; None where a text ends with the rule's last token.
        live: the jobs of live generations, by number.
        draws: how many draws of the rule each has had.
        completing: those whose own tokens are used up, and whose last sentence is being finished.
        texts: what has ended.
    """

    session: Session
    model: LanguageModel
    most: int
    rule: SamplingRule
    constraint: Constraint | None
    separator: str | None = None
    completion: SentenceCompletion | None = None
    live: dict[int, GenerationJob] = field(default_factory=dict)
    draws: dict[int, int] = field(default_factory=dict)
    completing: set[int] = field(default_factory=set)
    texts: dict[int, GeneratedText] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Tokens behind us; an ended text counts in full."""
        return self.most * len(self.texts) + sum(len(self.session.drawn(number)) for number in self.live)

    def fill(self, source: Iterator[tuple[int, GenerationJob]], earlier: Mapping[int, Sequence[int]]) -> bool:
        """Let waiting generations enter where places are free; whether any is live."""
        while len(self.live) < self.session.places and (following := next(source, None)) is not None:
            (number, job), drawn = following, list(earlier.get(following[0], ()))
            if not self._ended(number, drawn):
                self.session.enter(number, job.public, job.private, job.references, drawn)
                self.draws[number] = self.constraint.choices(drawn) if self.constraint else self._own(number, drawn)
                self.live[number] = job
                self._complete(number, drawn)
        return bool(self.live)

    def step(self) -> dict[int, int]:
        """Return one token for each live generation."""
        public = self._constrained(self.session.public_logits())
        numbers = self.session.numbers
        uncharged = self._forced(public) if self.constraint else self._completions(public)
        choosing = [place for place, token in enumerate(uncharged) if token is None]
        tokens = iter(self.rule.next_tokens(self._step(public, choosing)) if choosing else [])
        drawn = {n: int(next(tokens)) if token is None else token for n, token in zip(numbers, uncharged, strict=True)}
        for place in choosing:
            self.draws[numbers[place]] += 1
        for number, token in drawn.items():
            text = [*self.session.drawn(number), token]
            if self._ended(number, text):
                self.session.leave(number)
                del self.live[number]
            else:
                self._complete(number, text)
        self.session.advance([drawn[number] for number in self.session.numbers])
        return drawn

    def _step(self, public: Tensor, choosing: Sequence[int]) -> Step:
        """Return the step of the generations that have a choice, given by their places among the live ones."""
        session, numbers = self.session, self.session.numbers
        return Step(
            numbers=numbers,
            positions=tuple(self.draws[number] for number in numbers),
            public=public,
            private=session.private_logits,
            drop_private_rows=lambda place: session.let_go(numbers[place]),
            public_hidden=session.public_hidden,
            hidden=session.private_hidden,
            head=self.model.logits,
        ).of(choosing)

    def _own(self, number: int, drawn: Sequence[int]) -> int:
        """Return how many of the tokens are the text's own: all but those that finish its last sentence."""
        return len(drawn) - (0 if self.completion is None else self.completion.count(number))

    def _completions(self, public: Tensor) -> list[int | None]:
        """Return for each live generation the public model's next token, if that finishes the last sentence."""
        numbers = self.session.numbers
        places = [place for place, number in enumerate(numbers) if number in self.completing]
        if self.completion is None or not places:
            return [None] * len(numbers)
        tokens = self.completion.next_tokens([numbers[place] for place in places], public[places])
        found = dict(zip(places, tokens, strict=True))
        return [found.get(place) for place in range(len(numbers))]

    def _complete(self, number: int, drawn: Sequence[int]) -> None:
        """From the last of its own tokens on, a live generation needs its private rows no more."""
        if self.completion is not None and number not in self.completing and self._used_up(number, drawn):
            self.completing.add(number)
            self.session.let_go(number)

    def _forced(self, public: Tensor) -> list[int | None]:
        """Return for each live generation its next token, if the constraint allows no other."""
        allowed = public > -torch.inf
        only = allowed.int().argmax(1).tolist()
        return [token if one else None for token, one in zip(only, (allowed.sum(1) == 1).tolist(), strict=True)]

    def _ended(self, number: int, drawn: Sequence[int]) -> bool:
        """Return whether this is a whole text; a whole one is kept."""
        complete = bool(drawn) and drawn[-1] in self.model.stop_tokens
        if not complete and not self._at_limit(number, drawn) and not self._separated(drawn):
            return False
        kept = drawn[:-1] if complete else drawn
        facts = {**self.rule.facts(number), **(self.completion.facts(number) if self.completion else {})}
        self.texts[number] = _text(self.model, kept, complete, facts, self.separator)
        return True

    def _used_up(self, number: int, drawn: Sequence[int]) -> bool:
        """Return whether the tokens are all that the text may have, but for those that finish its last sentence."""
        return self._own(number, drawn) >= self.most - (0 if self.completion is None else self.completion.most)

    def _at_limit(self, number: int, drawn: Sequence[int]) -> bool:
        """Return whether the text has no further token; one that was cut by an interruption may lack some of `most`."""
        used_up = self._used_up(number, drawn)
        if self.completion is None or not used_up:
            return used_up
        return len(drawn) >= self.most or self.completion.is_done(number, _decoded(self.model, drawn))

    def _separated(self, drawn: Sequence[int]) -> bool:
        """Return whether the separator has been drawn as a line of its own."""
        return self.separator is not None and text_before(self.separator, _decoded(self.model, drawn)) is not None

    def _constrained(self, public: Tensor) -> Tensor:
        if self.constraint is None:
            return public
        drawn = [(number, self.session.drawn(number)) for number in self.session.numbers]
        allowed = torch.stack([self.constraint.allowed(*each) for each in drawn])
        return public.masked_fill(~allowed.to(public.device), -torch.inf)


def _text(
    model: LanguageModel, ids: Sequence[int], complete: bool, facts: Mapping[str, float], separator: str | None
) -> GeneratedText:
    """Return the drawn text, which ends before a separator, also before one without its line feed."""
    text = _decoded(model, ids)
    before = None if separator is None else text_before(separator, f"{text}\n")
    if before is not None:
        text, complete = before, True
    return GeneratedText(text=text.strip(), tokens=len(ids), complete=complete, facts=facts)


def _decoded(model: LanguageModel, ids: Sequence[int]) -> str:
    text: str = model.tokenizer.decode(ids, skip_special_tokens=True)
    return text


Drawn = Mapping[int, Sequence[float]]
"""Token and state of the rule for each generation that has drawn."""


class DrawReady(Protocol):
    """Draws texts, after all checks that can refuse the run before the first draw."""

    def __call__(
        self,
        jobs: Iterable[GenerationJob],
        meter: DrawMeter,
        keep: Callable[[Drawn], None],
        progress: Callable[[int], None],
    ) -> list[GeneratedText]:
        """Return all texts, in the order of their jobs; arguments as `decode_some`."""


@dataclass(frozen=True)
class DecodingSpec:
    """Specification of how the texts of a release are drawn; no private text is in it.

    Attributes:
        sizes: public sizes that hold for every text.
        rule: makes the rule of the meter it is given.
        constraint: what holds texts to a public grammar; None where nothing does.
        separator: the public line that ends a text; None where end tokens alone do.
        completion: makes what finishes cut sentences, of N tokens that `sizes` includes; None where nothing does. Not
            beside a constraint.
    """

    sizes: Sizes
    rule: Callable[[BudgetMeter], ResumableSamplingRule]
    constraint: Constraint | None
    separator: str | None = None
    completion: Callable[[], SentenceCompletion] | None = None
