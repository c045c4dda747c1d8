"""Finite automaton over bytes of a schema, and the distance of each state from the end.

outlines-core turns the schema into a regular expression and that into an automaton: its index over a vocabulary of the
256 single bytes *is* the automaton (docs/decisions/0021). Tokens come later: a token leads where its bytes lead.
"""

import json
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.inference.structured_output.json_schema import Schema, schema_too_large

MOST_STATES = 30_000
"""An automaton's transitions take 1 KiB a state."""
NEVER = 30_000
"""More tokens than any generation has: the end cannot be reached."""
DEAD = 0

_LAST = 0x00  # ends every text while the index is built; JSON has no such byte


@dataclass(frozen=True, eq=False)
class Automaton:
    """A deterministic automaton over bytes.

    Attributes:
        following: int32 [S, 256], the state after a byte; state 0 is dead, whatever follows.
        start: the state before the first byte.
        final: bool [S], whether the text may end here.
    """

    following: NDArray[np.int32]
    start: int
    final: NDArray[np.bool_]

    @classmethod
    def of(cls, built: Schema) -> "Automaton":
        """Return the automaton of all records that `built` (a `grammar_schema`) admits.

        Raises:
            SchemaTooLarge: more than MOST_STATES states.
        """
        transitions, start = _index(built)
        if len(transitions) >= MOST_STATES:
            raise schema_too_large(f"its grammar has {len(transitions)} states", f"{MOST_STATES}")
        number = {name: place for place, name in enumerate(sorted(transitions), start=1)}
        following = np.zeros((len(number) + 1, 256), dtype=np.int32)
        for name, out in transitions.items():
            for byte, target in out.items():
                if byte < 256:  # the index has an end of its own
                    following[number[name], byte] = number[target]
        final = following[:, _LAST] != DEAD
        following[:, _LAST] = DEAD
        return cls(following, number[start], final)

    def after(self, state: int, text: bytes) -> int:
        """Return the state after `text`."""
        for byte in text:
            state = int(self.following[state, byte])
        return state

    @cached_property
    def bytes_to_end(self) -> NDArray[np.int32]:
        """int32 [S], the fewest bytes after which the text may end; NEVER where there are none."""
        before = self._before()
        distance = np.full(len(self.final), NEVER, dtype=np.int32)
        distance[self.final] = 0
        waiting = deque(np.flatnonzero(self.final).tolist())
        while waiting:
            state = waiting.popleft()
            for source in before[state]:
                if distance[source] == NEVER:
                    distance[source] = distance[state] + 1
                    waiting.append(source)
        return distance

    @cached_property
    def _way_out(self) -> NDArray[np.uint8]:
        """uint8 [S], the first byte of one shortest way to the end."""
        nearest: NDArray[np.intp] = self.bytes_to_end[self.following].argmin(axis=1)
        return nearest.astype(np.uint8)

    def shortest_ending(self, state: int, most: int | None = None) -> bytes:
        """Return a shortest text (or its first `most` bytes) after which the text may end."""
        ending = bytearray()
        remaining = int(self.bytes_to_end[state])
        for _ in range(remaining if most is None else min(remaining, most)):
            ending.append(self._way_out[state])
            state = int(self.following[state, ending[-1]])
        return bytes(ending)

    def tokens_to_end(self, tokens: Container[bytes], longest: int) -> NDArray[np.int16]:
        """int16 [S]: how many tokens `shortest_ending` takes when it is cut best; NEVER where that is impossible.

        An upper bound of the fewest tokens to the end, with the property that matters: a state at n > 0 has a token
        after which the distance is n - 1.

        Args:
            tokens: the texts of all tokens.
            longest: the length of the longest, in bytes.
        """
        needed = np.full(len(self.final), NEVER, dtype=np.int16)
        needed[self.final] = 0
        reachable = np.flatnonzero((self.bytes_to_end < NEVER) & ~self.final)
        for state in reachable[np.argsort(self.bytes_to_end[reachable], kind="stable")].tolist():
            ending, reached = self.shortest_ending(state, longest), state
            for length, byte in enumerate(ending, start=1):
                reached = int(self.following[reached, byte])
                if needed[reached] + 1 < needed[state] and ending[:length] in tokens:
                    needed[state] = needed[reached] + 1
        return needed

    def _before(self) -> list[list[int]]:
        """Return for each state its predecessors."""
        size = len(self.final)
        sources, _ = np.nonzero(self.following)
        pairs = np.unique(self.following[self.following != DEAD].astype(np.int64) * size + sources)
        before: list[list[int]] = [[] for _ in range(size)]
        for target, source in zip((pairs // size).tolist(), (pairs % size).tolist(), strict=True):
            before[target].append(source)
        return before


def _index(built: Schema) -> tuple[dict[int, dict[int, int]], int]:
    """Return the transitions of every state, and the first one; every text ends with the byte `_LAST`."""
    import outlines_core
    from outlines_core.json_schema import build_regex_from_schema

    write: Callable[[str], str] = build_regex_from_schema
    # Two mistakes of outlines-core 0.2.14. It asks for a second digit before a fraction; literals are escaped, so none
    # can look like this. And its index loses ways on from a text that could already end (after `1`, that of `1.5`);
    # with a last byte of its own no text is the beginning of another.
    grammar = write(json.dumps(built)).replace("[1-9][0-9]{1,", "[1-9][0-9]{0,")
    single = {bytes([byte]): [byte] for byte in range(256)}
    index: Any = outlines_core.Index(rf"(?:{grammar})\x{_LAST:02x}", outlines_core.Vocabulary(256, single))
    return index.get_transitions(), index.get_initial_state()
