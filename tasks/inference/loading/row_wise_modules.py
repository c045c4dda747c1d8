"""Which networks the engine reads: those whose every module is known to act on rows one by one (PRIVACY §4.2, §10.1).

A row's result must be a function of that row alone. A probe of the device can only try; whether some part of a network
multiplies experts with as many rows as were routed to them, normalises over a batch or chooses a table by the longest
text of a pass, its modules say. So they are compared with a list of classes that were read and found to work row by
row. What is not on the list is refused by name, whether it couples rows or is merely unknown.

Some decoders would attend to a part of the context only, or exchange their table of angles, from a certain position
on. `context_of` ends the context before that: positions are bounded by public sizes, so nothing of a text decides it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import nn

from tasks.inference.catalogue.registry import UnsupportedModel

LEAST_CONTEXT: Final = 256
"""Tokens. A model that reads rows exactly only below this is refused: no prompt would fit."""

_BUILT = "ForCausalLM Model DecoderLayer Attention MLP RotaryEmbedding"
_FAMILIES: Final[Mapping[str, tuple[str, str]]] = {
    "llama": ("Llama", f"{_BUILT} RMSNorm"),
    "mistral": ("Mistral", f"{_BUILT} RMSNorm"),
    "qwen2": ("Qwen2", f"{_BUILT} RMSNorm"),
    "qwen3": ("Qwen3", f"{_BUILT} RMSNorm"),
    "gemma": ("Gemma", f"{_BUILT} RMSNorm TextScaledWordEmbedding"),
    "phi": ("Phi", _BUILT),
    "phi3": ("Phi3", f"{_BUILT} RMSNorm"),
    "smollm3": ("SmolLM3", f"{_BUILT} RMSNorm"),
    "olmo": ("Olmo", f"{_BUILT} LayerNorm"),
    "olmo2": ("Olmo2", f"{_BUILT} RMSNorm"),
    "glm": ("Glm", f"{_BUILT} RMSNorm"),
    "glm4": ("Glm4", f"{_BUILT} RMSNorm"),
    "granite": ("Granite", f"{_BUILT} RMSNorm"),
    "stablelm": ("StableLm", f"{_BUILT} LayerNormPerHead"),
    "starcoder2": ("Starcoder2", _BUILT),
    "nemotron": ("Nemotron", f"{_BUILT} LayerNorm1P"),
    "gpt2": ("GPT2", "LMHeadModel Model Block Attention MLP"),
    "gpt_neox": ("GPTNeoX", "ForCausalLM Model Layer Attention MLP RotaryEmbedding"),
    "opt": ("OPT", "ForCausalLM Model Decoder DecoderLayer Attention LearnedPositionalEmbedding"),
    "falcon": ("Falcon", f"{_BUILT} Linear"),
}
"""For each family of transformers the prefix of its classes, and those that were read."""

_TORCH: Final = {
    "linear": "Linear Identity",
    "sparse": "Embedding",
    "normalization": "LayerNorm RMSNorm",
    "container": "ModuleList Sequential",
    "dropout": "Dropout",
    "activation": "SiLU GELU ReLU ReLU6 LeakyReLU Tanh Sigmoid Mish Hardswish",
}
_ACTIVATIONS: Final = (
    "SiLUActivation GELUActivation GELUTanh NewGELUActivation FastGELUActivation QuickGELUActivation "
    "AccurateGELUActivation ClippedGELUActivation ReLUSquaredActivation LinearActivation MishActivation "
    "LaplaceActivation SqrtSoftplusActivation"
)


def _listed() -> Iterator[str]:
    for module, names in _TORCH.items():
        yield from (f"torch.nn.modules.{module}.{name}" for name in names.split())
    yield from (f"transformers.activations.{name}" for name in _ACTIVATIONS.split())
    yield "transformers.pytorch_utils.Conv1D"
    for family, (prefix, names) in _FAMILIES.items():
        yield from (f"transformers.models.{family}.modeling_{family}.{prefix}{name}" for name in names.split())


ROWWISE: Final = frozenset(_listed())
"""The full names of all classes whose modules act on rows one by one."""

TABLES: Final = frozenset({"default", "linear", "llama3", "yarn"})
"""Kinds of rotary embeddings whose table of angles is the same in every pass."""

_LONG_TABLES: Final = frozenset({"longrope", "dynamic"})
"""Kinds that exchange their table for texts beyond a position before which `context_of` ends the context."""

_REASONS: Final = (
    (r"Expert|Router|Moe|MoE", "sends rows to experts, so a row meets as many others as were sent there"),
    (r"BatchNorm|InstanceNorm|SyncNorm", "normalises over the rows of a batch"),
    (r"Vision|Siglip|CLIP|Pixtral|Audio|MultiModal|Image", "reads images or sound, and only models of text are read"),
    (r"DeepseekV[23]Attention|MLA", "keeps compressed keys and values (multi-head latent attention)"),
    (r"Mamba|Mixer|SSM|ShortConv|DeltaNet|Rwkv", "keeps a state in the place of keys and values"),
)
_UNKNOWN: Final = "is not known to act on each row by itself"


def require_rowwise(name: str, network: nn.Module) -> None:
    """Check every module of a network, with weights or without.

    Raises:
        UnsupportedModel: a module is of a class that is not listed, or has a table of angles of an unknown kind.
    """
    modules = list(network.named_modules())
    unknown = [(path, type(module)) for path, module in modules if _full_name(type(module)) not in ROWWISE]
    if unknown:
        raise UnsupportedModel(name, _first_reason(unknown))
    for path, module in modules:
        kind = getattr(module, "rope_type", "default")
        if not isinstance(kind, str) or kind not in TABLES | _LONG_TABLES:
            raise UnsupportedModel(name, f"its module {path} has rotary embeddings of the unknown kind {kind!r}")


_LARGEST_SIZES = {
    "vocab_size": 2**22,
    "hidden_size": 2**17,
    "intermediate_size": 2**20,
    "num_hidden_layers": 1000,
    "num_attention_heads": 2**12,
    "max_position_embeddings": 2**30,
}
"""Larger than any model that exists; a network of other sizes would take for ever to make."""
_POSITIVE_ENDINGS = ("_eps", "epsilon", "theta", "factor")


def require_possible_numbers(name: str, config: Any) -> None:
    """Check the numbers of a configuration, before a network is made of it.

    Raises:
        UnsupportedModel: a size is larger than any model's, or a number is not finite, or not positive where it has to
            be (a divisor or a base).
    """
    for size, largest in _LARGEST_SIZES.items():
        value = getattr(config, size, None)
        if isinstance(value, int) and value > largest:
            raise UnsupportedModel(name, f"its config.json gives a {size} above {largest}")
    for key, value in _numbers(config.to_dict()):
        if not math.isfinite(value):
            raise UnsupportedModel(name, f"its config.json gives a {key} that is no finite number")
        if value <= 0 and key.endswith(_POSITIVE_ENDINGS):
            raise UnsupportedModel(name, f"its config.json gives a {key} that is not positive")


def _numbers(settings: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the floats of a configuration, and of the mappings in it, by their names."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _numbers(value)
        elif isinstance(value, float):
            yield str(key), value


def require_sizes(name: str, config: Any) -> None:
    """Check what a configuration must say, before a network is read.

    Raises:
        UnsupportedModel: a size is missing or impossible, an attention window is too short, positions are of an
            unknown kind, or the weights are quantised.
    """
    for size in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"):
        value = getattr(config, size, None)
        if type(value) is not int or value < 1:
            raise UnsupportedModel(name, f"its config.json gives no {size} of a model of text")
    groups = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if type(groups) is not int or config.num_attention_heads % groups:
        raise UnsupportedModel(name, f"{config.num_attention_heads} heads cannot share {groups} heads of keys")
    if getattr(config, "alibi", False):
        raise UnsupportedModel(name, "it adds positions to attention (ALiBi), which the engine does not")
    if getattr(config, "quantization_config", None):
        raise UnsupportedModel(name, "its weights are quantised; only float weights are read")
    kind = _rotary(config).get("rope_type", "default")
    if kind not in TABLES | _LONG_TABLES:
        raise UnsupportedModel(name, f"its rotary embeddings are of the unknown kind {kind!r}")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if not kinds <= {"full_attention", "sliding_attention"}:
        raise UnsupportedModel(name, "some of its layers do not attend to the whole context")
    if not isinstance(getattr(config, "sliding_window", None), int | None):
        raise UnsupportedModel(name, f"its attention window {config.sliding_window!r} is no number")
    if context_of(config) < min(LEAST_CONTEXT, config.max_position_embeddings):
        raise UnsupportedModel(name, f"its layers attend to the whole context up to {context_of(config)} tokens only")


def context_of(config: Any) -> int:
    """Return how many tokens of a row the engine reads: the model's positions, as far as all layers see all of them.

    Below a sliding window's length, attention is full attention. Below the original length of `longrope` tables, and
    the model's own of `dynamic` ones, there is one table, whatever else is in a pass.
    """
    limits: list[int] = [config.max_position_embeddings]
    if (window := getattr(config, "sliding_window", None)) is not None:
        limits.append(window)
    rotary = _rotary(config)
    if rotary.get("rope_type") == "longrope":
        original = rotary.get("original_max_position_embeddings")
        limits.append(original if type(original) is int else 0)
    return min(limits)


def fix_tables(network: nn.Module) -> None:
    """Let no pass exchange a table of angles: from now on each is what it is for a short text.

    transformers looks at the largest position of a pass, over all rows, and writes the table that this row asks for
    (`modeling_rope_utils.dynamic_rope_update`). Within `context_of` that is always the same one.
    """
    for module in network.modules():
        if getattr(module, "rope_type", None) in _LONG_TABLES:
            setattr(module, "rope_type", "fixed")  # noqa: B010 - nn.Module declares its attributes as tensors


def _rotary(config: Any) -> Mapping[str, Any]:
    settings = getattr(config, "rope_parameters", None)
    return settings if isinstance(settings, Mapping) else {}


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _first_reason(unknown: list[tuple[str, type]]) -> str:
    """What is said of the most telling of some modules."""
    for pattern, reason in _REASONS:
        for path, kind in unknown:
            if re.search(pattern, kind.__name__):
                return f"its module {path or '(the whole)'} ({kind.__name__}) {reason}"
    path, kind = unknown[0]
    return f"its module {path or '(the whole)'} ({kind.__name__}) {_UNKNOWN}"
