"""What a budget buys of private evolution: the same histogram in every round, and how candidates are asked for."""

from dataclasses import dataclass

from models_db.values.events import PrivacyEvent
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.planning.batches import BatchLayout
from tasks.prompted_generation.evolution.parameters import EvolutionParameters

VARIATION = "Rewrite the following text {way}:\n\n{text}"
"""How the model is asked for a rewording; `{text}` is the candidate, and all that it is told.

Of four wordings this is the one that SmolLM2-135M followed with least talk around the text."""

WAYS = (
    "in other words",
    "with other details",
    "more briefly",
    "in another tone",
    "at more length",
    "as somebody else would put it",
)
"""What stands for `{way}`, in turn."""


@dataclass(frozen=True)
class Schedule:
    """What the budget buys: the same histogram in every round.

    Attributes:
        histogram: of all candidates of one round.
        rounds: how many there are, a public number.
    """

    histogram: NoisyHistogram
    rounds: int

    @classmethod
    def of(cls, wanted: EvolutionParameters, rho: int) -> "Schedule":
        """The schedule with the least noise of which all rounds together cost at most `rho` (units of 1e-12).

        Raises:
            NoiseInvalid: rho is too small for so many rounds.
            BinsInvalid: too many candidates.
        """
        return cls(calibrate_histogram(rho // wanted.rounds, wanted.bins), wanted.rounds)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What is charged, in order: one histogram a round, each armed by itself."""
        return (self.histogram.event(),) * self.rounds


def labels_of_texts(wanted: EvolutionParameters) -> list[str | None]:
    """The label of every text, in their public order; blocks make no difference to a text.

    Raises:
        LabelWithoutSample: there are fewer texts than labels.
    """
    return BatchLayout(wanted.samples, 1, wanted.parts).labels_of_texts(wanted.labels)
