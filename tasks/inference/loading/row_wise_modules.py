"""Allowlist of row-wise modules: the engine accepts a network only if all its modules are on it (PRIVACY §4.2, §10.1).

A row's result must be a function of that row alone. A probe of the device only samples. The modules of a network show
whether it multiplies experts by as many rows as were routed to them, normalises over a batch, or chooses a table by the
longest text of a pass. So they are compared with a list of classes that were reviewed and found to work row by row. Any
other module is refused by name, whether it couples rows or is merely unknown. The shape of a network is read from the
same settings, with or without weights (`shape_of`). A sliding window is a mask over a row's own columns
(`attention.within_window`).

Some decoders would exchange their table of rotary angles from a certain position on: transformers looks at the largest
position of a pass, over all rows, and writes the table that this row asks for
(`modeling_rope_utils.dynamic_rope_update`), so that one long text changes every other row. Here a table is fixed when a
model is taken over. `longrope` (Ding et al. 2024, arXiv 2402.13753, section 3.3) has two, for texts up to the model's
original length and for longer ones: the public sizes of a session decide which of the two all of its rows are read by
(`LanguageModel.for_length`), and the two decoders share every other module.
"""

import copy
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tasks.common import extensions
from tasks.inference.catalogue.model_check import NetworkShape
from tasks.inference.catalogue.registry import UnsupportedModel

_BUILT = "ForCausalLM Model DecoderLayer Attention MLP RotaryEmbedding"
_NORMED = f"{_BUILT} RMSNorm"
_FAMILIES: Final[Mapping[str, tuple[str, str]]] = {
    "llama": ("Llama", _NORMED),
    "mistral": ("Mistral", _NORMED),
    "qwen2": ("Qwen2", _NORMED),
    "qwen3": ("Qwen3", _NORMED),
    "gemma": ("Gemma", f"{_NORMED} TextScaledWordEmbedding"),
    "gemma2": ("Gemma2", f"{_NORMED} TextScaledWordEmbedding"),
    "gemma3": ("Gemma3", f"{_BUILT.replace(' Model', ' TextModel')} RMSNorm TextScaledWordEmbedding"),
    "vaultgemma": ("VaultGemma", f"{_NORMED} TextScaledWordEmbedding"),
    "phi": ("Phi", _BUILT),
    "phi3": ("Phi3", _NORMED),
    "smollm3": ("SmolLM3", _NORMED),
    "olmo": ("Olmo", f"{_BUILT} LayerNorm"),
    "olmo2": ("Olmo2", _NORMED),
    "olmo3": ("Olmo3", _NORMED),
    "cohere": ("Cohere", f"{_BUILT} LayerNorm"),
    "cohere2": ("Cohere2", f"{_BUILT} LayerNorm"),
    "ministral": ("Ministral", _NORMED),
    "ministral3": ("Ministral3", _NORMED),
    "arcee": ("Arcee", _NORMED),
    "apertus": ("Apertus", _NORMED),
    "seed_oss": ("SeedOss", _NORMED),
    "exaone4": ("Exaone4", _NORMED),
    "helium": ("Helium", _NORMED),
    "hunyuan_v1_dense": ("HunYuanDenseV1", _NORMED),
    "ernie4_5": ("Ernie4_5", _NORMED),
    "nanochat": ("NanoChat", _NORMED),
    "cwm": ("Cwm", _NORMED),
    "persimmon": ("Persimmon", _BUILT),
    "glm": ("Glm", _NORMED),
    "glm4": ("Glm4", _NORMED),
    "granite": ("Granite", _NORMED),
    "stablelm": ("StableLm", f"{_BUILT} LayerNormPerHead"),
    "starcoder2": ("Starcoder2", _BUILT),
    "nemotron": ("Nemotron", f"{_BUILT} LayerNorm1P"),
    "gpt2": ("GPT2", "LMHeadModel Model Block Attention MLP"),
    "gpt_neox": ("GPTNeoX", "ForCausalLM Model Layer Attention MLP RotaryEmbedding"),
    "opt": ("OPT", "ForCausalLM Model Decoder DecoderLayer Attention LearnedPositionalEmbedding"),
    "falcon": ("Falcon", f"{_BUILT} Linear"),
}
"""Prefix of the classes of each family of transformers, and the reviewed classes."""

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
    "LaplaceActivation SqrtSoftplusActivation XIELUActivation"
)


def _listed() -> Iterator[str]:
    for module, names in _TORCH.items():
        yield from (f"torch.nn.modules.{module}.{name}" for name in names.split())
    yield from (f"transformers.activations.{name}" for name in _ACTIVATIONS.split())
    yield "transformers.pytorch_utils.Conv1D"
    for family, (prefix, names) in _FAMILIES.items():
        yield from (f"transformers.models.{family}.modeling_{family}.{prefix}{name}" for name in names.split())


def _of_extensions() -> Iterator[str]:
    """Yield the full names of an extension's classes; its function may make them known to transformers, too."""
    for name, family in extensions.load(extensions.MODEL_FAMILIES).items():
        classes = family() if callable(family) else None
        if not isinstance(classes, tuple) or not all(isinstance(each, str) for each in classes):
            raise extensions.unfit(
                extensions.MODEL_FAMILIES, name, "it is not a function that returns the full names of classes"
            )
        yield from classes


ROWWISE: Final = frozenset(_listed())
"""The full names of the reviewed classes, whose modules act on rows one by one."""

TABLES: Final = frozenset({"default", "linear", "llama3", "yarn", "ntk_alpha"})
"""Kinds of rotary embeddings whose table of angles is the same in every pass."""

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
        of_extensions = frozenset(_of_extensions())
        unknown = [(path, kind) for path, kind in unknown if _full_name(kind) not in of_extensions]
    if unknown:
        raise UnsupportedModel(name, _first_reason(unknown))
    for path, module in modules:
        for kind in _table_kinds(module):
            if not isinstance(kind, str) or kind not in TABLES | EXCHANGED:
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
            raise UnsupportedModel(name, f"its config.json gives a {key} that is not a finite number")
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
    """Check the required fields of a configuration, before a network is read.

    Raises:
        UnsupportedModel: a size is missing or impossible, layers attend in an unknown way, positions are of an
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
        reason = "its weights are quantised; take the original ones, and `parameters.precision` for fewer bits"
        raise UnsupportedModel(name, reason)
    _require_known_attention(name, config)
    try:
        original_length(config)
    except ValueError as error:
        raise UnsupportedModel(name, str(error)) from error


def _require_known_attention(name: str, config: Any) -> None:
    """Raise UnsupportedModel unless positions and the layers' windows are of kinds that the engine computes."""
    for settings in rotary_settings(config):
        if (kind := settings.get("rope_type", "default")) not in TABLES | EXCHANGED:
            raise UnsupportedModel(name, f"its rotary embeddings are of the unknown kind {kind!r}")
    if getattr(config, "use_bidirectional_attention", False):
        raise UnsupportedModel(name, "its layers attend to later tokens, as an encoder's do")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if not kinds <= {"full_attention", "sliding_attention"}:
        raise UnsupportedModel(name, "some of its layers do not attend to the whole context")
    window = getattr(config, "sliding_window", None)
    if window is not None and (type(window) is not int or window < 1):
        raise UnsupportedModel(name, f"its attention window {window!r} is not a number of tokens")
    if window is None and "sliding_attention" in kinds:
        raise UnsupportedModel(name, "some of its layers have an attention window of unknown length")


def heads_of(config: Any) -> tuple[int, int, int]:
    """Return the numbers of attention heads and of heads of keys and values, and the size of a head."""
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    return heads, groups, getattr(config, "head_dim", None) or config.hidden_size // heads


def windows_of(config: Any) -> tuple[int | None, tuple[str, ...]]:
    """Return the length of a model's attention window, in tokens, and the kinds of its layers.

    The kinds are empty if every layer is alike; the window is None if no layer has one.
    """
    window, kinds = getattr(config, "sliding_window", None), tuple(getattr(config, "layer_types", None) or ())
    if window is None or (kinds and "sliding_attention" not in kinds):
        return None, ()
    return window, kinds


def _table_kinds(module: nn.Module) -> list[object]:
    """Return the kinds of a module's tables of angles: one, or one for each kind of layer."""
    kinds = getattr(module, "rope_type", "default")
    return list(kinds.values()) if isinstance(kinds, dict) else [kinds]


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _first_reason(unknown: list[tuple[str, type]]) -> str:
    """Return the most specific reason for refusing the unknown modules."""
    for pattern, reason in _REASONS:
        for path, kind in unknown:
            if re.search(pattern, kind.__name__):
                return f"its module {path or '(the whole)'} ({kind.__name__}) {reason}"
    path, kind = unknown[0]
    return f"its module {path or '(the whole)'} ({kind.__name__}) {_UNKNOWN}"


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


LONGROPE: Final = "longrope"
EXCHANGED: Final = frozenset({LONGROPE, "dynamic"})
"""Kinds that exchange their table beyond a position; `dynamic` ones at the end of the model's context only."""
_FIXED_TABLES: Final = "fixed"


def rotary_settings(config: Any) -> list[Mapping[str, Any]]:
    """Return the settings of a model's rotary embeddings; one for each kind of layer where they differ."""
    settings = getattr(config, "rope_parameters", None)
    if not isinstance(settings, Mapping):
        return []
    inner = [part for part in settings.values() if isinstance(part, Mapping)]
    return inner or [settings]


def original_length(config: Any) -> int | None:
    """Return to how many tokens the short tables of `longrope` reach; None if one table reaches as far as the model.

    Raises:
        ValueError: the configuration does not say it, or says several.
    """
    lengths = {
        settings.get("original_max_position_embeddings")
        for settings in rotary_settings(config)
        if settings.get("rope_type") == LONGROPE
    }
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or type(length) is not int or length < 1:
        raise ValueError("its longrope tables have no original length")
    return length if length < config.max_position_embeddings else None


def fix_tables(decoder: nn.Module) -> None:
    """Let no pass exchange a table of angles, in place: from now on each is that of a short text."""
    for module, prefix in _exchanging(decoder):
        _write_table(module, prefix, getattr(module, f"{prefix}original_inv_freq"))
        _set_rope_kind(module, prefix, _FIXED_TABLES)


def long_tables(decoder: nn.Module) -> dict[str, nn.Module]:
    """Return the decoder's rotary embeddings for long texts, fixed, by their names; none if it has no `longrope`.

    To be called before `fix_tables`.

    Raises:
        ValueError: rotary embeddings are not direct parts of the decoder.
    """
    tables = list(_exchanging(decoder))
    if all(_rope_kind(module, prefix) != LONGROPE for module, prefix in tables):
        return {}
    names = {id(child): name for name, child in decoder.named_children()}
    if any(id(module) not in names for module, _ in tables):
        raise ValueError("its tables of angles are parts of its layers")
    return {names[id(module)]: _long_twin(module) for module, _ in tables}


def _long_twin(module: nn.Module) -> nn.Module:
    twin = copy.deepcopy(module)
    for part, prefix in list(_exchanging(twin)):
        if _rope_kind(part, prefix) == LONGROPE:
            _write_table(part, prefix, _long_table(part, prefix))
        _set_rope_kind(part, prefix, _FIXED_TABLES)
    return twin


def _long_table(module: Any, prefix: str) -> Tensor:
    layer = prefix.removesuffix("_") or None
    length: int = module.config.max_position_embeddings  # any length beyond the original one has the same table
    layers = {} if layer is None else {"layer_type": layer}
    table: Tensor
    table, _ = ROPE_INIT_FUNCTIONS[LONGROPE](
        module.config, getattr(module, f"{prefix}inv_freq").device, length, **layers
    )
    return table


def _exchanging(network: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules with tables that transformers exchanges, and the prefix of each table's name."""
    for module in network.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, dict):
            yield from [(module, f"{layer}_") for layer, kind in kinds.items() if kind in EXCHANGED]
        elif kinds in EXCHANGED:
            yield module, ""


def _rope_kind(module: Any, prefix: str) -> str:
    kind: str = module.rope_type[prefix.removesuffix("_")] if prefix else module.rope_type
    return kind


def _set_rope_kind(module: Any, prefix: str, kind: str) -> None:
    if prefix:
        module.rope_type[prefix.removesuffix("_")] = kind
    else:
        module.rope_type = kind


def _write_table(module: Any, prefix: str, table: Tensor) -> None:
    held = getattr(module, f"{prefix}inv_freq")
    setattr(module, f"{prefix}inv_freq", table.to(held.device, held.dtype, copy=True))
