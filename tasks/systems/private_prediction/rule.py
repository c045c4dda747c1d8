"""The rule of Amin et al. 2024: test whether the public token will do, and draw a private one where it will not."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import torch

from tasks.decoding.loop import BudgetMeter, Step
from tasks.decoding.sampling_rule import CandidateSet
from tasks.inference.engine.session import RowLogits
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import SparseVector
from tasks.mechanisms.tokens.utility_scores import clip_recentred, distances, distributions


@dataclass
class _Runs:
    """One generation's runs of tests: how many have ended, and the noisy threshold of the one that goes on."""

    ended: int = 0
    threshold: int | None = None


@dataclass(frozen=True)
class PrivatePredictionRule:
    """Sampling rule of Amin et al. (PRIVACY §4.3), the same for every generation of a release.

    Attributes:
        draw: the private token's: c, s, tau.
        public_draw: the public token's exact softmax; no private text has a part in it.
        tests: the sparse vector that decides which tokens are private.
        threshold: theta, public.
        private_tokens: r, the most private tokens of a text. After the last one nothing private is read for it.
        top_k: public candidates; 0 for the whole vocabulary, as in the paper.
        meter: pays for runs: the tests of one and the private token that ends it.
    """

    draw: IntegerTableMechanism
    public_draw: IntegerTableMechanism
    tests: SparseVector
    threshold: Fraction
    private_tokens: int
    top_k: int
    rng: RandomSource
    meter: BudgetMeter
    _runs: defaultdict[int, _Runs] = field(default_factory=lambda: defaultdict(_Runs))
    _resumed: set[int] = field(default_factory=set)

    def next_tokens(self, step: Step) -> list[int]:
        """Return one token id for each live generation."""
        self._meet(step)
        self._let_go_of_used_up(step)
        choice = CandidateSet.of(step, self.top_k, self.draw)
        tested = [index for index, number in enumerate(step.numbers) if self._goes_on(number)]
        tokens = dict.fromkeys(range(len(step.numbers)), 0)
        private: Sequence[int] = ()
        if tested:
            rows = self._paid_rows(step, choice, tested)
            private = self._far(step, choice, rows, tested)
            tokens |= self._private_tokens(step, choice, rows, private)
        near = [index for index in tokens if index not in private]
        return [token for _, token in sorted((tokens | self._public_tokens(choice, near)).items())]

    def facts(self, number: int) -> Mapping[str, float]:
        """`private_tokens`: how many tokens of the text were drawn privately; an output of the tests."""
        return {"private_tokens": float(self._runs[number].ended)}

    def _meet(self, step: Step) -> None:
        """Account for resumed generations, whose earlier tokens this rule has not seen.

        Any of these tokens may have ended a run, and one run may have been under way: as many runs count as used.
        """
        for index, (number, position) in enumerate(zip(step.numbers, step.positions, strict=True)):
            if position and number not in self._runs:
                self._runs[number] = _Runs(min(position + 1, self.private_tokens))
                if not self._goes_on(number):
                    step.drop_private_rows(index)

    def kept(self, number: int) -> Sequence[float]:
        """Return how many runs have ended. The threshold of the run that goes on is not kept: see `resume`."""
        return (self._runs[number].ended,)

    def resume(self, number: int, kept: Sequence[float]) -> None:
        """Go on with a fresh run; the one that the kill cut short is among the meter's lost ones.

        In the step that is missing, that run may have found its private token. It must not be tested again, and its
        threshold is of no use any more.
        """
        (ended,) = kept
        self._runs[number] = _Runs(int(ended))
        self._resumed.add(number)

    def _let_go_of_used_up(self, step: Step) -> None:
        """Drop the private rows of resumed generations that have no run left."""
        for index, number in enumerate(step.numbers):
            if number in self._resumed and not self._goes_on(number):
                step.drop_private_rows(index)
            self._resumed.discard(number)

    def _goes_on(self, number: int) -> bool:
        return self._runs[number].ended < self.private_tokens - self.meter.lost

    def _paid_rows(self, step: Step, choice: CandidateSet, tested: Sequence[int]) -> RowLogits:
        """Return the rows of all tested generations, each of whose runs is paid for before its first test."""
        self.meter.admit(max(self._runs[step.numbers[index]].ended for index in tested))
        return choice.rows(step)

    def _far(self, step: Step, choice: CandidateSet, rows: RowLogits, tested: Sequence[int]) -> list[int]:
        """Return the tested generations whose distance is not below their noisy threshold."""
        public = distributions(choice.public, choice.candidates.allowed)
        measured = distances(self.tests.references, public, choice.sums_over_allowed(rows, distributions))
        far = []
        for index in tested:
            run = self._runs[step.numbers[index]]
            if run.threshold is None:
                run.threshold = self.tests.begin(self.threshold, self.rng)
            if not self.tests.below(measured[index], run.threshold, self.rng):
                far.append(index)
        return far

    def _private_tokens(
        self, step: Step, choice: CandidateSet, rows: RowLogits, private: Sequence[int]
    ) -> dict[int, int]:
        """Return a private token for each of `private`; the next run of each gets a fresh threshold."""
        if not private:
            return {}
        scores = choice.sums_over_allowed(rows, partial(clip_recentred, self.draw))
        chosen = choice.part(private)
        drawn = utility_scores.draw_tokens(self.draw, chosen.candidates, scores[list(private)], self.rng)
        for index in private:
            number = step.numbers[index]
            self._runs[number] = _Runs(self._runs[number].ended + 1)
            if not self._goes_on(number):
                step.drop_private_rows(index)
        return dict(zip(private, drawn, strict=True))

    def _public_tokens(self, choice: CandidateSet, public: Sequence[int]) -> dict[int, int]:
        if not public:
            return {}
        chosen = choice.part(public)
        nothing = torch.zeros_like(chosen.candidates.tokens)
        scores = utility_scores.utilities(self.public_draw, chosen.public, nothing)
        drawn = utility_scores.draw_tokens(self.public_draw, chosen.candidates, scores, self.rng)
        return dict(zip(public, drawn, strict=True))
