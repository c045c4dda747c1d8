"""Cutting a released set of keywords to size by public means: noisy counts, a public model, or coverage.

All of it is post-processing of what was released (URANIA, appendix C, Algorithms 5 and 6, last steps): nothing here
reads the corpus or is charged. Whatever a model answers, the result is a part of the released set.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from models_db.values.requests import FileInvalid
from tasks.analysis.keywords.parameters import KeywordSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Refine = Callable[[Sequence[str], int], list[str]]
"""(keywords, how many) -> so many of them, the best first."""

Embed = Callable[[Sequence[str]], "NDArray[np.float32]"]
"""float32 [n, d], one row of unit length for each text."""

Write = Callable[[Sequence[str], Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Asks a public model: one record of a JSON schema for each prompt, an empty one where it gave none."""

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
"""Answers are numbers of the list, so a model cannot bring in words of its own."""

MOST_COVERED: Final = 8192
"""Released keywords that coverage compares with each other; of more, the first in the order of the alphabet."""


def refiner_for(settings: KeywordSettings, write: Write | None = None, embed: Embed | None = None) -> Refine | None:
    """How the settings cut a set; None where noisy counts do it, which are drawn with the set.

    Raises:
        FileInvalid: there is no model, or no embedder, to do it with.
    """
    if settings.ranking == "counts":
        return None
    tool = {"model": write and by_model(write), "coverage": embed and by_coverage(embed)}[settings.ranking]
    if tool is None:
        problem = f"keywords.ranking: {settings.ranking} is not available here"
        raise FileInvalid("`parameters`", [problem], "docs/keywords.md")
    return tool


def by_counts(keywords: Sequence[str], counts: Sequence[int]) -> Refine:
    """The most frequent by their noisy counts; equal ones in the order of the alphabet."""
    noisy = dict(zip(keywords, counts, strict=True))
    return lambda some, most: sorted(some, key=lambda keyword: (-noisy[keyword], keyword))[:most]


def by_model(write: Write) -> Refine:
    """What a public model finds worth keeping, batch by batch, until no more than the wanted number is left.

    A model that is shown thousands of words keeps those it read last. So it is shown BATCH at a time, in the order of
    the alphabet, and keeps at most half; what it kept is shuffled together with others by taking every so manieth.
    In the round that would leave too few, what it passed over fills the places, in the order of the alphabet.
    """

    def refine(keywords: Sequence[str], most: int) -> list[str]:
        left = sorted(keywords)
        while len(left) > most:
            kept = _round(write, left)
            if len(kept) <= most:
                passed = sorted(set(left) - set(kept))
                return kept + passed[: most - len(kept)]
            left = kept
        return left

    return refine


def _round(write: Write, keywords: Sequence[str]) -> list[str]:
    """What is kept of each batch; the first half of one of which the model said nothing."""
    count = -(-len(keywords) // BATCH)
    batches = [keywords[start::count] for start in range(count)]
    answers = write([keep_prompt(batch) for batch in batches], KEEP_SCHEMA)
    return list(itertools.chain(*(_kept(batch, answer) for batch, answer in zip(batches, answers, strict=True))))


def keep_prompt(batch: Sequence[str]) -> str:
    """What the model is asked of one batch (after URANIA, G.5, in our words)."""
    numbered = "\n".join(f"{number}. {keyword}" for number, keyword in enumerate(batch, 1))
    return (
        "These keywords are shared by many people in a large collection of texts. They will be used to say what the"
        f" texts are about.\n\n{numbered}\n\nChoose at most {len(batch) // 2 or 1} of them: those that name a topic"
        " clearly. Leave out words that fit any topic, and of two words for one thing take one. Answer with their"
        " numbers."
    )


def _kept(batch: Sequence[str], answer: Mapping[str, Any]) -> list[str]:
    half = max(1, len(batch) // 2)
    numbers = answer.get("keep")
    said = numbers if isinstance(numbers, list) else []
    named = [batch[n - 1] for n in said if type(n) is int and 1 <= n <= len(batch)]
    return list(dict.fromkeys(named))[:half] or list(batch[:half])


def by_coverage(embed: Embed) -> Refine:
    """Keywords that stand for all others: each step takes the one that brings most others closer to a taken one.

    Greedy facility location over cosines (Nemhauser, Wolsey, Fisher, Mathematical Programming 14, 1978: within
    1 - 1/e of the best), with Minoux's postponed updates (1978). Unlike farthest points it does not begin with
    what is like nothing else.
    """

    def refine(keywords: Sequence[str], most: int) -> list[str]:
        some = sorted(keywords)[:MOST_COVERED]
        return [some[index] for index in representatives(embed(some), most)] if some else []

    return refine


def representatives(points: "NDArray[np.float32]", most: int) -> list[int]:
    """Rows of float32 [n, d], unit length, that represent the others, in the order in which they were taken."""
    import numpy as np  # settings and plans name this file, and need no arrays

    close = np.maximum(points @ points.T, 0)
    best = np.zeros(len(points), np.float32)
    gains = [(-float(gain), index) for index, gain in enumerate(close.sum(1))]
    heapq.heapify(gains)
    taken: list[int] = []
    while gains and len(taken) < most:
        _, index = heapq.heappop(gains)
        gain = float(np.maximum(close[index] - best, 0).sum())  # it can only have become less
        if gains and gain < -gains[0][0]:
            heapq.heappush(gains, (-gain, index))
            continue
        taken.append(index)
        best = np.maximum(best, close[index])
    return taken
