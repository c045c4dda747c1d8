"""Parameters of private evolution (AugPE; Xie et al., ICML 2024), all public, and the rounds that a budget buys.

Parameters of a private evolution request (AugPE; Xie et al., ICML 2024); all of them are public. Nothing here imports a
model. The numbers of candidates, of selected ones and of prompts follow from these parameters alone, and never from the
votes (PRIVACY §1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import Field, model_validator

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.planning.layout import PartParameters, labels_without_batches

MOST_ROUNDS = 1000

Selection = Literal["rank", "sample"]


class EvolutionParameters(PartParameters):
    """`parameters:` of a request.

    Attributes:
        samples: how many texts.
        labels: the public label set; a unit votes under one of those that its documents carry.
        rounds: T, how often all units vote.
        variations: L, candidates of a selected text in the next round: itself and rewordings of it.
        candidates: M, candidates of each label in every round; by default L for each text of a label, and where texts
            are allocated equally as many for every label.
        selection: `rank` takes those with the most votes by the noisy counts; `sample` draws in proportion to them.
        threshold: in `sample`, a noisy count that is not above it counts as zero.
        embedder: the public model whose points determine a unit's nearest candidate.
        max_new_tokens, temperature, top_k: sampling of candidates; nothing is charged for it.
    """

    samples: Annotated[int, Field(ge=1, le=1_000_000)]
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)] = 5
    variations: Annotated[int, Field(ge=2, le=1000)] = 4
    candidates: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    selection: Selection = "rank"
    threshold: Annotated[int, Field(ge=0, le=10**9)] = 0
    embedder: Annotated[str, Field(min_length=1, max_length=200)] = "all-minilm-l6-v2"
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] = 256
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal(1)
    top_k: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _counts_are_for_sampling(self) -> Self:
        if self.threshold and self.selection == "rank":
            raise ValueError("a threshold is for `selection: sample`; by rank the best are taken, whatever they have")
        return self


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
        histogram: of all candidates of one round.
        rounds: number of rounds, public.
    """

    histogram: NoisyHistogram
    rounds: int

    @classmethod
    def of(cls, parameters: EvolutionParameters, amount: Amount) -> "Schedule":
        """Calibrate the schedule with the least noise whose mechanisms together cost at most `amount`.

        Raises:
            NoiseInvalid: rho is too small for so many rounds.
            BinsInvalid: too many candidates.
        """
        each = amount.rho // parameters.rounds
        return cls(calibrate_histogram(each, Sizes.planned(parameters).bins), parameters.rounds)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order: one histogram per round, each armed by itself."""
        return (self.histogram.event(),) * self.rounds


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
        """Return the sizes that the parameters lead to.

        Raises:
            LabelWithoutSample: fewer texts than labels.
        """
        labels = labels_without_batches(parameters, parameters.samples)
        texts = tuple(labels.count(label) for label in parameters.labels or (None,))
        return cls(parameters, texts, (parameters.candidates or parameters.variations * max(texts),) * len(texts))

    @property
    def bins(self) -> int:
        """Number of candidates in the vote of a round."""
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
        return self.bins + between + sum(missing)

    def split(self, of_candidates: Sequence[Item]) -> list[list[Item]]:
        """Return what belongs to the candidates of all labels, label by label."""
        items = iter(of_candidates)
        return [list(islice(items, own)) for own in self.candidates]

    @property
    def labels_of_texts(self) -> list[str | None]:
        """The label of every text, in their public order; blocks do not affect a text."""
        return labels_without_batches(self.parameters, self.parameters.samples)
