"""Hidden states of each row: that of the prompt's last token.

One prefill and nothing more: no keys and values are kept, so memory is a few rows' whatever the number of groups. The
passes are those in which a session reads the same prompts, with the same checks and to the same bits, so a row is a
function of itself and of public inputs (PRIVACY §4.2 point 1).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tasks.inference.engine.engine import Engine, SessionOpening, SessionSize
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.memory import is_out_of_memory, not_enough_memory
from tasks.inference.engine.rows import Key, RowBatch, prefill_shape
from tasks.inference.engine.session import Generation, PrivateReader, RowHidden
from tasks.inference.engine.shapes import Sizes, groups_read_together
from tasks.inference.prompt_rendering import PromptPieces


def last_hidden(
    engine: Engine, private: Sequence[PromptPieces], references: Sequence[Sequence[Sequence[int]]], sizes: Sizes
) -> Iterator[RowHidden]:
    """Return the last hidden state of every row of every group, group after group.

    Args:
        private: what stands around the references of each group; public, and may hold soft tokens.
        references: of each group the tokens of its rows, as in `Session.enter`. A group is asked for when its turn
            comes, several at a time, and again only if memory did not suffice.
        sizes: public sizes that hold for every group. Nothing is drawn, so of these only `prefix`, `segment`,
            `reference_tokens` and `references` count.

    Returns:
        For each group, also one without rows, its `RowHidden`; `generation` is the number of the group, from 0.
        Ordinary tensors, which a network may be trained on.

    Raises:
        ContextTooLong: the sizes exceed the model's positions.
        ValueError: not one prompt per group, or a prompt that exceeds the sizes or that the model cannot read.
        RowsNotIsolated: this device cannot keep rows apart; no group was asked for.
        NotEnoughMemory: while a group is read.
    """
    for pieces in private:
        sizes.check_holds_private(pieces)
    return _checked(engine, private, references, sizes)


def _checked(
    engine: Engine,
    private: Sequence[PromptPieces],
    references: Sequence[Sequence[Sequence[int]]],
    sizes: Sizes,
) -> Iterator[RowHidden]:
    """Check the device and the prompts, then read."""
    if len(private) != len(references):
        raise ValueError(f"{len(references)} groups need a prompt each, not {len(private)}")
    rows = ready_to_read(engine, sizes)
    sizes = _of_prompts(sizes)
    for pieces in private:
        engine.model.check_knows(pieces.tokens)
    reader = PrivateReader(sizes.model_for(engine.model), engine.isolation, sizes, rows)
    return _in_windows(engine, private, references, sizes, reader)


def ready_to_read(engine: Engine, sizes: Sizes) -> int:
    """Check the device for all passes of this module before payment; return the number of their rows.

    Raises:
        ContextTooLong: the sizes exceed the model's positions.
        RowsNotIsolated: this device cannot keep rows apart.
        NotEnoughMemory: there is none for a prompt.
    """
    sizes = _of_prompts(sizes)
    sizes.check_fits(engine.model)
    opening = SessionOpening(engine.model, engine.isolation, sizes, only_prompts=True)
    return opening.find_size(SessionSize(1, prefill_shape(engine.model.device)[0]), lambda room: room).rows


def _of_prompts(sizes: Sizes) -> Sizes:
    """Return the sizes of the prompts alone, without drawn tokens."""
    return replace(sizes, public_prompt=0, new_tokens=0)


@dataclass
class _States:
    """A receiver that keeps the one hidden state that is handed over of each row, float32 [D]."""

    of: dict[Key, Tensor] = field(default_factory=dict)

    def admit(self, numbers: Iterable[int], columns: int) -> None:
        """Do nothing: no rows are kept."""

    def enter(self, keys: Sequence[Key], source: RowBatch, rows: Sequence[int], hidden: Tensor) -> None:
        self.of.update(zip(keys, hidden[list(rows)], strict=True))


def _in_windows(
    engine: Engine,
    private: Sequence[PromptPieces],
    references: Sequence[Sequence[Sequence[int]]],
    sizes: Sizes,
    reader: PrivateReader,
) -> Iterator[RowHidden]:
    """A few groups at a time, a public number: rows of several groups are sorted together, which spares padding."""
    window, done = groups_read_together(sizes.references, engine.model.device), 0
    while done < len(private):
        groups = range(done, min(done + window, len(private)))
        entered = {
            number: Generation((), private[number], Generation.cut(references[number], sizes, engine.model.vocabulary))
            for number in groups
        }
        if (states := _read(reader, entered)) is None:
            window = _smaller(engine, reader, len(groups))
            continue
        yield from (_of_group(number, entered[number], states, engine.model) for number in groups)
        done = groups.stop


@torch.inference_mode()
def _read(reader: PrivateReader, groups: dict[int, Generation]) -> dict[Key, Tensor] | None:
    """Return every row's state, or None if memory did not suffice."""
    states = _States()
    try:
        reader.read(groups, states)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return states.of


def _smaller(engine: Engine, reader: PrivateReader, groups: int) -> int:
    """Free memory and return half as many groups."""
    if groups == 1:
        raise not_enough_memory(str(engine.model.device))
    reader.forget()
    if engine.model.device.type == "cuda":
        torch.cuda.empty_cache()
    return groups // 2


def _of_group(number: int, group: Generation, states: dict[Key, Tensor], model: LanguageModel) -> RowHidden:
    states_of_group = [states[key] for key in group.present(number)]
    rows = torch.stack(states_of_group) if states_of_group else torch.zeros((0, model.width), device=model.device)
    return RowHidden.of(rows, [(number, bool(row)) for row in group.references])
