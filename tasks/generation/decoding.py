"""The decoding loop that systems with token draws share: candidates, clipped sum, one exact draw per generation.

All generations of a group are in step: their t-th draws happen together. `DrawMeter` stands between the loop and the
budget: no draw happens that has not been armed, and a step is armed before the private rows are read for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.generation.interface import GeneratedText
from tasks.inference.language_model import LanguageModel
from tasks.inference.session import Session
from tasks.mechanisms import token_scores
from tasks.mechanisms.rng import RandomSource
from tasks.mechanisms.token_draw import TokenDraw
from tasks.mechanisms.token_scores import Candidates, Variant


class DrawMeter:
    """Arms instalments of `size` draws as they are needed, each once, however many groups of batches take part.

    A unit is in one batch only, and its batch makes at most as many draws as are armed: prepaid instalments serve a
    later group of batches as well as the first (docs/decisions/0003).
    """

    def __init__(self, size: int, draws: int, arm: Callable[[int], None]) -> None:
        self._size, self._draws, self._arm = size, draws, arm
        self._armed = 0

    def admit(self, draw: int) -> None:
        """Make sure that the batch's draw number `draw` (from 0) is paid for.

        Raises:
            ValueError: the plan has no such draw.
        """
        if not 0 <= draw < self._draws:
            raise ValueError(f"draw {draw} is not among the plan's {self._draws}")
        while draw >= self._armed * self._size:
            self._arm(self._armed)
            self._armed += 1


@dataclass(frozen=True)
class Decoder:
    """How the next token is drawn, the same for every generation of a release."""

    draw: TokenDraw
    top_k: int | None
    variant: Variant
    rng: RandomSource

    def next_tokens(self, session: Session) -> tuple[list[int], Candidates]:
        """One token id for each generation of the session."""
        public = session.public_logits()
        found = token_scores.candidates(public, self.top_k, self.draw)
        chosen = found.of_public(public)
        rows = session.private_logits(None if found.tokens.shape[1] == public.shape[1] else found.tokens)
        values, generation = rows.values[rows.valid], rows.generation[rows.valid]
        clipped = token_scores.clip_rows(
            self.draw, self._aligned(values, found, generation, public.shape[1]), chosen, generation, self.variant
        )
        sums = token_scores.sum_rows(clipped, generation, public.shape[0])
        summed = token_scores.scores(self.draw, chosen, sums)
        return token_scores.draw_tokens(self.draw, found, summed, self.rng), found

    @staticmethod
    def _aligned(values: Tensor, found: Candidates, generation: Tensor, vocabulary: int) -> Tensor:
        """Full-vocabulary rows come in the vocabulary's order; candidates may be in another."""
        full = found.tokens.shape[1] == vocabulary and values.shape[1] == vocabulary
        return found.of_rows(values, generation) if full else values


@torch.inference_mode()
def decode(
    session: Session,
    model: LanguageModel,
    decoder: Decoder,
    meter: DrawMeter,
    steps: int,
    progress: Callable[[int], None],
) -> list[GeneratedText]:
    """Draw until every generation has ended or has `steps` tokens.

    Args:
        progress: told how many steps are done.

    Returns:
        one text per generation. The end token is drawn and paid for like any other, and not part of the text.
    """
    drawn: list[list[int]] = [[] for _ in range(session.generations)]
    ended = [False] * session.generations
    for step in range(steps):
        meter.admit(step)
        tokens, _ = decoder.next_tokens(session)
        for generation, token in enumerate(tokens):
            if ended[generation]:
                continue
            if token in model.stop_tokens:
                ended[generation] = True
                session.finish(generation)
            else:
                drawn[generation].append(token)
        progress(step + 1)
        if all(ended) or step + 1 == steps:
            break
        session.advance(torch.tensor(tokens))
    return [_text(model, ids, complete) for ids, complete in zip(drawn, ended, strict=True)]


def _text(model: LanguageModel, ids: Sequence[int], complete: bool) -> GeneratedText:
    text: str = model.tokenizer.decode(ids, skip_special_tokens=True)
    return GeneratedText(text=text.strip(), tokens=len(ids), complete=complete)
