"""What one writes first, and what PRIVACY §4.2 forbids: all rows padded together to the longest, in one pass."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


@torch.inference_mode()
def naive_logits(network: Any, prompts: Sequence[Sequence[int]], continuation: Sequence[int]) -> list[Tensor]:
    """Next-token logits [rows, V] after the prompts and after each token of `continuation`."""
    columns = max(map(len, prompts))
    tokens = torch.tensor([[0] * (columns - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (columns - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    cache, found = None, []
    for token in [*continuation, 0]:
        positions = (mask.cumsum(1) - 1).clamp_min(0)[:, -tokens.shape[1] :]
        output = network(
            input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        cache = output.past_key_values
        found.append(output.logits[:, -1])
        tokens = torch.full((len(prompts), 1), token)
        mask = torch.cat([mask, torch.ones_like(tokens)], dim=1)
    return found
