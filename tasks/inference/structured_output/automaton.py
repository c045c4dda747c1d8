"""Finite automaton over bytes of a schema, the distance of each state from the end, and the tokens that lead on.

outlines-core turns the schema into a regular expression and that into an automaton: its index over a vocabulary of the
256 single bytes *is* the automaton (docs/decisions/0021). Tokens come later: a token leads where its bytes lead, which
is worked out for all tokens of a tokenizer from one state at a time (`TokenTexts`).
"""

import json
import re
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models_db.errors import UsageError
from tasks.inference.prompt_rendering import tokenizer_name
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


_PROBES = (
    '{"title": "The White Dawn", "year": 1974}',
    '{"name": "Zo\u00eb \u7531 \U0001f600", "n": [-1, 2.5e+3]}',
    '{"say": "\\"yes\\" \\\\ no\\n"}',
)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True, eq=False)
class TokenTexts:
    """The bytes of every token.

    Attributes:
        letters: uint8 [V, longest], padded with zeros.
        lengths: int64 [V]; 0 for a token that may not stand in a record (control tokens, unused places).
    """

    letters: NDArray[np.uint8]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, tokenizer: Any, vocabulary: int) -> "TokenTexts":
        """Return the texts of `tokenizer`, for a model with `vocabulary` logits.

        Raises:
            TokenizerNotSupported: it is not certain what its tokens spell.
        """
        spelt = _spelling(tokenizer)
        _check(tokenizer, spelt)
        inside = {token: text for token, text in spelt.items() if 0 <= token < vocabulary and text}
        lengths = np.zeros(vocabulary, dtype=np.int64)
        letters = np.zeros((vocabulary, max(map(len, inside.values()), default=1)), dtype=np.uint8)
        for token, text in inside.items():
            lengths[token] = len(text)
            letters[token, : len(text)] = np.frombuffer(text, dtype=np.uint8)
        return cls(letters, lengths)

    @cached_property
    def texts(self) -> frozenset[bytes]:
        """All texts."""
        return frozenset(self.text(token) for token in np.flatnonzero(self.lengths).tolist())

    def text(self, token: int) -> bytes:
        """Return the bytes of one token."""
        return self.letters[token, : self.lengths[token]].tobytes()

    def states_after(self, automaton: Automaton, state: int) -> NDArray[np.int32]:
        """Return int32 [V]: the state that each token leads to; DEAD for the forbidden ones."""
        flat = automaton.following.reshape(-1)
        reached = np.full(len(self.lengths), DEAD, dtype=np.int32)
        states = np.array([state], dtype=np.int32)
        for level in self._levels:
            states = flat.take(states.take(level.parents) * 256 + level.letters)
            if not states.any():  # nothing but DEAD, which is 0
                break
            reached[level.tokens] = states.take(level.places)
        return reached

    @cached_property
    def _levels(self) -> tuple["_Level", ...]:
        """The tree of all prefixes: a prefix that many tokens share is walked once."""
        usable = np.flatnonzero(self.lengths)
        order = usable[np.lexsort(self.letters[usable].T[::-1])]
        letters, lengths = self.letters[order], self.lengths[order]
        shared = np.zeros(len(order), dtype=np.int64)
        if len(order) > 1:
            differs = np.pad(letters[1:] != letters[:-1], ((0, 0), (0, 1)), constant_values=True)
            shared[1:] = np.minimum(differs.argmax(axis=1), lengths[:-1])
        levels = []
        above = np.zeros(len(order), dtype=np.int32)  # the prefix of each token, among those of the level before
        for depth in range(letters.shape[1]):
            new = (shared <= depth) & (lengths > depth)
            level = (np.cumsum(new) - 1).astype(np.int32)
            ends = lengths == depth + 1
            levels.append(_Level(above[new], letters[new, depth].astype(np.int32), order[ends], level[ends]))
            above = level
        return tuple(levels)


@dataclass(frozen=True, eq=False)
class _Level:
    """The prefixes of one length, N of them: parents and letters int32 [N]; the tokens that end here, and where."""

    parents: NDArray[np.int32]
    letters: NDArray[np.int32]
    tokens: NDArray[np.int64]
    places: NDArray[np.int32]


def _spelling(tokenizer: Any) -> dict[int, bytes]:
    """Token id -> bytes, without control tokens and other added ones."""
    parts = set(_decoders(tokenizer))
    if parts == {"ByteLevel"}:
        spell = _byte_level
    elif {"Replace", "ByteFallback"} <= parts <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        spell = _sentencepiece
    else:
        raise _tokenizer_not_supported(
            tokenizer_name(tokenizer), f"its decoder is {', '.join(sorted(parts)) or 'missing'}"
        )
    added = set(tokenizer.added_tokens_decoder) | set(tokenizer.all_special_ids)
    words: Mapping[str, int] = tokenizer.get_vocab()
    try:
        return {token: spell(word) for word, token in words.items() if token not in added}
    except KeyError as unknown:
        raise _tokenizer_not_supported(tokenizer_name(tokenizer), f"a token contains {unknown.args[0]!r}") from None


def _decoders(tokenizer: Any) -> Iterator[str]:
    inner = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if inner is None:
        return
    described = json.loads(inner.__getstate__())
    for part in described.get("decoders", [described]):
        yield part["type"]


def _byte_level(word: str) -> bytes:
    letters = _byte_letters()
    return bytes([letters[letter] for letter in word])


@cache
def _byte_letters() -> dict[str, int]:
    """Return the letters of bytes in byte-level tokenizers (GPT-2): printable Latin-1 as itself, the rest above."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(rest)}


def _sentencepiece(word: str) -> bytes:
    """SentencePiece with byte fallback: the low line block is a space, `<0x0A>` one byte."""
    byte = _BYTE.fullmatch(word)
    return bytes([int(byte[1], 16)]) if byte else word.replace("\u2581", " ").encode()


def _check(tokenizer: Any, spelt: Mapping[int, bytes]) -> None:
    """Cut a few records into tokens and put them together both ways."""
    for probe in _PROBES:
        tokens = tokenizer(probe, add_special_tokens=False)["input_ids"]
        joined = b"".join(spelt.get(token, b"?") for token in tokens).removeprefix(b" ")
        if joined != probe.encode() or tokenizer.decode(tokens, skip_special_tokens=True).strip() != probe:
            raise _tokenizer_not_supported(tokenizer_name(tokenizer), "its tokens do not spell what it decodes them to")


def end_token_missing(name: str) -> UsageError:
    """Return the error of a model that cannot end a constrained text."""
    return UsageError(
        f"The model {name!r} has no token that ends a text, so no text can end that is held to a schema or form.",
        "Choose an instruction-tuned model, or set `constrained: false` (a schema), or leave out `form`.",
        {"model": name},
        code="EndTokenMissing",
    )


def _tokenizer_not_supported(name: str, reason: str) -> UsageError:
    return UsageError(
        f"Texts cannot be constrained with the tokenizer of {name!r}: {reason}.",
        "Choose a model with a byte-level or SentencePiece tokenizer, or set `constrained: false` (a schema), or"
        " leave out `form`.",
        {"model": name, "reason": reason},
        code="TokenizerNotSupported",
    )
