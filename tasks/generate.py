"""Generation of a release's texts by the system that the request names."""

from pydantic import BaseModel

from tasks.decoding.run_context import RunContext
from tasks.prefect_task import private_task
from tasks.systems.base import System
from tasks.values.plan import Plan
from tasks.values.results import Generated


@private_task
def generate_texts(system: System, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
    """Carry out `plan`; every step is armed through `context` before it reads private text."""
    return system.generate(plan, parameters, context)
