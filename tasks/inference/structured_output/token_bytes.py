"""Bytes of each token of a tokenizer, and the transitions of all tokens from one state of an automaton."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models_db.errors import UsageError
from tasks.inference.structured_output.automaton import DEAD, Automaton

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
        raise _tokenizer_not_supported(name_of(tokenizer), f"its decoder is {', '.join(sorted(parts)) or 'missing'}")
    added = set(tokenizer.added_tokens_decoder) | set(tokenizer.all_special_ids)
    words: Mapping[str, int] = tokenizer.get_vocab()
    try:
        return {token: spell(word) for word, token in words.items() if token not in added}
    except KeyError as unknown:
        raise _tokenizer_not_supported(name_of(tokenizer), f"a token contains {unknown.args[0]!r}") from None


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
            raise _tokenizer_not_supported(name_of(tokenizer), "its tokens do not spell what it decodes them to")


def name_of(tokenizer: Any) -> str:
    """Return the name of a tokenizer for messages."""
    return str(getattr(tokenizer, "name_or_path", "") or "unnamed")


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
