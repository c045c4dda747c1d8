"""A GGUF file is unpacked to its numbers rounded to bfloat16, which are loaded as they are stored."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from tasks.inference.catalogue.model_store import folder_digest
from tasks.inference.loading.download import unpack_gguf
from tasks.inference.loading.load_model import read_tokens
from tasks.inference.loading.weights import type_to_read

CONCERNS = ("tasks/inference/catalogue", "tasks/inference/loading")

pytestmark = pytest.mark.dear

WIDTH, INNER, HEADS, LAYERS = 64, 96, 2, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefgh", "ab", "Ċ"]
END_OF_TEXT, END_OF_TURN = 0, 2
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen 2 in four and eight bits, with a head of its own; like every GGUF it names one end token."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = GGUFWriter(path, "qwen2")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, *[1] * (len(TOKENS) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(END_OF_TURN)
    writer.add_pad_token_id(END_OF_TEXT)
    writer.add_bos_token_id(END_OF_TEXT)
    writer.add_chat_template(TEMPLATE)
    numbers, key_width = np.random.default_rng(7), WIDTH // HEADS

    def add(name: str, *shape: int) -> None:
        weights = numbers.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, weights)
            return
        kind = GGMLQuantizationType.Q8_0 if "down" in name else GGMLQuantizationType.Q4_0
        writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)

    add("token_embd.weight", len(TOKENS), WIDTH)
    add("output.weight", len(TOKENS), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        for part, rows in (("q", WIDTH), ("k", key_width), ("v", key_width)):
            add(f"blk.{layer}.attn_{part}.weight", rows, WIDTH)
            add(f"blk.{layer}.attn_{part}.bias", rows)
        add(f"blk.{layer}.attn_output.weight", WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        add(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        add(f"blk.{layer}.attn_norm.weight", WIDTH)
        add(f"blk.{layer}.ffn_norm.weight", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_numbers_of_the_file_are_rounded_once(file: Path, tmp_path: Path) -> None:
    network = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    exact = network.state_dict()
    folder = unpack_gguf(file, tmp_path / "rounded")
    rounded = load_file(folder / "model.safetensors")
    assert rounded.keys() == exact.keys()
    assert {weights.dtype for weights in exact.values()} == {torch.float32}
    for name, weights in rounded.items():
        assert weights.dtype == torch.bfloat16
        assert torch.equal(weights.view(torch.int16), exact[name].to(torch.bfloat16).view(torch.int16))
    assert any(not torch.equal(rounded[name].float(), weights) for name, weights in exact.items())
    config = AutoConfig.from_pretrained(folder)
    assert (config.dtype, type_to_read(config, folder)) == (torch.bfloat16, torch.bfloat16)
    assert folder_digest("tiny", unpack_gguf(file, tmp_path / "again")) == folder_digest("tiny", folder)


def test_every_end_token_ends_a_text(file: Path, tmp_path: Path) -> None:
    assert read_tokens("tiny", unpack_gguf(file, tmp_path / "one")).stop_tokens == (END_OF_TURN,)
    folder = unpack_gguf(file, tmp_path / "both", (END_OF_TURN, END_OF_TEXT))
    assert read_tokens("tiny", folder).stop_tokens == (END_OF_TEXT, END_OF_TURN)
