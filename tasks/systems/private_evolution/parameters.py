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
