"""Constraint of texts that follow a form: literal text allows one token, slots allow plain text.

It costs nothing, for the reason of `grammar_constraint`: which tokens are allowed is a function of the form, the
tokenizer (both public) and of the tokens that the generation has already released. Where a single token is allowed
nothing is drawn at all, and nothing need be charged: at most `Form.draws` tokens of a text are a choice, and that
number is public (docs/decisions/0036).

The text is always the form with its slots filled. A slot begins with a letter or a digit, and none of its tokens is
the first one of the literal behind it: that token always ends the slot, so tokens can be read in one way only. A slot
ends by itself after `slot_tokens` tokens. Which tokens may stand in slots, and which spell the text between them,
follows from the vocabulary (`SlotTokens`, `spelling`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models_db.errors import UsageError
from tasks.inference.prompt_rendering import tokenizer_name
from tasks.inference.structured_output.automaton import TokenTexts, end_token_missing
from tasks.inference.structured_output.form import Form, form_too_long

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
    name = tokenizer_name(tokenizer)
    return UsageError(
        f"The model {name!r} cannot write texts of this form: {reason}.",
        "Choose another model, or word the form in plain text.",
        {"model": name, "reason": reason},
        code="FormNotWritable",
    )


@dataclass(frozen=True)
class _Slot:
    """A slot.

    Attributes:
        spaced: whether its first token carries the space that stands before it in the form.
        after: the tokens behind it up to the next slot, or up to and with the end.
    """

    spaced: bool
    after: tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    """State of the form after the drawn tokens.

    Attributes:
        forced: the only token that may follow; None within a slot.
        slot: number of the slot; `contents` are its tokens so far.
        used: upper bound on the choices made so far.
    """

    used: int
    forced: int | None = None
    slot: int = 0
    contents: tuple[int, ...] = ()


class FormConstraint:
    """Texts of one form, for any number of generations at once. Implements `loop.Constraint`; keeps no state."""

    def __init__(
        self,
        form: Form,
        tokenizer: Any,
        *,
        slot_tokens: int,
        vocabulary: int,
        stop_tokens: Sequence[int],
        max_new_tokens: int,
        lost: int = 0,
    ) -> None:
        """Cut the form into tokens.

        Args:
            slot_tokens: tokens of a slot at most.
            vocabulary: V, how many logits the model has.
            stop_tokens: the tokens that end a text; only one of them is ever used.
            max_new_tokens: tokens of a text, the end included.
            lost: choices that interruptions have cost. Slots are then kept short enough for what is left; where
                nothing is left for a slot, the text ends before it.

        Raises:
            TokenizerNotSupported, FormNotWritable, EndTokenMissing: the model's tokens cannot write it.
            FormTooLong: the longest text does not fit.
        """
        self._texts = TokenTexts.of(tokenizer, vocabulary)
        self._kinds = SlotTokens.of(self._texts)
        self._size, self._most = vocabulary, slot_tokens
        self._choices = form.draws(slot_tokens) - lost
        self._end = _end(tokenizer, stop_tokens)
        self._lead, self._slots = self._cut(form, tokenizer)
        self._check(form, tokenizer)
        if self.longest > max_new_tokens:
            raise form_too_long(self.longest, max_new_tokens)

    @property
    def longest(self) -> int:
        """The most tokens that a text has, its end included."""
        return len(self._lead) + sum(self._most + len(slot.after) for slot in self._slots)

    def choices(self, drawn: Sequence[int]) -> int:
        """Return how many of the tokens `drawn` were a choice, at most; never more than `Form.draws`.

        A token counts if it was drawn in a slot with fewer than `slot_tokens` tokens, whatever interruptions had left
        at the time: so this is what a run that goes on has to take as made.

        Raises:
            ValueError: `drawn` was not drawn through these masks.
        """
        return self._place(drawn).used

    def before_choice(self, drawn: Sequence[int]) -> int:
        """Return how many tokens there will be, these included, when a slot goes on, or when the text ends."""
        tokens = list(drawn)
        while (forced := self._place(tokens).forced) not in (None, self._end):
            tokens.append(forced)
        return len(tokens)

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        """Return bool [V] on the CPU: the tokens that may follow `drawn`, at least one; a single one is no choice.

        Args:
            number: of the generation; all of them follow the same form.
            drawn: the tokens drawn so far, in order, without an end.

        Raises:
            ValueError: `drawn` was not drawn through these masks.
        """
        place = self._place(drawn)
        if place.forced is not None:
            return self._only(place.forced)
        slot, remaining = self._slots[place.slot], self._choices - place.used
        later = (len(self._slots) - 1 - place.slot) * min(2, self._most)  # a word each, and its end
        room = min(self._most - len(place.contents), remaining - later)
        begun = bool(place.contents) and not self._kinds.hanging[place.contents[-1]]
        if begun and room < 1:
            return self._only(slot.after[0])
        if remaining < 1:  # interruptions have taken what this slot needed; the text breaks off
            return self._only(self._end)
        mask = self._content(slot, place.contents, last=room <= 1)
        mask[slot.after[0]] = begun
        return torch.from_numpy(mask)

    def _content(self, slot: _Slot, contents: Sequence[int], *, last: bool) -> Tokens:
        """Return the tokens that may go on a slot, without its end."""
        if not contents:
            tokens = self._kinds.spaced if slot.spaced else self._kinds.words
        else:
            tokens = self._kinds.words if self._kinds.hanging[contents[-1]] else self._kinds.inside
        mask = tokens & ~self._kinds.hanging if last else tokens.copy()
        mask[slot.after[0]] = False
        return mask

    def _only(self, token: int) -> Tensor:
        mask = torch.zeros(self._size, dtype=torch.bool)
        mask[token] = True
        return mask

    def _place(self, drawn: Sequence[int]) -> _Place:
        if (forced := _within(self._lead, drawn)) is not None:
            return _Place(0, forced)
        used, rest = 0, tuple(drawn[len(self._lead) :])
        for number, slot in enumerate(self._slots):
            contents = self._contents(slot, rest)
            used += min(self._most, len(contents) + (len(contents) < len(rest)))
            if len(contents) == len(rest):
                forced = slot.after[0] if len(contents) == self._most else None
                return _Place(used, forced, number, contents)
            rest = rest[len(contents) :]
            if (forced := _within(slot.after, rest)) is not None:
                return _Place(used, forced)
            rest = rest[len(slot.after) :]
        raise ValueError("the text has ended")

    def _contents(self, slot: _Slot, rest: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens of a slot, of all that follows its beginning."""
        ends = rest.index(slot.after[0]) if slot.after[0] in rest else len(rest)
        if ends > self._most or not all(self._kinds.inside[list(rest[:ends])]):
            raise ValueError("these tokens cannot stand in a slot")
        return rest[:ends]

    def _cut(self, form: Form, tokenizer: Any) -> tuple[tuple[int, ...], tuple[_Slot, ...]]:
        """Return the tokens before the first slot, and the slots."""
        carried = [literal.endswith(" ") and self._kinds.carry_spaces for literal in form.literals]
        prefixed = not form.literals[0] and self._kinds.carry_spaces and puts_a_space(tokenizer, self._texts)
        cut = [literal[:-1] if carry else literal for literal, carry in zip(form.literals, carried, strict=True)]
        tokens = [spelling(tokenizer, self._texts, text, begins=not place) for place, text in enumerate(cut)]
        tokens[-1] = (*tokens[-1], self._end)
        carried[0] = carried[0] or prefixed
        return tokens[0], tuple(_Slot(*slot) for slot in zip(carried, tokens[1:], strict=False))

    def _check(self, form: Form, tokenizer: Any) -> None:
        """Fill the slots in two ways, and see that the tokens are decoded to just that text.

        Raises:
            FormNotWritable: they are not, or no token can stand in a slot.
        """
        for which in (0, -1):
            tokens, contents = list(self._lead), []
            for slot in self._slots:
                fit = self._content(slot, (), last=True).nonzero()[0].tolist()
                if not fit or (self._kinds.words & ~self._kinds.hanging).sum() < 2:
                    raise form_not_writable(tokenizer, "no token of it can stand in a slot")
                contents.append(self._texts.text(fit[which]).decode().removeprefix(" "))
                tokens += [fit[which], *slot.after]
            if tokenizer.decode(tokens[:-1], skip_special_tokens=True).strip() != form.filled(contents).strip():
                raise form_not_writable(tokenizer, "its tokens are not decoded to the text that they spell")


def _within(literal: Sequence[int], drawn: Sequence[int]) -> int | None:
    """Return the next token of `literal`, of which `drawn` has the beginning; None if it is all there.

    Raises:
        ValueError: something else was drawn.
    """
    if tuple(drawn[: len(literal)]) != tuple(literal[: len(drawn)]):
        raise ValueError("these tokens do not follow the form")
    return literal[len(drawn)] if len(drawn) < len(literal) else None


def _end(tokenizer: Any, stop_tokens: Sequence[int]) -> int:
    """Return the token that ends every text: the tokenizer's own if it is one of those that do.

    Raises:
        EndTokenMissing: none does.
    """
    if not stop_tokens:
        raise end_token_missing(tokenizer_name(tokenizer))
    own = getattr(tokenizer, "eos_token_id", None)
    return next((token for token in stop_tokens if token == own), min(stop_tokens))
