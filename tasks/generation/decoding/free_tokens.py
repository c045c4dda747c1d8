"""Free tokens: where the public model is sure of the next token, it is drawn from the public model and costs nothing.

A position is free if the largest probability of the public row's next-token distribution, at the request's
temperature and over the whole vocabulary, is above a threshold of the request. Its token is drawn from the public
row's softmax, no rule is asked, and nothing of the text's private rows is used for it; they read the token later, as
they read every token of their text. The first token that an attempt draws of a text is never free (`loop`).

Why the charge holds. Fix one batch and its text, and let x be the tokens of all texts drawn so
far, with everything else that was released. Whether the next position is free is a function f(x) of x and of public
values: the public model, the prompts, temperature and threshold. The public row's logits are such a function, because
it is computed in passes that hold no private row. So the release is a sequence of steps, each chosen by x alone:

* f(x) = free: the token is a draw from a distribution that is a function of x. For two neighbouring datasets it is the
  same one: such a step is post-processing of x with fresh public randomness, and costs 0;
* otherwise the token is one draw of the system's mechanism, whose rho for given x holds for any x.

The number of steps of the second kind is at most T: the text ends with the T-th, and `DrawMeter` admits no further
one. So the fully adaptive composition of one text is at most T draws at the price of each, which was paid beforehand,
wherever in the text they fall. A unit is in one batch (of m texts where it is read for m groups), so T (m T) draws
bound its loss. Where an attempt goes on, its first token of a text is charged whatever f says; when attempts end is
taken for public, as in docs/decisions/0023. That the text ends at its T-th charged draw, or at the bound on its tokens,
is a function of x, too: its length says nothing that x does not say.

Nothing of this holds if f reads a private row, the number of rows, or time: the audit in
tests/statistical/test_free_tokens_audit.py catches such twins.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.sampler import TokenMechanism


@dataclass(frozen=True)
class PublicTokenCounts:
    """How many tokens of each generation the public model has drawn, of one kind; functions of the text's tokens.

    Attributes:
        FACT: the name of the count among the facts of a text.
    """

    FACT: ClassVar[str]
    _counts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int), init=False, repr=False)

    def count(self, number: int) -> int:
        """Return how many tokens of a generation are of this kind."""
        return self._counts[number]

    def facts(self, number: int) -> Mapping[str, float]:
        """Return the count by its name: a function of the text's tokens and of public logits."""
        return {self.FACT: float(self._counts[number])}

    def kept(self, number: int) -> Sequence[float]:
        """Return the count: a run that goes on must know which of the text's tokens were charged draws."""
        return (self._counts[number],)

    def resume(self, number: int, kept: Sequence[float]) -> None:
        """The count goes on."""
        (count,) = kept
        self._counts[number] = int(count)


@dataclass(frozen=True)
class FreeTokens(PublicTokenCounts):
    """Which positions are free, and how their tokens are drawn; the same for every generation of a release.

    Attributes:
        above: the threshold on the largest probability, public.
        draw: the exact softmax of public logits at the request's temperature (`sampler.public_sampler`).
        top_k: candidates of the draw, as in the request; 0 for the whole vocabulary.
        most_draws: T less what earlier attempts have lost: the text ends with its charged draw of that number.
    """

    above: Fraction
    draw: TokenMechanism
    top_k: int
    most_draws: int
    rng: RandomSource
    FACT: ClassVar[str] = "free_tokens"

    def next_tokens(self, numbers: Sequence[int], public: Tensor) -> list[int | None]:
        """For each generation of `numbers` its token if the position is free, else None.

        Args:
            public: float32 [L, V], the public logits of these generations.
        """
        free = self._confident(public)
        if not free:
            return [None] * len(numbers)
        drawn = dict(
            zip(free, utility_scores.draw_public_tokens(self.draw, public[free], self.top_k, self.rng), strict=True)
        )
        for place in free:
            self._counts[numbers[place]] += 1
        return [drawn.get(place) for place in range(len(numbers))]

    def _confident(self, public: Tensor) -> list[int]:
        """The rows whose largest probability is above the threshold; a row without a finite logit is none."""
        usable = public.double().nan_to_num(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
        largest = (usable / float(self.draw.temperature)).softmax(1).amax(1)
        places: list[int] = (largest > float(self.above)).nonzero()[:, 0].tolist()
        return places
