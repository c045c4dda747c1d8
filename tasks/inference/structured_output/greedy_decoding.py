"""Greedy decoding under a grammar: the likeliest allowed token, or the best distinguished one.

The automaton and the rule by which every text is finished in time are those of constrained records
(`tasks.inference.structured_output.schema_constraint`, docs/decisions/0021). There every draw needs the set of all
allowed tokens; here one token is taken, so the likeliest few are tried one by one, and the set is asked for only if
none of them will do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.inference.network.language_model import LanguageModel
from tasks.inference.structured_output.automaton import DEAD, Automaton
from tasks.inference.structured_output.json_schema import grammar_schema
from tasks.inference.structured_output.schema_constraint import TokenLimitTooSmall
from tasks.inference.structured_output.token_bytes import TokenTexts, end_token_missing, name_of

PLAUSIBLE = 0.05
"""Least probability of a plausible token, relative to the likeliest; see `Grammar.best`."""


@dataclass(frozen=True, eq=False)
class Grammar:
    """Constraint on the answers of a model.

    Attributes:
        needed: int16 [S], tokens from each state of the automaton to an end, the end token left out.
        stops: the tokens that end a text.
        max_new_tokens: of an answer, its end included.
    """

    automaton: Automaton
    tokens: TokenTexts
    needed: NDArray[np.int16]
    stops: frozenset[int]
    max_new_tokens: int

    @classmethod
    def of(cls, automaton: Automaton, model: LanguageModel, max_new_tokens: int) -> "Grammar":
        """Return the grammar of an automaton in the tokens of a model.

        Raises:
            TokenizerNotSupported: it is not certain what the model's tokens spell.
            EndTokenMissing: the model has no token that ends a text.
            TokenLimitTooSmall: the shortest answer does not fit.
        """
        if not model.stop_tokens:
            raise end_token_missing(name_of(model.tokenizer))
        tokens = TokenTexts.of(model.tokenizer, model.vocabulary)
        needed = automaton.tokens_to_end(tokens.texts, tokens.letters.shape[1])
        if (fewest := int(needed[automaton.start]) + 1) > max_new_tokens:
            raise TokenLimitTooSmall(fewest, max_new_tokens)
        return cls(automaton, tokens, needed, frozenset(model.stop_tokens), max_new_tokens)

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any], model: LanguageModel, max_new_tokens: int) -> "Grammar":
        """Return the grammar of a JSON schema; errors as `of`, SchemaInvalid, SchemaNotSupported, SchemaTooLarge."""
        return cls.of(Automaton.of(grammar_schema(schema)), model, max_new_tokens)

    def best(
        self,
        answer: "Answer",
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
        tokens = np.sort(self._plausible(answer, logits, few))
        scores = logits[tokens]
        if without is not None:
            scores = scores + np.float32(contrast) * (scores - without[tokens])
        return int(tokens[scores.argmax()])

    def _plausible(self, answer: "Answer", logits: NDArray[np.float32], few: Sequence[int]) -> NDArray[np.int64]:
        """Return all plausible tokens; those among `few` if none can be missing there."""
        tokens: list[int] = []
        least = -np.inf
        for token in sorted(few, key=lambda token: -logits[token]):
            if logits[token] < least:
                return np.array(tokens)
            if self.allows(answer, token):
                tokens.append(token)
                least = max(least, logits[token] + np.log(PLAUSIBLE))
        allowed = self._allowed(answer)
        plausible: NDArray[np.int64] = allowed[logits[allowed] >= logits[allowed].max() + np.log(PLAUSIBLE)]
        return plausible

    def allows(self, answer: "Answer", token: int) -> bool:
        """Return whether the answer may go on with `token`, and then still end in time."""
        if token in self.stops:
            return bool(self.automaton.final[answer.state])
        return bool(self.needed[self._after(answer.state, token)] + 2 <= self.max_new_tokens - len(answer.drawn))

    def take(self, answer: "Answer", token: int) -> None:
        """Go on with `token`; a stop, or a token after which nothing but a stop can come, ends the answer."""
        if token in self.stops:
            answer.ended = True
            return
        answer.state = self._after(answer.state, token)
        answer.drawn.append(token)
        answer.ended = bool(self.automaton.final[answer.state]) and not self.automaton.following[answer.state].any()

    def text(self, answer: "Answer") -> str:
        """Return the text that the tokens spell."""
        return b"".join(map(self.tokens.text, answer.drawn)).decode("utf-8", "replace")

    def _after(self, state: int, token: int) -> int:
        return self.automaton.after(state, self.tokens.text(token)) if self.tokens.lengths[token] else DEAD

    def _allowed(self, answer: "Answer") -> NDArray[np.int64]:
        """Return all allowed tokens, ascending; there is one (docs/decisions/0021)."""
        after = self.needed[self.tokens.states_after(self.automaton, answer.state)]
        allowed = after + 2 <= self.max_new_tokens - len(answer.drawn)
        allowed[list(self.stops)] = self.automaton.final[answer.state]
        return np.flatnonzero(allowed)


@dataclass
class Answer:
    """An answer on its way: the automaton's state, the tokens so far, and whether it is whole."""

    state: int
    drawn: list[int] = field(default_factory=list)
    ended: bool = False


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
