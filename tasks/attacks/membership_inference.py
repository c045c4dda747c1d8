"""Membership inference from a release: one score for each text, higher for "was in the corpus".

Three scores, from different knowledge. Each is a pure function of released texts and of the texts in question; which of
them were members is known to the judge alone (`tasks.attacks.roc`).

* `embedding_scores`: the largest similarity to a released text (Liu et al., URANIA, 2025, appendix F).
* `likelihood_ratio_scores`: how much likelier the release's own language makes a text than a public model does; the
  quotient of "from this release" and "from the world" (Carlini et al., IEEE S&P 2022, section IV; for synthetic text
  Meeus et al., arXiv 2502.14921).
* `overlap_scores`: the share of a text's four-word runs that were released: finds copies, and nothing else.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.attacks.unigram_model import UnigramModel
from tasks.evaluation.core.subject import Scorer
from tasks.text.interfaces import Embedder
from tasks.text.shingles import containment, joined
from tasks.text.words import words

NO_EVIDENCE = -1e9
"""The score of a text without words: below every other one, on both sides alike."""


def embedding_scores(embed: Embedder, released: Sequence[str], candidates: Sequence[str]) -> list[float]:
    """Return the largest cosine similarity of each text to a released one; at least one text must be released.

    Raises:
        ValueError: nothing was released.
    """
    if not released:
        raise ValueError("without a released text there is nothing to be similar to")
    if not candidates:
        return []
    similarity = _unit(embed(candidates)) @ _unit(embed(released)).T
    largest: list[float] = similarity.max(axis=1).astype(np.float64).tolist()
    return largest


def likelihood_ratio_scores(score: Scorer, released: Sequence[str], candidates: Sequence[str]) -> list[float]:
    """(log P_release(x) - log P_public(x)) / words of x: nats per word; NO_EVIDENCE for a text without words.

    A text of one token has no public likelihood and is asked about as if it had 1.
    """
    language = UnigramModel(released)
    lengths = [len(words(text)) for text in candidates]
    usable = [place for place, length in enumerate(lengths) if length]
    scores = [NO_EVIDENCE] * len(candidates)
    public = score([candidates[place] for place in usable])
    for place, (in_public, _) in zip(usable, public, strict=True):
        scores[place] = (language.log_likelihood(candidates[place]) - in_public) / lengths[place]
    return scores


def overlap_scores(released: Sequence[str], candidates: Sequence[str]) -> list[float]:
    """Return the share of each text's four-word runs that some released text has too."""
    haystack = joined(released)
    return [containment(text, haystack) for text in candidates]


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled
