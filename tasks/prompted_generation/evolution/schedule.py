"""Schedule of private evolution that a budget buys: one histogram per round; its sizes; and the wording of prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.planning.batches import labels_in_order, labels_without_batches
from tasks.planning.label_allocation import counting_events, histogram_of, rho_beside, texts_per_label
from tasks.prompted_generation.evolution.parameters import EvolutionParameters

Item = TypeVar("Item")

NAME: Final = "private_evolution"
"""The name of the system."""

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
        counting: the histogram of the units by label, of a proportional allocation; None of an equal one.
        histogram: of all candidates of one round.
        rounds: number of rounds, public.
    """

    counting: NoisyHistogram | None
    histogram: NoisyHistogram
    rounds: int

    @classmethod
    def of(cls, parameters: EvolutionParameters, amount: Amount) -> "Schedule":
        """Calibrate the schedule with the least noise whose mechanisms together cost at most `amount`.

        Raises:
            AllocationShareTooSmall: the allocation's share buys no histogram.
            NoiseInvalid: rho is too small for so many rounds.
            BinsInvalid: too many candidates.
        """
        counting = histogram_of(parameters, amount, NAME)
        each = rho_beside(counting, amount) // parameters.rounds
        return cls(counting, calibrate_histogram(each, Sizes.planned(parameters).bins), parameters.rounds)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order: one histogram per round, each armed by itself."""
        return (*counting_events(self.counting), *(self.histogram.event(),) * self.rounds)

    @property
    def first_round(self) -> int:
        """The number of the first round's event among all events."""
        return len(counting_events(self.counting))


@dataclass(frozen=True)
class Sizes:
    """How many texts and candidates each label has; public, and fixed before the first candidate is written.

    Attributes:
        texts: of each label.
        candidates: M of each label, in every round.
    """

    parameters: EvolutionParameters
    texts: tuple[int, ...]
    candidates: tuple[int, ...]

    @classmethod
    def planned(cls, parameters: EvolutionParameters) -> "Sizes":
        """Return the sizes of an equal allocation, or of the proportional one that asks for most prompts.

        With L candidates for each text, all numbers together are the same for every allocation. With M candidates of
        each label, the texts that are missing are a convex function of the texts of a label, so one label that has all
        texts but the minimum of the others is the extreme.

        Raises:
            LabelWithoutSample, TooFewTextsForLabels: fewer texts than labels, or than they have at least.
        """
        labels = labels_without_batches(parameters, parameters.samples)
        if parameters.label_allocation is not None:
            return cls.of(parameters, [1, *[0] * (parameters.parts - 1)])
        texts = tuple(labels.count(label) for label in parameters.labels or (None,))
        return cls(parameters, texts, (parameters.candidates or parameters.variations * max(texts),) * len(texts))

    @classmethod
    def of(cls, parameters: EvolutionParameters, noisy: Sequence[int] | None) -> "Sizes":
        """Return the sizes that follow from the noisy counts of the units of each label; without counts, equal ones."""
        if parameters.label_allocation is None or noisy is None:
            return cls.planned(parameters)
        texts = texts_per_label(parameters.label_allocation, noisy, parameters.samples)
        return cls(parameters, texts, tuple(parameters.candidates or parameters.variations * own for own in texts))

    @property
    def bins(self) -> int:
        """Number of candidates in the vote of a round; the same for every allocation."""
        return sum(self.candidates)

    @property
    def kept(self) -> tuple[int, ...]:
        """Number of selected candidates of each label after every round except the last."""
        return tuple(max(1, own // self.parameters.variations) for own in self.candidates)

    def selected(self, number: int) -> tuple[int, ...]:
        """Return the selected candidates of each label after round `number`, from 0; after the last, the texts."""
        return self.texts if number == self.parameters.rounds - 1 else self.kept

    @property
    def prompts(self) -> int:
        """Most prompts that a backend answers; a candidate drawn twice stays once and is reworded."""
        ranked = self.parameters.selection == "rank"
        least = self.kept if ranked else (1,) * len(self.kept)
        between = (self.parameters.rounds - 1) * (self.bins - sum(least))
        different = self.candidates if ranked else (1,) * len(self.candidates)
        missing = (max(0, texts - own) for texts, own in zip(self.texts, different, strict=True))
        checking = 0 if self.parameters.label_allocation is None else 1  # that the backend answers, before it is paid
        return checking + self.bins + between + sum(missing)

    def split(self, of_candidates: Sequence[Item]) -> list[list[Item]]:
        """Return what belongs to the candidates of all labels, label by label."""
        items = iter(of_candidates)
        return [list(islice(items, own)) for own in self.candidates]

    @property
    def labels_of_texts(self) -> list[str | None]:
        """The label of every text, in their public order; blocks do not affect a text."""
        return labels_in_order(self.parameters.labels or (None,), self.texts)
