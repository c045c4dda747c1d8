"""The table of a whole release: pairs of rounds alone, medians of both sides, and a ratio with its interval."""

from types import ModuleType
from typing import Any

SCRIPTS = ("whole_release",)


def row(probe: str, tree: str, number: int, seconds: float) -> dict[str, Any]:
    return {"probe": probe, "tree": tree, "round": number, "cpu_s": seconds, "wall_s": 9.0}


def test_a_ratio_is_of_rounds_that_both_trees_have(bench: dict[str, ModuleType]) -> None:
    """Twice the time in each round is a ratio of 2 without width; a round of one tree alone counts nowhere."""
    rows = [row("run", "old", number, float(number)) for number in (1, 2, 4)]
    rows += [row("run", "old", 5, 100.0)]
    rows += [row("run", "new", number, 2.0 * number) for number in (4, 2, 1)]
    assert list(bench["whole_release"].table(rows)) == [
        "| processor seconds, medians of 3 rounds | old | new | after / before |",
        "| --- | --- | --- | --- |",
        "| run | 2.00 | 4.00 | 2.00 [2.00, 2.00] |",
    ]


def test_a_ratio_of_opposite_rounds_is_one_with_a_wide_interval(bench: dict[str, ModuleType]) -> None:
    """Half in one round and twice in the other: the geometric mean is 1, where that of ratios would be 1.25."""
    rows = [row("run", "old", 1, 1.0), row("run", "old", 2, 1.0), row("run", "new", 1, 2.0), row("run", "new", 2, 0.5)]
    last = list(bench["whole_release"].table(rows))[2].rpartition("| 1.00 ")[2]
    low, high = map(float, last.strip("[] |").split(", "))
    assert low < 0.01
    assert high > 100
