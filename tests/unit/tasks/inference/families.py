"""Tiny random networks of the families that the engine reads, and of those that it must not."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tasks.inference.catalogue.silence_libraries import silence_libraries

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
    "SmolLM3": ("smollm3", {}),
    "OLMo": ("olmo", {}),
    "OLMo-2": ("olmo2", {}),
    "GLM": ("glm", {"head_dim": 16}),
    "GLM-4": ("glm4", {"head_dim": 16}),
    "Granite": ("granite", {}),
    "StableLM": ("stablelm", {}),
    "StableLM, norms of heads": ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
    "StarCoder2": ("starcoder2", {}),
    "Nemotron": ("nemotron", {}),
    "GPT-2": ("gpt2", {"num_key_value_heads": 4, "n_head": 4, "n_embd": 64, "n_layer": 2, "n_positions": 512}),
    "GPT-NeoX": ("gpt_neox", {"num_key_value_heads": 4}),
    "OPT": ("opt", {"num_key_value_heads": 4, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    "Falcon": ("falcon", {"num_key_value_heads": 1, "multi_query": True, "alibi": False}),
}
"""Model type, and what its configuration says besides `SMALL`."""

REFUSED: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "Mixtral": ("mixtral", {"num_local_experts": 3}, "mlp.* sends rows to experts"),
    "Qwen3-MoE": ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2}, "sends rows to experts"),
    "OLMoE": ("olmoe", {"num_experts": 4}, "sends rows to experts"),
    "gpt-oss": ("gpt_oss", {"num_local_experts": 4, "rope_parameters": {"rope_type": "default"}}, "experts"),
    "DeepSeek-V3": ("deepseek_v3", {}, "multi-head latent attention"),
    "Mamba": ("mamba", {}, "keeps a state"),
    "Bloom": ("bloom", {}, r"Bloom\w* is not known to act on each row by itself|\(Bloom\w*\) is not known"),
    "GPT-J": ("gptj", {"rotary_dim": 8, "n_head": 4, "n_embd": 64}, r"\(GPTJ\w*\) is not known"),
    "Gemma-2": ("gemma2", {"head_dim": 16}, r"\(Gemma2\w*\) is not known"),
    "Gemma-3, text": ("gemma3_text", {"head_dim": 16}, r"\(Gemma3\w*\) is not known"),
    "Cohere": ("cohere", {}, r"\(Cohere\w*\) is not known"),
    "Mistral, short window": ("mistral", {"sliding_window": 16}, "whole context up to 16 tokens"),
    "Qwen2, windows in some layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1},
        "whole context up to 32 tokens",
    ),
    "Falcon, alibi": ("falcon", {"alibi": True}, "ALiBi"),
}
"""The same, and what the refusal says."""


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
