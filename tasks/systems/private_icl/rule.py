"""Private ICL's rule (Bhusal et al.): clipped logits of rows and public model, blended half and half, then a draw."""

from dataclasses import dataclass
from functools import partial

from tasks.decoding.loop import BudgetMeter, StatelessRule, Step
from tasks.decoding.sampling_rule import CandidateSet
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.utility_scores import blended, clip_recentred


@dataclass(frozen=True)
class PrivateIclRule(StatelessRule):
    """Private ICL's sampling rule (PRIVACY §4.3), the same for every generation of a release.

    Attributes:
        draw: its token mechanism, with c, s, and twice the temperature.
        top_k: public candidates; 0 for the whole vocabulary, as in the paper.
        meter: pays for the draws.
    """

    draw: IntegerTableMechanism
    top_k: int
    rng: RandomSource
    meter: BudgetMeter

    def next_tokens(self, step: Step) -> list[int]:
        """Return one token id for each live generation."""
        self.meter.admit(max(step.positions))
        choice = CandidateSet.of(step, self.top_k, self.draw)
        sums = choice.sums_over_allowed(choice.rows(step), partial(clip_recentred, self.draw))
        scores = blended(self.draw, choice.public, choice.candidates.allowed, sums)
        return utility_scores.draw_tokens(self.draw, choice.candidates, scores, self.rng)
