"""A process that runs a release with an external model and dies by its own kill -9 when some answers are kept."""

from tasks.generation.systems import SYSTEMS
from tasks.inference.backends.answers import Answers
from tests.integration import kill_driver
from tests.support_backend import Counted

POINT = "after answers are kept"


def run_and_die(environment: dict[str, str], answers: int) -> None:
    """`almoner run 1`, killed when so many answers are on disk."""
    SYSTEMS[Counted.name] = Counted()
    kill_driver.AFTER[POINT] = (Answers, "keep", answers)
    kill_driver.type_and_die(environment, "run 1", POINT)
