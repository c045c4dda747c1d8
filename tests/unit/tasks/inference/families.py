"""Tiny random networks of the families that the engine reads, and of those that it must not."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tasks.inference.catalogue.devices import CPU
from tasks.inference.catalogue.model_store import silence_libraries
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.adopt import wrap_network

SMALL: Mapping[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

LONGROPE: Mapping[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 256,
}

LONG: Mapping[str, Any] = {**LONGROPE, "original_max_position_embeddings": 6}
"""Shorter than every row of the tests."""

WINDOW: Mapping[str, Any] = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
"""Shorter than the texts of the tests."""
YARN_SCALED: Mapping[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "llama_4_scaling_beta": 0.1,
}

READ: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Llama": ("llama", {}),
    "Llama, llama3": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
    ),
    "Llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    "Llama, yarn": ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}}),
    "Llama, dynamic": ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}}),
    "Llama, longrope": ("llama", {"rope_parameters": LONGROPE}),
    "Llama, longrope for long texts": ("llama", {"rope_parameters": LONG}),
    "Mistral": ("mistral", {"sliding_window": None}),
    "Mistral, window": ("mistral", {"sliding_window": 256}),
    "Qwen2": ("qwen2", {}),
    "Qwen3": ("qwen3", {"head_dim": 16}),
    "Gemma": ("gemma", {"head_dim": 16}),
    "Phi-2": ("phi", {}),
    "Phi-3": ("phi3", {}),
    "Phi-3, window and longrope": (
        "phi3",
        {"sliding_window": 1024, "original_max_position_embeddings": 256, "rope_parameters": LONGROPE},
    ),
    "Phi-3, longrope for long texts": (
        "phi3",
        {"original_max_position_embeddings": 6, "rope_parameters": LONG, "partial_rotary_factor": 1.0},
    ),
    "SmolLM3": ("smollm3", {}),
    "OLMo": ("olmo", {}),
    "OLMo-2": ("olmo2", {}),
    "GLM": ("glm", {"head_dim": 16}),
    "GLM-4": ("glm4", {"head_dim": 16}),
    "Granite": ("granite", {"logits_scaling": 3.0, "embedding_multiplier": 2.0, "attention_multiplier": 0.2}),
    "StableLM": ("stablelm", {}),
    "StableLM, norms of heads": ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
    "StarCoder2": ("starcoder2", {}),
    "Nemotron": ("nemotron", {}),
    "GPT-2": ("gpt2", {"num_key_value_heads": 4, "n_head": 4, "n_embd": 64, "n_layer": 2, "n_positions": 512}),
    "GPT-NeoX": ("gpt_neox", {"num_key_value_heads": 4}),
    "OPT": ("opt", {"num_key_value_heads": 4, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    "Falcon": ("falcon", {"num_key_value_heads": 1, "multi_query": True, "alibi": False}),
    "Gemma 2": ("gemma2", {"head_dim": 16, "query_pre_attn_scalar": 24, "final_logit_softcapping": 5.0, **WINDOW}),
    "Gemma 3": ("gemma3_text", {"head_dim": 16, "query_pre_attn_scalar": 24, **WINDOW}),
    "VaultGemma": ("vaultgemma", {"head_dim": 16, "query_pre_attn_scalar": 24, **WINDOW}),
    "OLMo-3": ("olmo3", WINDOW),
    "Cohere": ("cohere", {"logit_scale": 0.4}),
    "Cohere, norms of heads": ("cohere", {"logit_scale": 0.4, "use_qk_norm": True}),
    "Cohere 2": ("cohere2", {"logit_scale": 0.4, "head_dim": 16, **WINDOW}),
    "Ministral": ("ministral", {"head_dim": 16, **WINDOW}),
    "Ministral 3": ("ministral3", {"head_dim": 16, "rope_parameters": YARN_SCALED}),
    "Arcee": ("arcee", {}),
    "Apertus": ("apertus", {}),
    "Seed-OSS": ("seed_oss", {"head_dim": 16}),
    "EXAONE 4": ("exaone4", WINDOW),
    "Helium": ("helium", {"head_dim": 16}),
    "HunYuan": ("hunyuan_v1_dense", {"head_dim": 16}),
    "HunYuan, alpha": (
        "hunyuan_v1_dense",
        {"head_dim": 16, "rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 1e4}},
    ),
    "ERNIE 4.5": ("ernie4_5", {"head_dim": 16}),
    "NanoChat": ("nanochat", {}),
    "CWM": ("cwm", {"head_dim": 16, **WINDOW}),
    "Persimmon": ("persimmon", {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "Mistral, short window": ("mistral", {"sliding_window": 16}),
    "Phi-3, short window": ("phi3", {"sliding_window": 16}),
    "StarCoder2, short window": ("starcoder2", {"sliding_window": 16}),
    "Qwen2, windows in some layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
    "Qwen3, windows in some layers": (
        "qwen3",
        {"head_dim": 16, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
    "SmolLM3, windows": ("smollm3", {"use_sliding_window": True, **WINDOW}),
}
"""Model type, and what its configuration says besides `SMALL`."""

REFUSED: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "Mixtral": ("mixtral", {"num_local_experts": 3}, "mlp.* sends rows to experts"),
    "Qwen3-MoE": ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2}, "sends rows to experts"),
    "OLMoE": ("olmoe", {"num_experts": 4}, "sends rows to experts"),
    "gpt-oss": ("gpt_oss", {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2}, "sends rows to experts"),
    "DeepSeek-V3": ("deepseek_v3", {}, "multi-head latent attention"),
    "Mamba": ("mamba", {}, "keeps a state"),
    "Bloom": ("bloom", {}, r"Bloom\w* is not known to act on each row by itself|\(Bloom\w*\) is not known"),
    "GPT-J": ("gptj", {"rotary_dim": 8, "n_head": 4, "n_embd": 64}, r"\(GPTJ\w*\) is not known"),
    "Gemma 3, both directions": ("gemma3_text", {"head_dim": 16, "use_bidirectional_attention": True}, "later tokens"),
    "Llama, longrope without a length": (
        "llama",
        {"rope_parameters": {**LONGROPE, "original_max_position_embeddings": -1}},
        "no original length",
    ),
    "Falcon, alibi": ("falcon", {"alibi": True}, "ALiBi"),
}
"""The same, and what the refusal says."""

UNKNOWN: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "an architecture that nobody knows": (
        {"model_type": "zorblax", "architectures": ["ZorblaxForCausalLM"]},
        r"its architecture 'zorblax' \('ZorblaxForCausalLM'\) is unknown to transformers \d",
    ),
    "an unknown one without classes": ({"model_type": "zorblax"}, "its architecture 'zorblax' is unknown"),
    "an unknown one around a known one": (
        {"model_type": "zorblax", "text_config": {"model_type": "llama"}},
        "its architecture 'zorblax' is unknown",
    ),
    "one whose code is beside it": (
        {"model_type": "zorblax", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}},
        "defined by code that comes with it",
    ),
    "a name of many lines": ({"model_type": "zor\nblax" * 99}, r"architecture 'zor\\nblax.{0,70}\.\.\.' is unknown"),
    "classes that are no names": ({"model_type": "zorblax", "architectures": [7, None]}, "'zorblax' is unknown"),
}
"""A config.json that transformers makes no configuration of, and what the refusal says."""


def config_of(kind: str, changes: Mapping[str, Any]) -> Any:
    """A configuration of transformers."""
    with silence_libraries():
        return AutoConfig.for_model(kind, **{**SMALL, **changes})


def network_of(kind: str, changes: Mapping[str, Any], seed: int = 3) -> Any:
    """A network of random weights, in float32."""
    config = config_of(kind, changes)
    torch.manual_seed(seed)
    with silence_libraries():
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def adopted(network: Any, device: torch.device = CPU) -> LanguageModel:
    """The network in the engine's hands, on `device`."""
    tokenizer = SimpleNamespace(eos_token_id=2)
    return wrap_network(network, tokenizer, name="tiny", revision="1", digest="d", device=device)
