"""Audits of whole releases whose assignment of units to batches is secret (decision 0100, condition 8).

The path is the shipped one: a store of units, a split with a key of its own for each release, the rows of its batches,
loop, engine, rule and sampler. The reader sees all texts, knows the place of every other unit, and computes the exact
likelihood ratio of each text for "the unit was in this batch". Who does not know the batch has the mean of these.

Texts of many releases are decoded in one loop, which the isolation of rows allows.

Each broken twin lets the reader know more, or the unit do more, than the proof (docs/proofs/secret-assignment.md)
allows, and exceeds the claim. The claim is what the product computes from the rho of all draws of a batch.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from models_db.home import ProjectHome
from tasks.accounting.random_allocation import RandomAllocation, allocation_figures
from tasks.accounting.zcdp import rho_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import Corpus, open_corpus
from tasks.inference.prompt_rendering import reference_tokens
from tasks.mechanisms.tokens import integer_table
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tests.statistical.forced_texts import LONGEST, Batch, Texts, decode_batches
from tests.tiny_model import tiny_model

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

CONFIDENCE = 0.9999
DELTA, BATCHES, DRAWS, TEMPERATURE = "0.03", 32, 2, "0.7"
RHO = rho_of("3", DELTA)
KEY = b"k" * 32
SCHEME = PartitionScheme(KEY, 1)
UNIT, OTHER = "the unit", "another"
TEXTS = {UNIT: "MN\u00c8Z\u0096", OTHER: "\x1e\x1f !"}
NEIGHBOURS = {OTHER: TEXTS[OTHER]}
POISONED = {f"poisoned {number}": TEXTS[UNIT][:-1] for number in range(BATCHES)}
"""Units of the reader, about one for each batch, that push the tokens that the unit pushes."""
Floats = NDArray[np.float64]


def claim(rho: int, batches: int, delta: str) -> float:
    """The epsilon while the assignment is secret, of batches that are all read."""
    return float(allocation_figures(RandomAllocation.whole(rho, batches), delta).epsilon)


def store(folder: Path, texts: dict[str, str]) -> Corpus:
    """A version with these units, one document each."""
    home, source = ProjectHome(folder / "home"), folder / "units.jsonl"
    folder.mkdir(parents=True)
    home.create()
    source.write_text("".join(json.dumps({"who": who, "text": text}) + "\n" for who, text in texts.items()))
    return open_corpus(home, ingest(home, source, "who", KEY).uid)


def tokens_of(text: str) -> tuple[int, ...]:
    return reference_tokens(tiny_model().tokenizer, text, LONGEST)


def batches_of(corpus: Corpus, split: BatchSplit, batches: int) -> list[Batch]:
    """The rows of every batch of one release, as the store gives them."""
    rows = corpus.batches(SCHEME, split, batches, [(0, 0, number) for number in range(batches)])
    return [tuple(tokens_of(row.text) for row in rows[0, 0, number]) for number in range(batches)]


def fixed_denominator(draw: IntegerTableMechanism, rows: int) -> IntegerTableMechanism:
    return draw


def own_denominator(draw: IntegerTableMechanism, rows: int) -> IntegerTableMechanism:
    """BROKEN: a batch is divided by the number of its rows, not by the nominal one."""
    return replace(draw, references=max(1, rows))  # type: ignore[type-var]


@dataclass(frozen=True)
class Releases:
    """Releases of N batches each, all with the unit or all without.

    Attributes:
        draw: the mechanism of every draw, as it was charged.
        batches: N.
        corpus: of the store that is read.
        splits: of each release.
        denominator: the mechanism that draws from a batch of so many rows.
        spread: BROKEN if above 1: the unit is in so many batches, its own and those that follow.
        draws: of each text.
    """

    draw: IntegerTableMechanism
    batches: int
    corpus: Corpus
    splits: Sequence[BatchSplit]
    denominator: Callable[[IntegerTableMechanism, int], IntegerTableMechanism] = fixed_denominator
    spread: int = 1
    draws: int = DRAWS

    @cached_property
    def rows(self) -> list[list[Batch]]:
        """The rows of all batches of each release."""
        found = [batches_of(self.corpus, split, self.batches) for split in self.splits]
        unit = tokens_of(TEXTS[UNIT])
        for release, place in zip(found, self.places, strict=True):
            if unit in release[place]:
                for further in range(1, self.spread):
                    release[(place + further) % self.batches] += (unit,)
        return found

    @property
    def places(self) -> list[int]:
        """Where the unit is, or would be."""
        return [split.batch_of(UNIT, self.batches) for split in self.splits]

    @property
    def row_counts(self) -> Floats:
        """How many rows each release has."""
        return np.array([sum(map(len, release)) for release in self.rows], float)

    def log_mean_ratio(self, seen: Sequence[Sequence[int]]) -> Floats:
        """What a reader knows who knows of each release that the unit is, or would be, in one of `seen`, not in which.

        The logarithm of the mean likelihood ratio of their texts: [releases].
        """
        return log_mean(self.log_ratios(seen))

    def log_ratios(self, seen: Sequence[Sequence[int]]) -> Floats:
        """The logarithm of each text's likelihood ratio, a batch with the unit against without: [releases, seen]."""
        unit = tokens_of(TEXTS[UNIT])
        rows = [release[number] for release, numbers in zip(self.rows, seen, strict=True) for number in numbers]
        drawn, own = self.decoded(rows, None)
        swapped = [tuple(row for row in batch if row != unit) if unit in batch else (*batch, unit) for batch in rows]
        _, other = self.decoded(swapped, drawn)
        signs = [1 if unit in batch else -1 for batch in rows]
        ratios = [sign * (own[number] - other[number]) for number, sign in enumerate(signs)]
        return np.array(ratios).reshape(len(seen), -1)

    def decoded(self, rows: Sequence[Batch], forced: Texts | None) -> tuple[Texts, dict[int, float]]:
        """Tokens and log-probabilities of a text from each batch; batches of one denominator are drawn together."""
        mechanisms = [self.denominator(self.draw, len(batch)) for batch in rows]
        tokens: dict[int, Sequence[int]] = {}
        logs: dict[int, float] = {}
        for references in sorted({mechanism.references for mechanism in mechanisms}):
            numbers = [n for n, mechanism in enumerate(mechanisms) if mechanism.references == references]
            given = {place: forced[number] for place, number in enumerate(numbers)} if forced else None
            draw = mechanisms[numbers[0]]
            made = decode_batches(draw, self.draws, draw.references, [rows[number] for number in numbers], given)
            tokens |= {number: made.tokens[place] for place, number in enumerate(numbers)}
            logs |= {number: made.logs[place] for place, number in enumerate(numbers)}
        return tokens, logs


def log_mean(ratios: Floats) -> Floats:
    """The logarithm of the mean of exp(ratios) of each row, float64 [releases]."""
    return np.asarray(np.logaddexp.reduce(ratios, axis=1) - math.log(ratios.shape[1]))


def secret(releases: Releases) -> Floats:
    return releases.log_mean_ratio([range(releases.batches)] * len(releases.splits))


def spread_out(releases: Releases) -> Floats:
    """BROKEN with a spread above 1: the reader knows how many batches the unit is in, one after the other."""
    ratios = releases.log_ratios([range(releases.batches)] * len(releases.splits))
    together = np.sum([np.roll(ratios, -further, axis=1) for further in range(releases.spread)], axis=0)
    return log_mean(together)


def known(releases: Releases) -> Floats:
    """BROKEN: the reader knows the unit's batch, from the key, or because texts are in the order of their rows."""
    return releases.log_mean_ratio([[place] for place in releases.places])


def ordered(releases: Releases) -> Floats:
    """BROKEN: texts are in the order of the contents of their batches, in which what the unit wrote comes first.

    Without the unit the first one is of the other unit's batch.
    """
    first = [max(release, key=lambda batch: sorted(map(repr, batch), reverse=True)) for release in releases.rows]
    texts, _ = releases.decoded(first, None)
    (_, there), (_, absent) = (
        releases.decoded([(tokens_of(TEXTS[who]),)] * len(first), texts) for who in (UNIT, OTHER)
    )
    return np.array([there[number] - absent[number] for number in range(len(first))])


def counted(releases: Releases) -> Floats:
    """BROKEN: the number of rows of each batch is printed, and the reader knows the other units."""
    return releases.row_counts


def bound_of(
    folder: Path,
    view: Callable[[Releases], Floats],
    trials: int,
    references: int = 1,
    draws: int = DRAWS,
    batches: int = BATCHES,
    neighbours: Mapping[str, str] = NEIGHBOURS,
    **broken: Any,
) -> float:
    """The epsilon that releases with the unit and without prove, by what a reader sees of them.

    Args:
        neighbours: the texts of all other units, which the reader may have written.
    """
    draw = integer_table.calibrate(RHO, draws, references, TEMPERATURE)
    found = []
    for name, texts in (("with", {UNIT: TEXTS[UNIT], **neighbours}), ("without", dict(neighbours))):
        splits = [BatchSplit(BatchSplit.new_key(), "audit/1") for _ in range(trials)]
        found.append(view(Releases(draw, batches, store(folder / name, texts), splits, draws=draws, **broken)))
    return epsilon_lower_bound(*found, float(DELTA), CONFIDENCE).epsilon


def test_a_secret_assignment_holds_its_claim(tmp_path: Path) -> None:
    assert bound_of(tmp_path, secret, trials=200) <= claim(RHO, BATCHES, DELTA)


def test_poisoned_neighbours_change_nothing(tmp_path: Path) -> None:
    bound = bound_of(tmp_path, secret, trials=200, neighbours=POISONED, **FEW)
    assert bound <= claim(RHO, FEW["batches"], DELTA)


FEW = {"references": 8, "draws": 16, "batches": 8}
OWN = FEW | {"denominator": own_denominator}
HALF = {"spread": BATCHES // 2}


@pytest.mark.parametrize(
    ("view", "trials", "given"),
    [
        pytest.param(known, 9000, {}, id="the batch is known"),
        pytest.param(ordered, 9000, {}, id="texts are in the order of their contents"),
        pytest.param(counted, 200, {}, id="rows are counted"),
        pytest.param(spread_out, 400, HALF, id="a unit in half of the batches"),
        pytest.param(secret, 320, OWN, id="own denominator"),
        pytest.param(spread_out, 200, {"spread": BATCHES}, id="a unit in all batches"),
    ],
)
def test_what_the_proof_does_not_allow_exceeds_the_claim(
    tmp_path: Path, view: Callable[[Releases], Floats], trials: int, given: dict[str, Any]
) -> None:
    assert bound_of(tmp_path, view, trials, **given) > claim(RHO, given.get("batches", BATCHES), DELTA)


def one_run_bound(scores: Floats, present: NDArray[np.bool_], delta: float, confidence: float) -> float:
    """Return the epsilon that guesses about many units of one run rule out (Steinke, Nasr, Jagielski, Theorem 5.2).

    arXiv 2305.08846: of m units, each there with probability 1/2, r are guessed; v right guesses have a probability of
    at most P[W >= v] + m delta max over i of 2 P[v > W >= v - i] / i, W binomial (r, e^epsilon / (1 + e^epsilon)). How
    many are guessed, those with the highest and lowest scores, is fixed beforehand.

    Args:
        scores: float64 [m], higher for a unit that seems to be there.
        present: bool [m].
    """
    units, guesses = len(scores), len(scores) // 4
    order = np.argsort(scores, kind="stable")
    right = int((~present[order[: guesses // 2]]).sum() + present[order[-(guesses // 2) :]].sum())
    tried, low = 2 * (guesses // 2), 0.0
    for epsilon in np.arange(0, 8, 0.01):
        law = binom(tried, 1 / (1 + math.exp(-epsilon)))
        below = law.cdf(right - 1) - law.cdf(right - 1 - np.arange(1, tried + 1))
        chance = law.sf(right - 1) + units * delta * (2 * below / np.arange(1, tried + 1)).max()
        if chance >= 1 - confidence:
            return low
        low = float(epsilon)
    return low


class OneRun:
    """One release of many batches, and as many units, each of which is there with probability 1/2.

    Attributes:
        present: bool [units].
        places: int [units], the batch of each unit, there or not.
        ratios: float64 [units, N], the logarithm of each text's likelihood ratio, a unit alone against nobody.
    """

    DELTA = "1e-5"
    BATCHES = 3000
    KINDS = 4
    RHO = 300_000_000_000
    CLAIM = claim(RHO, BATCHES, DELTA)

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(1)
        kinds = ["".join(map(chr, rng.integers(33, 127, 6))) for _ in range(self.KINDS)]
        self.present = rng.random(self.BATCHES) < 0.5
        corpus = store(folder, {f"unit {n}": kinds[n % self.KINDS] for n in np.flatnonzero(self.present)})
        split = BatchSplit(BatchSplit.new_key(), "audit/1")
        self.places = np.array([split.batch_of(f"unit {n}", self.BATCHES) for n in range(self.BATCHES)])
        self.draw = integer_table.calibrate(self.RHO, 1, 1, "1")
        texts = decode_batches(self.draw, 1, 1, batches_of(corpus, split, self.BATCHES)).tokens
        without = self._logs((), texts)
        by_kind = np.array([self._logs((tokens_of(kind),), texts) - without for kind in kinds])
        self.ratios = by_kind[np.arange(self.BATCHES) % self.KINDS]

    def _logs(self, batch: Batch, texts: Texts) -> Floats:
        logs = decode_batches(self.draw, 1, 1, [batch] * self.BATCHES, texts).logs
        return np.array([logs[number] for number in range(self.BATCHES)])

    def bound(self, scores: Floats) -> float:
        return one_run_bound(scores, self.present, float(self.DELTA), 0.99)


def test_one_release_with_thousands_of_canaries_each_in_a_batch(tmp_path: Path) -> None:
    run = OneRun(tmp_path / "one")
    known = run.ratios[np.arange(run.BATCHES), run.places]
    assert run.bound(log_mean(run.ratios)) <= run.CLAIM < run.bound(known)
