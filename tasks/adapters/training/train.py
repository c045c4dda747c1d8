"""Adapter training: reads the examples, fits the space, then trains the perceptron through the frozen model.

The loss is the likelihood of public summaries given the soft tokens, as in "Differentially Private Summarization with
Large Language Models", eq. 5. Two things differ from the paper. Each step takes a random part of a group's documents,
so that it also learns small groups. And each mean gets Gaussian noise of a random level from a range (unless that is
switched off), with the level as an input of the adapter: later inputs are always noisy means.

The same order gives the same adapter on the same machine, interrupted or not.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from tasks.adapters.adapter import Lens, fit_space, lens_of, tensors_of
from tasks.adapters.metadata import AdapterMeta, AdapterWording, KnownAdapter, TrainingSet, figure
from tasks.adapters.store import require_name_free, save_adapter
from tasks.adapters.training import loop
from tasks.adapters.training.data import Order, TrainingData, TrainingSettings, default_wording, read_training_data
from tasks.adapters.training.frozen_model import FrozenNetwork, load_frozen
from tasks.adapters.training.loop import Course, Lessons, generator_of, prepare, split_groups
from tasks.common import progress
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load


@dataclass(frozen=True)
class TrainingRequest:
    """A requested training.

    Attributes:
        wording: None for the default one, with `about` if the examples have it.
        licence: of the training file, in words; it is kept with the adapter.
    """

    name: str
    model: str
    licence: str
    settings: TrainingSettings
    description: str | None = None
    wording: AdapterWording | None = None


def train_adapter(path: Path, request: TrainingRequest, device: str = "auto", *, anew: bool = False) -> KnownAdapter:
    """Train an adapter on a public file and store it; an interrupted training of the same order continues.

    Args:
        anew: forget an interrupted training of that name.

    Raises:
        TrainingFileUnreadable, TrainingLineInvalid, TrainingFileTooSmall, AdapterNameTaken, TrainingDiffers,
        CheckpointUnreadable, TooFewDocuments, `bad_template`, BadDescription, ContextTooLong: the training is not
        possible.
        UnknownModel, ModelNotPulled and all else of `tasks.inference.loading.load_model.load`.
    """
    require_name_free(request.name)
    data = read_training_data(path)
    if anew:
        loop.forget(request.name)
    model = load(request.model, device)
    order = _order(request, data, model)
    loop.resume(order)  # before any work: a checkpoint of another order is refused now
    lessons, lens, revision = lessons_of(data, order, model), _lens(order, model), model.revision
    del model  # a gigabyte that training does not need
    network = load_frozen(request.model, device, getattr(torch, order.settings.precision))
    return train(order, data, lessons, network, lens, revision)


def _lens(order: Order, model: LanguageModel) -> Lens | None:
    return lens_of(model) if order.settings.words else None


def lessons_of(data: TrainingData, order: Order, model: LanguageModel) -> Lessons:
    """Return the examples of a file, split and cut according to the order; errors as `prepare`."""
    held = split_groups(data.groups, order.settings.held_out, generator_of(order.settings.seed))
    return prepare(data, order.wording, order.settings, model, held)


def train(
    order: Order, data: TrainingData, lessons: Lessons, network: FrozenNetwork, lens: Lens | None, revision: str
) -> KnownAdapter:
    """Train as `train_adapter`, with all inputs loaded.

    Args:
        lens: of the model; needed if the order has words.
        revision: of the model.

    Raises:
        TooFewDocuments, TrainingDiffers, CheckpointUnreadable.
    """
    settings = order.settings
    states = [lessons.states[source] for source in lessons.learned_sources]
    space, clip_norm = fit_space(states, settings.dimensions, settings.centres, settings.seed)
    course = Course(settings, lessons, space, clip_norm, network, lens)
    if earlier := loop.resume(order):
        course.go_on(earlier)
        progress.tell(f"Going on after step {earlier.step} of an interrupted training.")
    else:
        course.begin()
    while not course.ended:
        course.advance()
        loop.keep(order, course.state())
        progress.tell(course.line)
    saved = save_adapter(_meta(order, data, course, revision), tensors_of(space, course.best), course.files(order.name))
    loop.forget(order.name)
    return saved


def _order(request: TrainingRequest, data: TrainingData, model: LanguageModel) -> Order:
    wording = request.wording
    if wording is None:
        description = {} if request.description is None else {"description": request.description}
        wording = default_wording(**description, labelled=data.labelled)
    return Order(
        name=request.name,
        model=model.name,
        model_digest=model.digest,
        data_sha256=data.sha256,
        licence=request.licence,
        wording=wording,
        settings=request.settings,
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
