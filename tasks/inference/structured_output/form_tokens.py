"""Tokens of a form: those that may stand in its slots, and those that spell the text between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models_db.errors import UsageError
from tasks.inference.structured_output.token_bytes import TokenTexts, name_of

FORBIDDEN = frozenset("[]{}<>")
"""Characters of placeholders: no slot is ever filled with one."""
_ANCHORS = ("", "a", "1", ".", "\n")
"""Prefixes for tokenizing a literal; the first that leaves the literal intact is used."""

Tokens = NDArray[np.bool_]
"""bool [V]: some of the tokens."""


@dataclass(frozen=True, eq=False)
class SlotTokens:
    """The tokens that may stand in a slot, by where. All of them are whole characters that can be printed.

    Attributes:
        inside: anything but what would make two spaces or a placeholder.
        words: those of them that begin with a letter or a digit.
        spaced: those that begin with one space and then a letter or a digit, and the space alone.
        hanging: those that end with a space, so that a word has to follow.
    """

    inside: Tokens
    words: Tokens
    spaced: Tokens
    hanging: Tokens

    @classmethod
    def of(cls, texts: TokenTexts) -> "SlotTokens":
        """Sort the tokens of a vocabulary."""
        kinds = np.zeros((4, len(texts.lengths)), dtype=np.bool_)
        for token in np.flatnonzero(texts.lengths).tolist():
            kinds[:, token] = _kinds(texts.text(token))
        return cls(*kinds)

    @property
    def carry_spaces(self) -> bool:
        """Return whether the space before a word belongs to the word's token, as in most vocabularies."""
        return bool((self.spaced & ~self.hanging).any())


def _kinds(spelt: bytes) -> tuple[bool, bool, bool, bool]:
    """Return whether a token is inside, words, spaced, hanging."""
    try:
        text = spelt.decode()
    except UnicodeDecodeError:  # a part of a character
        return False, False, False, False
    if not text.isprintable() or "  " in text or FORBIDDEN & set(text):
        return False, False, False, False
    word = text[0].isalnum()
    return True, word, text == " " or (text[0] == " " and text[1].isalnum()), text.endswith(" ")


def spelling(tokenizer: Any, texts: TokenTexts, literal: str, *, begins: bool) -> tuple[int, ...]:
    """Return the tokens of a literal, as the tokenizer itself cuts it.

    Args:
        begins: whether a text begins with it; then a space that the tokenizer puts before every text is as good.

    Raises:
        FormNotWritable: the tokenizer's tokens do not spell it, or one of them is a control token.
    """
    if not literal:
        return ()
    good = {literal.encode(), b" " + literal.encode()} if begins else {literal.encode()}
    for anchor in _ANCHORS[:1] if begins else _ANCHORS:
        tokens = tokenizer(anchor + literal, add_special_tokens=False)["input_ids"]
        tokens = _behind(texts, tokens, anchor.encode())
        if _all_text(texts, tokens) and b"".join(map(texts.text, tokens)) in good:
            return tuple(tokens)
    raise form_not_writable(tokenizer, f"its tokens do not spell {literal!r}")


def puts_a_space(tokenizer: Any, texts: TokenTexts) -> bool:
    """Return whether the tokenizer puts a space before every text."""
    first: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
    return _all_text(texts, first) and b"".join(map(texts.text, first)).startswith(b" ")


def _all_text(texts: TokenTexts, tokens: Sequence[int]) -> bool:
    """Return whether none is a control token or beyond the model's logits."""
    return all(token < len(texts.lengths) and texts.lengths[token] > 0 for token in tokens)


def _behind(texts: TokenTexts, tokens: Sequence[int], anchor: bytes) -> list[int]:
    """`tokens` without those that spell the anchor; none of them where it is not cut from the rest."""
    if not anchor:
        return list(tokens)
    for count in range(1, len(tokens) if _all_text(texts, tokens) else 0):
        if b"".join(map(texts.text, tokens[:count])).removeprefix(b" ") == anchor:
            return list(tokens[count:])
    return []


def form_not_writable(tokenizer: Any, reason: str) -> UsageError:
    """Return the error of a form whose texts the model's tokens cannot write."""
    name = name_of(tokenizer)
    return UsageError(
        f"The model {name!r} cannot write texts of this form: {reason}.",
        "Choose another model, or word the form in plain text.",
        {"model": name, "reason": reason},
        code="FormNotWritable",
    )
