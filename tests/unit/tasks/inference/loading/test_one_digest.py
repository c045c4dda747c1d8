"""One model is one digest: what loading opens is what the digest covers, and nothing else can change the model."""

import contextlib
import ctypes
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MPNetConfig, MPNetModel

from models_db.errors import AlmonerError
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_store import UnreadableModel, files_of, folder_digest
from tasks.inference.catalogue.registry import find_local
from tasks.inference.embeddings import encoder
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.loading import load_model
from tasks.inference.loading.add_model import add_model
from tasks.inference.loading.check_model import check_folder, check_model
from tasks.inference.loading.load_model import load
from tasks.inference.loading.merge_adapter import CONFIG
from tasks.inference.loading.merge_adapter import WEIGHTS as ADAPTER
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.fixtures import tiny_network

pytestmark = pytest.mark.dear

FOREIGN = {
    "README.md": "about it",
    "modeling_tiny.py": "raise SystemExit('code of a model was run')",
    "pytorch_model.bin": "a pickle",
    "custom_generate/generate.py": "raise SystemExit('code of a model was run')",
    "checkpoint-5/model.safetensors": "an earlier state",
    "onnx/model.onnx": "a copy",
}
"""Files that are often beside a model and that nothing reads."""
_EVENT = struct.Struct("iIII")
_OPENED: list[list[str]] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _OPENED and isinstance(arguments[0], str | bytes | os.PathLike):
        _OPENED[-1].append(os.fsdecode(arguments[0]))


sys.addaudithook(_note)


@contextmanager
def opened_below(top: Path) -> Iterator[set[Path]]:
    """The files below `top` that are opened inside, by Python or by the kernel's own account (safetensors is Rust)."""
    found: set[Path] = set()
    libc = ctypes.CDLL(None, use_errno=True)
    queue = libc.inotify_init1(os.O_NONBLOCK)
    assert queue >= 0
    folders = {
        libc.inotify_add_watch(queue, os.fsencode(folder), 0x20): folder
        for folder in (top, *(path for path in top.rglob("*") if path.is_dir()))
    }
    _OPENED.append([])
    try:
        yield found
    finally:
        audited = {Path(os.path.realpath(name)) for name in _OPENED.pop()}
        events = b"".join(_drained(queue))
        os.close(queue)
    while events:
        watch, _, _, length = _EVENT.unpack_from(events)
        name = events[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
        audited.add(folders[watch] / name)
        events = events[_EVENT.size + length :]
    found |= {path for path in audited if path.is_relative_to(top) and path.is_file()}


def _drained(queue: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(queue, 1 << 16)
        except BlockingIOError:
            return


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    return tmp_path


def plant(folder: Path) -> None:
    for name, content in FOREIGN.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def sharded(tmp_path: Path) -> Path:
    folder = tmp_path / "srv" / "tiny"
    tiny_network().save_pretrained(folder, max_shard_size="200KB")
    tiny_tokenizer().save_pretrained(folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ messages[0].content }}")
    (folder / "special_tokens_map.json").write_text("{}")
    plant(folder)
    return folder


def language_model(tmp_path: Path) -> tuple[Path, Callable[[], Any]]:
    folder = sharded(tmp_path)
    add_model("ours", folder, "MIT")
    return folder, lambda: load("ours", "cpu")


def merged_model(tmp_path: Path) -> tuple[Path, Callable[[], Any]]:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 3, "lora_alpha": 6.0, "bias": "none"}))
    part = "base_model.model.model.layers.1.mlp.up_proj.lora_"
    save_file({f"{part}A.weight": torch.ones(3, 64), f"{part}B.weight": torch.ones(160, 3)}, adapter / ADAPTER)
    add_model("adapted", sharded(tmp_path), "MIT", adapter)
    model = find_local("adapted")
    assert model is not None
    return model.folder, lambda: load("adapted", "cpu")


def embedder(tmp_path: Path) -> tuple[Path, Callable[[], Any]]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    tokenizer = tiny_tokenizer(None)
    tokenizer.pad_token = tokenizer.eos_token
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    plain, folder = tmp_path / "plain", tmp_path / "snapshot"
    MPNetModel(MPNetConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes)).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    parts = [Transformer(str(plain), max_seq_length=32), Pooling(16, "mean"), Dense(16, 8), Normalize()]
    SentenceTransformer(modules=parts, device="cpu", prompts={"query": "q: "}).save_pretrained(
        str(folder), create_model_card=False
    )
    (folder / "layers").mkdir()
    (folder / "2_Dense").rename(folder / "layers" / "2_Dense")
    listed = json.loads((folder / "modules.json").read_text())
    listed[2]["path"] = "layers/2_Dense"
    (folder / "modules.json").write_text(json.dumps(listed))
    plant(folder)
    shutil.rmtree(folder / "checkpoint-5")  # its weights would be a part of the model
    return folder, lambda: load_embedder("org/tiny@" + "0" * 40, device="cpu")


@pytest.fixture(params=[language_model, merged_model, embedder])
def at_work(
    request: pytest.FixtureRequest, models: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Callable[[], Any]]:
    """A model's folder, and what loads it."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **b: str(models / "snapshot"))
    made: tuple[Path, Callable[[], Any]] = request.param(models)
    return made


def test_what_is_opened_is_in_the_digest(at_work: tuple[Path, Callable[[], Any]], models: Path) -> None:
    folder, opened = at_work
    opened()  # and record the digest, which reads all of its files
    elsewhere = models / "elsewhere"
    elsewhere.mkdir()
    with opened_below(models) as touched:
        opened()
    covered = set(files_of("m", folder))
    read = {path for path in touched if path.is_relative_to(folder)}
    assert read <= covered
    assert {path for path in covered if path.suffix == ".safetensors"} <= read
    assert folder / "config.json" in read
    records = models / "models"
    assert {path for path in touched - read if not path.is_relative_to(records)} == set()


def test_every_file_is_in_the_digest_or_is_not_read(at_work: tuple[Path, Callable[[], Any]], models: Path) -> None:
    folder, opened = at_work
    opened()
    with opened_below(models) as touched:
        opened()
    digest, seen = folder_digest("m", folder), 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        try:
            changed = folder_digest("m", folder) != digest
        except UnreadableModel:  # such as an index that is none any more
            changed = True
        path.write_bytes(data)
        assert changed or path not in touched, path
        seen += changed
    assert seen >= 6
    assert folder_digest("m", folder) == digest


def _outside(folder: Path) -> Path:
    """Move a shard out of the folder."""
    shard = next(iter(sorted(folder.glob("model-*.safetensors"))))
    return shard.rename(folder.parent / "outside.safetensors")


def _index(folder: Path, file: str) -> None:
    """Let the index name `file` in the place of the first shard."""
    path = folder / model_store.INDEX
    index = json.loads(path.read_text())
    first = sorted(set(index["weight_map"].values()))[0]
    index["weight_map"] = {key: file if at == first else at for key, at in index["weight_map"].items()}
    path.write_text(json.dumps(index))


def _setting(folder: Path, file: str, **settings: Any) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def _inside(folder: Path) -> None:
    (folder / "parts").mkdir()
    _outside(folder).rename(folder / "parts" / "a.safetensors")
    _index(folder, "parts/a.safetensors")


ESCAPES: dict[str, Callable[[Path], Any]] = {
    "shard above": lambda folder: (_outside(folder), _index(folder, "../outside.safetensors")),
    "shard by its whole path": lambda folder: _index(folder, str(_outside(folder))),
    "shard in a folder": _inside,
    "shard that is not there": lambda folder: _outside(folder).unlink(),
    "shard that is a number": lambda folder: (folder / model_store.INDEX).write_text('{"weight_map": {"a": 3}}'),
    "index that is none": lambda folder: (folder / model_store.INDEX).write_text("[" * 100_000),
    "stray shard": lambda folder: save_file({"a": torch.ones(1)}, folder / "more.safetensors"),
    "whole weights beside shards": lambda folder: save_file({"a": torch.ones(1)}, folder / "model.safetensors"),
    "link out": lambda folder: (folder / "chat_template.jinja").symlink_to(_outside(folder)),
    "link to nothing": lambda folder: (folder / "vocab.json").symlink_to(folder / "nothing"),
    "link to itself": lambda folder: (folder / "vocab.json").symlink_to(folder / "vocab.json"),
    "pipe": lambda folder: os.mkfifo(folder / "vocab.json"),
    "folder that is a link": lambda folder: (
        shutil.move(folder / "additional_chat_templates", folder.parent),
        (folder / "additional_chat_templates").symlink_to(folder.parent / "additional_chat_templates"),
    ),
    "other weights by a setting": lambda folder: _setting(folder, "config.json", transformers_weights="x.safetensors"),
    "other weights by an inner setting": lambda folder: _setting(
        folder, "config.json", text_config={"transformers_weights": "x.safetensors"}
    ),
    "vocabulary by a setting": lambda folder: _setting(folder, "tokenizer_config.json", gguf_file="/srv/x.gguf"),
    "adapter beside": lambda folder: (folder / "adapter_config.json").write_text("{}"),
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_folder_that_is_not_the_whole_model_is_refused(models: Path, escape: str) -> None:
    folder = sharded(models)
    if escape == "link out":
        (folder / "chat_template.jinja").unlink()
    ESCAPES[escape](folder)
    with pytest.raises(UnreadableModel):
        folder_digest("ours", folder)
    with pytest.raises(AlmonerError):
        add_model("ours", folder, "MIT")
    assert find_local("ours") is None


@pytest.mark.parametrize("escape", ["shard above", "stray shard", "other weights by a setting", "adapter beside"])
def test_a_folder_that_becomes_so_later_is_refused_when_it_is_loaded(models: Path, escape: str) -> None:
    folder = sharded(models)
    add_model("ours", folder, "MIT")
    ESCAPES[escape](folder)
    with pytest.raises(UnreadableModel):
        load("ours", "cpu")


def test_links_inside_a_folder_and_to_the_blobs_of_the_hub_are_files(models: Path) -> None:
    folder = sharded(models)
    digest = folder_digest("ours", folder)
    cached = models / "hub" / "models--a--b" / "snapshots" / "0123"
    (cached.parents[1] / "blobs").mkdir(parents=True)
    shutil.copytree(folder, cached)
    for file in [path for path in cached.iterdir() if path.is_file()]:
        blob = file.rename(cached.parents[1] / "blobs" / file.name)
        file.symlink_to(os.path.relpath(blob, cached))
    assert folder_digest("ours", cached) == digest
    add_model("cached", cached, "MIT")
    assert load("cached", "cpu").digest == digest


def test_a_tokenizer_is_never_read_from_a_path_in_its_settings(models: Path) -> None:
    folder = sharded(models)
    other = models / "other"
    shutil.copytree(folder, other)
    elsewhere = {key: str(other / "tokenizer.json") for key in ("tokenizer_file", "vocab_file", "name_or_path")}
    _setting(folder, "tokenizer_config.json", **elsewhere)
    add_model("ours", folder, "MIT")
    with opened_below(models) as touched:
        load("ours", "cpu")
    assert not [path for path in touched if path.is_relative_to(other)]


@pytest.mark.parametrize("where", ["loading", "encoder"])
def test_what_is_exchanged_between_digest_and_use_is_noticed(
    models: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **b: str(models / "snapshot"))
    folder, opened = language_model(models) if where == "loading" else embedder(models)
    opened()
    owner, name = (load_model, "read_network") if where == "loading" else (encoder, "_read")
    read = getattr(owner, name)

    def exchanged(*arguments: Any) -> Any:
        made = read(*arguments)
        config, times = folder / "config.json", (folder / "config.json").stat()
        config.write_bytes(config.read_bytes()[:-1] + b" ")
        os.utime(config, ns=(times.st_atime_ns, times.st_mtime_ns))
        return made

    monkeypatch.setattr(owner, name, exchanged)
    with refusal("ModelChanged"):
        opened()


def test_a_change_with_the_size_and_time_of_before_is_noticed(models: Path) -> None:
    folder = sharded(models)
    add_model("ours", folder, "MIT")
    shard = sorted(folder.glob("model-*.safetensors"))[-1]
    times, data = shard.stat(), shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    with refusal("ModelChanged"):
        load("ours", "cpu")


EXTRA: dict[str, torch.Tensor] = {
    "model.layers.0.self_attn.q_proj.bias": torch.ones(64),
    "model.layers.0.self_attn.q_norm.weight": torch.ones(16),
    "model.layers.3.mlp.up_proj.weight": torch.ones(160, 64),
    "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight": torch.ones(3, 64),
}
HARMLESS = {
    "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8),
    "model.embeddings.position_ids": torch.arange(8),
}


def with_weights(folder: Path, further: dict[str, torch.Tensor]) -> Path:
    tiny_network().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    file = folder / "model.safetensors"
    save_file({**load_file(file), **further}, file, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("name", EXTRA)
def test_weights_that_the_network_does_not_use_are_refused(models: Path, name: str) -> None:
    folder = with_weights(models / "tiny", {name: EXTRA[name], **HARMLESS})
    with pytest.raises(AlmonerError, match=f"1 weights that its network does not use, such as '{name[:50]}"):
        add_model("ours", folder, "MIT")
    assert "does not use" in check_folder("ours", folder).problem
    with pytest.raises(UnreadableModel, match="1 weights that its network does not use"):
        load_model.read_network("ours", folder, load_model.AutoModelForCausalLM)


def test_numbers_that_every_network_computes_by_itself_are_no_such_weights(models: Path) -> None:
    add_model("ours", with_weights(models / "tiny", HARMLESS), "MIT")
    assert check_model("ours").usable
    load("ours", "cpu")


def test_a_weight_that_is_missing_is_named_when_the_model_is_added(models: Path) -> None:
    folder = with_weights(models / "tiny", {})
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(AlmonerError, match=r"lack 1 of its weights, such as 'model\.layers\.1\.mlp\.up_proj"):
        add_model("ours", folder, "MIT")


BROKEN = {
    "empty": b"",
    "text": b"hello",
    "no JSON": b"{",
    "a list": b"[]",
    "nothing": b"null",
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "no UTF-8": b'{"a": "\xff"}',
    "a long number": b'{"vocab_size": ' + b"9" * 6000 + b"}",
}


@pytest.mark.parametrize("damage", BROKEN)
@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", model_store.INDEX, "*"]
)
def test_a_broken_file_is_refused_by_name_or_has_no_effect(models: Path, file: str, damage: str) -> None:
    folder = sharded(models)
    next(iter(sorted(folder.glob(file if file != "*" else "model-*.safetensors")))).write_bytes(BROKEN[damage])
    with contextlib.suppress(AlmonerError):
        add_model("ours", folder, "MIT")
        load("ours", "cpu")
    assert file == "generation_config.json" or damage in ("a list", "nothing") or find_local("ours") is None


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"GGUF", b"GGUF\x63" + bytes(100), b"GGUF\x03" + b"\xff" * 100], ids=range(5)
)
def test_a_broken_gguf_file_is_refused_by_name_and_leaves_nothing(models: Path, content: bytes) -> None:
    file = models / "small.gguf"
    file.write_bytes(content)
    with pytest.raises(UnreadableModel, match=r"small\.gguf"):
        add_model("ours", file, "MIT")
    assert find_local("ours") is None
    assert not [path for path in (models / "models").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_panic_of_a_library_is_one_too(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sharded(models)
    add_model("ours", folder, "MIT")

    class PanicException(BaseException):
        """As pyo3 raises it: no Exception."""

    def panic(*_: Any) -> None:
        raise PanicException("index out of range\nand more")

    monkeypatch.setattr(load_model, "read_tokenizer", panic)
    with pytest.raises(UnreadableModel, match=r"index out of range\n(?!and more)"):
        load("ours", "cpu")
