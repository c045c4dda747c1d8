"""A process that runs a release by private evolution and dies by its own kill -9 at a point between two rounds."""

import flows.running
from tasks.generation import evolution_votes
from tasks.inference.backends.answers import Answers
from tests.integration import kill_driver

POINTS: dict[str, kill_driver.Place] = {
    "while the first candidates are written": (flows.running.Run, "drawing", 1),
    "after the first candidates": (flows.running.Run, "keep_result", 1),
    "among units": (evolution_votes, "points_of", 1),
    "after the first votes": (flows.running.Run, "keep_result", 2),
    "after the second candidates": (flows.running.Run, "keep_result", 3),
    "while the second votes are drawn": (flows.running.Run, "drawing", 4),
    "after the second votes": (flows.running.Run, "keep_result", 4),
}


def run_and_die(environment: dict[str, str], point: str) -> None:
    """`almoner run 1`, killed at a point."""
    kill_driver.AFTER |= POINTS
    kill_driver.type_and_die(environment, "run 1", point)


def run_and_die_after_answers(environment: dict[str, str], answers: int) -> None:
    """`almoner run 1`, killed when so many answers of an endpoint are on disk."""
    POINTS["answers"] = (Answers, "keep", answers)
    run_and_die(environment, "answers")
