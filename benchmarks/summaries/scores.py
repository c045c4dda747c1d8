"""How close summaries come to those that people wrote: ROUGE-1, ROUGE-L and BERTScore as F1, and leaked placeholders.

Each text is compared with every reference of its group, and the mean over them is its score. The words, the longest
common subsequence and the greedy matching are those of the platform's own metrics (tasks/evaluation).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.evaluation.algorithms import CommonSubsequence
from tasks.evaluation.neighbours import bert_scores
from tasks.evaluation.overlap import rouge_words
from tasks.text.doubts import has_placeholder
from tasks.text.public_models import Embedder, Pieces

SCORES = ("rouge_1", "rouge_l", "bert_score", "leak")


def rouge_f1(text: str, reference: str) -> tuple[float, float]:
    """ROUGE-1 and ROUGE-L F1; 0 where either has no word."""
    words, others = rouge_words(text), rouge_words(reference)
    if not words or not others:
        return 0.0, 0.0
    total = len(words) + len(others)
    shared = sum((Counter(words) & Counter(others)).values())
    return 2 * shared / total, 2 * CommonSubsequence(words).with_(others) / total


@dataclass(frozen=True)
class KeepingPieces:
    """An embedder that works out the pieces of each reference once; those of texts it forgets."""

    embed: Embedder
    kept: dict[str, Pieces] = field(default_factory=dict)

    def of(self, references: Sequence[str]) -> list[Pieces]:
        missing = [each for each in references if each not in self.kept]
        self.kept.update(zip(missing, self.embed.pieces(missing) if missing else [], strict=True))
        return [self.kept[each] for each in references]


def bert_f1(text: str, references: Sequence[str], embed: KeepingPieces) -> float:
    """The mean BERTScore F1 with the references."""
    (own,) = embed.embed.pieces([text])
    return _mean([bert_scores(own, other)[2] for other in embed.of(references)])


def scores(text: str, references: Sequence[str], embed: KeepingPieces) -> dict[str, float]:
    """Every score of one text, `SCORES`."""
    rouge = [rouge_f1(text, reference) for reference in references]
    return {
        "rouge_1": round(_mean([one for one, _ in rouge]), 5),
        "rouge_l": round(_mean([longest for _, longest in rouge]), 5),
        "bert_score": round(bert_f1(text, references, embed), 5),
        "leak": float(has_placeholder(text)),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
