"""Processor time that a system spends on each unit beside the model's rows: facets and embeddings.

Measured on two cores with AVX-512 (docs/facets.md, docs/insights-results.md) and rounded up: estimates for a quote.
The model's own answers are rows of the plan, and are not counted here.
"""

from typing import Final

EXTRACTION_SECONDS: Final = {"rake": 0.0002, "model": 0.0}
EMBEDDING_SECONDS: Final = {"all-minilm-l6-v2": 0.0065, "all-mpnet-base-v2": 0.035}
LARGEST_EMBEDDING_SECONDS: Final = max(EMBEDDING_SECONDS.values())


def seconds_per_unit(embedder: str, embedded: float = 1, extractor: str | None = None) -> float:
    """Return the seconds of one unit.

    Args:
        embedder: name of the model; of one that was not measured, the slowest figure counts.
        embedded: texts that are embedded for each unit.
        extractor: of its facets or phrases; None where nothing is extracted.
    """
    extracting = 0.0 if extractor is None else EXTRACTION_SECONDS[extractor]
    return extracting + embedded * EMBEDDING_SECONDS.get(embedder, LARGEST_EMBEDDING_SECONDS)
