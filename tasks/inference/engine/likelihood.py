"""Likelihood of texts under a model: of closed answers about private texts, and of texts that are public or paid for.

*Closed answers* (`AnswerLikelihood`): each private text's figures are its own, bit for bit. Answers are public, so the
tokens that a row reads after its text, their number and the time at which it leaves are public. A row has one text and
one answer's tokens; answers that begin alike share a row. The rows of a wave enter an empty session together, and every
wave has passes of one shape, also the last and smaller one. So the logits of a row are a function of its text and of
public values (PRIVACY §4.2 point 1), and which texts share a wave changes nothing but time. Log-probabilities are then
computed row by row, with sums that are exactly rounded (`math.fsum`): no order and no place in memory enters into them.

*Whole texts* (`log_likelihoods`), for evaluation: rows share padded passes of changing shape, so their bits may depend
on each other by about 1e-5. This is a measurement, never part of a private draw.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.common.progress import Progress
from tasks.inference.engine.engine import Engine, SessionOpening, SessionSize
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.memory import MemoryRanOut, not_enough_memory
from tasks.inference.engine.rows import RowBatch, left_padded
from tasks.inference.engine.session import RowLogits, Session
from tasks.inference.engine.shapes import Sizes, generations_at_once
from tasks.inference.prompt_rendering import PromptPieces, reference_tokens

ROWS = {"cpu": 32, "cuda": 128}
"""Rows of every pass."""
MOST_PLACES = 512
"""Rows of a wave; more at once are no faster, and each has the logits of all tokens."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class _Row:
    """A row of one text.

    Attributes:
        read: tokens that it reads after its prompt.
        scored: numbers of the answers whose tokens it gives the likelihoods of.
    """

    read: Tokens
    scored: tuple[int, ...]


@dataclass(frozen=True)
class AnswerLikelihood:
    """The likelihood of each of some answers, given a text in a prompt.

    Attributes:
        prompt: the tokens around a text; public.
        answers: the tokens of each answer, at least one; public.
        max_text_tokens: how many tokens of a text are read.
        passes: rows of every pass, as many as the device keeps apart.
    """

    engine: Engine
    prompt: PromptPieces
    answers: tuple[Tokens, ...]
    max_text_tokens: int
    sizes: Sizes
    passes: int

    @classmethod
    def of(
        cls, engine: Engine, prompt: PromptPieces, answers: Sequence[str], max_text_tokens: int
    ) -> "AnswerLikelihood":
        """Build it; a device or a model that cannot do it is refused here, before payment.

        Raises:
            ContextTooLong: prompt, text and answer exceed the model's context.
            RowsNotIsolated: this device cannot keep rows apart.
            NotEnoughMemory: not even one row fits.
            ValueError: an answer without a token.
        """
        tokenizer = engine.model.tokenizer
        tokens = tuple(tuple(tokenizer(answer, add_special_tokens=False)["input_ids"]) for answer in answers)
        if not tokens or not all(tokens):
            raise ValueError("an answer has at least one token")
        sizes = Sizes.of([prompt.placeholder], [prompt], max_text_tokens, max(map(len, tokens)), references=1)
        sizes.check_fits(engine.model)
        most = SessionSize(1, ROWS.get(engine.model.device.type, ROWS["cpu"]))
        passes = SessionOpening(engine.model, engine.isolation, sizes).find_size(most, lambda room: room).rows
        return cls(engine, prompt, tokens, max_text_tokens, sizes, passes)

    def __call__(self, texts: Sequence[str], progress: Progress = lambda done, of: None) -> NDArray[np.float64]:
        """Return log P(answer | text) in nats, float64 [texts, answers].

        The row of a text without a token that the model knows, or with logits that are not finite, is NaN.

        Args:
            progress: called with the number of finished rows and of all rows.

        Raises:
            NotEnoughMemory: not even the rows of one text fit.
        """
        scores = np.full((len(texts), len(self.answers)), np.nan)
        tokens = [reference_tokens(self.engine.model.tokenizer, text, self.max_text_tokens) for text in texts]
        tasks = [(number, row) for number, text in enumerate(tokens) if text for row in self._rows]
        done = 0
        for wave, gains in self._waves(tasks, tokens):
            for (number, row), gain in zip(wave, gains, strict=True):
                scores[number, list(row.scored)] = gain
            progress(done := done + len(wave), len(tasks))
        scores[np.isnan(scores).any(1)] = np.nan
        return scores

    @property
    def _rows(self) -> list[_Row]:
        """The rows of each text: one for every sequence of tokens that no longer one begins with."""
        read = sorted({answer[:-1] for answer in self.answers}, key=lambda tokens: (-len(tokens), tokens))
        kept: list[Tokens] = []
        for tokens in read:
            if not any(longer[: len(tokens)] == tokens for longer in kept):
                kept.append(tokens)
        of = [next(row for row in kept if row[: len(answer) - 1] == answer[:-1]) for answer in self.answers]
        return [_Row(row, tuple(number for number, own in enumerate(of) if own == row)) for row in kept]

    def _waves(
        self, tasks: Sequence[tuple[int, _Row]], texts: Sequence[Tokens]
    ) -> Iterator[tuple[Sequence[tuple[int, _Row]], list[NDArray[np.float64]]]]:
        """Yield rows with their scores, wave after wave; a wave that ran out of memory starts again, smaller."""
        places = min(MOST_PLACES, generations_at_once(self.engine.model, self.sizes, self.engine.memory))
        start = 0
        while start < len(tasks):
            wave = tasks[start : start + places]
            gains = self._wave(wave, texts, places)
            if gains is None and places == 1:
                raise not_enough_memory(str(self.engine.model.device))
            if gains is None:
                places = max(1, places // 2)
                continue
            start += len(wave)
            yield wave, gains

    @torch.inference_mode()
    def _wave(
        self, wave: Sequence[tuple[int, _Row]], texts: Sequence[Tokens], places: int
    ) -> list[NDArray[np.float64]] | None:
        """Return for each row the scores of its answers, float64 [scored]; None if memory did not suffice."""
        session = Session(self.engine.model, self.engine.isolation, self.sizes, places, self.passes)
        for place, (number, _) in enumerate(wave):
            session.enter(place, self.prompt.placeholder, self.prompt, [texts[number]])
        gains = [np.zeros(len(row.scored)) for _, row in wave]
        for step in range(self.sizes.max_new_tokens):
            try:
                logits = session.private_logits()
            except MemoryRanOut:
                return None
            for place, values in zip(session.numbers, _by_row(logits), strict=True):
                gains[place] += self._gains(wave[place][1], step, values)
            for place in session.numbers:
                if len(wave[place][1].read) == step:
                    session.leave(place)
            if not session.numbers:
                break
            session.advance([wave[place][1].read[step] for place in session.numbers])
        return gains

    def _gains(self, row: _Row, step: int, logits: NDArray[np.float32] | None) -> NDArray[np.float64]:
        """Return the log-probability of each scored answer's token number `step`; 0 for one that has ended."""
        if logits is None:
            return np.full(len(row.scored), np.nan)
        values = logits.astype(np.float64)
        largest = float(values.max())
        whole = largest + math.log(math.fsum(np.exp(values - largest).tolist()))
        return np.array(
            [
                float(values[self.answers[number][step]]) - whole if step < len(self.answers[number]) else 0.0
                for number in row.scored
            ]
        )


def _by_row(logits: RowLogits) -> Iterator[NDArray[np.float32] | None]:
    """Yield the logits of each row, float32 [V]; None where they are not finite."""
    for values, valid in zip(logits.values.cpu().numpy(), logits.valid.tolist(), strict=True):
        yield values if valid else None


# Tokens of a pass, padding included, unless one text alone is longer; and tokens whose logits exist at one time.
_TOKENS_AT_ONCE = 1024


def log_likelihoods(
    model: LanguageModel, texts: Sequence[str], progress: Callable[[int, int], None] = lambda done, of: None
) -> list[tuple[float, int]]:
    """Return for each text the sum of its tokens' log-probabilities (nats) and the number of these tokens.

    Each token is scored given those before it; the first has none before it and is not scored, so a text of one
    token, or none, gives (0.0, 0). Text beyond the model's context is not read.

    Args:
        progress: called with the number of texts done and their total.
    """
    sequences = [reference_tokens(model.tokenizer, text, model.positions) for text in texts]
    scores: list[tuple[float, int]] = [(0.0, 0)] * len(texts)
    done = 0
    for group in _groups(sequences):
        for index, score in zip(group, _score(model, [sequences[index] for index in group]), strict=True):
            scores[index] = score
        progress(done := done + len(group), len(texts))
    return scores


def _groups(sequences: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return groups of indices of texts of similar length, each as large as a pass may hold."""
    groups: list[list[int]] = []
    for index in sorted(range(len(sequences)), key=lambda index: len(sequences[index])):
        if groups and (len(groups[-1]) + 1) * len(sequences[index]) <= _TOKENS_AT_ONCE:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


@torch.inference_mode()
def _score(model: LanguageModel, sequences: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    longest = max(len(sequence) for sequence in sequences)
    if longest < 2:
        return [(0.0, 0)] * len(sequences)
    hidden = RowBatch(model, len(sequences), longest).read_all(sequences, longest)
    tokens, real = (part.to(model.device) for part in left_padded(sequences, longest))
    scored = real[:, :-1]
    gains = torch.zeros(scored.shape, dtype=torch.float64, device=model.device)
    gains[scored] = next_token_scores(model, hidden[:, :-1][scored], tokens[:, 1:][scored]).double()
    return list(zip(gains.sum(1).tolist(), scored.sum(1).tolist(), strict=True))


def next_token_scores(model: LanguageModel, hidden: Tensor, following: Tensor) -> Tensor:
    """log P(following | hidden), [N, D] and int64 [N] -> float32 [N]."""
    parts = []
    for start in range(0, len(following), _TOKENS_AT_ONCE):
        some = slice(start, start + _TOKENS_AT_ONCE)
        logits = model.logits(hidden[some])
        parts.append(-torch.nn.functional.cross_entropy(logits, following[some], reduction="none"))
    return torch.cat(parts)
