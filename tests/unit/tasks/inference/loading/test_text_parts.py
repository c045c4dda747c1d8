"""Models of text and images, of which the text part is read; and checkpoints that lack weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
)

from tasks.inference.catalogue.model_store import UnreadableModel
from tasks.inference.loading.load_model import read_network, require_supported
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.conformance import differences
from tests.unit.tasks.inference.families import SMALL, WINDOW, adopted
from tests.unit.tasks.inference.fixtures import tiny_network

pytestmark = pytest.mark.dear

VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 28, "patch_size": 14}  # fmt: skip


def gemma3() -> Any:
    text = {**SMALL, "head_dim": 16, **WINDOW}
    return Gemma3ForConditionalGeneration(Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4))


def mistral3() -> Any:
    text = {**SMALL, "model_type": "mistral", "sliding_window": None}
    vision = {"model_type": "pixtral", **VISION, "head_dim": 16}
    config = Mistral3Config(text_config=text, vision_config=vision, tie_word_embeddings=False)
    return Mistral3ForConditionalGeneration(config)


def original_names(folder: Path) -> None:
    """Rename the weights as the first checkpoints of these models have them."""
    file = folder / "model.safetensors"
    weights = {}
    for name, part in load_file(file).items():
        earlier = name.replace("model.language_model.", "language_model.model.")
        weights[f"language_model.{earlier}" if earlier.startswith("lm_head") else earlier] = part
    save_file(weights, file, metadata={"format": "pt"})


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("whole", [gemma3, mistral3])
def test_the_text_part_is_read_as_the_whole_computes_it(whole: Any, original: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    network = whole().eval()
    network.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    if original:
        original_names(tmp_path)
    require_supported("whole", tmp_path)
    part, _ = read_network("whole", tmp_path, AutoModelForCausalLM)
    difference, largest = differences(adopted(part), network)
    assert difference <= 1e-4 * max(1.0, largest)
    assert largest > 0.1


def test_a_checkpoint_that_lacks_weights_is_not_filled_up_at_random(tmp_path: Path) -> None:
    tiny_network().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UnreadableModel, match=r"lack 1 of its weights, such as 'model\.layers\.1\.mlp\.up_proj"):
        read_network("holed", tmp_path, AutoModelForCausalLM)
