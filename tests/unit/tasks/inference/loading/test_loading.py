"""From a name to a model in memory, local files only."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_store import UnreadableModel
from tasks.inference.catalogue.registry import ModelNotPulled, UnsupportedModel, list_models
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading import load_model
from tasks.inference.loading.load_model import load, read_tokens
from tasks.inference.prompt_rendering import NoChatTemplate, closing_token, public_prompt
from tests.refusals import refusal
from tests.tiny_tokenizer import TEMPLATE, tiny_tokenizer
from tests.unit.tasks.inference.families import READ, network_of
from tests.unit.tasks.inference.fixtures import COMMIT, NAME, REAL, digest_of, tiny_network

CONCERNS = ("tasks/inference/loading", "tasks/inference/engine")


def test_a_hub_model_from_local_files(snapshot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = load(NAME, "cpu")
    assert (model.name, model.revision) == (NAME, COMMIT)
    assert model.digest == digest_of(snapshot)
    assert model.device == torch.device("cpu")
    assert model.stop_tokens == (1, 5, 7)
    assert public_prompt(model.tokenizer, "Notes.").prefix
    assert list_models()[-1].digest == model.digest
    assert capfd.readouterr() == ("", "")


def test_changed_weights(snapshot: Path) -> None:
    load(NAME, "cpu")
    tiny_network(initializer_range=0.1).save_pretrained(snapshot)
    with refusal("ModelChanged"):
        load(NAME, "cpu")


def test_pickles_are_not_read(snapshot: Path) -> None:
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")
    with refusal("NoSafetensors"):
        load(NAME, "cpu")


@pytest.mark.slow_except("Llama", "Gemma 3", "Phi-3", "GPT-2", "Falcon", "ERNIE 4.5", "OLMo-2")
@pytest.mark.parametrize("family", READ)
def test_every_family_is_read_from_its_files(snapshot: Path, family: str) -> None:
    """Not only from its configuration: transformers must be asked for an attention that the family has."""
    network = network_of(*READ[family])
    (snapshot / "model.safetensors").unlink()
    network.save_pretrained(snapshot)
    model = load(NAME, "cpu")
    assert torch.equal(model.head_weight, network.get_output_embeddings().weight[: len(model.head_weight)])


def test_code_of_a_model_is_not_run(snapshot: Path) -> None:
    config = json.loads((snapshot / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (snapshot / "config.json").write_text(json.dumps(config))
    (snapshot / "code.py").write_text(f"open({str(snapshot / 'ran')!r}, 'w')")
    with pytest.raises(UnsupportedModel, match="no code of a model is run"):
        load(NAME, "cpu")
    assert not (snapshot / "ran").exists()


@pytest.mark.parametrize("ends", [(), (5,), (5, 7)])
def test_a_model_has_the_same_tokens_before_it_is_loaded(snapshot: Path, ends: tuple[int, ...]) -> None:
    if ends:
        (snapshot / "generation_config.json").write_text(json.dumps({"eos_token_id": list(ends)}))
    tokens, model = read_tokens(NAME, snapshot), load(NAME, "cpu")
    assert (tokens.vocabulary, tokens.stop_tokens) == (model.vocabulary, model.stop_tokens)
    assert tokens.stop_tokens
    assert set(ends) <= set(tokens.stop_tokens)


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("ids", [99999, [99999, 5], [-1, 5], [258, 5]])
def test_an_end_that_no_token_has_is_left_out(snapshot: Path, file: str, ids: Any) -> None:
    """258 is a number of the network's, and none of the tokenizer's: its logit is not computed."""
    path = snapshot / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": ids}))
    model = load(NAME, "cpu")
    assert model.vocabulary == 258
    assert all(token in (1, 5, 7) for token in model.stop_tokens)
    assert {1, 5} <= set(model.stop_tokens)
    assert read_tokens(NAME, snapshot).stop_tokens == model.stop_tokens


def test_the_token_that_closes_an_answer_ends_a_text_though_no_setting_says_so(snapshot: Path) -> None:
    tokenizer = tiny_tokenizer(TEMPLATE.replace("<|end|>", "<|turn|>"))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    tokenizer.save_pretrained(snapshot)
    closing = tokenizer.convert_tokens_to_ids("<|turn|>")
    model = load(NAME, "cpu")
    assert model.stop_tokens == (1, 5, 7, closing)
    assert read_tokens(NAME, snapshot).stop_tokens == model.stop_tokens


@pytest.mark.parametrize(
    "template",
    [None, "{% for m in messages %}{{ m.content }} {% endfor %}", "{{ raise_exception('no') }}",
     "{% for m in messages %}{{ m.content }}</turn> {% endfor %}"],
)  # fmt: skip
def test_a_template_that_closes_answers_with_text_or_not_at_all_ends_nothing(template: str | None) -> None:
    assert closing_token(tiny_tokenizer(template)) is None


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_files(snapshot: Path, damage: str) -> None:
    (snapshot / damage).write_text("{")
    with pytest.raises(UnreadableModel):
        load(NAME, "cpu")


def test_a_model_without_chat_template_is_read_and_holds_no_conversation(snapshot: Path) -> None:
    (snapshot / "chat_template.jinja").unlink()
    model = load(NAME, "cpu")
    with pytest.raises(NoChatTemplate, match="it has no chat template"):
        public_prompt(model.tokenizer, "Notes.")


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", f"org/other@{COMMIT}"])
def test_what_was_not_pulled(snapshot: Path, name: str) -> None:
    with pytest.raises(ModelNotPulled) as problem:
        load(name, "cpu")
    assert f"almoner models pull {name}" in problem.value.advice


@pytest.mark.parametrize(("name", "device", "error"), [("x", "cpu", "UnknownModel"), (NAME, "gpu", "UnknownDevice")])
def test_wrong_requests(snapshot: Path, name: str, device: str, error: str) -> None:
    with refusal(error):
        load(name, device)


@pytest.mark.slow
def test_the_offline_model(real: LanguageModel) -> None:
    assert (real.name, real.revision, real.vocabulary) == (REAL, "0.1.2", 49152)
    assert real.digest == digest_of(model_store.model_folder(REAL, "0.1.2"))
    assert real.stop_tokens == (2,)
    assert real.head_weight.dtype == torch.float32


def test_threads_load_one_after_the_other(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers, in two threads at once, leaves out weights."""
    inside, most = [0], [0]
    read_network = load_model.read_network

    def watched(*arguments: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        made = read_network(*arguments)
        inside[0] -= 1
        return made

    monkeypatch.setattr(load_model, "read_network", watched)
    with ThreadPoolExecutor(3) as threads:
        models = list(threads.map(lambda _: load(NAME, "cpu"), range(3)))
    assert most == [1]
    assert all(torch.equal(model.head_weight, models[0].head_weight) for model in models)
