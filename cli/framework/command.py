"""Command framework: --home and --json, schemas of results, one place that prints, one place that catches errors.

A command is a function that takes a `CommandContext` and its own parameters and returns a `CommandResult`. It never
prints results and never exits; what it says on the way (a price, a bar) goes to stderr through
`context.print_progress`.
"""

import functools
import gc
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args

import typer
from rich.console import Console, RenderableType
from typer._click.globals import get_current_context
from typing_extensions import TypedDict  # pydantic reads those of `typing` from Python 3.12 on only

from cli.framework.options import HomeOption, JsonOption
from models_db.errors import AlmonerError, UsageError
from models_db.home import ProjectHome
from models_db.values.untrusted_text import json_text, require_storable

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ProblemData(TypedDict):
    """Any command that fails: its error, with exit code 1 (a rule), 2 (usage) or 3 (this machine)."""

    error: str
    message: str
    advice: str
    facts: dict[str, object]


def answer_schema(function: Callable[..., object]) -> dict[str, Any]:
    """Return the JSON schema of everything that a command prints to stdout under --json: its result, or its error.

    Objects have the listed properties and no others.
    """
    from pydantic import TypeAdapter  # slow to import, and only schemas need it

    (data,) = get_args(inspect.signature(function, eval_str=True).return_annotation)
    schema = TypeAdapter(data | ProblemData).json_schema()
    _close(schema)
    return {"$schema": DIALECT, **schema}


def to_plain(value: object) -> object:
    """Return a dataclass or a pydantic model as the object that its schema describes, for `json.dumps(default=...)`."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    from pydantic import BaseModel  # loaded already, where a value is one

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _close(schema: object) -> None:
    """Forbid other properties in all objects that list theirs, and drop titles that only repeat a property's name."""
    if isinstance(schema, list):
        for each in schema:
            _close(each)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            schema.setdefault("additionalProperties", False)
            for each in properties.values():
                each.pop("title", None)
        for each in schema.values():
            _close(each)


WIDTH_WITHOUT_TERMINAL = 150
Data = TypeVar("Data", covariant=True)


@dataclass(frozen=True)
class CommandResult(Generic[Data]):
    """The result of a command: data for programs (`--json`), tables and sentences for people.

    A command names the type of its data in its return type, such as `CommandResult[PolicyShown]`. The types
    stand beside the commands; mypy checks that a command fills its own, and `--json-schema` prints its schema.
    """

    data: Data
    renderables: Sequence[RenderableType] = ()
    exit_code: int = 0
    paged: bool = False
    """True if a terminal shows the result in a pager."""


@dataclass(frozen=True)
class CommandContext:
    """The context of a running command: the project home, and a way to print progress."""

    home: ProjectHome
    as_json: bool
    console: Console = field(default_factory=lambda: make_console(stderr=True))

    def print_progress(self, *what: RenderableType) -> None:
        """Print to stderr while the command works; print nothing under --json."""
        if not self.as_json:
            print_renderables(self.console, what)


Command = Callable[..., CommandResult[object]]
AnyCommand = TypeVar("AnyCommand", bound=Command)


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[[AnyCommand], AnyCommand]:
    """Register a function as the command `name` of `app`; its first parameter must be the `CommandContext` home."""

    def register(function: AnyCommand) -> AnyCommand:
        @functools.wraps(function)
        def run(*, almoner_home: Path | None, almoner_json: bool, almoner_schema: bool, **parameters: Any) -> None:
            before = get_current_context().obj
            raise typer.Exit(execute(function, before, almoner_home, almoner_json, parameters))

        def print_schema(requested: bool) -> None:
            if requested:
                sys.stdout.write(json_text(answer_schema(function), indent=2) + "\n")
                raise typer.Exit

        schema_option = typer.Option(
            "--json-schema", callback=print_schema, is_eager=True, help="Print the schema of --json and exit."
        )
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, default, annotation in (
                ("almoner_home", None, HomeOption),
                ("almoner_json", False, JsonOption),
                ("almoner_schema", False, Annotated[bool, schema_option]),
            )
        ]
        keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        run.__signature__ = inspect.Signature([*keyword_only, *shared])  # type: ignore[attr-defined]
        app.command(name, **settings)(run)
        return function

    return register


def execute(
    function: Command,
    before: Path | None,
    after: Path | None,
    as_json: bool,
    parameters: Mapping[str, Any],
) -> int:
    """Run a command, print its result or its error, and return the exit code.

    Args:
        before, after: the --home in front of the command, and the one behind it.
    """
    gc.enable()  # the console script turns it off while modules are imported
    try:
        home = only_home(before, after)
        located = ProjectHome.locate(home)
        if home is not None:
            os.environ["ALMONER_HOME"] = str(home)  # tools started from here (Prefect) follow it
        require_storable(parameters)
        return _answered(function, CommandContext(located, as_json), parameters)
    except AlmonerError as problem:
        print_problem(problem, as_json=as_json)
        return problem.exit_code
    except KeyboardInterrupt:
        print_renderables(make_console(stderr=True), ["Interrupted; no step was left half done."])
        return 130


def only_home(before: Path | None, after: Path | None) -> Path | None:
    """Return the home that is named in front of the command or behind it; None if neither names one.

    Raises:
        HomesDiffer: both name one, and not the same.
    """
    if before is not None and after is not None and before.expanduser().absolute() != after.expanduser().absolute():
        raise UsageError(
            f"--home names {before} before the command and {after} behind it.",
            "Give one of the two; `almoner doctor` says which home a command uses, and why.",
            {"before": str(before), "after": str(after)},
            code="HomesDiffer",
        )
    return before if after is None else after


def command_invalid(message: str) -> UsageError:
    """Return the error of a command line that cannot be read: an unknown command, option or value."""
    return UsageError(
        message, "`almoner COMMAND --help` lists the arguments and options of a command.", code="CommandInvalid"
    )


def _answered(function: Command, context: CommandContext, parameters: Mapping[str, Any]) -> int:
    """Run a command and print its result; an unexpected exception is reported as the named error that explains it.

    Raises:
        GenerationMissing, OrchestrationMissing: a package of that extra is not installed.
        LedgerAltered: rows of the ledger differ from its audit log.
        FileInaccessible: the operating system refused access to a path.
        The errors of the command itself also pass through.
    """
    try:
        answer = function(context, **parameters)
        print_result(function, answer, context.as_json)
        return answer.exit_code
    except AlmonerError:
        raise
    except Exception as problem:
        from flows.audit.failures import explain  # most commands need nothing of it

        if (named := explain(context.home, problem)) is not None:
            raise named from problem
        raise


def make_console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for tables if there is no terminal."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=WIDTH_WITHOUT_TERMINAL)


def print_renderables(console: Console, what: Sequence[RenderableType]) -> None:
    """Print tables as they are and sentences as plain text, so that names and reasons are never parsed as markup."""
    for each in what:
        if isinstance(each, str):
            console.print(each, markup=False, soft_wrap=True)
        else:
            console.print(each)


def print_result(function: Command, answer: CommandResult[object], as_json: bool) -> None:
    """Print the result of a command: its data to stdout as JSON for programs, or its tables and sentences for people.

    Args:
        function: the command; tests compare the data with the schema that it declares.
    """
    if as_json:
        sys.stdout.write(json_text(answer.data, indent=2, default=to_plain) + "\n")
        return
    console = make_console()
    if answer.paged and console.is_terminal:
        with console.pager():
            print_renderables(console, answer.renderables)
        return
    print_renderables(console, answer.renderables)


_PAGE = re.compile(r"\bdocs/([a-z0-9/-]+)\.md\b")
"""A page of the documentation, as errors name it."""


def print_problem(problem: AlmonerError, *, as_json: bool) -> None:
    """Print an error: to stderr for people, to stdout as JSON for programs."""
    if as_json:
        body = ProblemData(
            error=problem.code, message=problem.message, advice=problem.advice, facts=dict(problem.facts)
        )
        sys.stdout.write(json_text(body, indent=2, default=str) + "\n")
        return
    said = f"{problem.code}: {problem.diagnostics()}"
    pages = dict.fromkeys(_PAGE.findall(said))
    print_renderables(make_console(stderr=True), [said, *(f"Read it: `almoner docs {page}`" for page in pages)])
