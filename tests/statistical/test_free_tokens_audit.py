"""An audit of texts with free tokens (PRIVACY §8): shipped loop, engine, rule, sampler and `FreeTokens`.

The attacker is that of `forced_texts`. The claim is the epsilon 1 at DELTA of T charged draws, however many tokens are
free beside them.

The broken twins: one decides by the mean of the private rows whether a position is free; one never counts a charged
draw, so that charged draws go on up to the bound on a text's tokens.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.generation.decoding.free_tokens import FreeTokens
from tasks.inference.engine.session import Session
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens import sampler
from tests.statistical.forced_texts import BATCHES, CLAIM, TEMPERATURE, Draws, Trial, Watched, calibrated

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

DRAWS, TOKENS = 3, 6
ABOVE, ENDLESS = Fraction("0.6"), 10**6


class WatchedFree(Watched):
    """Only the free ones of the positions have a token drawn."""

    def _numbers(self, numbers: Sequence[int], public: Tensor) -> Sequence[int]:
        self.inner.__dict__["now"] = numbers  # a twin has to know whose public rows it is given
        return [numbers[place] for place in self.inner._confident(public)]


class FreeByPrivateRows(FreeTokens):
    """A broken twin: a position is free where the mean of the private rows is sure of it."""

    def _confident(self, public: Tensor) -> list[int]:
        session: Session = self.__dict__["session"]
        rows, live = session.private_logits(), session.numbers
        means = torch.stack([rows.values[rows.generation == place].mean(0) for place in range(len(live))])
        return super()._confident(means[[live.index(number) for number in self.__dict__["now"]]])


def free(draws: int, kind: type[FreeTokens] = FreeTokens) -> Any:
    """`options` of a trial: free tokens in texts that end with their charged draw number `draws`."""

    def options(session: Session, watch: Draws) -> Mapping[str, Any]:
        made = kind(ABOVE, sampler.public_sampler(TEMPERATURE, "table"), 0, draws, OS_RANDOM)
        made.__dict__["session"] = session
        return {"free": WatchedFree(made, watch)}

    return options


def test_texts_stay_below_the_claim_however_many_of_their_tokens_are_free() -> None:
    honest = Trial(DRAWS, TOKENS, free(DRAWS))
    texts = honest.run(calibrated(DRAWS), BATCHES[0], 400).tokens.values()
    assert sum(len(tokens) - DRAWS for tokens in texts) > 0.1 * sum(map(len, texts))  # there is something to audit
    assert honest.audit(4000) < CLAIM


def test_positions_that_are_free_by_private_rows_are_caught() -> None:
    assert Trial(DRAWS, TOKENS, free(DRAWS, FreeByPrivateRows)).audit(1000) > CLAIM


def test_charged_draws_that_are_not_counted_are_caught() -> None:
    assert Trial(2, 90, free(ENDLESS), admitted=ENDLESS).audit(1500) > CLAIM
