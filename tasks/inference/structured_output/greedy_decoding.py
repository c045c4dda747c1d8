"""Greedy decoding under a grammar: the likeliest allowed token, or the best distinguished one.

The grammar is a `GrammarConstraint`, by which texts are drawn, too (docs/decisions/0021). There every draw needs the
set of all allowed tokens; here one token is taken, so the likeliest few are tried one by one, and the set is asked for
only if none of them will do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.inference.structured_output.automaton import Automaton
from tasks.inference.structured_output.schema_constraint import GrammarConstraint

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
