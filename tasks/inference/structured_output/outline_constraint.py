"""Constraint of texts with an outline: titles first, then a section under each of them.

What a text reads like while it is drawn, the brackets being draws:

    Outline:
    1. [title]
    2. [title]

    # (the first title again)
    [section]

    # (the second title again)
    [section]

So the prompt of a section is the request's, the outline, and the sections before it; all rows of the batch read on,
with the same references. It costs nothing beyond the draws, for the reason of `form_constraint.py`: which tokens are
allowed is a function of public numbers, the tokenizer and released tokens. Where one token is allowed nothing is drawn.
At most T tokens of a text are draws (`mechanisms.tokens.first_draws` is the price of each).

A title has one line, begins with a letter or a digit, and ends with its line or after n / S tokens. A section ends with
a blank line, with the first sentence that ends in the last quarter of its share of the draws, or with the share. Shares
are equal, of the draws that the outline has left over, and what a section does not use goes to the next one. Only the
last section may end with an end token. Where sections end does not depend on interruptions, so a run that goes on reads
its tokens as they were drawn; the draws that interruptions cost are missing at the end of the text.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.inference.structured_output.form_constraint import end_token
from tasks.inference.structured_output.form_tokens import FormNotWritable, SlotTokens, Tokens, spelling
from tasks.inference.structured_output.outline_parameters import LEAD, Outline
from tasks.inference.structured_output.token_bytes import TokenTexts
from tasks.text.output_cleaning import ends_sentence

GENERATIONS = 65_536
"""Generations whose state is remembered; one that was forgotten is read again from its first token."""
_SENTENCE = 400
"""Bytes of a section's end that tell whether a sentence has ended."""


@dataclass(frozen=True)
class _State:
    """State of a text after some tokens.

    Attributes:
        forced: the tokens that come next and are no draws.
        titles: the tokens of the titles that are finished.
        title: those of the title that is being drawn.
        section: the number of the section that is being drawn, from 0; None while titles are.
        written: the bytes of that section.
        used: draws made so far.
        outlined: how many of them made the outline.
    """

    forced: tuple[int, ...]
    titles: tuple[tuple[int, ...], ...] = ()
    title: tuple[int, ...] = ()
    section: int | None = None
    written: bytes = b""
    used: int = 0
    outlined: int = 0


class OutlineConstraint:
    """Texts of one outline, for any number of generations at once. Implements `loop.Constraint`."""

    ends_texts = False

    def __init__(
        self,
        outline: Outline,
        tokenizer: Any,
        *,
        draws: int,
        vocabulary: int,
        stop_tokens: Sequence[int],
        lost: int = 0,
    ) -> None:
        """Cut the public words into tokens.

        Args:
            draws: T, draws of a text at most.
            vocabulary: V, how many logits the model has.
            stop_tokens: the tokens that end a text.
            lost: draws that interruptions have cost.

        Raises:
            TokenizerNotSupported, FormNotWritable, EndTokenMissing: the model's tokens cannot write it.
        """
        self._outline, self._draws, self._lost = outline, draws, lost
        self._texts = TokenTexts.of(tokenizer, vocabulary)
        self._kinds = SlotTokens.of(self._texts)
        self._end = end_token(tokenizer, stop_tokens)
        space = "" if self._kinds.carry_spaces else " "

        def spelt(words: str, *, begins: bool = False) -> tuple[int, ...]:
            return spelling(tokenizer, self._texts, words, begins=begins)

        self._lead = spelt(f"{LEAD}\n1.{space}", begins=True)
        self._next = [spelt(f"\n{number}.{space}") for number in range(2, outline.sections + 1)]
        self._headings = [spelt(f"{lines}#{space}") for lines in ("\n\n", "\n", "")]
        self._line = spelt("\n")
        self._inside = self._texts.lengths > 0
        self._opening = self._inside & np.array([not text[:1].isspace() for text in self._each_text()])
        self._last = self._inside.copy()
        self._last[list(stop_tokens)] = True
        self._states: OrderedDict[int, tuple[int, _State]] = OrderedDict()
        self._check(tokenizer)

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        """Return bool [V] on the CPU: the tokens that generation `number` may draw after `drawn`; at least one.

        Args:
            drawn: the tokens drawn so far, in order, without an end. A longer one than at the last call continues it;
                a shorter one begins anew.

        Raises:
            ValueError: `drawn` was not drawn through these masks.
        """
        state = self._state(number, drawn)
        if state.forced:
            mask = np.zeros(len(self._inside), dtype=np.bool_)
            mask[state.forced[0]] = True
        elif state.section is None:
            mask = self._title_tokens(state)
        elif not state.written:
            mask = self._opening
        else:
            mask = self._last if state.section == self._outline.sections - 1 else self._inside
        return torch.from_numpy(mask.copy())

    def choices(self, drawn: Sequence[int]) -> int:
        """Return how many of the tokens `drawn` were draws, at most.

        Raises:
            ValueError: `drawn` was not drawn through these masks.
        """
        return self._after(_State(self._lead), drawn).used

    def before_choice(self, drawn: Sequence[int]) -> int:
        """Return how many tokens there will be, these included, when a draw comes next."""
        return len(drawn) + len(self._after(_State(self._lead), drawn).forced)

    def is_used_up(self, number: int, drawn: Sequence[int]) -> bool:
        """Return whether no draw is left to a text that has not ended; it ends there, cut."""
        state = self._state(number, drawn)
        return state.used >= self._draws - self._lost and state.forced != (self._end,)

    def _title_tokens(self, state: _State) -> Tokens:
        """Return the tokens that may go on a title, and the one that ends it."""
        if not state.title:
            return (self._kinds.spaced if self._kinds.carry_spaces else self._kinds.words) & ~self._kinds.hanging
        mask = self._kinds.inside.copy()
        mask[self._ends_title(state)[0]] = True
        return mask

    def _ends_title(self, state: _State) -> tuple[int, ...]:
        """Return the public tokens behind the title that is being drawn."""
        number = len(state.titles)
        return self._headings[0] if number == self._outline.sections - 1 else self._next[number]

    def _state(self, number: int, drawn: Sequence[int]) -> _State:
        """Return the state after `drawn`; only new tokens are read."""
        read, state = self._states.pop(number, (0, _State(self._lead)))
        if read > len(drawn):
            read, state = 0, _State(self._lead)
        state = self._after(state, drawn[read:])
        self._states[number] = (len(drawn), state)
        if len(self._states) > GENERATIONS:
            self._states.popitem(last=False)
        return state

    def _after(self, state: _State, tokens: Sequence[int]) -> _State:
        for token in tokens:
            if state.forced:
                if token != state.forced[0]:
                    raise ValueError("these tokens do not follow the outline")
                state = replace(state, forced=state.forced[1:])
            elif state.section is None:
                state = self._after_title(replace(state, used=state.used + 1), token)
            else:
                written = state.written + self._texts.text(token)
                state = self._after_section(replace(state, written=written, used=state.used + 1))
        return state

    def _after_title(self, state: _State, token: int) -> _State:
        behind = self._ends_title(state)
        if state.title and token == behind[0]:
            forced = behind[1:]
        else:
            if not self._kinds.inside[token]:
                raise ValueError("these tokens cannot stand in a title")
            state = replace(state, title=(*state.title, token))
            if len(state.title) < self._outline.title_tokens:
                return state
            forced = behind
        titles = (*state.titles, state.title)
        if len(titles) < self._outline.sections:
            return replace(state, titles=titles, title=(), forced=forced)
        forced = (*forced, *titles[0], *self._line)
        return replace(state, titles=titles, title=(), forced=forced, section=0, outlined=state.used)

    def _after_section(self, state: _State) -> _State:
        number = state.section or 0
        if not self._section_ends(state, number):
            return state
        if number == self._outline.sections - 1:
            return replace(state, forced=(self._end,))
        lines = min(2, len(state.written) - len(state.written.rstrip(b"\n")))
        heading = (*self._headings[lines], *state.titles[number + 1], *self._line)
        return replace(state, section=number + 1, written=b"", forced=heading)

    def _section_ends(self, state: _State, number: int) -> bool:
        """Return whether the section is finished; the last one has all draws that are left."""
        share = (self._draws - state.outlined) / self._outline.sections
        made, most = state.used - state.outlined, (number + 1) * share
        last = number == self._outline.sections - 1
        if made >= most - share / 4 and ends_sentence(state.written[-_SENTENCE:].decode(errors="ignore")):
            return True
        return not last and (made >= most or b"\n\n" in state.written)

    def _each_text(self) -> list[bytes]:
        return [self._texts.text(token) for token in range(len(self._texts.lengths))]

    def _check(self, tokenizer: Any) -> None:
        """See that the public words are within what the request says, and are decoded to what they spell.

        Raises:
            FormNotWritable: they are not, or no token can stand in a title.
        """
        fit = np.flatnonzero(self._title_tokens(_State(()))).tolist()
        if len(fit) < 2:
            raise FormNotWritable(tokenizer, "no token of it can stand in a title")
        numbers, line = range(self._outline.sections), self._line
        titles = [fit[0 if number % 2 else -1] for number in numbers]
        tokens = [*self._lead, titles[0]]
        for number in numbers[1:]:
            tokens += [*self._next[number - 1], titles[number]]
        for title in titles:
            tokens += [*self._headings[0], title, *line]
        if len(tokens) + 1 > self._outline.uncharged_tokens:
            raise FormNotWritable(tokenizer, "its tokens are too short for the words around the titles")
        spelt = [self._texts.text(title).decode().removeprefix(" ") for title in titles]
        outline = "\n".join([LEAD, *(f"{number}. {title}" for number, title in enumerate(spelt, 1))])
        body = "".join(f"\n\n# {title}\n" for title in spelt)
        if tokenizer.decode(tokens, skip_special_tokens=True).strip() != (outline + body).strip():
            raise FormNotWritable(tokenizer, "its tokens are not decoded to the text that they spell")
