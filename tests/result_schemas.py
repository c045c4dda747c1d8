"""Every result of a command that a test prints is compared with the schema that --json-schema prints."""

import json
from collections.abc import Callable
from functools import cache

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

import cli.framework.command
from cli.framework.command import Command, CommandResult, answer_schema, to_plain
from models_db.values.untrusted_text import json_text

Printer = Callable[[Command, CommandResult[object], bool], None]


@cache
def _validator(function: Command) -> Draft202012Validator:
    return Draft202012Validator(answer_schema(function))


def compare_results() -> None:
    """From now on, fail where a command of this process prints what its schema does not allow."""
    printed: Printer = cli.framework.command.print_result

    def compare_and_print(function: Command, answer: CommandResult[object], as_json: bool) -> None:
        if function.__module__.startswith("cli.commands."):  # and no command that a test makes up
            problem = best_match(_validator(function).iter_errors(json.loads(json_text(answer.data, default=to_plain))))
            assert problem is None, f"{function.__name__}: {problem.json_path}: {problem.message[:2000]}"
        printed(function, answer, as_json)

    cli.framework.command.print_result = compare_and_print
