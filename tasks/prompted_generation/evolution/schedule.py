"""Schedule of private evolution that a budget buys: one histogram per round; and the wording of prompts."""

from dataclasses import dataclass

from models_db.values.events import PrivacyEvent
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.planning.batches import BatchLayout
from tasks.prompted_generation.evolution.parameters import EvolutionParameters

VARIATION = "Rewrite the following text {way}:\n\n{text}"
"""Prompt for a rewording; `{text}` is the candidate, and nothing else is in the prompt.

Of four wordings this is the one that SmolLM2-135M followed with least talk around the text."""

WAYS = (
    "in other words",
    "with other details",
    "more briefly",
    "in another tone",
    "at more length",
    "as somebody else would put it",
)
"""Values of `{way}`, used in turn."""


@dataclass(frozen=True)
class Schedule:
    """Calibrated rounds: the same histogram in every round.

    Attributes:
        histogram: of all candidates of one round.
        rounds: number of rounds, public.
    """

    histogram: NoisyHistogram
    rounds: int

    @classmethod
    def of(cls, parameters: EvolutionParameters, rho: int) -> "Schedule":
        """Calibrate the schedule with the least noise whose rounds together cost at most `rho` (units of 1e-12).

        Raises:
            NoiseInvalid: rho is too small for so many rounds.
            BinsInvalid: too many candidates.
        """
        return cls(calibrate_histogram(rho // parameters.rounds, parameters.bins), parameters.rounds)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order: one histogram per round, each armed by itself."""
        return (self.histogram.event(),) * self.rounds


def labels_of_texts(parameters: EvolutionParameters) -> list[str | None]:
    """Return the label of every text, in their public order; blocks do not affect a text.

    Raises:
        LabelWithoutSample: there are fewer texts than labels.
    """
    return BatchLayout(parameters.samples, 1, parameters.parts).labels_of_texts(parameters.labels)
