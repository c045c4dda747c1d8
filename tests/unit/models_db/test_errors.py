"""Every error that the rooms define explains itself, and its exit code is one of the four."""

import importlib
import pkgutil

import pytest

import models_db
from models_db.errors import AlmonerError, EnvironmentProblem, Refused, UsageError
from models_db.writes.database_errors import RuleViolated


def every_error() -> list[type[AlmonerError]]:
    for module in pkgutil.walk_packages(models_db.__path__, "models_db."):
        importlib.import_module(module.name)
    found, waiting = [], [AlmonerError]
    while waiting:
        kinds = waiting.pop().__subclasses__()
        found += [kind for kind in kinds if kind.__module__.startswith("models_db")]
        waiting += kinds
    return found


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_belongs_to_one_branch(kind: type[AlmonerError]) -> None:
    branches = [branch for branch in (Refused, UsageError, EnvironmentProblem) if issubclass(kind, branch)]
    assert len(branches) == 1
    assert kind.exit_code == {Refused: 1, UsageError: 2, EnvironmentProblem: 3}[branches[0]]
    assert kind.__doc__


def test_names_are_not_used_twice() -> None:
    names = [kind.__name__ for kind in every_error()]
    assert len(names) == len(set(names))


def test_diagnostics_are_message_and_advice() -> None:
    problem = RuleViolated("nothing is held")
    assert problem.diagnostics() == f"{problem.message}\n{problem.advice}"
    assert problem.name == "RuleViolated"
    assert problem.facts == {"rule": "nothing is held"}
    assert Refused("no").diagnostics() == "no"
