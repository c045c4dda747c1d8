"""Adoption of a transformers network: the supported parts, and a check that the engine computes the same.

The check reads fixed public tokens, and says how far the two models are apart.

A decoder's layers may be placed on several devices. Everything outside the layers is on the first device, home. Hooks
move what a layer is given to the layer's device: the hidden states where the device changes, and masks, positions and
angles once for each pass and device. What a module outside the layers is given is moved home, so hidden states come
back after the last layer. A transfer copies bits. Each product of a layer has the operands, shapes and strides that it
has on one device, so on devices of one kind a pass has the same bits however its layers are spread.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from models_db.errors import AlmonerError, UsageError
from tasks.inference.catalogue.devices import can_pack, check_available, use_full_precision
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.engine import attention
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.linear_layers import PackedLinear, fixed_order_works, frozen_linear
from tasks.inference.engine.memory import is_out_of_memory
from tasks.inference.engine.rows import RowBatch
from tasks.inference.kernels.kernel_choice import kernel_order
from tasks.inference.loading.row_wise_modules import (
    fix_tables,
    heads_of,
    long_tables,
    original_length,
    require_rowwise,
    require_sizes,
    windows_of,
)
from tasks.inference.loading.weights import file_of, float32_arithmetic, is_protected, quantise_layers, widen_parameters
from tasks.inference.prompt_rendering import closing_token

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


def _layers_not_spread(name: str) -> UsageError:
    return UsageError(
        f"The layers of a {name} cannot be identified, so they cannot be spread over devices.",
        "Name one device, such as cuda:0, or choose another model.",
        {"decoder": name},
        code="LayersNotSpread",
    )


@dataclass
class _PassTransfers:
    """What a pass has moved, by the object that was moved and its target; emptied when a pass begins and ends."""

    moved: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def to_device(self, device: torch.device, held: Any) -> Any:
        """Return `held` with every tensor in it on `device`; tuples, lists and dictionaries are looked into."""
        match held:
            case Tensor():
                return held if is_at(held, device) else self._moved(held, device)
            case tuple() | list() if type(held) in (tuple, list):
                return type(held)(self.to_device(device, part) for part in held)
            case dict() if type(held) is dict:
                return {name: self.to_device(device, part) for name, part in held.items()}
            case other:
                return other

    def clear(self, *_: object) -> None:
        """Forget the tensors of a pass; as a hook it changes nothing."""
        self.moved.clear()

    def _moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        key = (id(tensor), device)
        if key not in self.moved:
            self.moved[key] = tensor, send(tensor, device)  # the source is kept, so that no other object has its id
        return self.moved[key][1]


def is_at(tensor: Tensor, device: torch.device) -> bool:
    """Return whether a tensor needs no transfer to `device`."""
    return tensor.device == device


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy on `device`; torch lets the copy wait for what the source's device has still to compute."""
    return tensor.to(device)


def place_decoder(decoder: nn.Module, home: torch.device, layer_devices: Sequence[torch.device]) -> None:
    """Put every layer on its device and everything else on `home`, in place.

    Args:
        layer_devices: the device of each layer; none where all are on `home`.

    Raises:
        LayersNotSpread: the decoder's layers cannot be identified, or are not as many.
    """
    if not layer_devices:
        decoder.to(home)
        return
    layers = list_of_layers(decoder)
    if layers is None or len(layers) != len(layer_devices):
        raise _layers_not_spread(type(decoder).__name__)
    transfers = _PassTransfers()
    decoder.register_forward_pre_hook(transfers.clear)
    inside = {module for layer in layers for module in layer.modules()}
    for module in decoder.modules():
        if module not in inside:
            _move_own(module, home)
            if module is not decoder:  # those without weights, too: the last norm may have none
                module.register_forward_pre_hook(_receiver(transfers, home), with_kwargs=True)
    for layer, device in zip(layers, layer_devices, strict=True):
        layer.to(device)
        layer.register_forward_pre_hook(_receiver(transfers, device), with_kwargs=True)
    decoder.register_forward_hook(transfers.clear)


def _receiver(transfers: _PassTransfers, device: torch.device) -> Callable[..., Any]:
    def receive(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
        return transfers.to_device(device, args), transfers.to_device(device, options)

    return receive


def _move_own(module: nn.Module, device: torch.device) -> None:
    """Move the weights and tables of a module, without those of its parts."""
    alone = copy.copy(module)
    alone._modules = {}  # `Module.to` goes into all parts; weights and tables are in dictionaries that both share
    alone.to(device)


def list_of_layers(decoder: nn.Module) -> nn.ModuleList | None:
    """Return the list of a decoder's layers; None if it cannot be identified."""
    count = getattr(getattr(decoder, "config", None), "num_hidden_layers", None)
    lists = [
        module
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList) and name.count(".") < 2 and len(module) == count
    ]
    return lists[0] if len(lists) == 1 else None


# Whatever models are asked to write about: people, numbers, law, medicine, food, weather, code.
PUBLIC_TEXT = (
    "The committee met on Tuesday to review the budget. Mrs. Lowell asked why the library had closed early in March; "
    'nobody knew. "We can open again on the 14th," said the director, "if the heating works." Revenue rose by 3.2 % to '
    "$41,500, costs fell. Patients should take two tablets after meals and call the surgery if the pain returns. "
    "def area(r): return 3.14159 * r ** 2. The court finds that the applicant was not informed of her rights. I loved "
    "this place: the pizza was hot, the staff were kind, and we paid less than £20. Rain is expected in the north; in "
    "the south it stays dry."
)

LONGEST_EXAMPLE = 192
"""Tokens of the public text that are looked at."""


def probes(vocabulary: int) -> list[list[int]]:
    """Two fixed sequences of tokens from all over the vocabulary, of different length."""
    return [[(step * index + 3) % vocabulary for index in range(length)] for step, length in ((7, 12), (7919, 48))]


@contextmanager
def largest_inputs(network: nn.Module) -> Iterator[dict[nn.Module, Tensor]]:
    """Fill a dictionary, while the block runs, with the largest magnitude of each input channel of each linear layer.

    Yields:
        linear layer -> float32 [in features].
    """
    largest: dict[nn.Module, Tensor] = {}

    def record_magnitudes(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        magnitudes = inputs[0].reshape(-1, inputs[0].shape[-1]).abs().amax(0)
        largest[layer] = torch.maximum(largest[layer], magnitudes) if layer in largest else magnitudes

    hooks = [
        layer.register_forward_pre_hook(record_magnitudes) for layer in network.modules() if type(layer) is nn.Linear
    ]
    try:
        yield largest
    finally:
        for hook in hooks:
            hook.remove()


def mean_divergence(own: Sequence[Tensor], ours: Sequence[Tensor]) -> float:
    """Return the mean over all positions of KL(own || ours) of the next token, in nats.

    Args:
        own, ours: float32 [tokens, V] logits, one for each sequence.
    """
    theirs = torch.log_softmax(torch.cat(list(own)), -1)
    log_probabilities = torch.log_softmax(torch.cat(list(ours)).to(theirs.device), -1)
    return float((theirs.exp() * (theirs - log_probabilities)).sum(-1).mean())
