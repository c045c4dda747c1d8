"""Generate: the texts of a release, by whatever system the request names."""

from pydantic import BaseModel

from tasks.generation.interface import Bench, Generated, Generator, Plan
from tasks.shell import private_task


@private_task
def generate_texts(system: Generator, plan: Plan, parameters: BaseModel, bench: Bench) -> Generated:
    """Carry out `plan`; every step is armed through `bench` before it reads private text."""
    return system.generate(plan, parameters, bench)
