"""Models from a folder, a GGUF file or with an adapter: added whole or not at all, and noticed if they change."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from cli.app import app
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.registry import (
    ModelKindMismatch,
    UnknownModel,
    find,
    find_local,
    list_models,
    local_models,
)
from tasks.inference.loading import download, merge_adapter
from tasks.inference.loading.add_model import add_model, remove_model
from tasks.inference.loading.download import pull
from tasks.inference.loading.load_model import load
from tasks.inference.loading.merge_adapter import CONFIG, WEIGHTS
from tasks.pricing.model_facts import model_facts
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.families import config_of
from tests.unit.tasks.inference.fixtures import tiny_network

pytestmark = pytest.mark.dear

LAYER = "model.layers.1.mlp.up_proj"
RANK, ALPHA = 3, 6.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model on a disk."""
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    folder = tmp_path / "srv" / "tiny"
    tiny_network().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A LoRA adapter of one layer."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"}))
    torch.manual_seed(5)
    parts = {f"base_model.model.{LAYER}.lora_A.weight": torch.randn(RANK, 64),
             f"base_model.model.{LAYER}.lora_B.weight": torch.randn(160, RANK)}  # fmt: skip
    save_file(parts, folder / WEIGHTS)
    return folder


def left(folder: Path) -> set[str]:
    """What lies in the folder of models, locks and stored checks apart."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(folder).as_posix() for path in paths if ".checks" not in path.parts}


def test_a_folder_is_a_model_like_any_other(folder: Path) -> None:
    check = add_model("ours", folder, "MIT")
    assert check.verdict.startswith("usable")
    assert find("ours") == local_models()[0]
    listed = list_models()[-1]
    assert (listed.name, listed.licence, listed.source, listed.installed) == ("ours", "MIT", str(folder), True)
    facts = model_facts("ours")
    assert (facts.digest, facts.revision) == (listed.digest, "local")
    model = load("ours", "cpu")
    assert (model.name, model.digest) == ("ours", listed.digest)
    assert pull("ours") == listed
    with pytest.raises(ModelKindMismatch):
        find("ours", "embedder")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_file_that_changes_is_noticed_before_anything_is_computed(folder: Path, file: str) -> None:
    add_model("ours", folder, "MIT")
    path = folder / file
    if path.suffix == ".safetensors":
        weights = load_file(path)
        weights[f"{LAYER}.weight"][0, 0] += 1
        save_file(weights, path, metadata={"format": "pt"})
    else:
        path.write_text(path.read_text().replace("\n", " \n", 1) + " ")
    with refusal("ModelChanged"):
        load("ours", "cpu")


def test_a_folder_that_goes_is_named_and_comes_back(folder: Path) -> None:
    add_model("ours", folder, "MIT")
    away = folder.rename(folder.with_name("away"))
    for ask in (lambda: load("ours", "cpu"), lambda: model_facts("ours")):
        with refusal("ModelFolderMissing") as refused:
            ask()
        assert refused.value.exit_code == 3
        assert "models remove ours" in refused.value.advice
    assert not list_models()[-1].installed
    away.rename(folder)
    assert load("ours", "cpu").name == "ours"


def test_what_was_added_can_be_removed(folder: Path) -> None:
    add_model("ours", folder, "MIT")
    remove_model("ours")
    assert left(model_store.models_folder()) == set()
    assert (folder / "model.safetensors").is_file()
    with pytest.raises(UnknownModel):
        find("ours")
    with refusal("ModelNotAdded"):
        remove_model("ours")


Spoil = Callable[[Path], Any]
UNFIT: dict[str, tuple[Spoil, str]] = {
    "no such folder": (lambda folder: folder.rename(folder.with_name("away")), "NotAModel"),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "NotAModel"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "NotAModel"),
    "a pickle": (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "NotAModel"),
    "an architecture of others": (
        lambda folder: config_of("mixtral", {"num_local_experts": 3}).save_pretrained(folder), "UnsupportedModel",
    ),
    "a quantised one": (
        lambda folder: (folder / "config.json").write_text(
            json.dumps({**json.loads((folder / "config.json").read_text()),
                        "quantization_config": {"quant_method": "awq", "bits": 4}})), "UnsupportedModel",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", UNFIT)
def test_what_is_no_model_leaves_nothing(folder: Path, fault: str) -> None:
    spoil, error = UNFIT[fault]
    spoil(folder)
    with refusal(error):
        add_model("ours", folder, "MIT")
    assert left(model_store.models_folder()) == set()
    assert local_models() == []


@pytest.mark.parametrize("name", ["", "Ours", "../ours", "org/name", "a b", "x" * 200])
def test_a_name_that_could_be_taken_for_another_is_refused(folder: Path, name: str) -> None:
    with refusal("InvalidPlainName"):
        add_model(name, folder, "MIT")


def test_a_name_is_given_once(folder: Path) -> None:
    add_model("ours", folder, "MIT")
    for name in ("ours", "smollm2-135m-instruct"):
        with refusal("ModelExists"):
            add_model(name, folder, "MIT")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"folder": "/x"}', "\x00"])
def test_a_damaged_record_is_no_model(folder: Path, damage: str) -> None:
    add_model("ours", folder, "MIT")
    (model_store.models_folder() / "local" / "ours.json").write_text(damage)
    assert local_models() == []
    with pytest.raises(UnknownModel):
        find("ours")
    add_model("ours", folder, "MIT")


@pytest.mark.parametrize("rank_stabilised", [False, True])
def test_an_adapter_is_added_to_the_weights(folder: Path, adapter: Path, rank_stabilised: bool) -> None:
    settings = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).write_text(json.dumps({**settings, "use_rslora": rank_stabilised}))
    add_model("adapted", folder, "MIT", adapter)
    merged = load_file(folder_of("adapted") / "model.safetensors")
    plain = load_file(folder / "model.safetensors")
    parts = load_file(adapter / WEIGHTS)
    down, up = (parts[f"base_model.model.{LAYER}.lora_{part}.weight"] for part in "AB")
    scale = ALPHA / RANK**0.5 if rank_stabilised else ALPHA / RANK
    x = torch.randn(4, 64)
    expected = x @ plain[f"{LAYER}.weight"].T + scale * (x @ down.T) @ up.T  # what PEFT's layer computes
    torch.testing.assert_close(x @ merged[f"{LAYER}.weight"].T, expected, atol=1e-4, rtol=1e-4)
    assert all(torch.equal(merged[name], plain[name]) for name in plain if name != f"{LAYER}.weight")
    assert str(adapter) in list_models()[-1].source
    add_model("plain", folder, "MIT")
    base = load("plain", "cpu").digest
    assert load("adapted", "cpu").digest != base
    lora = model_store.listing_digest(adapter, [adapter / WEIGHTS, adapter / CONFIG])
    stated = model_facts("adapted").to_json()
    assert (stated["base_sha256"], stated["adapter_sha256"]) == (base, lora)
    assert "base_sha256" not in model_facts("plain").to_json()
    made = folder_of("adapted")
    remove_model("adapted")
    assert not made.exists()


@pytest.mark.parametrize("file", ["model", "adapter"])
def test_what_changes_while_it_is_merged_is_no_model(
    folder: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    merge = merge_adapter.merge_adapter

    def disturbed(*arguments: Path) -> Path:
        made = merge(*arguments)
        changed = folder / "config.json" if file == "model" else adapter / CONFIG
        changed.write_text(changed.read_text() + " ")
        return made

    monkeypatch.setattr(merge_adapter, "merge_adapter", disturbed)
    with refusal("ModelChanged"):
        add_model("adapted", folder, "MIT", adapter)
    assert find_local("adapted") is None
    assert left(model_store.models_folder()) == set()


@pytest.mark.parametrize("free", [0, 10**12])
def test_a_disk_that_cannot_hold_what_is_made_is_named(
    folder: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """Before anything is made, where its size is known to be too large; else once the disk is full."""
    merged: list[Path] = []

    def fill(base: Path, lora: Path, target: Path) -> Path:
        merged.append(target)
        raise RuntimeError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(merge_adapter, "merge_adapter", fill)
    monkeypatch.setattr(model_store, "free_disk", lambda folder: free)
    with refusal("ModelDiskFull") as refused:
        add_model("adapted", folder, "MIT", adapter)
    assert len(merged) == (free > 0)
    assert refused.value.facts["needed"] == (folder / "model.safetensors").stat().st_size
    assert find_local("adapted") is None
    assert left(model_store.models_folder()) == set()


def folder_of(name: str) -> Path:
    model = find_local(name)
    assert model is not None
    return model.folder


BROKEN: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "another method": {"peft_type": "IA3"},
    "biases": {"bias": "all"},
    "whole layers": {"modules_to_save": ["lm_head"]},
    "ranks by layer": {"rank_pattern": {"up_proj": 9}},
    "no rank": {"r": 0},
    "a scale that is none": {"lora_alpha": "much"},
}


@pytest.mark.parametrize("fault", BROKEN)
def test_an_adapter_that_is_more_than_lora_is_refused_by_name(folder: Path, adapter: Path, fault: str) -> None:
    settings = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).write_text(json.dumps({**settings, **BROKEN[fault]}))
    with refusal("AdapterUnfit"):
        add_model("adapted", folder, "MIT", adapter)
    assert left(model_store.models_folder()) == set()


def _rename(parts: dict[str, torch.Tensor], old: str, new: str) -> dict[str, torch.Tensor]:
    return {name.replace(old, new): part for name, part in parts.items()}


SPOILT: dict[str, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]] = {
    "a layer that the model lacks": lambda parts: _rename(parts, "layers.1", "layers.99"),
    "another shape": lambda parts: {name: part[..., :2].contiguous() for name, part in parts.items()},
    "one part of two": lambda parts: {name: part for name, part in parts.items() if "lora_A" in name},
    "weights of another kind": lambda parts: _rename(parts, "lora_A.weight", "lora_magnitude_vector"),
    "not finite": lambda parts: {name: part * torch.inf for name, part in parts.items()},
    "nothing": lambda parts: {},
}


@pytest.mark.parametrize("fault", SPOILT)
def test_an_adapter_of_another_model_is_refused(folder: Path, adapter: Path, fault: str) -> None:
    save_file(SPOILT[fault](load_file(adapter / WEIGHTS)), adapter / WEIGHTS)
    with refusal("AdapterUnfit"):
        add_model("adapted", folder, "MIT", adapter)
    assert left(model_store.models_folder()) == set()


@pytest.mark.parametrize("missing", [CONFIG, WEIGHTS])
def test_an_adapter_without_its_files_is_refused(folder: Path, adapter: Path, missing: str) -> None:
    (adapter / missing).unlink()
    with refusal("AdapterUnfit", match="cannot be read"):
        add_model("adapted", folder, "MIT", adapter)


def test_a_gguf_file_is_unpacked(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacking itself gives is tested with the real model of the registry, which is one."""

    def unpack(file: Path, target: Path) -> Path:
        tiny_network().save_pretrained(target)
        tiny_tokenizer().save_pretrained(target)
        return target

    monkeypatch.setattr(download, "unpack_gguf", unpack)
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    add_model("small", file, "MIT")
    assert load("small", "cpu").layers == 3
    assert list_models()[-1].source == str(file)
    with refusal("NotAModel", match=r"no \.gguf"):
        add_model("other", folder / "config.json", "MIT")


def test_a_killed_command_leaves_a_name_that_is_free(folder: Path, adapter: Path) -> None:
    half = model_store.model_folder("adapted", "local")
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    (half.parent / ".adapted-x1").mkdir()
    add_model("adapted", folder, "MIT", adapter)
    assert load("adapted", "cpu").layers == 3
    assert not (half.parent / ".adapted-x1").exists()


def test_the_commands(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder.parent)

    def typed(*line: str) -> Any:
        return CliRunner().invoke(app, ["models", *line])

    done = typed("add", "ours", os.path.relpath(folder), "--licence", "MIT")
    assert done.exit_code == 0, done.output
    assert "ours is added: usable" in done.output
    assert json.loads(typed("check", "ours", "--json").stdout)["usable"] is True
    assert "ours" in typed("list").stdout
    assert json.loads(typed("add", "ours", str(folder), "--licence", "MIT", "--json").stdout)["error"] == "ModelExists"
    assert typed("remove", "ours").exit_code == 0
    assert json.loads(typed("remove", "ours", "--json").stdout)["error"] == "ModelNotAdded"


def test_a_model_of_a_longer_name_keeps_its_scratch_folder(folder: Path, adapter: Path) -> None:
    other = model_store.models_folder() / ".adapted-3b-x1"
    other.mkdir(parents=True)
    add_model("adapted", folder, "MIT", adapter)
    assert other.is_dir()
