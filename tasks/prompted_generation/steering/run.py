"""Run of a steering vector: an origin from public draws, one noisy sum for each label, and texts.

Origin and noisy sums are stored as soon as they are drawn. A run that continues after a kill measures units from the
same origin, and never draws the noise twice. Texts are public draws, which an interrupted run repeats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from models_db.errors import Refused
from models_db.values.canonical_json import Json
from tasks.common.array_encoding import array_of, sums_json, sums_of_json, text_of
from tasks.generation.decoding.public_sampling import PublicSampling, draw_public_texts
from tasks.generation.decoding.run_context import RunContext
from tasks.generation.decoding.sentence_completion import completion_figures
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.hidden_states import mean_hidden, ready_to_read
from tasks.inference.engine.session import RowHidden
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompts.render import PromptPieces, public_prompt, reference_tokens
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.planning.batches import labels_without_batches, with_labels
from tasks.planning.label_allocation import LABEL_COUNTS, format_counts
from tasks.prompted_generation.steering.parameters import CLEAR_VECTORS, SteeringParameters
from tasks.prompted_generation.steering.vectors import PublicOrigin, contributions, vectors_of
from tasks.values.generated import Generated, GeneratedText
from tasks.values.plan import Plan

ORIGIN, SUMS = "origin", "noisy sums"
"""The steps of a run, in the journal."""

UNITS_AT_ONCE = 256
"""Units that are read together; a public number."""


@dataclass(frozen=True)
class ReleasedVectors:
    """All values that a release has drawn, and all that texts are made of.

    Attributes:
        model: SHA-256 of the model's files.
        sums: noisy sums, int64 [G, D].
        spreads: of the public draws, float32 [G].
        counts: noisy numbers of units of each label, of a proportional allocation; None of an equal one.
    """

    model: str
    sums: Tensor
    spreads: Tensor
    counts: list[int] | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form."""
        return {
            "model": self.model,
            "sums": sums_json(self.sums.numpy()),
            "spreads": text_of(self.spreads.numpy(), "<f4"),
            **({} if self.counts is None else {"counts": list(self.counts)}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ReleasedVectors":
        """Read the form of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: another form.
        """
        spreads = torch.from_numpy(array_of(stored["spreads"], "<f4"))
        counts = [int(count) for count in stored["counts"]] if "counts" in stored else None
        return cls(str(stored["model"]), torch.from_numpy(sums_of_json(stored["sums"])), spreads, counts)


@dataclass(frozen=True)
class SteeringRun:
    """The steps of a run; each is released once.

    Attributes:
        histogram: of the units by label, of a proportional allocation; None of an equal one.
        prompts: the public prompt of each label, in tokens.
        sizes: the public sizes of the passes over units' texts.
        reading: the engine with the layers before the vector's place.
    """

    settings: SteeringParameters
    histogram: NoisyHistogram | None
    mean: NoisyMean
    plan: Plan
    bench: RunContext
    prompts: list[tuple[int, ...]]
    sizes: Sizes
    reading: Engine

    @classmethod
    def of(
        cls,
        settings: SteeringParameters,
        histogram: NoisyHistogram | None,
        mean: NoisyMean,
        plan: Plan,
        bench: RunContext,
    ) -> "SteeringRun":
        """Build the run; nothing is read or spent yet.

        Raises:
            LabelsNotKept, LayersNotFound, ContextTooLong, RowsNotIsolated, NotEnoughMemory: as `SteeringVector`.
            NoChatTemplate, BadDescription, ControlTokens: as `prompts_for`.
            VectorOfAnotherModel: the values of the parent are of another model.
        """
        model = bench.engine.model
        pieces = [public_prompt(model.tokenizer, bench.prompt, label) for label in settings.shown or (None,)]
        Sizes.of(pieces, [], 0, settings.tokens_per_text).check_fits(model)
        prompts = [one.tokens for one in pieces]
        before = [PromptPieces(prompt, ()) for prompt in prompts]
        sizes = Sizes.of(pieces, before, settings.max_reference_tokens, 1, max(1, UNITS_AT_ONCE // settings.parts))
        layers = model.until_layer(settings.layer_of(model.layers))
        run = cls(settings, histogram, mean, plan, bench, prompts, sizes, Engine(layers, memory=bench.engine.memory))
        run._require_ready()
        return run

    def generated(self) -> Generated:
        """Run all steps and return the texts, in the public order of their labels.

        Raises:
            StepLost: an interrupted run has paid for the histogram or the vectors and lost them.
        """
        self.bench.begin_steps(self.plan)
        released = self.released
        vectors = vectors_of(self.mean, released.sums, self.settings.references, released.spreads)
        labels = labels_without_batches(self.settings, self.settings.samples, released.counts)
        texts = self._texts(vectors, labels)
        counted = {} if released.counts is None else {LABEL_COUNTS: format_counts(released.counts)}
        figures = {CLEAR_VECTORS: str(int(vectors.any(1).sum())), **counted, **completion_figures(texts)}
        values = released.to_json() if self.settings.extends is None else None
        return Generated(with_labels(texts, labels), figures, values)

    @cached_property
    def released(self) -> ReleasedVectors:
        """Values that the mechanism releases now, or released in the journal or for the parent."""
        if self.settings.extends is not None:
            return ReleasedVectors.from_json(cast("Mapping[str, Any]", self.bench.values_of_parent()))
        spreads, bench = self.origin.spreads, self.bench
        counts, number = None, 0
        if self.histogram is not None:
            counts, number = bench.release_label_counts(self.histogram, self.settings.labels), 1
        drawn = bench.release(
            SUMS, [number], self._sums, lambda sums: sums_json(self.mean.draw(sums, bench.rng).numpy())
        )
        return ReleasedVectors(bench.engine.model.digest, torch.from_numpy(sums_of_json(drawn)), spreads, counts)

    @cached_property
    def origin(self) -> PublicOrigin:
        """Mean and spread of public draws; stored before a unit is read, because other draws would differ."""
        stored = cast("Mapping[str, str]", self.bench.release(ORIGIN, (), self._public_origin, _origin_json))
        spreads = torch.from_numpy(array_of(stored["spreads"], "<f4"))
        centres = torch.from_numpy(array_of(stored["centres"], "<f4"))
        return PublicOrigin(centres.reshape(len(spreads), -1), spreads)

    def _public_origin(self) -> PublicOrigin:
        draws = self.settings.public_draws
        texts = self._drawn(self.bench, [prompt for prompt in self.prompts for _ in range(draws)])
        written = [text.text for text in texts]
        return PublicOrigin.of(self._read([written[start : start + draws] for start in range(0, len(written), draws)]))

    def _sums(self) -> Tensor:
        """Return the exact sums of all units' contributions, int64 [G, D]. PRIVATE."""
        sums = torch.zeros((self.settings.parts, self.bench.engine.model.width), dtype=torch.int64)
        for chunk in self.bench.unit_chunks(self.settings.labels, UNITS_AT_ONCE, "units for the vectors"):
            texts = [[unit.text for label, unit in chunk if label == own] for own in range(self.settings.parts)]
            sums += contributions(self.mean, self._read(texts), self.origin)
        return sums

    def _read(self, texts: Sequence[Sequence[str]]) -> list[RowHidden]:
        """Return the mean hidden states of some texts of each label, each text by itself behind the public prompt."""
        tokenizer, most = self.bench.engine.model.tokenizer, self.settings.max_reference_tokens
        tokens = [[reference_tokens(tokenizer, text, most) for text in own] for own in texts]
        return list(mean_hidden(self.reading, self.prompts, tokens, self.sizes))

    def _texts(self, vectors: Tensor, labels: Sequence[str | None]) -> list[GeneratedText]:
        """Write the texts of one label after the other, each with the label's vector."""
        settings, model, texts = self.settings, self.bench.engine.model, list[GeneratedText]()
        layer = settings.layer_of(model.layers)
        for number, (vector, prompt) in enumerate(zip(vectors, self.prompts, strict=True)):
            count = labels.count(settings.labels[number]) if settings.labels else len(labels)
            steered = model.steered(layer, float(settings.strength) * vector)
            # The models of other processes lack the vector.
            bench = replace(self.bench, engine=Engine(steered, memory=self.bench.engine.memory), workers=None)
            texts += self._drawn(bench, [prompt] * count)
            self.bench.progress("labels", number + 1, settings.parts)
        return texts

    def _drawn(self, bench: RunContext, prompts: Sequence[tuple[int, ...]]) -> list[GeneratedText]:
        settings = self.settings
        how = PublicSampling(
            settings.max_new_tokens,
            settings.temperature,
            settings.top_k,
            complete_sentence=settings.complete_sentence,
        )
        return draw_public_texts(bench, prompts, how, None)

    def _require_ready(self) -> None:
        settings, bench = self.settings, self.bench
        if settings.extends is not None:
            kept = cast("Mapping[str, Any]", bench.kept)
            if kept["model"] != bench.engine.model.digest:
                raise VectorOfAnotherModel(settings.extends.release, bench.engine.model.name)
            return
        if settings.labels:
            bench.corpus.require_labels()
        ready_to_read(self.reading, self.sizes)


def _origin_json(origin: PublicOrigin) -> Json:
    return {
        "centres": text_of(origin.centres.numpy(), "<f4"),
        "spreads": text_of(origin.spreads.numpy(), "<f4"),
    }


class VectorOfAnotherModel(Refused):
    """Further texts whose model is not the one whose hidden states the vector is made of."""

    def __init__(self, release: int, model: str) -> None:
        super().__init__(
            f"The steering vector of release {release} is of another model than {model!r}.",
            "Extend it with the model of the release, or make a new request for another model. Nothing was spent.",
            {"release": release, "model": model},
        )
