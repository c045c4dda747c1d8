"""Shape of a network, taken from a network with or without weights."""

from typing import Any

from torch import nn

from tasks.inference.catalogue.model_check import NetworkShape
from tasks.inference.loading.row_wise_modules import heads_of, windows_of
from tasks.inference.network.rotary_tables import rotary_settings


def shape_of(network: Any) -> NetworkShape:
    """Return the sizes of a transformers causal language model, with weights or on the meta device."""
    config, head = network.config, network.get_output_embeddings()
    heads, key_value_heads, head_size = heads_of(config)
    linear = [module for module in network.modules() if type(module) is nn.Linear and module is not head]
    return NetworkShape(
        architecture=type(network).__name__,
        attention=_attention(config),
        rotary=_rotary(config),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        key_value_heads=key_value_heads,
        head_size=head_size,
        vocabulary=config.vocab_size,
        context=config.max_position_embeddings,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        head_parameters=head.weight.numel(),
        linear_parameters=sum(module.weight.numel() for module in linear),
        tied=bool(getattr(config, "tie_word_embeddings", False)),
        stored_bytes_per_number=getattr(getattr(config, "dtype", None), "itemsize", 4),
    )


def _attention(config: Any) -> str:
    window, kinds = windows_of(config)
    sliding = sum(kind == "sliding_attention" for kind in kinds)
    if window is None:
        return "every layer sees the whole context"
    layers = f"{sliding} of {len(kinds)} layers" if sliding else "every layer"
    return f"{layers} see the last {window:,} tokens" if sliding != 1 else f"{layers} sees the last {window:,} tokens"


def _rotary(config: Any) -> str:
    kinds = sorted({str(settings.get("rope_type", "default")) for settings in rotary_settings(config)})
    return " and ".join(kinds) or "none in the configuration"
