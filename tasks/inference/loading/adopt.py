"""Adoption of a transformers network: the supported parts, and a check that the engine computes the same."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from models_db.errors import AlmonerError, UsageError
from tasks.inference.catalogue.devices import use_full_precision
from tasks.inference.catalogue.precision import Precision
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.engine.memory import is_out_of_memory
from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.kernels.dense_linear import fixed_order_works
from tasks.inference.kernels.kernel_order import kernel_order
from tasks.inference.loading.layer_placement import place_decoder
from tasks.inference.loading.probe_inputs import largest_inputs, mean_divergence, probes
from tasks.inference.loading.row_wise_modules import (
    heads_of,
    require_rowwise,
    require_sizes,
    windows_of,
)
from tasks.inference.loading.stored_precision import float32_arithmetic
from tasks.inference.network import attention
from tasks.inference.network.capabilities import can_pack, check_available
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.mapped_weights import file_of, is_protected
from tasks.inference.network.packed_linear import PackedLinear, frozen_linear
from tasks.inference.network.replace_layers import quantise_layers, widen_parameters
from tasks.inference.network.rotary_tables import fix_tables, long_tables, original_length
from tasks.inference.prompts.render import closing_token

# Float32 sums in another order differ by about 1e-5 of the largest logit; a wrong mask or scale differs by far more.
_TOLERANCE = 1e-3

# Nats, in the mean over the probes' tokens. SmolLM2-135M: bfloat16 0.002, int8 0.03; noise gives several.
_MOST_DIVERGENCE = 0.25


@torch.inference_mode()
def wrap_network(
    network: Any,
    tokenizer: Any,
    *,
    name: str,
    revision: str,
    digest: str,
    device: torch.device,
    precision: Precision = "float32",
    example: Sequence[int] = (),
    layer_devices: Sequence[torch.device] = (),
) -> LanguageModel:
    """Make a transformers causal language model ours: its layers are replaced in place by those of `precision`.

    Two checks on fixed public tokens: the engine's arithmetic gives the network's own logits in float32, and the
    lowered layers still give about its distributions (`_MOST_DIVERGENCE`).

    Args:
        example: tokens of an ordinary public text, to balance int8 on and to judge fewer bits by.
        device: of everything but the layers.
        layer_devices: the device of each layer; none where all are on `device`.

    Raises:
        UnsupportedModel: a module that is not known to act on each row by itself (`row_wise_modules`), neither float32
            nor bfloat16, no plain linear head, or an architecture for which the engine's logits are not the network's
            own.
        PrecisionMissing: this device has no exact arithmetic of that precision.
        PrecisionTooCoarse: the model needs more bits.
        LayersNotSpread: its layers cannot be put on several devices.
    """
    _check_supported(name, network)
    use_full_precision()
    for each in {device, *layer_devices}:
        check_available(precision, each)
    network.eval()
    prompts = probes(network.config.vocab_size)
    if example and precision != "float32":
        prompts.append(list(example))
    with _describe_failures(name), float32_arithmetic(network), largest_inputs(network.base_model) as ranges:
        own = [network(torch.tensor([prompt], device=network.device)).logits[0] for prompt in prompts]
    with _describe_failures(name), float32_arithmetic(network):
        if precision != "bfloat16":
            widen_parameters(network.get_output_embeddings())  # where the embeddings are its numbers, they stay them
        model = _take_over(network, tokenizer, name=name, revision=revision, digest=digest)
        own = [logits[:, : model.vocabulary] for logits in own]
        if precision != "float32":
            _check_close(model, prompts, own)
    with _describe_failures(name):
        model = _lowered(model, precision, device, tuple(layer_devices), ranges)
        check = _check_close if precision == "float32" else _check_divergence
        check(model, prompts, own)
    return model


@contextmanager
def _describe_failures(name: str) -> Iterator[None]:
    """Say which model it is that transformers or the engine cannot compute with; its files hold nothing private."""
    try:
        yield
    except AlmonerError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnsupportedModel(name, first_line) from error


def _take_over(network: Any, tokenizer: Any, *, name: str, revision: str, digest: str) -> LanguageModel:
    """Return the network where it is and as it is, except for its attention and for unused token ids."""
    config, head = network.config, network.get_output_embeddings()
    long = long_tables(network.base_model)
    fix_tables(network)
    tokens = slice(writable_tokens(tokenizer) or None)
    head_weight = head.weight.detach()[tokens].float()
    heads, key_value_heads, head_size = heads_of(config)
    window, layer_kinds = windows_of(config)
    network.set_attn_implementation(attention.NAME)
    return LanguageModel(
        name=name,
        revision=revision,
        digest=digest,
        decoder=network.base_model,
        head_weight=head_weight,
        head_bias=None if head.bias is None else head.bias.detach()[tokens].float(),
        packed_head=None,
        tokenizer=tokenizer,
        device=network.device,
        stop_tokens=stop_tokens(len(head_weight), tokenizer, getattr(network, "generation_config", None), config),
        layers=config.num_hidden_layers,
        heads=heads,
        key_value_heads=key_value_heads,
        head_size=head_size,
        positions=original_length(config) or config.max_position_embeddings,
        long_tables=long if original_length(config) else {},
        long_positions=config.max_position_embeddings,
        window=window,
        layer_kinds=layer_kinds,
        logit_factor=_logit_factor(config),
        logit_cap=getattr(config, "final_logit_softcapping", None),
    )


def writable_tokens(tokenizer: Any) -> int:
    """Return how many ids there are up to the tokenizer's last one; 0 if it cannot be asked.

    Networks are made for more tokens, so that products have round widths. The ids behind the last one would be paid for
    and decode to nothing.
    """
    vocabulary: Mapping[str, int] = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    return max(vocabulary.values(), default=-1) + 1


def _logit_factor(config: Any) -> float:
    """Return the number that logits are multiplied with: Cohere's factor, or one over Granite's divisor."""
    return float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)


def _lowered(
    model: LanguageModel,
    precision: Precision,
    device: torch.device,
    layer_devices: tuple[torch.device, ...],
    ranges: Mapping[nn.Module, Tensor],
) -> LanguageModel:
    """Return the model on its devices, its layers in `precision`, its head in float32."""
    packed = PackedLinear(frozen_linear(model.head_weight, model.head_bias)) if can_pack(device) else None
    embeddings = model.decoder.get_input_embeddings()
    tied = precision != "bfloat16" and embeddings.weight.data_ptr() == model.head_weight.data_ptr()
    quantise_layers(model.decoder, precision, device, ranges)
    place_decoder(model.decoder, device, layer_devices)
    if precision != "bfloat16":
        widen_parameters(model.decoder)  # on its device: what moves there is what is stored
    head_weight = embeddings.weight.detach()[: model.vocabulary] if tied else model.head_weight.to(device)
    fixed = device.type == "cuda" and all(fixed_order_works(one, model.head_size) for one in {device, *layer_devices})
    lowered = replace(
        model,
        head_weight=_copy_unprotected(model.decoder, head_weight),
        head_bias=None if model.head_bias is None else model.head_bias.to(device),
        packed_head=packed,
        kernel_order=kernel_order(device, precision, packed=packed is not None, fixed=fixed),
        long_tables={name: table.to(device) for name, table in model.long_tables.items()},
        device=device,
        layer_devices=layer_devices,
        precision=precision,
    )
    lowered.use_kernels()
    return lowered


def _copy_unprotected(decoder: nn.Module, head_weight: Tensor) -> Tensor:
    """Copy those of a decoder's dense weights that are mapped from a file which others can write to; return its head.

    A head that is a part of the embeddings stays a part of them.
    """
    copies: dict[tuple[int, torch.dtype], Tensor] = {}

    def settle(weight: Tensor) -> Tensor:
        file = file_of(weight)
        if file is None or is_protected(file):
            return weight
        own = (weight.data_ptr(), weight.dtype)
        if own not in copies or len(copies[own]) < len(weight):
            copies[own] = weight.clone()
        return copies[own][: len(weight)]

    for parameter in decoder.parameters():
        parameter.data = settle(parameter.data)
    return settle(head_weight)


def _check_supported(name: str, network: Any) -> None:
    require_sizes(name, network.config)
    head = network.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise UnsupportedModel(name, "its head is not one linear layer")
    if head.weight.dtype not in (torch.float32, torch.bfloat16):
        kind = str(head.weight.dtype).removeprefix("torch.")
        raise UnsupportedModel(name, f"its weights are neither float32 nor bfloat16 but {kind}")
    require_rowwise(name, network)


def stop_tokens(vocabulary: int, tokenizer: Any, *settings: Any) -> tuple[int, ...]:
    """Return the tokens that end a text, ascending: of a model's tokenizer and settings, and of its chat template.

    The token that closes an answer in the template ends a text even if no setting says so: the model would go on with
    the next turn. Ids of settings that no token of the `vocabulary` has are left out: none of them is ever drawn.
    """
    tokens = {closing_token(tokenizer)}
    for holder in (tokenizer, *settings):
        ids = getattr(holder, "eos_token_id", None)
        tokens.update(ids if isinstance(ids, list | tuple) else [ids])
    return tuple(sorted(token for token in tokens if type(token) is int and 0 <= token < vocabulary))


def _engine_logits(model: LanguageModel, prompts: list[list[int]]) -> list[Tensor]:
    """Return the engine's logits after every token of the prompts; those of one table of angles share a batch."""
    logits: dict[int, Tensor] = {}
    for long in (False, True):
        alike = [index for index, prompt in enumerate(prompts) if (len(prompt) > model.positions) == long]
        if alike:
            read = [prompts[index] for index in alike]
            logits |= zip(alike, _padded_logits(model.for_length(max(map(len, read))), read), strict=True)
    return [logits[index] for index in range(len(prompts))]


def _padded_logits(model: LanguageModel, prompts: list[list[int]]) -> list[Tensor]:
    """Return the engine's logits after every token of the prompts in one batch, the last token in its own step."""
    longest = max(map(len, prompts))
    batch = RowBatch(model, len(prompts), longest)
    before = batch.read_all([prompt[:-1] for prompt in prompts], longest - 1)
    last = batch.step(torch.tensor([prompt[-1] for prompt in prompts], device=model.device))
    logits = model.logits(torch.cat([before, last[:, None]], dim=1))
    return [row[longest - len(prompt) :] for row, prompt in zip(logits, prompts, strict=True)]


def _check_close(model: LanguageModel, prompts: list[list[int]], own: list[Tensor]) -> None:
    """Raise UnsupportedModel unless our logits are the network's own."""
    for ours, theirs in zip(_engine_logits(model, prompts), own, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        if not float((ours - theirs.to(ours.device)).abs().max()) <= _TOLERANCE * scale:
            raise UnsupportedModel(model.name, "its logits are more than hidden states times its head")


def _check_divergence(model: LanguageModel, prompts: list[list[int]], own: list[Tensor]) -> None:
    """Raise PrecisionTooCoarse unless our distributions are about the network's own."""
    divergence = mean_divergence(own, _engine_logits(model, prompts))
    if not divergence <= _MOST_DIVERGENCE:
        raise UsageError(
            f"In {model.precision}, the distributions of {model.name!r} are {divergence:.2f} nats from those in"
            f" float32; at most {_MOST_DIVERGENCE} are taken.",
            "Request precision float32, or choose another model.",
            {"model": model.name, "precision": model.precision, "divergence": round(divergence, 4)},
            code="PrecisionTooCoarse",
        )
