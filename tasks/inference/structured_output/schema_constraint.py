"""Constraint of a release of records: the tokens that keep a text on the way to a valid, finished record.

It costs nothing. Which tokens are allowed is a function of the schema, the tokenizer, the token limit (all public) and
of the tokens the generation has already released (outputs of mechanisms). It is applied to *public* logits before
candidates are chosen, so it narrows a candidate set that stays public; the draw among the candidates, and its charge,
are untouched (PRIVACY §4.1).

Every record is finished. With n draws left, one of which is the end, a token is allowed only if after it the
automaton can reach the end in at most n - 2 tokens by a way that is known (`Automaton.tokens_to_end`). If that holds
before a draw, the first token of the known way is allowed, or the end is; so the set is never empty, it holds again
after the draw, and the text ends, valid, within the limit. It holds at the start or `TokenLimitTooSmall` is raised,
before anything is spent.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from models_db.errors import UsageError
from tasks.inference.structured_output.automaton import NEVER, Automaton
from tasks.inference.structured_output.form_constraint import FormConstraint
from tasks.inference.structured_output.form_parameters import FormParameters, form_of, require_one_grammar
from tasks.inference.structured_output.json_schema import grammar_schema
from tasks.inference.structured_output.schema_parameters import RecordParameters
from tasks.inference.structured_output.token_bytes import TokenTexts, end_token_missing, name_of

CACHE_BYTES = 64 * 2**20
"""Masks that are remembered, by state of the automaton."""
GENERATIONS = 65_536
"""Generations whose state is remembered; one that was forgotten is read again from its first token."""


class RecordConstraint:
    """Records of one schema, for any number of generations at once. Implements `decoding.loop.Constraint`."""

    def __init__(
        self,
        schema: Mapping[str, Any],
        tokenizer: Any,
        *,
        vocabulary: int,
        stop_tokens: Sequence[int],
        max_new_tokens: int,
        lost: int = 0,
    ) -> None:
        """Build the automaton and measure it.

        Args:
            schema: a JSON schema.
            vocabulary: V, how many logits the model has.
            stop_tokens: the tokens that end a text.
            max_new_tokens: draws of a generation, the end included.
            lost: draws of these that interruptions have cost. A record that cannot be finished in what is left
                stays on its way as far as it comes.

        Raises:
            SchemaInvalid, SchemaNotSupported, SchemaTooLarge, TokenizerNotSupported: see there.
            EndTokenMissing: the model has no token that ends a text.
            TokenLimitTooSmall: the shortest record does not fit.
        """
        if not stop_tokens:
            raise end_token_missing(name_of(tokenizer))
        self._automaton = Automaton.of(grammar_schema(schema))
        self._tokens = TokenTexts.of(tokenizer, vocabulary)
        self._stops = list(stop_tokens)
        self._draws, self._lost = max_new_tokens - lost, lost
        self._needed = self._automaton.tokens_to_end(self._tokens.texts, self._tokens.letters.shape[1])
        if self.fewest_draws > max_new_tokens:
            raise TokenLimitTooSmall(self.fewest_draws, max_new_tokens)
        self._reached: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._masks: OrderedDict[int, NDArray[np.int16]] = OrderedDict()

    @property
    def fewest_draws(self) -> int:
        """Draws that a short record takes, its end included."""
        return int(self._needed[self._automaton.start]) + 1

    def allowed(self, number: int, drawn: Sequence[int]) -> Tensor:
        """Return bool [V] on the CPU: the tokens that generation `number` may draw after `drawn`; at least one.

        Args:
            drawn: the tokens drawn so far, in order, without an end. A longer one than at the last call continues it;
                a shorter one begins anew.

        Raises:
            ValueError: `drawn` was not drawn through these masks, or no draw is left.
        """
        state, remaining = self._state(number, drawn), self._draws - len(drawn)
        if not self._finishes(state, remaining) and not self._lost:
            raise ValueError(f"generation {number} cannot be finished in {remaining} draws")
        return self._mask(state, remaining)

    def _finishes(self, state: int, remaining: int) -> bool:
        return bool(self._needed[state] + 1 <= remaining)

    def _mask(self, state: int, remaining: int) -> Tensor:
        """Return bool [V]: what may follow in a state with so many draws left."""
        most = min(remaining - 2, NEVER - 1) if self._finishes(state, remaining) else NEVER - 1
        mask = torch.from_numpy(self._needed_after(state) <= most)
        mask[self._stops] = bool(self._automaton.final[state])
        return mask

    def before_choice(self, drawn: Sequence[int]) -> int:
        """Return how many tokens there will be, these included, when more than one may follow, or the end."""
        state, count = self._after(self._automaton.start, drawn), len(drawn)
        while count < self._draws and int((mask := self._mask(state, self._draws - count)).sum()) == 1:
            token = int(mask.int().argmax())
            if token in self._stops:
                break
            state, count = self._after(state, [token]), count + 1
        return count

    def choices(self, drawn: Sequence[int]) -> int:
        """Return all of them: the number of choices depends on the draws that were left, which interruptions change."""
        return len(drawn)

    def _state(self, number: int, drawn: Sequence[int]) -> int:
        """Return the automaton's state after `drawn`; only new tokens are read."""
        read, state = self._reached.pop(number, (0, self._automaton.start))
        if read > len(drawn):
            read, state = 0, self._automaton.start
        state = self._after(state, drawn[read:])
        self._reached[number] = (len(drawn), state)
        if len(self._reached) > GENERATIONS:
            self._reached.popitem(last=False)
        return state

    def _after(self, state: int, tokens: Sequence[int]) -> int:
        """Return the automaton's state when `tokens` have followed."""
        for token in tokens:
            state = self._automaton.after(state, self._tokens.text(token)) if self._tokens.lengths[token] else 0
        return state

    def _needed_after(self, state: int) -> NDArray[np.int16]:
        """int16 [V]: tokens to the end after each token; NEVER for one that is not allowed."""
        masks = self._masks.pop(state, None)
        if masks is None:
            masks = self._needed[self._tokens.states_after(self._automaton, state)]
        self._masks[state] = masks
        if len(self._masks) * masks.nbytes > CACHE_BYTES and len(self._masks) > 1:
            self._masks.popitem(last=False)
        return masks


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


def constraint_for(
    settings: BaseModel, model: TokenSet, max_new_tokens: int, lost: int = 0
) -> RecordConstraint | FormConstraint | None:
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
    return RecordConstraint(
        settings.json_schema,
        model.tokenizer,
        vocabulary=model.vocabulary,
        stop_tokens=model.stop_tokens,
        max_new_tokens=max_new_tokens,
        lost=lost,
    )


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
