"""Parameters of a private evolution request (AugPE; Xie et al., ICML 2024); all of them are public.

Nothing here imports a model. The numbers of candidates, of selected ones and of prompts follow from these parameters
alone, and never from the votes (PRIVACY §1).
"""

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models_db.values.requests import ExactDecimal
from tasks.planning.labels_and_groups import PartParameters

MOST_ROUNDS = 1000

Selection = Literal["rank", "sample"]


class EvolutionParameters(PartParameters):
    """`parameters:` of a request.

    Attributes:
        samples: how many texts.
        labels: the public label set; a unit votes under one of those that its documents carry.
        rounds: T, how often all units vote.
        variations: L, candidates of a selected text in the next round: itself and rewordings of it.
        candidates: M, candidates of each label in every round; by default L for each text of a label.
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

    @property
    def parts(self) -> int:
        """Number of labels; 1 without labels."""
        return max(1, len(self.labels))

    @property
    def texts_of(self) -> tuple[int, ...]:
        """Number of texts of each label, which differ by at most one."""
        least, remainder = divmod(self.samples, self.parts)
        return tuple(least + (label < remainder) for label in range(self.parts))

    @property
    def per_label(self) -> int:
        """M, the number of candidates of each label."""
        return self.candidates or self.variations * max(self.texts_of)

    @property
    def bins(self) -> int:
        """Number of candidates in the vote of a round."""
        return self.parts * self.per_label

    @property
    def kept(self) -> int:
        """Number of selected candidates of a label after every round except the last."""
        return max(1, self.per_label // self.variations)

    def selected(self, number: int) -> tuple[int, ...]:
        """Return the selected candidates of each label after round `number`, from 0; after the last, the texts."""
        return self.texts_of if number == self.rounds - 1 else (self.kept,) * self.parts

    @property
    def prompts(self) -> int:
        """Most prompts that a backend answers; a candidate drawn twice stays once and is reworded."""
        least = self.kept if self.selection == "rank" else 1
        between = (self.rounds - 1) * self.parts * (self.per_label - least)
        return self.bins + between + sum(map(self._missing, self.texts_of))

    def _missing(self, texts: int) -> int:
        """Return the most rewordings that fill up the texts of a label."""
        return max(0, texts - self.per_label) if self.selection == "rank" else texts - 1
