"""Result of an in-context measurement: frozen, and null if the model cannot do the task."""

from collections.abc import Sequence
from dataclasses import dataclass

from models_db.values.canonical_json import Json
from tasks.evaluation.intervals import Interval, over_seeds, wilson
from tasks.values.results import rounded

METHOD = (
    "accuracy by log-likelihood of the label words, or exact match of a greedy answer; calibrated as in Zhao et al."
    " (2021), section 4.2; 95 % intervals: Wilson's over test items for each run, Student's t over seeds; above chance"
    " if the lower ends of the t interval and of Wilson's interval of the mean are above the best constant answer"
)


@dataclass(frozen=True)
class Score:
    """Right answers among test items, with and without calibration."""

    tested: int
    raw: int
    calibrated: int

    def accuracy(self, calibrated: bool) -> float:
        """Share of right answers."""
        return (self.calibrated if calibrated else self.raw) / self.tested


@dataclass(frozen=True)
class Run:
    """One choice of demonstrations, asked about every test item.

    Attributes:
        seed: what chose the demonstrations.
        score: right answers.
        shots: demonstrations the model read.
        dropped: demonstrations that did not fit into its context, the earliest first.
        cut: demonstrations and test items whose text was cut to the limit.
    """

    seed: int
    score: Score
    shots: int
    dropped: int
    cut: int

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form, without floats."""
        return {
            "seed": self.seed,
            "shots": self.shots,
            "dropped": self.dropped,
            "cut": self.cut,
            "tested": self.score.tested,
            "raw": _figures(self.score.raw, self.score.tested),
            "calibrated": _figures(self.score.calibrated, self.score.tested),
        }


@dataclass(frozen=True)
class InContextResult:
    """One cell of a table: a task, a source of demonstrations, a number of them.

    Attributes:
        task: the task's name.
        column: where the demonstrations come from: zero_shot, real, or the name of a mechanism.
        shots: demonstrations asked for.
        constant: how many items the best constant answer gets right: chance.
        runs: one for each seed, at least one; zero-shot has nothing to choose and so one.
    """

    task: str
    column: str
    shots: int
    constant: int
    runs: tuple[Run, ...]

    @property
    def tested(self) -> int:
        """Test items; the same in every run."""
        return self.runs[0].score.tested

    @property
    def chance(self) -> float:
        """The accuracy of the best constant answer."""
        return self.constant / self.tested

    def mean(self, calibrated: bool = True) -> float:
        """Return the mean accuracy over the seeds."""
        return sum(self._accuracies(calibrated)) / len(self.runs)

    def interval(self, calibrated: bool = True) -> Interval:
        """Student's t over seeds; of a single run, Wilson's over test items."""
        return over_seeds(self._accuracies(calibrated)) or self.item_interval(calibrated)

    def item_interval(self, calibrated: bool = True) -> Interval:
        """Wilson's interval of the mean accuracy: the runs share their items, so more seeds do not narrow it."""
        return wilson(self.mean(calibrated) * self.tested, self.tested)

    def above_chance(self, calibrated: bool = True) -> bool:
        """Return whether both intervals lie above the best constant answer."""
        return min(self.interval(calibrated)[0], self.item_interval(calibrated)[0]) > self.chance

    def line(self, calibrated: bool = True) -> str:
        """Return the result in one line, for people."""
        low, high = self.interval(calibrated)
        figure = f"{self.mean(calibrated):.1%} [{low:.1%}, {high:.1%}]"
        return figure if self.above_chance(calibrated) else f"{figure}, not above chance ({self.chance:.1%})"

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form, without floats."""
        return {
            "task": self.task,
            "column": self.column,
            "shots": self.shots,
            "tested": self.tested,
            "chance": rounded(self.chance, 4),
            "raw": self._summary(False),
            "calibrated": self._summary(True),
            "runs": [run.to_json() for run in self.runs],
            "method": METHOD,
        }

    def _accuracies(self, calibrated: bool) -> Sequence[float]:
        return [run.score.accuracy(calibrated) for run in self.runs]

    def _summary(self, calibrated: bool) -> dict[str, Json]:
        seeds = over_seeds(self._accuracies(calibrated))
        return {
            "mean": rounded(self.mean(calibrated), 4),
            "over_seeds": _ends(seeds) if seeds else None,
            "over_items": _ends(self.item_interval(calibrated)),
            "above_chance": self.above_chance(calibrated),
        }


def _figures(right: int, tested: int) -> dict[str, Json]:
    return {"right": right, "accuracy": rounded(right / tested, 4), "wilson": _ends(wilson(right, tested))}


def _ends(interval: Interval) -> list[Json]:
    return [rounded(end, 4) for end in interval]
