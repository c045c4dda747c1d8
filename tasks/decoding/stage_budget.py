"""Budget of one stage; maps stage-local mechanism numbers to positions in the release plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models_db.values.canonical_json import Json
from tasks.decoding.run_context import RunContext
from tasks.values.results import Prepared


@dataclass(frozen=True)
class PlannedStageBudget:
    """The `StageBudget` of one stage.

    Attributes:
        name: of the stage, in the journal.
        first: where its mechanisms begin in the plan.
    """

    bench: RunContext
    name: str
    first: int

    def release(
        self, numbers: int | Sequence[int], prepare: Callable[[], Prepared], draw: Callable[[Prepared], Json]
    ) -> Json:
        """Implement `StageBudget.release`.

        Raises:
            StepLost: an interrupted run has paid for it and lost it.
        """
        some = [numbers] if isinstance(numbers, int) else list(numbers)
        name = f"{self.name} {some[0]}" if some else f"{self.name} refined"
        return self.bench.release(name, [self.first + number for number in some], prepare, draw)
