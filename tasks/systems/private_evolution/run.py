"""Run of private evolution: candidates, private votes of units, selection, and candidates again.

Private votes of units for candidates, before noise is added. A unit casts one vote in a round, over the candidates of
all labels together: it is read under one label, by a keyed choice among those that its documents carry, and votes for
the nearest candidate of that label. Its point is computed from its own text alone
(`tasks.inference.embeddings.unit_embeddings`), which candidate is nearest is exact in integers, and of equally near
ones it is the first in their public order (`tasks.mechanisms.vectors.fixed_point`). So adding or removing a unit moves
one count by one, and no other unit's vote.

Two kinds of units do not vote: those with none of the declared labels, and those whose text has the embedding of the
empty text.

Candidates are stored before the vote on them, and a round's noisy counts together with the selection from them. So a
run that continues after a kill votes on the same candidates, draws nothing twice, and does not generate or request a
stored text again.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, cycle, islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from models_db.values.canonical_json import Json
from tasks.corpus.store import ShardProgress, UnitOrder
from tasks.decoding.public_sampling import text_backend
from tasks.decoding.run_context import RunContext
from tasks.inference.backends.text_backend import Completion, Sampling
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.parallel import spread_embedder
from tasks.inference.embeddings.unit_embeddings import Points, RetriedEmbedder, points_of
from tasks.mechanisms.core.rng import RandomSource, uniform_below_each
from tasks.mechanisms.vectors.fixed_point import GridPoints
from tasks.systems.private_evolution.schedule import VARIATION, WAYS, EvolutionParameters, Schedule, Selection, Sizes
from tasks.text.public_models import Embedder
from tasks.values.plan import Plan
from tasks.values.results import Generated, GeneratedText

_AS_EMPTY = 1e-5
"""A point that is no farther than this from the empty text's, in each coordinate, is that of the empty text."""


@dataclass(frozen=True)
class BlockVotes:
    """Voting units with their labels and points.

    Attributes:
        label: the number of the label under which each votes, int64 [n].
        points: one point per unit.
    """

    label: NDArray[np.int64]
    points: GridPoints

    def counts(self, candidates: Sequence[Points]) -> list[int]:
        """Count the units that vote for each candidate, label by label.

        Args:
            candidates: for each label float32 [M, width], in the public order of its candidates.
        """
        return [votes for label, public in enumerate(candidates) for votes in self._under(label, public)]

    def _under(self, label: int, public: Points) -> list[int]:
        own = self.label == label
        voters = GridPoints(self.points.steps[own], self.points.usable[own])
        votes: list[int] = np.bincount(voters.nearest(public.astype(np.float64)), minlength=len(public)).tolist()
        return votes


@dataclass(frozen=True)
class VoteHistogram:
    """The units of a release; nothing is read before the first use of `voters`, which must be after ARM.

    Attributes:
        blocks: eligible blocks of the release.
        labels: the declared labels; may be empty.
        embed: computes points.
    """

    context: RunContext
    blocks: Sequence[int]
    labels: Sequence[str]
    embed: Embedder

    @cached_property
    def voters(self) -> BlockVotes:
        """Voting units, computed once and kept in memory only; their texts are read some shards at a time."""
        progress = ShardProgress(self.context.in_tenths("units for the votes"))
        empty = points_of(self.embed, [""])
        parts: list[tuple[list[UnitOrder], GridPoints]] = []
        for lot in self.context.lots(self.blocks, self.labels):
            progress.enter(lot)
            points = points_of(self.embed, [placed.unit.text for placed in lot.units], progress)
            votes = (np.abs(points - empty) > _AS_EMPTY).any(axis=1)
            orders = [placed.order for placed, own in zip(lot.units, votes, strict=True) if own]
            parts.append((orders, GridPoints.of(points[votes])))
            progress(1, 1)
        return _in_order(parts)


def _in_order(parts: Sequence[tuple[list[UnitOrder], GridPoints]]) -> BlockVotes:
    """Join the voters of all lots, in the keyed order of units."""
    orders = [order for part, _ in parts for order in part]
    places = np.array(sorted(range(len(orders)), key=orders.__getitem__), np.int64)
    steps, usable = (np.concatenate([getattr(points, name) for _, points in parts]) for name in ("steps", "usable"))
    labels = np.array([orders[place][1] for place in places], np.int64)
    return BlockVotes(labels, GridPoints(steps[places], usable[places]))


def choose(noisy: Sequence[int], how: Selection, most: int, threshold: int, rng: RandomSource) -> list[int]:
    """Select candidates of one label, and return their numbers.

    Args:
        noisy: a noisy count for each candidate, some of them negative; at least one.
        how: `rank`: the `most` of the highest counts, or all if there are fewer, the highest first, equal ones in their
            public order. `sample`: `most` draws in proportion to the counts above `threshold`, with repetitions; where
            no count is above it, each candidate is as likely as any other.
        threshold: not negative.
    """
    if how == "rank":
        return sorted(range(len(noisy)), key=lambda number: (-noisy[number], number))[:most]
    weights = [count if count > threshold else 0 for count in noisy]
    ends = list(accumulate(weights if any(weights) else [1] * len(noisy)))
    return [bisect_right(ends, drawn) for drawn in uniform_below_each([ends[-1]] * most, rng)]


@dataclass(frozen=True)
class Lineage:
    """The next generation of the candidates of one label.

    Attributes:
        kept: numbers of the unchanged candidates, each once, in the order of their selection.
        reworded: for each new text the number of the candidate that it is a rewording of.
    """

    kept: tuple[int, ...]
    reworded: tuple[int, ...]

    @classmethod
    def of(cls, selected: Sequence[int], total: int) -> "Lineage":
        """Derive `total` texts from the selected candidates.

        A candidate drawn several times stays once and is reworded as often as it was drawn again; the missing texts
        are then distributed over all draws in turn.

        Args:
            selected: at least one, and no more than `total`.
        """
        kept = tuple(dict.fromkeys(selected))
        chosen: set[int] = set()
        again = [number for number in selected if number in chosen or chosen.add(number)]  # type: ignore[func-returns-value]
        reworded = islice(chain(again, cycle(selected)), total - len(kept))
        return cls(kept, tuple(reworded))


Candidates = list[list[Completion]]
"""Candidates of each label, in their public order."""

CLEAR = 3
"""Standard deviations of its noise from which a count is considered clear of noise."""


@dataclass(frozen=True)
class Question:
    """A request to the model for one text.

    Attributes:
        label: the number of the label.
        parent: the candidate to reword; empty for a new text.
        way: the way of rewording.
    """

    label: int
    parent: str = ""
    way: str = WAYS[0]


@dataclass(frozen=True)
class Outcome:
    """Released values of a round.

    Attributes:
        counts: noisy, of all candidates.
        selected: for each label the numbers of its selected candidates.
    """

    counts: list[int]
    selected: list[list[int]]

    def to_json(self) -> Json:
        """Return the form of the journal."""
        return {"counts": list(self.counts), "selected": [list(own) for own in self.selected]}

    @classmethod
    def from_json(cls, stored: Json) -> "Outcome":
        """Read the form of `to_json`."""
        fields = cast("dict[str, Any]", stored)
        return cls(fields["counts"], fields["selected"])


@dataclass(frozen=True)
class EvolutionRun:
    """The rounds of a run, each with its vote and its selection."""

    parameters: EvolutionParameters
    schedule: Schedule
    plan: Plan
    context: RunContext
    embed: Embedder
    electorate: VoteHistogram

    @classmethod
    def of(cls, parameters: EvolutionParameters, schedule: Schedule, plan: Plan, context: RunContext) -> "EvolutionRun":
        """Build the run; nothing is read or spent yet.

        Raises:
            ModelNotPulled: the embedder is not on this machine.
            LabelsNotKept: labels are declared, and the version has none.
        """
        if parameters.labels:
            context.corpus.require_labels()
        embed = load_embedder(parameters.embedder, context.device)
        private = spread_embedder(context.workers, embed, parameters.embedder, context.device, context.text_shards)
        electorate = VoteHistogram(context, plan.blocks, parameters.labels, private)
        return cls(parameters, schedule, plan, context, RetriedEmbedder(embed), electorate)

    def generated(self) -> Generated:
        """Run all rounds and return the texts, in the public order of their labels.

        Raises:
            StepLost: an interrupted run has paid for a round and lost it.
            EndpointFailure: an external model does not answer.
        """
        self.context.begin_steps(self.plan)
        candidates, outcome = self._first_candidates(), Outcome([], [])
        for number in range(self.parameters.rounds):
            self.context.progress("rounds", number, self.parameters.rounds)
            outcome = self._vote(number, candidates)
            candidates = self._next_candidates(number, candidates, outcome.selected)
        self.context.progress("rounds", self.parameters.rounds, self.parameters.rounds)
        return Generated(self._texts(candidates), {"candidates_clear_of_noise": str(self._clear(outcome))})

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes.planned(self.parameters)

    def _first_candidates(self) -> Candidates:
        """Return the first candidates, from public words alone."""
        wanted = enumerate(self._sizes.candidates)
        questions = [Question(label) for label, number in wanted for _ in range(number)]
        return self._sizes.split(self._stored_texts("candidates 0", questions))

    def _vote(self, number: int, candidates: Candidates) -> Outcome:
        """Arm, count and draw the votes of one round, once."""
        released = self.context.release(
            f"votes {number}",
            [number],
            lambda: self._counts(candidates),
            lambda counts: self._outcome(number, counts).to_json(),
        )
        return Outcome.from_json(released)

    def _counts(self, candidates: Candidates) -> list[int]:
        """Count the units that vote for each candidate. PRIVATE."""
        points = [points_of(self.embed, [candidate.text for candidate in own]) for own in candidates]
        return self.electorate.voters.counts(points)

    def _outcome(self, number: int, counts: list[int]) -> Outcome:
        parameters, rng = self.parameters, self.context.rng
        noisy = self.schedule.histogram.draw(counts, rng)
        selected = [
            choose(own, parameters.selection, most, parameters.threshold, rng)
            for own, most in zip(self._sizes.split(noisy), self._sizes.selected(number), strict=True)
        ]
        return Outcome(noisy, selected)

    def _next_candidates(self, number: int, candidates: Candidates, selected: Sequence[Sequence[int]]) -> Candidates:
        """Return the candidates of the next round, or the texts after the last."""
        last = number == self.parameters.rounds - 1
        totals = self._sizes.texts if last else self._sizes.candidates
        families = [Lineage.of(own, total) for own, total in zip(selected, totals, strict=True)]
        questions = [
            Question(label, candidates[label][parent].text, WAYS[(number + place) % len(WAYS)])
            for label, family in enumerate(families)
            for place, parent in enumerate(family.reworded)
        ]
        texts = iter(self._stored_texts("texts" if last else f"candidates {number + 1}", questions))
        return [
            [candidates[label][parent] for parent in family.kept] + [next(texts) for _ in family.reworded]
            for label, family in enumerate(families)
        ]

    def _stored_texts(self, name: str, questions: Sequence[Question]) -> list[Completion]:
        """Generate one text for each question, stored under `name` before any further use."""
        if not questions:
            return []
        # Answers of an external model are cached by the number of equal prompts before in this run: all questions are
        # asked again, in order, and the cache has the earlier answers.
        external_answers = self._ask(questions) if text_backend(self.context).external else None
        released = self.context.release(
            name,
            (),
            lambda: external_answers if external_answers is not None else self._ask(questions),
            lambda texts: [[text.text, text.tokens, text.complete] for text in texts],
        )
        return [Completion(*fields) for fields in cast("list[list[Any]]", released)]

    def _ask(self, questions: Sequence[Question]) -> list[Completion]:
        """Ask a backend; a candidate that does not fit the context of a local model is cut to its beginning.

        Raises:
            ContextTooLong: not even the public words fit, which is known before anything is spent.
        """
        shown = max(len(question.parent) for question in questions)
        while True:
            try:
                return self._answers(questions, shown)
            except ContextTooLong:
                if not shown:
                    raise
                shown //= 2

    def _answers(self, questions: Sequence[Question], shown: int) -> list[Completion]:
        """Ask the questions, those with the same system message together."""
        answers = dict[int, Completion]()
        system_messages = [self.context.prompt.fill("system", self._label(question)) for question in questions]
        for system in dict.fromkeys(system_messages):
            places = [place for place, own in enumerate(system_messages) if own == system]
            prompts = [self._prompt(questions[place], shown) for place in places]
            texts = text_backend(self.context).write(prompts, self._sampling(self._label(questions[places[0]])))
            answers.update(zip(places, texts, strict=True))
        return [answers[place] for place in range(len(questions))]

    def _sampling(self, label: str | None) -> Sampling:
        parameters = self.parameters
        system_message = self.context.prompt.fill("system", label)
        return Sampling(parameters.max_new_tokens, parameters.temperature, parameters.top_k, system_message)

    def _prompt(self, question: Question, shown: int) -> str:
        """Return the prompt: public words, or a rewording of the candidate, unless that is empty."""
        text = question.parent[:shown].strip()
        if not text:
            return self.context.prompt.fill("public", self._label(question))
        return VARIATION.replace("{way}", question.way).replace("{text}", text)

    def _label(self, question: Question) -> str | None:
        return self.parameters.labels[question.label] if self.parameters.labels else None

    def _texts(self, candidates: Candidates) -> tuple[GeneratedText, ...]:
        texts = [text for own in candidates for text in own]
        return tuple(
            GeneratedText(text.text, text.tokens, text.complete, label=label)
            for text, label in zip(texts, self._sizes.labels_of_texts, strict=True)
        )

    def _clear(self, outcome: Outcome) -> int:
        """Count the candidates of the last round whose count is clear of its noise."""
        return sum(count > CLEAR * float(self.schedule.histogram.noise.sigma) for count in outcome.counts)
