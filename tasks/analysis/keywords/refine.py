"""Refinement of a released keyword set to its size by public means: noisy counts, a public model, or coverage.

All of it is post-processing of released values (URANIA, appendix C, Algorithms 5 and 6, last steps): nothing here
reads the corpus or is charged. For any answer of a model, the result is a part of the released set.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from models_db.values.requests import file_invalid
from tasks.analysis.keywords.parameters import KeywordSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Refine = Callable[[Sequence[str], int], list[str]]
"""(keywords, number) -> that number of them, the best first."""

Embed = Callable[[Sequence[str]], "NDArray[np.float32]"]
"""float32 [n, d], one row of unit length for each text."""

Write = Callable[[Sequence[str], Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Prompts a public model: one record of a JSON schema for each prompt, an empty one where it gave none."""

BATCH: Final = 20
"""Keywords that the model sees at one time; it keeps at most half of them."""

KEEP_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "keep": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": BATCH},
            "minItems": 1,
            "maxItems": BATCH // 2,
        }
    },
    "required": ["keep"],
    "additionalProperties": False,
}
"""Answers are numbers of the list, so a model cannot add words of its own."""

MOST_COVERED: Final = 8192
"""Most released keywords that coverage compares: the first in the order of the alphabet."""


def refiner_for(settings: KeywordSettings, write: Write | None = None, embed: Embed | None = None) -> Refine | None:
    """Return the refinement of the settings; None for noisy counts, which are drawn with the set.

    Raises:
        FileInvalid: the model or the embedder that it needs is missing.
    """
    if settings.ranking == "counts":
        return None
    tool = {"model": write and by_model(write), "coverage": embed and by_coverage(embed)}[settings.ranking]
    if tool is None:
        problem = f"keywords.ranking: {settings.ranking} is not available here"
        raise file_invalid("`parameters`", [problem], "docs/keywords.md")
    return tool


def by_counts(keywords: Sequence[str], counts: Sequence[int]) -> Refine:
    """Keep the most frequent by their noisy counts; equal ones in the order of the alphabet."""
    noisy = dict(zip(keywords, counts, strict=True))
    return lambda some, most: sorted(some, key=lambda keyword: (-noisy[keyword], keyword))[:most]


def by_model(write: Write) -> Refine:
    """Keep the choices of a public model, batch by batch, until at most the requested number is left.

    A model that is shown thousands of words keeps those it read last. So it is shown BATCH at a time, in the order of
    the alphabet, and keeps at most half; the kept words are mixed into new batches by taking every n-th one.
    In the round that would leave too few, passed-over words fill the places, in the order of the alphabet.
    """

    def refine(keywords: Sequence[str], most: int) -> list[str]:
        remaining = sorted(keywords)
        while len(remaining) > most:
            kept = _refine_once(write, remaining)
            if len(kept) <= most:
                passed_over = sorted(set(remaining) - set(kept))
                return kept + passed_over[: most - len(kept)]
            remaining = kept
        return remaining

    return refine


def _refine_once(write: Write, keywords: Sequence[str]) -> list[str]:
    """Return the kept words of each batch; the first half of a batch without an answer."""
    count = -(-len(keywords) // BATCH)
    batches = [keywords[start::count] for start in range(count)]
    answers = write([keep_prompt(batch) for batch in batches], KEEP_SCHEMA)
    return list(
        itertools.chain(*(_keywords_to_keep(batch, answer) for batch, answer in zip(batches, answers, strict=True)))
    )


def keep_prompt(batch: Sequence[str]) -> str:
    """Return the prompt for one batch (after URANIA, G.5, in our words)."""
    numbered = "\n".join(f"{number}. {keyword}" for number, keyword in enumerate(batch, 1))
    return (
        "These keywords are shared by many people in a large collection of texts. They will be used to say what the"
        f" texts are about.\n\n{numbered}\n\nChoose at most {len(batch) // 2 or 1} of them: those that name a topic"
        " clearly. Leave out words that fit any topic, and of two words for one thing take one. Answer with their"
        " numbers."
    )


def _keywords_to_keep(batch: Sequence[str], answer: Mapping[str, Any]) -> list[str]:
    half = max(1, len(batch) // 2)
    numbers = answer.get("keep")
    listed_numbers = numbers if isinstance(numbers, list) else []
    chosen = [batch[n - 1] for n in listed_numbers if type(n) is int and 1 <= n <= len(batch)]
    return list(dict.fromkeys(chosen))[:half] or list(batch[:half])


def by_coverage(embed: Embed) -> Refine:
    """Keep keywords that represent all others: each step takes the one that brings most others closer to a taken one.

    Greedy facility location over cosines (Nemhauser, Wolsey, Fisher, Mathematical Programming 14, 1978: within
    1 - 1/e of the best), with Minoux's postponed updates (1978). Unlike farthest points it does not begin with
    outliers.
    """

    def refine(keywords: Sequence[str], most: int) -> list[str]:
        covered = sorted(keywords)[:MOST_COVERED]
        return [covered[index] for index in representatives(embed(covered), most)] if covered else []

    return refine


def representatives(points: "NDArray[np.float32]", most: int) -> list[int]:
    """Return rows of float32 [n, d], unit length, that represent the others, in the order in which they were taken."""
    import numpy as np  # settings and plans import this file, and need no arrays

    similarity = np.maximum(points @ points.T, 0)
    best = np.zeros(len(points), np.float32)
    gains = [(-float(gain), index) for index, gain in enumerate(similarity.sum(1))]
    heapq.heapify(gains)
    taken: list[int] = []
    while gains and len(taken) < most:
        _, index = heapq.heappop(gains)
        gain = float(np.maximum(similarity[index] - best, 0).sum())  # it can only have decreased
        if gains and gain < -gains[0][0]:
            heapq.heappush(gains, (-gain, index))
            continue
        taken.append(index)
        best = np.maximum(best, similarity[index])
    return taken
