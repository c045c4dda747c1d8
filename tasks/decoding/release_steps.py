"""Release steps: mechanisms that release one value each, drawn once even if the process dies (decision 0046).

A step is armed, prepared, drawn and journalled. Preparation reads private data, perhaps for hours, and draws nothing: a
run that dies in it has paid, and its successor may draw with that payment. The start of drawing is journalled first; a
run that dies between that and the result has lost both, because a second draw would have to be paid for.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from models_db.errors import Refused
from models_db.values.canonical_json import Json
from tasks.decoding.journal import RunJournal

Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class ReleaseSteps:
    """Progress of earlier attempts on the steps of a release.

    Attributes:
        paid: instalments of each of the plan's mechanisms that earlier attempts have armed; empty if there were none.
        released: what they have released, by the name of the step.
        begun: the steps that they began to draw.
    """

    paid: tuple[int, ...] = ()
    released: Mapping[str, Json] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()

    def run_once(
        self,
        name: str,
        sequences: Sequence[int],
        arm: Callable[[int, int], None],
        journal: RunJournal,
        prepare: Callable[[], Prepared],
        draw: Callable[[Prepared], Json],
    ) -> Json:
        """Return the value that a step releases: by an earlier attempt that was paid for, or now.

        Args:
            name: of the step, one for each release.
            sequences: the mechanisms it consists of, of one instalment each, by their number in the plan; none where it
                makes something public of what was released, to be kept as it came out.
            arm: spends an instalment, unless it is spent already.
            journal: where it is written down that the step begins to draw, and what it released.
            prepare: reads private data.
            draw: the mechanisms, on what was prepared.

        Raises:
            StepLost: it was paid for, and died while it was drawn.
        """
        if all(sequence < len(self.paid) and self.paid[sequence] for sequence in sequences):
            if name in self.released:
                return self.released[name]
            if sequences and (name in self.begun or self._followed(sequences)):
                raise StepLost(name)
        for sequence in sequences:
            arm(sequence, 0)
        prepared = prepare()
        journal.drawing(name)
        result: Json = json.loads(json.dumps(draw(prepared)))  # as an attempt that goes on would read it
        journal.result(name, result)
        return result

    def _followed(self, sequences: Sequence[int]) -> bool:
        """Return whether a later mechanism is paid for: then this step was drawn, and the journal is too old.

        A mechanism is armed when what all before it have released is on disk. So a journal that does not know the step
        was put back, say from a backup, beside a ledger that was not.
        """
        return any(self.paid[max(sequences) + 1 :])


class StepLost(Refused):
    """An interrupted run has paid for a step and lost its result."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The interrupted run had begun to draw the step {name!r}, and its result is lost.",
            "Draw and pay everything again: `almoner run ID --anew`. The spent budget stays spent.",
            {"step": name},
        )
