"""Training an adapter: the space is fitted, then the perceptron learns through the frozen language model.

The loss is the likelihood of public summaries given the soft tokens, as in "Differentially Private Summarization with
Large Language Models", eq. 5. Two things differ from the paper. Each step takes a random part of a group's documents,
so that small groups are known, too. And each mean gets Gaussian noise of a random level from a range (unless that is
switched off), with its level told to the adapter: what is decoded later is always a noisy mean.

The same order gives the same adapter on the same machine, interrupted or not.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from tasks.common import progress
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.summarization.adapter_training import checkpoint
from tasks.summarization.adapter_training.dataset import TrainingData, read_training_data
from tasks.summarization.adapter_training.examples import Lessons, generator_of, prepare, split_groups
from tasks.summarization.adapter_training.frozen_model import FrozenNetwork, load_frozen
from tasks.summarization.adapter_training.loop import Course
from tasks.summarization.adapter_training.settings import Order, TrainingSettings, default_wording
from tasks.summarization.adapters.adapter import tensors_of
from tasks.summarization.adapters.logit_lens import Lens, lens_of
from tasks.summarization.adapters.metadata import AdapterMeta, AdapterWording, KnownAdapter, TrainingSet, figure
from tasks.summarization.adapters.projection import fit_space
from tasks.summarization.adapters.store import require_name_free, save_adapter


@dataclass(frozen=True)
class Wanted:
    """What a person asks for.

    Attributes:
        wording: None for the default one, told of `about` if the examples have it.
        licence: of the training file, in words; it is kept with the adapter.
    """

    name: str
    model: str
    licence: str
    settings: TrainingSettings
    description: str | None = None
    wording: AdapterWording | None = None


def train_adapter(path: Path, wanted: Wanted, device: str = "auto", *, anew: bool = False) -> KnownAdapter:
    """Train an adapter on a public file and keep it; an interrupted training of the same order goes on.

    Args:
        anew: forget an interrupted training of that name.

    Raises:
        BadTrainingFile, AdapterNameTaken, OtherTraining, CheckpointUnreadable, TooFewDocuments, BadTemplate,
        BadDescription, ContextTooLong: what was asked for cannot be.
        UnknownModel, ModelNotPulled and all else of `tasks.inference.loading.loading.load`.
    """
    require_name_free(wanted.name)
    data = read_training_data(path)
    if anew:
        checkpoint.forget(wanted.name)
    model = load(wanted.model, device)
    order = _order(wanted, data, model)
    checkpoint.resume(order)  # before any work: what cannot go on is refused now
    lessons, lens, revision = lessons_of(data, order, model), _lens(order, model), model.revision
    del model  # a gigabyte that training has no use for
    network = load_frozen(wanted.model, device, getattr(torch, order.settings.precision))
    return train(order, data, lessons, network, lens, revision)


def _lens(order: Order, model: LanguageModel) -> Lens | None:
    return lens_of(model) if order.settings.words else None


def lessons_of(data: TrainingData, order: Order, model: LanguageModel) -> Lessons:
    """The examples of a file as the order splits and cuts them; errors as `prepare`."""
    held = split_groups(data.groups, order.settings.held_out, generator_of(order.settings.seed))
    return prepare(data, order.wording, order.settings, model, held)


def train(
    order: Order, data: TrainingData, lessons: Lessons, network: FrozenNetwork, lens: Lens | None, revision: str
) -> KnownAdapter:
    """As `train_adapter`, with everything read.

    Args:
        lens: of the model; needed if the order has words.
        revision: of the model.

    Raises:
        TooFewDocuments, OtherTraining, CheckpointUnreadable.
    """
    settings = order.settings
    states = [lessons.states[source] for source in lessons.learned_sources]
    space, clip_norm = fit_space(states, settings.dimensions, settings.centres, settings.seed)
    course = Course(settings, lessons, space, clip_norm, network, lens)
    if earlier := checkpoint.resume(order):
        course.go_on(earlier)
        progress.tell(f"Going on after step {earlier.step} of an interrupted training.")
    else:
        course.begin()
    while not course.ended:
        course.advance()
        checkpoint.keep(order, course.state())
        progress.tell(course.line)
    known = save_adapter(_meta(order, data, course, revision), tensors_of(space, course.best), course.files(order.name))
    checkpoint.forget(order.name)
    return known


def _order(wanted: Wanted, data: TrainingData, model: LanguageModel) -> Order:
    wording = wanted.wording
    if wording is None:
        said = {} if wanted.description is None else {"description": wanted.description}
        wording = default_wording(**said, labelled=data.labelled)
    return Order(
        name=wanted.name,
        model=model.name,
        model_digest=model.digest,
        data_sha256=data.sha256,
        licence=wanted.licence,
        wording=wording,
        settings=wanted.settings,
    )


def _meta(order: Order, data: TrainingData, course: Course, revision: str) -> AdapterMeta:
    settings, lessons = order.settings, course.lessons
    return AdapterMeta(
        name=order.name,
        model=order.model,
        model_revision=revision,
        model_digest=order.model_digest,
        width=course.space.projection.shape[1],
        dimensions=course.space.projection.shape[0],
        centres=settings.centres,
        soft_tokens=settings.soft_tokens,
        words=settings.words,
        hidden_units=settings.hidden_units,
        clip_norm=figure(course.clip_norm, 6),
        noise_least=settings.noise_least,
        noise_most=settings.noise_most,
        max_reference_tokens=settings.max_reference_tokens,
        wording=order.wording,
        training=TrainingSet(
            file=data.file,
            sha256=data.sha256,
            licence=order.licence,
            examples=len(data.examples),
            documents=sum(map(len, lessons.states)),
            learned_groups=len(data.groups) - lessons.held_groups,
            held_out_groups=lessons.held_groups,
        ),
        seed=settings.seed,
        fit=course.fit(),
    )
