"""Every error that the rooms define explains itself, and its exit code is one of the four."""

import ast
import importlib
import pickle
import pkgutil
import re

import pytest

import models_db
from models_db.errors import AlmonerError, EnvironmentProblem, Refused, UsageError
from models_db.writes.database_errors import RuleViolated
from tests.test_layout import ROOMS, ROOT, parsed


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
    assert problem.code == "RuleViolated"
    assert problem.facts == {"rule": "nothing is held"}
    assert Refused("no").diagnostics() == "no"


def test_an_error_keeps_its_code_and_its_nature_between_processes() -> None:
    problem = pickle.loads(pickle.dumps(Refused("no", "Ask again.", {"left": 1}, code="NotYet", temporary=True)))
    assert (problem.code, problem.message, problem.advice, problem.facts) == ("NotYet", "no", "Ask again.", {"left": 1})
    assert problem.temporary


def test_a_traceback_shows_code_and_advice() -> None:
    assert Refused("no", "Ask again.", code="NotYet").__notes__ == ["NotYet: Ask again."]
    assert Refused("no", code="NotYet").__notes__ == ["NotYet"]
    advised = RuleViolated("nothing is held")
    assert advised.__notes__ == pickle.loads(pickle.dumps(advised)).__notes__ == [advised.advice]


PASSING_A_CODE = (
    "RecordFault",
    "_answers_invalid",
    "_bad_training_file",
    "_questions_invalid",
    "bad_template",
    "endpoint_failed",
)
"""Makers of one of several errors; their callers write its code first."""


def test_whatever_is_raised_as_a_base_class_has_a_code() -> None:
    """A program could not tell a `Refused` without a code from any other."""
    nodes = [node for room in ROOMS for path in (ROOT / room).rglob("*.py") for node in ast.walk(parsed(path))]
    makers = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name in PASSING_A_CODE]
    passing = {node for maker in makers for node in ast.walk(maker)}
    written = []
    for call in nodes:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call in passing:
            continue
        if call.func.id in PASSING_A_CODE:
            written.append(ast.unparse(call.args[0]))
        if call.func.id in ("Refused", "UsageError", "EnvironmentProblem"):
            written.append(next((ast.unparse(given.value) for given in call.keywords if given.arg == "code"), "none"))
    written.remove("trouble.code")  # an `EndpointFailure`, which mypy checks
    assert all(re.fullmatch("'[A-Z][A-Za-z0-9]+'", code) for code in written), written
