"""Run of keyphrase seeding: reads units, releases vocabulary and sketches, and generates texts from them.

Everything after the sketches is a function of `ReleasedValues` and of public values: these suffice to generate more
texts. A run that continues after a kill uses the values of the journal, sequences included, so that prompts stay the
same and a model behind an API is not called twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

from models_db.values.canonical_json import Json
from tasks.analysis.facets.extractor import extractor_for
from tasks.common.array_encoding import sums_json, sums_of_json
from tasks.decoding.public_sampling import text_backend
from tasks.decoding.run_context import PlannedStageBudget, RunContext
from tasks.inference.backends.text_backend import Completion, Sampling
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import RetriedEmbedder, points_of
from tasks.mechanisms.vectors.kde_sketch import FourierFeatures, Sums
from tasks.planning.layout import labels_without_batches
from tasks.systems.keyphrase_seeding.phrases import Drawer, PhraseReader, Scorer, Sequences, draw_sequences, facets_of
from tasks.systems.keyphrase_seeding.stages import KeyphraseParameters, Stages, seeded
from tasks.text.public_models import Embedder
from tasks.text.public_topics import PUBLIC_TOPICS
from tasks.values.plan import Plan
from tasks.values.results import Generated, GeneratedText

VOCABULARY, SKETCHES, SEQUENCES = "vocabulary", "sketches", "sequences"
"""The steps of a run, in the journal."""

TEXTS_AT_ONCE = 256


@dataclass(frozen=True)
class ReleasedValues:
    """All values that the mechanisms have released.

    Attributes:
        vocabulary: the phrases, in the order of the alphabet; empty if none could be released.
        sums: noisy sums, int64 [positions, labels, 2D].
    """

    vocabulary: tuple[str, ...]
    sums: Sums

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form."""
        return {"vocabulary": list(self.vocabulary), "sketches": sums_json(self.sums)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ReleasedValues":
        """Read the form of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: another form.
        """
        return cls(tuple(map(str, stored["vocabulary"])), sums_of_json(stored["sketches"]))


@dataclass(frozen=True)
class KeyphraseRun:
    """The stages of a run; each is released once."""

    parameters: KeyphraseParameters
    stages: Stages
    plan: Plan
    context: RunContext
    embed: Embedder
    reader: PhraseReader

    @classmethod
    def of(cls, parameters: KeyphraseParameters, stages: Stages, plan: Plan, context: RunContext) -> "KeyphraseRun":
        """Build the run; nothing is read or spent yet.

        Raises:
            ModelNotPulled: the embedder is not on this machine.
            LabelsNotKept: labels are declared, and the version has none.
        """
        if parameters.labels and parameters.extends is None:
            context.corpus.require_labels()
        embed = load_embedder(parameters.embedder, context.device)
        reader = PhraseReader(parameters, context, extractor_for(facets_of(parameters)), embed)
        return cls(parameters, stages, plan, context, RetriedEmbedder(embed), reader)

    def generated(self) -> Generated:
        """Run all stages and return the texts, in the public order of their labels.

        Raises:
            StepLost: an interrupted run has paid for a stage and lost it.
            ContextTooLong, NoChatTemplate, ControlTokens: the local model cannot take the prompts; known before paying.
            EndpointFailure: an external model does not answer; one that never answers is detected before paying.
        """
        self.context.begin_steps(self.plan)
        self._require_ready()
        sequences = self.sequences  # every stage takes place before the first text, for any released values
        figures: dict[str, int | str] = {"phrases_drawn_without_a_score": sequences.unscored}
        if self.parameters.vocabulary.charged:
            figures["keywords_released"] = len(self.released.vocabulary)
            figures["public_topics_added"] = len(self.phrases) - len(self.released.vocabulary)
        values = (
            self.released.to_json() if self.parameters.extends is None else None
        )  # a run that extends a release has its parent's values
        return Generated(tuple(self._texts()), {name: str(value) for name, value in figures.items()}, values)

    @cached_property
    def released(self) -> ReleasedValues:
        """Values that the mechanisms release now, or released in the journal or for the parent."""
        if self.parameters.extends is not None:
            return ReleasedValues.from_json(cast("Mapping[str, Any]", self.context.values_of_parent()))
        budget = PlannedStageBudget(self.context, VOCABULARY, 0)
        words = self.stages.vocabulary.draw(budget, self.reader.phrases, self.context.rng, self.reader.embed)
        return ReleasedValues(tuple(words), self._sums())

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        """The phrases from which sequences are drawn, in the order of the alphabet.

        A selected vocabulary below its size is filled up with public topics: a handful of phrases common to all
        units says less about a label than none.
        """
        own, settings = self.released.vocabulary, self.parameters.vocabulary
        full = settings.method != "private" or len(own) >= settings.size
        return own if full else tuple(sorted({*own, *PUBLIC_TOPICS}))

    @cached_property
    def sequences(self) -> Sequences:
        """The phrases of every text; stored, because another draw would differ."""
        released = self.context.release(SEQUENCES, (), self._drawn, lambda value: value)
        fields = cast("Mapping[str, Any]", released)
        return Sequences(tuple(map(tuple, fields["phrases"])), int(fields["unscored"]))

    @cached_property
    def _labels(self) -> list[str | None]:
        return labels_without_batches(self.parameters, self.parameters.samples)

    @cached_property
    def _kernel(self) -> FourierFeatures:
        width = int(self.embed([]).shape[1])
        return FourierFeatures.of(width, self.parameters.features, self.parameters.bandwidth)

    def _sums(self) -> Sums:
        sketches, rng = self.stages.sketches, self.context.rng
        number = len(self.stages.events) - 1
        released = self.context.release(
            SKETCHES,
            [number],
            lambda: sketches.sums(self.reader.vectors(self._kernel)),
            lambda sums: sums_json(sketches.draw(sums, rng)),
        )
        return sums_of_json(released)

    def _drawn(self) -> Json:
        parameters, released = self.parameters, self.released
        numbers = {label: number for number, label in enumerate(parameters.labels)}
        density = self.stages.sketches.density(released.sums, parameters.references)
        noise = float(self.stages.noise(parameters))
        drawn_sequences = draw_sequences(
            Scorer(points_of(self.embed, self.phrases), self._kernel),
            Drawer(noise * float(parameters.least_deviations), self.context.rng, parameters.counting),
            density,
            [numbers[label] if label is not None else 0 for label in self._labels],
            parameters.phrases_per_text,
            parameters.subtracted,
            partial(self.context.progress, "sequences"),
        )
        return {"phrases": [list(chosen) for chosen in drawn_sequences.phrases], "unscored": drawn_sequences.unscored}

    def _require_ready(self) -> None:
        """Check that the model takes the prompts, before paying: with every label's public words, without phrases.

        An external model gets one prompt, that of the first label.
        """
        backend, labels = text_backend(self.context), self.parameters.labels or (None,)
        for label in labels[:1] if backend.external else labels:
            backend.require_ready([seeded(self.context.prompt, label, ())], self._sampling(label))

    def _sampling(self, label: str | None) -> Sampling:
        parameters = self.parameters
        system_message = self.context.prompt.fill("system", label)
        return Sampling(parameters.max_new_tokens, parameters.temperature, parameters.top_k, system_message)

    def _texts(self) -> list[GeneratedText]:
        """Generate the texts in batches; those of one label have the same system message."""
        labels = self._labels
        samplings = [self._sampling(label) for label in labels]
        texts: list[GeneratedText] = []
        while (start := len(texts)) < len(labels):
            end = start
            while end < min(len(labels), start + TEXTS_AT_ONCE) and samplings[end] == samplings[start]:
                end += 1
            texts += [
                GeneratedText(text.text, text.tokens, text.complete, label=labels[number])
                for number, text in zip(
                    range(start, end), self._generated_texts(range(start, end), samplings[start]), strict=True
                )
            ]
            self.context.progress("texts", len(texts), len(labels))
        return texts

    def _generated_texts(self, texts: Sequence[int], sampling: Sampling) -> list[Completion]:
        """Generate these texts; if a prompt exceeds the context of a local model, all get fewer phrases.

        Phrases are paid for before their length is known, so a context that is too short must not fail the run.
        """
        shown = self.parameters.phrases_per_text
        while True:
            try:
                return text_backend(self.context).write([self._prompt(number, shown) for number in texts], sampling)
            except ContextTooLong:
                if not shown:
                    raise
                shown -= 1

    def _prompt(self, text: int, shown: int) -> str:
        phrases = [self.phrases[number] for number in self.sequences.phrases[text][:shown]]
        return seeded(self.context.prompt, self._labels[text], phrases)
