"""Training: it learns what only the mean can tell, goes on as if nothing had happened, and keeps what was asked."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tasks.adapters import store
from tasks.adapters.adapter import lens_of
from tasks.adapters.metadata import KnownAdapter
from tasks.adapters.training import loop
from tasks.adapters.training.data import Order
from tasks.adapters.training.loop import generator_of, split_groups
from tasks.adapters.training.train import train
from tasks.common import progress
from tests.refusals import refusal
from tests.tiny_model import SPEC, tiny_model
from tests.unit.tasks.systems.summaries.school import after, lessons, network, order, planted

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/systems/summaries",)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))


def trained(wanted: Order) -> KnownAdapter:
    lens = lens_of(tiny_model()) if wanted.settings.words else None
    return train(wanted, planted(), lessons(wanted), network(), lens, SPEC.revision)


def tensors(known: KnownAdapter) -> dict[str, torch.Tensor]:
    return load_file(store.adapter_folder(known.digest) / store.TENSORS)


@pytest.mark.slow
def test_the_loss_falls_and_what_is_learned_is_read_off_the_mean() -> None:
    """Whoever is shown the mean of all groups cannot know which of the two words it is to be."""
    known = trained(order(steps=160, soft_tokens=2, words=0))
    fit = known.meta.fit
    assert fit.best_loss < fit.first_loss * Decimal("0.8")
    assert fit.clean_loss < fit.blind_loss - 1
    assert 0 < fit.best_step <= fit.steps == 160
    course = [json.loads(line) for line in (store.adapter_folder(known.digest) / store.LOSSES).read_text().splitlines()]
    assert [each["step"] for each in course] == list(range(0, 161, 10))
    assert course[-1]["training"] < course[1]["training"]
    best = min(course, key=lambda each: each["clean"] + each["noisy"])
    assert best["step"] == fit.best_step


def test_an_adapter_that_is_loaded_tells_the_groups_apart() -> None:
    known = trained(order(steps=60, soft_tokens=2, words=0))
    made = store.load_adapter(known, tiny_model())
    wanted = lessons(order())
    means = [made.represent(rows).mean(0) for rows in wanted.states]
    soft = [made.soft_tokens(mean) for mean in means]
    assert torch.dist(soft[0], soft[2]) < torch.dist(soft[0], soft[1]) / 2


@pytest.mark.slow
def test_an_interrupted_training_gives_the_same_adapter_bit_for_bit() -> None:
    whole = trained(order())

    def stop() -> None:
        raise KeyboardInterrupt

    again = order()
    for step in (14, 27, 38):
        with pytest.raises(KeyboardInterrupt), progress.listening(after(step, stop)):
            trained(again)
        kept = loop.resume(again)
        assert kept is not None
        assert kept.step == step // 10 * 10
    assert trained(again) == whole
    assert not loop.folder_of("planted").exists()


@pytest.mark.slow
def test_another_seed_gives_another_adapter_and_the_same_one_the_same() -> None:
    short = {"steps": 3, "check_every": 3}
    assert trained(order(**short)).digest == trained(order(**short)).digest
    assert trained(order(seed=1, **short)).digest != trained(order(**short)).digest


def test_a_checkpoint_of_another_order_is_refused() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), progress.listening(after(11, stop)):
        trained(order())
    with refusal("TrainingDiffers"):
        trained(order(soft_tokens=4))
    assert loop.resume(order(name="another")) is None
    path = loop.folder_of("planted") / "state.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with refusal("CheckpointUnreadable"):
        trained(order())
    loop.forget("planted")
    assert loop.resume(order()) is None


@pytest.mark.slow
def test_training_ends_when_the_held_out_groups_gain_nothing() -> None:
    """And the adapter is the best one, not the last."""
    known = trained(order(steps=400, learning_rate="0.5", patience=2, check_every=2))
    fit = known.meta.fit
    assert fit.steps == fit.best_step + 4
    assert fit.steps < 400
    assert fit.best_loss <= fit.first_loss


def test_without_noise_nothing_is_added_and_the_meta_data_say_so() -> None:
    known = trained(order(steps=4, check_every=2, noise_least=0, noise_most=0))
    assert (known.meta.noise_least, known.meta.noise_most) == (0, 0)
    line = (store.adapter_folder(known.digest) / store.LOSSES).read_text().splitlines()[-1]
    assert json.loads(line)["clean"] == json.loads(line)["noisy"]


def test_only_the_perceptron_learns() -> None:
    frozen = network()
    before = [parameter.clone() for parameter in frozen.network.parameters()]
    known = trained(order(steps=4, check_every=2))
    assert all(torch.equal(old, new) for old, new in zip(before, frozen.network.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in frozen.network.parameters())
    assert set(tensors(known)) >= {"decoder.first.weight", "decoder.second.bias", "mean", "projection"}


def test_what_it_was_trained_on_is_kept() -> None:
    known = trained(order(steps=2, check_every=1))
    kept = known.meta.training
    assert (kept.file, kept.sha256, kept.licence) == ("planted.jsonl", "b" * 64, "CC0-1.0")
    assert (kept.examples, kept.documents, kept.learned_groups, kept.held_out_groups) == (12, 48, 10, 2)
    assert (store.adapter_folder(known.digest) / store.CURVE).read_text().startswith("<svg")


def test_groups_are_held_out_whole() -> None:
    wanted, data = order(), planted()
    held = split_groups(data.groups, wanted.settings.held_out, generator_of(wanted.settings.seed))
    parts = lessons(wanted)
    sources = {lesson.source for lesson in parts.held_out}
    assert sources.isdisjoint(parts.learned_sources)
    assert {data.examples[source].group for source in sources} == held
    assert len(parts.states) == 12
    assert split_groups(("a", "b"), wanted.settings.held_out, generator_of(0)) < {"a", "b"}


def test_the_paper_has_whole_hidden_states() -> None:
    known = trained(order(steps=2, check_every=1, dimensions=0))
    found = tensors(known)
    assert known.meta.dimensions == 32
    assert torch.equal(found["projection"], torch.eye(32))
    assert not found["mean"].any()


def test_several_centres_give_as_many_blocks() -> None:
    known = trained(order(steps=2, check_every=1, centres=2))
    assert known.meta.vector_width == 12
    made = store.load_adapter(known, tiny_model())
    states = torch.cat(lessons(order()).states)
    used = (made.represent(states).view(-1, 2, 6) != 0).all(2)
    assert (used.sum(1) == 1).all()
    assert used.any(0).all()
