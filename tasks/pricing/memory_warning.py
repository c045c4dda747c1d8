"""Warning of a request whose model is too large for this machine's memory.

It is no refusal: the machine that prices is often not the one that runs. A run on a machine that is too small ends
before anything is held (`ModelTooLarge`).
"""

from collections.abc import Mapping
from typing import Final

from tasks.inference.catalogue.model_check import PRECISIONS, ModelCheck, RowSizes

LEAST_ROWS: Final = RowSizes(references=0)
"""Sizes of a system whose parameters name none: one row."""


def memory_warning(
    check: ModelCheck | None, parameters: Mapping[str, object], machine: str = "this machine"
) -> str | None:
    """Return a sentence where the weights and one text need more memory than the machine has; None where they fit.

    Args:
        check: of a model of this machine; None of others.
        parameters: of the request; all of them are public.
        machine: the machine of the check, in words.
    """
    if check is None or check.machine is None:
        return None
    sizes = RowSizes.of(parameters, LEAST_ROWS)
    asked = parameters.get("precision", "float32")
    precisions = [precision for precision in PRECISIONS if precision == asked]
    if (shortage := check.shortage(check.machine, sizes, precisions)) is None:
        return None
    group = check.group_for(sizes, precisions)
    elsewhere = (
        f"With its layers spread over all GPUs of that machine it fits (`--device {group}`)."
        if group
        else "Another machine may have more; `almoner models check` says what other precisions take."
    )
    return (
        f"The model does not fit into the memory of {machine}{check.machine.remark}: its weights and one text take "
        f"{shortage.needed_text} in {shortage.precision}, and it has {shortage.memory_text}. A run there ends before "
        f"anything is spent. {elsewhere}"
    )
