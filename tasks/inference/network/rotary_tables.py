"""Tables of rotary angles that no row chooses.

transformers looks at the largest position of a pass, over all rows, and writes the table that this row asks for
(`modeling_rope_utils.dynamic_rope_update`), so that one long text changes every other row. Here a table is fixed when a
model is taken over. `longrope` (Ding et al. 2024, arXiv 2402.13753, section 3.3) has two, for texts up to the model's
original length and for longer ones: the public sizes of a session decide which of the two all of its rows are read by
(`LanguageModel.for_length`), and the two decoders share every other module.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LONGROPE: Final = "longrope"
EXCHANGED: Final = frozenset({LONGROPE, "dynamic"})
"""Kinds that exchange their table beyond a position; `dynamic` ones at the end of the model's context only."""
_FIXED: Final = "fixed"


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
        _write(module, prefix, getattr(module, f"{prefix}original_inv_freq"))
        _set_kind(module, prefix, _FIXED)


def long_tables(decoder: nn.Module) -> dict[str, nn.Module]:
    """Return the decoder's rotary embeddings for long texts, fixed, by their names; none if it has no `longrope`.

    To be called before `fix_tables`.

    Raises:
        ValueError: rotary embeddings are not direct parts of the decoder.
    """
    tables = list(_exchanging(decoder))
    if all(_kind(module, prefix) != LONGROPE for module, prefix in tables):
        return {}
    names = {id(child): name for name, child in decoder.named_children()}
    if any(id(module) not in names for module, _ in tables):
        raise ValueError("its tables of angles are parts of its layers")
    return {names[id(module)]: _long_twin(module) for module, _ in tables}


def _long_twin(module: nn.Module) -> nn.Module:
    twin = copy.deepcopy(module)
    for part, prefix in list(_exchanging(twin)):
        if _kind(part, prefix) == LONGROPE:
            _write(part, prefix, _long_table(part, prefix))
        _set_kind(part, prefix, _FIXED)
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


def _kind(module: Any, prefix: str) -> str:
    kind: str = module.rope_type[prefix.removesuffix("_")] if prefix else module.rope_type
    return kind


def _set_kind(module: Any, prefix: str, kind: str) -> None:
    if prefix:
        module.rope_type[prefix.removesuffix("_")] = kind
    else:
        module.rope_type = kind


def _write(module: Any, prefix: str, table: Tensor) -> None:
    held = getattr(module, f"{prefix}inv_freq")
    setattr(module, f"{prefix}inv_freq", table.to(held.device, held.dtype, copy=True))
