"""Influence of the private texts on the next token, in words, by the clip norm that a budget buys.

The thresholds are measurements of `benchmarks/utility/next_tokens.py` (docs/figures/utility.jsonl, docs/utility.md):
SmolLM2-135M, 7 rows, temperature 1, 100 candidates, 24 texts each of Yelp and mts_dialog. Measured is KL(mean of the
rows || system) of the next token, and `closer` is by how many percent it is smaller than the public model's: 0 is the
public model, 100 the rows without protection. It falls with the clip norm, so a threshold's figure holds for every
larger norm.

That is nearness of one token to the private texts, not the quality of a whole text, which the model limits as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

CLIP_NORM_FACTS = ("clip norm C", "clip norm c")
"""Names of the clip norm among the facts of a plan."""
MEASURED_CANDIDATES = 100
"""Candidates k of the measurements."""


@dataclass(frozen=True)
class InfluenceLevel:
    """One threshold.

    Attributes:
        name: the level in one word, as plans and tests name it.
        clip_norm: the least clip norm of the level.
        closer: what was measured at that clip norm, in percent: Yelp, mts_dialog.
        sentence: the judgement in words.
    """

    name: str
    clip_norm: Decimal
    closer: tuple[int, int]
    sentence: str


FULLY = "The private texts move the next word almost as they would without clipping"
STRONGLY = "The private texts move the next word strongly"
CLEARLY = "The private texts move the next word clearly"
WEAKLY = "The private texts move the next word weakly"
HARDLY = "The private texts hardly move the next word, so expect the public model's own texts"
NOISE = "Noise hides the private texts, and the next word is further from them than the public model's"


def levels(*rows: tuple[str, str, tuple[int, int], str]) -> tuple[InfluenceLevel, ...]:
    """Return the thresholds of a system, the largest first: name, clip norm, what was measured, sentence."""
    return tuple(InfluenceLevel(name, Decimal(norm), closer, sentence) for name, norm, closer, sentence in rows)


@dataclass(frozen=True)
class Influence:
    """Judgement of one clip norm.

    Attributes:
        level: the threshold that it reaches.
        clip_norm: the clip norm, as the price states it.
        filled: the expected number of rows divided by the nominal number B, at most 1.
    """

    level: InfluenceLevel
    clip_norm: Decimal
    filled: Fraction = Fraction(1)

    @property
    def sentence(self) -> str:
        """Return the judgement as one sentence, with the measurement that it rests on."""
        rows = "" if self.filled == 1 else f", {float(self.filled) * 100:.0f} % of the B rows filled"
        return f"{self.level.sentence}: clip norm {float(self.clip_norm):.3g}{rows}{self._measured}."

    @property
    def _measured(self) -> str:
        """Return the measurement at the threshold as text; without a measured gain, a reference to the docs."""
        low, high = sorted(self.level.closer)
        if not high:
            return " (docs/planning.md)"
        by = f"{low} to {high}" if low < high else str(low)
        nearer = f"{by} % closer to the mean of the private texts than the public model"
        return f" (measured at {self.level.clip_norm}: {nearer})"


def level_named(thresholds: tuple[InfluenceLevel, ...], name: str) -> InfluenceLevel | None:
    """Return the threshold of that name; None if the system has none."""
    return next((level for level in thresholds if level.name == name), None)


def clip_norm_of(facts: Mapping[str, str]) -> Decimal | None:
    """Return the clip norm among the facts of a plan; None if there is none."""
    return next((Decimal(facts[name]) for name in CLIP_NORM_FACTS if name in facts), None)


def influence_of(
    facts: Mapping[str, str],
    thresholds: tuple[InfluenceLevel, ...],
    *,
    depends_on_candidates: bool,
    filled: Fraction = Fraction(1),
) -> Influence | None:
    """Judge the clip norm of a plan; None if nothing was measured for its system and its candidates.

    The thresholds of systems without a public part of the score hold for at most MEASURED_CANDIDATES: among more of
    them a token needs a larger clip norm to stand out.

    A row that stays empty moves nothing, so a clip norm counts for the part of the B rows that is filled.
    """
    norm, candidates = clip_norm_of(facts), facts.get("top k", "")
    few = candidates.isdecimal() and int(candidates) <= MEASURED_CANDIDATES
    if norm is None or not thresholds or not (few or not depends_on_candidates):
        return None
    part = min(filled, Fraction(1))
    reached = next(level for level in thresholds if Fraction(norm) * part >= Fraction(level.clip_norm))
    return Influence(reached, norm, part)
