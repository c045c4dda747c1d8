"""Does this device give a row the same bits wherever it stands and whoever stands beside it?

PRIVACY §4.2 point 1 needs it: when one unit leaves, the rows behind it move up, and when a text changes its length
rows are sorted anew. Fixed shapes make it true only where a kernel treats all rows alike; some do not (MKL's float32
product at 5, 6, 7 and 9 to 11 rows; work-splitting kernels on accelerators). So the engine asks the device itself,
once for every shape it is about to use and with public tokens: once in one order, once reversed among other neighbours.
"""

import torch
from torch import Tensor

from models_db.errors import EnvironmentProblem
from tasks.inference.language_model import LanguageModel
from tasks.inference.rows import RowBatch, prefill_shape


class RowsNotIsolated(EnvironmentProblem):
    """This device's arithmetic lets a row's bits depend on its place or its neighbours."""

    def __init__(self, device: str, shape: str) -> None:
        super().__init__(
            f"On {device}, the results of a row in a pass of {shape} depend on the rows beside it; "
            "a private row must not influence another.",
            "Use --device cpu.",
            {"device": device, "shape": shape},
        )


class IsolationCheck:
    """Checks every shape once, the first time it is about to be used."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._passed: set[tuple[int, int]] = set()

    def decoding(self, rows: int) -> None:
        """Check the passes over private rows: prefill, and one token for each of `rows` rows with the full head.

        Raises:
            RowsNotIsolated: some row came out with other bits.
        """
        for shape in ((rows, 1), prefill_shape(self._model.device)):
            if shape not in self._passed:
                one, other = _pair(_tokens(self._model, *shape))
                straight, turned = self._logits(one), self._logits(other)
                self._compare(straight, turned, f"{shape[0]} rows x {shape[1]} tokens")
                self._passed.add(shape)

    def candidates(self, rows: int, candidates: int) -> None:
        """Check the head over `candidates` candidate tokens.

        Raises:
            RowsNotIsolated: as above.
        """
        shape = (rows, -candidates)
        if shape not in self._passed:
            some = torch.arange(candidates, device=self._model.device) % self._model.vocabulary
            spread = torch.arange(rows * self._model.width, device=self._model.device).sin()
            one, other = _pair(spread.view(rows, self._model.width))
            straight, turned = self._model.logits_of(one, some), self._model.logits_of(other, some)
            self._compare(straight, turned, f"{rows} rows x {candidates} candidates")
            self._passed.add(shape)

    def _logits(self, tokens: Tensor) -> Tensor:
        rows, columns = tokens.shape
        hidden = RowBatch(self._model, rows, columns).read(tokens.tolist(), columns)
        return torch.cat([hidden, self._model.logits(hidden)], dim=1)

    def _compare(self, straight: Tensor, turned: Tensor, shape: str) -> None:
        if not torch.equal(straight[::2], turned.flip(0)[::2]):
            raise RowsNotIsolated(str(self._model.device), shape)


def _pair(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, and the even ones of them in reverse order among odd ones that are other rows."""
    other = rows.roll(1, dims=1) if rows.shape[1] > 1 else rows.roll(1, dims=0)
    other[::2] = rows[::2]
    return rows, other.flip(0)


def _tokens(model: LanguageModel, rows: int, columns: int) -> Tensor:
    """Public, varied and fixed token ids, int64 [rows, columns]."""
    return (torch.arange(rows * columns).view(rows, columns) * 7919 + 104729) % model.vocabulary
