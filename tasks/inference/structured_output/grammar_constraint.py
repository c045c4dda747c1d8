"""Constraint of texts of a grammar: the tokens that keep a text on the way to a valid, finished one.

The grammar is that of a JSON schema's records, or any other automaton. Private draws and greedy answers (`Answer`) are
held to it alike.

It costs nothing. Which tokens are allowed is a function of the grammar, the tokenizer, the token limit (all public) and
of the tokens that the text already has. Those of a release are released (outputs of mechanisms): the set is applied to
*public* logits before candidates are chosen, so it narrows a candidate set that stays public; the draw among the
candidates, and its charge, are untouched (PRIVACY §4.1). Those of a greedy answer about a private text are as private
as the answer, which its caller protects.

Every text is finished. With n draws left, one of which is the end, a token is allowed only if after it the
automaton can reach the end in at most n - 2 tokens by a way that is known (`Automaton.tokens_to_end`). If that holds
before a draw, the first token of the known way is allowed, or the end is; so the set is never empty, it holds again
after the draw, and the text ends, valid, within the limit. It holds at the start or `TokenLimitTooSmall` is raised,
before anything is spent.

A greedy answer takes the likeliest allowed token, or the best distinguished one (docs/decisions/0021). Every draw needs
the set of all allowed tokens; here one token is taken, so the likeliest few are tried one by one, and the set is asked
for only if none of them will do.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from models_db.errors import UsageError
from tasks.inference.prompt_rendering import tokenizer_name
from tasks.inference.structured_output.automaton import DEAD, NEVER, Automaton, TokenTexts, end_token_missing
from tasks.inference.structured_output.form import FormParameters, form_of, require_one_grammar
from tasks.inference.structured_output.form_constraint import FormConstraint
from tasks.inference.structured_output.json_schema import RecordParameters, grammar_schema

CACHE_BYTES = 64 * 2**20
"""Distances of the end that are remembered, by state of the automaton."""
GENERATIONS = 65_536
"""Generations whose state is remembered; one that was forgotten is read again from its first token."""


class TokenSet(Protocol):
    """Tokens of a model: a loaded one, or one whose weights nobody needs yet."""

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""

    @property
    def vocabulary(self) -> int:
        """V, how many tokens have a logit."""

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens that end a text."""


class GrammarConstraint:
    """Texts of one grammar, for any number of generations at once. Implements `decoding.loop.Constraint`.

    Private draws ask for the set of all allowed tokens, by generation. Greedy decoding (`greedy_decoding.py`) keeps the
    state of each text itself, and asks about single tokens.

    Attributes:
        automaton: of the texts, over bytes.
        max_new_tokens: tokens of a text, the end included.
        stops: the tokens that end a text.
    """

    def __init__(self, automaton: Automaton, model: TokenSet, max_new_tokens: int, lost: int = 0) -> None:
        """Measure the automaton in the tokens of a model.

        Args:
            max_new_tokens: draws of a generation, the end included.
            lost: draws of these that interruptions have cost. A text that cannot be finished in what is left stays on
                its way as far as it comes.

        Raises:
            TokenizerNotSupported: it is not certain what the model's tokens spell.
            EndTokenMissing: the model has no token that ends a text.
            TokenLimitTooSmall: the shortest text does not fit.
        """
        if not model.stop_tokens:
            raise end_token_missing(tokenizer_name(model.tokenizer))
        self.automaton, self.max_new_tokens, self.stops = automaton, max_new_tokens, model.stop_tokens
        self._tokens = TokenTexts.of(model.tokenizer, model.vocabulary)
        self._draws, self._lost = max_new_tokens - lost, lost
        self._needed = automaton.tokens_to_end(self._tokens.texts, self._tokens.letters.shape[1])
        if self.fewest_draws > max_new_tokens:
            raise TokenLimitTooSmall(self.fewest_draws, max_new_tokens)
        self._reached: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._needed_after: OrderedDict[int, NDArray[np.int16]] = OrderedDict()

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any], model: TokenSet, max_new_tokens: int, lost: int = 0) -> Self:
        """Return the constraint of the records of a JSON schema; arguments as `__init__`.

        Raises:
            SchemaInvalid, SchemaNotSupported, SchemaTooLarge: see there.
            TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall: as `__init__`.
        """
        return cls(Automaton.of(grammar_schema(schema)), model, max_new_tokens, lost)

    @property
    def fewest_draws(self) -> int:
        """Draws that a short text takes, its end included."""
        return int(self._needed[self.automaton.start]) + 1

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        """Return bool [V] on the CPU: the tokens that generation `number` may draw after `drawn`; at least one.

        Args:
            drawn: the tokens drawn so far, in order, without an end. A longer one than at the last call continues it;
                a shorter one begins anew.

        Raises:
            ValueError: `drawn` was not drawn through these masks, or no draw is left.
        """
        return torch.from_numpy(self.allowed_after(self._state(number, drawn), len(drawn)))

    def allowed_after(self, state: int, count: int) -> NDArray[np.bool_]:
        """Return bool [V]: the tokens that may follow in a state that `count` tokens have led to; at least one.

        Raises:
            ValueError: as `allowed`.
        """
        allowed = self._tokens_to_end_after(state) <= self._most_after(state, count)
        allowed[list(self.stops)] = self.automaton.final[state]
        return allowed

    def allows(self, state: int, count: int, token: int) -> bool:
        """Return whether `token` is among `allowed_after`, without the others; errors as there."""
        if token in self.stops:
            return bool(self.automaton.final[state])
        return self._needed.item(self.after(state, [token])) <= self._most_after(state, count)

    def before_choice(self, drawn: Sequence[int]) -> int:
        """Return how many tokens there will be, these included, when more than one may follow, or the end."""
        state, count = self.after(self.automaton.start, drawn), len(drawn)
        while count < self._draws and (allowed := self.allowed_after(state, count)).sum() == 1:
            token = int(allowed.argmax())
            if token in self.stops:
                break
            state, count = self.after(state, [token]), count + 1
        return count

    def choices(self, drawn: Sequence[int]) -> int:
        """Return all of them: the number of choices depends on the draws that were left, which interruptions change."""
        return len(drawn)

    def after(self, state: int, tokens: Sequence[int]) -> int:
        """Return the automaton's state when `tokens` have followed."""
        for token in tokens:
            state = self.automaton.after(state, self._tokens.text(token)) if self._tokens.lengths[token] else DEAD
        return state

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text that tokens spell."""
        return b"".join(map(self._tokens.text, tokens)).decode("utf-8", "replace")

    def _most_after(self, state: int, count: int) -> int:
        """Return how far the end may be after the next token, in tokens."""
        remaining = self._draws - count
        if self._needed.item(state) + 1 <= remaining:
            return min(remaining - 2, NEVER - 1)
        if not self._lost:
            raise ValueError(f"a text cannot be finished in {remaining} draws")
        return NEVER - 1

    def _state(self, number: int, drawn: Sequence[int]) -> int:
        """Return the automaton's state after `drawn`; only new tokens are read."""
        read, state = self._reached.pop(number, (0, self.automaton.start))
        if read > len(drawn):
            read, state = 0, self.automaton.start
        state = self.after(state, drawn[read:])
        self._reached[number] = (len(drawn), state)
        if len(self._reached) > GENERATIONS:
            self._reached.popitem(last=False)
        return state

    def _tokens_to_end_after(self, state: int) -> NDArray[np.int16]:
        """int16 [V]: tokens to the end after each token; NEVER for one that is not allowed."""
        needed = self._needed_after.pop(state, None)
        if needed is None:
            needed = self._needed[self._tokens.states_after(self.automaton, state)]
        self._needed_after[state] = needed
        if len(self._needed_after) * needed.nbytes > CACHE_BYTES and len(self._needed_after) > 1:
            self._needed_after.popitem(last=False)
        return needed


def constraint_for(
    settings: BaseModel, model: TokenSet, max_new_tokens: int, lost: int = 0
) -> GrammarConstraint | FormConstraint | None:
    """Return the constraint of a release of records, or of texts of a form; None if nothing is constrained.

    Args:
        settings: the parameters of a system, `RecordParameters` or `FormParameters` or both among them.
        max_new_tokens: tokens of a text, the end included.
        lost: draws that interruptions have cost; of a form, choices.

    Raises:
        FormAndSchema: there is a schema and a form.
        TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall: the model cannot write such records.
        TokenizerNotSupported, EndTokenMissing, FormNotWritable, FormTooLong: nor texts of the form.
    """
    require_one_grammar(settings)
    if isinstance(settings, FormParameters) and (form := form_of(settings)) is not None:
        return FormConstraint(
            form,
            model.tokenizer,
            slot_tokens=settings.slot_tokens,
            vocabulary=model.vocabulary,
            stop_tokens=model.stop_tokens,
            max_new_tokens=max_new_tokens,
            lost=lost,
        )
    if not isinstance(settings, RecordParameters) or settings.json_schema is None or not settings.constrained:
        return None
    return GrammarConstraint.of_schema(settings.json_schema, model, max_new_tokens, lost)


class TokenLimitTooSmall(UsageError):
    """The token limit is too small for a short record."""

    def __init__(self, needed: int, limit: int) -> None:
        impossible = needed > NEVER
        super().__init__(
            "The model's tokens cannot spell any record of this schema."
            if impossible
            else f"A record of this schema needs up to {needed} tokens at its shortest; `max_new_tokens` is {limit}.",
            "Choose another model." if impossible else f"Set `max_new_tokens` to {needed} or, better, to twice that.",
            {"needed": needed, "max_new_tokens": limit},
        )


PLAUSIBLE = 0.05
"""Least probability of a plausible token, relative to the likeliest; see `Answer.best`."""


@dataclass
class Answer:
    """An answer on its way.

    Attributes:
        state: of the grammar's automaton, after the tokens so far.
        ended: whether it is whole.
    """

    grammar: GrammarConstraint
    state: int
    drawn: list[int] = field(default_factory=list)
    ended: bool = False

    @property
    def text(self) -> str:
        """The text that the tokens so far spell."""
        return self.grammar.text(self.drawn)

    def best(
        self,
        logits: NDArray[np.float32],
        few: Sequence[int],
        without: NDArray[np.float32] | None = None,
        contrast: float = 0.0,
    ) -> int:
        """Return the next token: of the plausible ones the best, and of equals the first.

        Plausible is what is allowed and at least PLAUSIBLE times as likely as the likeliest allowed token. Best is
        the largest log p + contrast (log p - log q), q being what is said without the text: context-aware decoding
        (Shi et al. 2023, section 2) in the plausible set of contrastive decoding (Li et al. 2022, section 3.3).
        Without a contrast it is the likeliest allowed token. Normalising would add the same to every score.

        Args:
            logits: float32 [V].
            few: the tokens of the largest logits, in any order: they are tried before the set of all allowed ones is
                asked for.
            without: float32 [V], the logits without the text.
        """
        tokens = np.sort(self._plausible(logits, few))
        scores = logits[tokens]
        if without is not None:
            scores = scores + np.float32(contrast) * (scores - without[tokens])
        return int(tokens[scores.argmax()])

    def take(self, token: int) -> None:
        """Go on with `token`; a stop, or a token after which nothing but a stop can come, ends the answer."""
        if token in self.grammar.stops:
            self.ended = True
            return
        self.state = self.grammar.after(self.state, [token])
        self.drawn.append(token)
        automaton = self.grammar.automaton
        self.ended = bool(automaton.final[self.state]) and not automaton.following[self.state].any()

    def _plausible(self, logits: NDArray[np.float32], few: Sequence[int]) -> NDArray[np.int64]:
        """Return all plausible tokens; those among `few` if none can be missing there."""
        tokens: list[int] = []
        least = -np.inf
        for token in sorted(few, key=lambda token: -logits[token]):
            if logits[token] < least:
                return np.array(tokens)
            if self.grammar.allows(self.state, len(self.drawn), token):
                tokens.append(token)
                least = max(least, logits[token] + np.log(PLAUSIBLE))
        allowed = np.flatnonzero(self.grammar.allowed_after(self.state, len(self.drawn)))
        plausible: NDArray[np.int64] = allowed[logits[allowed] >= logits[allowed].max() + np.log(PLAUSIBLE)]
        return plausible


def lines_of(choices: Sequence[str], most: int, otherwise: str) -> Automaton:
    """Return the automaton of 1 to `most` of the choices, one a line, or of `otherwise` alone.

    Args:
        choices: without line breaks, different from each other and from `otherwise`.
    """
    words = [choice.encode() for choice in choices]
    builder = _Trie()
    starts = [builder.new() for _ in range(most)] if words else [builder.new()]
    for place, start in enumerate(starts):
        for word in words:
            end = builder.add(start, word)
            if place + 1 < len(starts):
                builder.link(end, b"\n", starts[place + 1])
    builder.add(starts[0], otherwise.encode())
    return builder.automaton(starts[0])


class _Trie:
    """States and their transitions; state 0 is dead."""

    def __init__(self) -> None:
        self._following: list[dict[int, int]] = [{}]
        self._final: set[int] = set()

    def new(self) -> int:
        self._following.append({})
        return len(self._following) - 1

    def add(self, state: int, word: bytes) -> int:
        """Return the state after `word`, where a text may end."""
        for byte in word:
            state = self._following[state].get(byte) or self._step(state, byte)
        self._final.add(state)
        return state

    def link(self, state: int, letter: bytes, target: int) -> None:
        self._following[state][letter[0]] = target

    def automaton(self, start: int) -> Automaton:
        following = np.zeros((len(self._following), 256), dtype=np.int32)
        for state, byte, target in self._edges():
            following[state, byte] = target
        final = np.zeros(len(self._following), dtype=np.bool_)
        final[list(self._final)] = True
        return Automaton(following, start, final)

    def _step(self, state: int, byte: int) -> int:
        self._following[state][byte] = following = self.new()
        return following

    def _edges(self) -> Iterator[tuple[int, int, int]]:
        for state, out in enumerate(self._following):
            for byte, target in out.items():
                yield state, byte, target
