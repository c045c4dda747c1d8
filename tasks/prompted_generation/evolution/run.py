"""One run of private evolution: candidates, votes, selection, and candidates again.

Candidates are written down before anybody votes on them, and a round's noisy counts together with what was selected by
them. So a run that goes on after a kill votes on the same candidates, draws nothing twice, and neither writes nor asks
for a text again that was there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from models_db.values.canonical_json import Json
from tasks.generation.decoding.public_sampling import text_backend
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.backends.interface import Completion, Sampling
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.parallel_encoder import spread_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.shapes import ContextTooLong
from tasks.prompted_generation.evolution.parameters import EvolutionParameters
from tasks.prompted_generation.evolution.schedule import VARIATION, WAYS, Schedule, labels_of_texts
from tasks.prompted_generation.evolution.selection import Lineage, choose
from tasks.prompted_generation.evolution.voting import VoteHistogram
from tasks.text.interfaces import Embedder
from tasks.values.generated import Generated, GeneratedText
from tasks.values.plan import Plan

Candidates = list[list[Completion]]
"""For each label its candidates, in their public order."""

CLEAR = 3
"""A count so many standard deviations of its noise above zero is hardly noise."""


@dataclass(frozen=True)
class Question:
    """What a model is asked for.

    Attributes:
        label: the number of the label.
        parent: the candidate that is to be reworded; empty for a text from nothing.
        way: how.
    """

    label: int
    parent: str = ""
    way: str = WAYS[0]


@dataclass(frozen=True)
class Outcome:
    """What a round has released.

    Attributes:
        counts: noisy, of all candidates.
        selected: for each label the numbers of its selected candidates.
    """

    counts: list[int]
    selected: list[list[int]]

    def to_json(self) -> Json:
        """As the journal keeps it."""
        return {"counts": list(self.counts), "selected": [list(own) for own in self.selected]}

    @classmethod
    def from_json(cls, stored: Json) -> "Outcome":
        """What `to_json` gave."""
        kept = cast("dict[str, Any]", stored)
        return cls(kept["counts"], kept["selected"])


@dataclass(frozen=True)
class EvolutionRun:
    """The rounds, one after the other."""

    wanted: EvolutionParameters
    schedule: Schedule
    plan: Plan
    bench: RunContext
    embed: Embedder
    electorate: VoteHistogram

    @classmethod
    def of(cls, wanted: EvolutionParameters, schedule: Schedule, plan: Plan, bench: RunContext) -> "EvolutionRun":
        """Nothing is read or spent yet.

        Raises:
            ModelNotPulled: the embedder is not here.
            LabelsNotKept: labels are declared, and the version has none.
        """
        if wanted.labels:
            bench.corpus.require_labels()
        embed = load_embedder(wanted.embedder, bench.device)
        private = spread_embedder(bench.workers, embed, wanted.embedder, bench.device)
        return cls(wanted, schedule, plan, bench, embed, VoteHistogram(bench, plan.blocks, wanted.labels, private))

    def generated(self) -> Generated:
        """The texts, in the public order of their labels.

        Raises:
            StepLost: an interrupted run has paid for a round and lost it.
            EndpointFailed: an external model does not answer.
        """
        self.bench.begin_steps(self.plan)
        candidates, outcome = self._first(), Outcome([], [])
        for number in range(self.wanted.rounds):
            self.bench.progress("rounds", number, self.wanted.rounds)
            outcome = self._voted(number, candidates)
            candidates = self._next(number, candidates, outcome.selected)
        self.bench.progress("rounds", self.wanted.rounds, self.wanted.rounds)
        return Generated(self._texts(candidates), {"candidates_clear_of_noise": str(self._clear(outcome))})

    def _first(self) -> Candidates:
        """From public words alone."""
        each = self.wanted.per_label
        found = self._written(
            "candidates 0", [Question(label) for label in range(self.wanted.parts) for _ in range(each)]
        )
        return [found[label * each : (label + 1) * each] for label in range(self.wanted.parts)]

    def _voted(self, number: int, candidates: Candidates) -> Outcome:
        """One round: armed, counted and drawn, once."""
        released = self.bench.release(
            f"votes {number}",
            [number],
            lambda: self._counts(candidates),
            lambda counts: self._outcome(number, counts).to_json(),
        )
        return Outcome.from_json(released)

    def _counts(self, candidates: Candidates) -> list[int]:
        """How many units vote for each candidate. PRIVATE."""
        points = [points_of(self.embed, [candidate.text for candidate in own]) for own in candidates]
        return self.electorate.voters.counts(points)

    def _outcome(self, number: int, counts: list[int]) -> Outcome:
        wanted, rng = self.wanted, self.bench.rng
        noisy, each = self.schedule.histogram.draw(counts, rng), wanted.per_label
        selected = [
            choose(noisy[label * each : (label + 1) * each], wanted.selection, most, wanted.threshold, rng)
            for label, most in enumerate(wanted.selected(number))
        ]
        return Outcome(noisy, selected)

    def _next(self, number: int, candidates: Candidates, selected: Sequence[Sequence[int]]) -> Candidates:
        """The candidates of the next round, or the texts after the last."""
        wanted, last = self.wanted, number == self.wanted.rounds - 1
        totals = wanted.texts_of if last else (wanted.per_label,) * wanted.parts
        families = [Lineage.of(own, total) for own, total in zip(selected, totals, strict=True)]
        asked = [
            Question(label, candidates[label][parent].text, WAYS[(number + place) % len(WAYS)])
            for label, family in enumerate(families)
            for place, parent in enumerate(family.reworded)
        ]
        found = iter(self._written("texts" if last else f"candidates {number + 1}", asked))
        return [
            [candidates[label][parent] for parent in family.kept] + [next(found) for _ in family.reworded]
            for label, family in enumerate(families)
        ]

    def _written(self, name: str, questions: Sequence[Question]) -> list[Completion]:
        """One text for each question, written down under that name before anything is made of it."""
        if not questions:
            return []
        # An external model's answers are kept by how often the same was asked before in this run: all of it is asked
        # again, in order, and what was answered is found on disk.
        known = self._ask(questions) if text_backend(self.bench).external else None
        released = self.bench.release(
            name,
            (),
            lambda: known if known is not None else self._ask(questions),
            lambda texts: [[text.text, text.tokens, text.complete] for text in texts],
        )
        return [Completion(*each) for each in cast("list[list[Any]]", released)]

    def _ask(self, questions: Sequence[Question]) -> list[Completion]:
        """Ask a backend; where a local model has no room for a candidate, it is shown the beginning alone.

        Raises:
            ContextTooLong: there is no room for public words alone, which is known before anything is spent.
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
        """Questions whose system message is one are asked together."""
        wanted, found = self.wanted, dict[int, Completion]()
        told = [self.bench.prompt.fill("system", self._label(question)) for question in questions]
        for system in dict.fromkeys(told):
            places = [place for place, own in enumerate(told) if own == system]
            how = Sampling(wanted.max_new_tokens, wanted.temperature, wanted.top_k, system)
            texts = text_backend(self.bench).write([self._prompt(questions[place], shown) for place in places], how)
            found.update(zip(places, texts, strict=True))
        return [found[place] for place in range(len(questions))]

    def _prompt(self, question: Question, shown: int) -> str:
        """Public words, and of a rewording the candidate; of one without any word there is nothing to reword."""
        text = question.parent[:shown].strip()
        if not text:
            return self.bench.prompt.fill("public", self._label(question))
        return VARIATION.replace("{way}", question.way).replace("{text}", text)

    def _label(self, question: Question) -> str | None:
        return self.wanted.labels[question.label] if self.wanted.labels else None

    def _texts(self, candidates: Candidates) -> tuple[GeneratedText, ...]:
        found = [text for own in candidates for text in own]
        return tuple(
            GeneratedText(text.text, text.tokens, text.complete, label=label)
            for text, label in zip(found, labels_of_texts(self.wanted), strict=True)
        )

    def _clear(self, outcome: Outcome) -> int:
        """How many counts of the last round stand clear of their noise: how much the votes could tell."""
        return sum(count > CLEAR * float(self.schedule.histogram.noise.sigma) for count in outcome.counts)
