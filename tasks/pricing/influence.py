"""Influence of the private texts on the next token, in words, by the clip norm that a budget buys.

The thresholds are measurements of `benchmarks/utility/next_tokens.py` (docs/figures/utility.jsonl, docs/utility.md):
SmolLM2-135M, 7 rows, temperature 1, 100 candidates, 24 texts each of Yelp and mts_dialog. Measured is KL(mean of the
rows || system) of the next token, and `closer` is by how many percent it is smaller than the public model's: 0 is the
public model, 100 the rows without protection. It falls with the clip norm, so a threshold's figure holds for every
larger norm.

That is nearness of one token to the private texts, not the quality of a whole text, which the model limits as well.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tasks.planning.batches import batches_per_cell
from tasks.values.plan import WARNING

CLIP_NORM_FACTS = ("clip norm C", "clip norm c")
"""Names of the clip norm among the facts of a plan."""
LEAST_REFERENCES = 4
"""Fewest references of use: below, a word rests on one or two people, and a text says little of the corpus."""
SMALL_INFLUENCE = ("weakly", "hardly", "noise")
"""Levels at which a release is hardly worth its cost."""
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


_FULLY = "The private texts move the next word almost as they would without clipping"
_STRONGLY = "The private texts move the next word strongly"
_CLEARLY = "The private texts move the next word clearly"
_WEAKLY = "The private texts move the next word weakly"
_HARDLY = "The private texts hardly move the next word, so expect the public model's own texts"
_NOISE = "Noise hides the private texts, and the next word is further from them than the public model's"


def _levels(*rows: tuple[str, str, tuple[int, int], str]) -> tuple[InfluenceLevel, ...]:
    return tuple(InfluenceLevel(name, Decimal(norm), closer, sentence) for name, norm, closer, sentence in rows)


LEVELS: Mapping[str, tuple[InfluenceLevel, ...]] = {
    "invisible_ink": _levels(
        ("almost fully", "2", (98, 93), _FULLY),
        ("strongly", "1", (88, 76), _STRONGLY),
        ("clearly", "0.3", (48, 38), _CLEARLY),
        ("weakly", "0.1", (19, 15), _WEAKLY),
        ("hardly", "0", (0, 0), _HARDLY),
    ),
    "invisible_ink, logit": _levels(
        ("almost fully", "4", (94, 94), _FULLY),
        ("strongly", "2", (81, 69), _STRONGLY),
        ("clearly", "0.6", (39, 32), _CLEARLY),
        ("weakly", "0.3", (22, 18), _WEAKLY),
        ("hardly", "0", (0, 0), _HARDLY),
    ),
    "private_icl": _levels(
        ("strongly", "8", (73, 73), _STRONGLY),
        ("clearly", "4", (69, 62), _CLEARLY),
        ("noise", "0", (0, 0), _NOISE),
    ),
    "private_prediction": _levels(
        ("almost fully", "8", (99, 99), f"Where a word is private: {_FULLY[:1].lower()}{_FULLY[1:]}"),
        ("strongly", "4", (95, 88), f"Where a word is private: {_STRONGLY[:1].lower()}{_STRONGLY[1:]}"),
        ("noise", "0", (0, 0), f"Where a word is private: {_NOISE[:1].lower()}{_NOISE[1:]}"),
    ),
}
"""The table of thresholds, the largest first, by mechanism (and by clipping, where a mechanism has two)."""


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
        return f"{self.level.sentence}: clip norm {short_norm(self.clip_norm)}{rows}{self._measured}."

    @property
    def _measured(self) -> str:
        """Return the measurement at the threshold as text; without a measured gain, a reference to the docs."""
        low, high = sorted(self.level.closer)
        if not high:
            return " (docs/planning.md)"
        by = f"{low} to {high}" if low < high else str(low)
        nearer = f"{by} % closer to the mean of the private texts than the public model"
        return f" (measured at {self.level.clip_norm}: {nearer})"


def levels_of(mechanism: str, clipping: str | None = None) -> tuple[InfluenceLevel, ...]:
    """Return the thresholds of a mechanism, the largest first; none for a mechanism that was not measured."""
    return LEVELS.get(f"{mechanism}, logit" if clipping == "logit" else mechanism, ())


def level_named(levels: tuple[InfluenceLevel, ...], name: str) -> InfluenceLevel | None:
    """Return the threshold of that name; None if the mechanism has none."""
    return next((level for level in levels if level.name == name), None)


def clip_norm_of(facts: Mapping[str, str]) -> Decimal | None:
    """Return the clip norm among the facts of a plan; None if there is none."""
    return next((Decimal(facts[name]) for name in CLIP_NORM_FACTS if name in facts), None)


def influence_of(
    facts: Mapping[str, str], mechanism: str, clipping: str | None = None, filled: Fraction = Fraction(1)
) -> Influence | None:
    """Judge the clip norm of a plan; None if nothing was measured for the mechanism and its candidates.

    The thresholds of mechanisms without a public part of the score hold for at most MEASURED_CANDIDATES: among more of
    them a token needs a larger clip norm to stand out. InvisibleInk was measured to depend on them hardly.

    A row that stays empty moves nothing, so a clip norm counts for the part of the B rows that is filled.
    """
    norm, levels = clip_norm_of(facts), levels_of(mechanism, clipping)
    candidates = facts.get("top k", "")
    few = candidates.isdecimal() and int(candidates) <= MEASURED_CANDIDATES
    if norm is None or not levels or not (few or mechanism == "invisible_ink"):
        return None
    part = min(filled, Fraction(1))
    reached = next(level for level in levels if Fraction(norm) * part >= Fraction(level.clip_norm))
    return Influence(reached, norm, part)


def influence_of_request(body: Mapping[str, Any]) -> Influence | None:
    """Judge a canonical request by its own clip norm, population and parameters; see `influence_of`."""
    parameters, plan = body["parameters"], body["plan"]
    filled = filled_part(parameters, body["population"], len(plan["blocks"]))
    return influence_of(plan["facts"], body["mechanism"], parameters.get("clipping"), filled)


def filled_part(parameters: Mapping[str, Any], population: int | None, blocks: int) -> Fraction:
    """Return the expected number of units behind a text divided by its references B, at most 1.

    It is 1 if no population is declared: the number of batches is then made for B.
    """
    if population is None or parameters.get("groups") or not parameters.get("references"):
        return Fraction(1)
    cells = blocks * max(1, len(parameters.get("labels", ())))
    batches = batches_per_cell(parameters["samples"], cells, parameters.get("batches"))
    return min(Fraction(1), Fraction(population, cells * batches * parameters["references"]))


def units_behind(body: Mapping[str, Any]) -> str | None:
    """Return on how many units the texts of a canonical request draw, from public numbers; None without references."""
    facts, population = body["plan"]["facts"], body["population"]
    if "references B" not in facts or "samples" not in facts:
        return None
    count = int(facts["references B"]) * int(facts["samples"])
    if population is None:
        return f"Its texts draw on about {count:,} {'unit' if count == 1 else 'units'}."
    if count >= population:
        return f"Its texts draw on nearly all of the {population:,} declared units."
    return f"Its texts draw on about {count:,} of the {population:,} declared units."


def setting_warnings(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each setting of a canonical request from which little can come."""
    facts = body["plan"]["facts"]
    references, influence = facts.get("references B"), influence_of_request(body)
    if references is not None and Decimal(references) < LEAST_REFERENCES:
        units = "unit" if Decimal(references) == 1 else "units"
        yield (
            f"References B = {references}: each text draws on about {references} {units},"
            " so it says little about the corpus."
        )
    if influence is not None and influence.level.name in SMALL_INFLUENCE:
        yield influence.sentence
    if WARNING in facts:
        yield facts[WARNING]


def short_norm(norm: Decimal) -> str:
    """Return a clip norm with three significant digits."""
    return f"{float(norm):.3g}"
