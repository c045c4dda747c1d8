"""An audit of texts whose last sentence is completed (PRIVACY §8): shipped loop, engine, rule and `SentenceCompletion`.

The attacker is that of `forced_texts`. The claim is the epsilon 1 at DELTA of T charged draws, however many tokens
finish the sentence behind them.

The broken twins: one draws the tokens that finish a sentence from the mean of the private rows; one asks the private
rows whether the sentence has ended. Both keep the rows that the loop drops.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.decoding.sentence_completion import SentenceCompletion
from tasks.inference.engine.session import Session
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens import integer_table
from tests.statistical.forced_texts import BATCHES, CLAIM, TEMPERATURE, Draws, Trial, Watched, calibrated

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

DRAWS, MORE = 3, 4


class ReadsPrivateRows(SentenceCompletion):
    """The base of both twins."""

    def means(self, numbers: Sequence[int]) -> Tensor:
        """The mean logits of the private rows of these generations."""
        session: Session = self.__dict__["session"]
        rows, live = session.private_logits(), session.numbers
        return torch.stack([rows.values[rows.generation == live.index(number)].mean(0) for number in numbers])


class DrawsFromPrivateRows(ReadsPrivateRows):
    """A broken twin: the sentence is finished by the mean of the private rows."""

    def next_tokens(self, numbers: Sequence[int], public: Tensor) -> list[int]:
        return super().next_tokens(numbers, self.means(numbers))


class EndsByPrivateRows(ReadsPrivateRows):
    """A broken twin: the sentence ends with the next token where the private rows' likeliest one has an even number."""

    def next_tokens(self, numbers: Sequence[int], public: Tensor) -> list[int]:
        likeliest = self.means(numbers).argmax(1).tolist()
        ended = {number for number, token in zip(numbers, likeliest, strict=True) if token % 2 == 0}
        self.__dict__["over"] = self.__dict__.get("over", set()) | ended
        return super().next_tokens(numbers, public)

    def is_done(self, number: int, text: str) -> bool:
        return number in self.__dict__.get("over", ()) or super().is_done(number, text)


def completed(kind: type[SentenceCompletion] = SentenceCompletion) -> Any:
    """`options` of a trial: at most `MORE` public tokens behind the charged draws."""

    def options(session: Session, watch: Draws) -> Mapping[str, Any]:
        made = kind(MORE, integer_table.public_sampler(TEMPERATURE), 0, OS_RANDOM)
        made.__dict__["session"] = session
        if issubclass(kind, ReadsPrivateRows):
            session.let_go = lambda number: None  # type: ignore[method-assign]
        return {"completion": Watched(made, watch)}

    return options


def test_texts_stay_below_the_claim_however_many_tokens_finish_their_sentences() -> None:
    honest = Trial(DRAWS, DRAWS + MORE, completed())
    texts = honest.run(calibrated(DRAWS), BATCHES[0], 400).tokens.values()
    assert sum(len(tokens) > DRAWS for tokens in texts) > 300  # there is something to audit
    assert honest.audit(4000) < CLAIM


def test_sentences_that_private_rows_finish_are_caught() -> None:
    assert Trial(DRAWS, DRAWS + MORE, completed(DrawsFromPrivateRows)).audit(1000) > CLAIM


def test_sentences_whose_end_private_rows_decide_are_caught() -> None:
    assert Trial(DRAWS, DRAWS + MORE, completed(EndsByPrivateRows)).audit(3000) > CLAIM
