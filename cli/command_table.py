"""Table of commands, and the group that imports a command's module when the command is called.

Help pages, shell completion and the correction of a mistyped command read the table alone;
tests/unit/cli/test_start.py compares its help lines with those of the modules.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import typer
from typer._click.core import Context
from typer._click.exceptions import NoSuchOption, UsageError
from typer._click.formatting import HelpFormatter
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_group

REMOVED_COMMANDS: Mapping[str, str] = {
    "metrics": "`almoner doctor` and the dashboard say what needs a person.",
    "dataset forget": "`almoner dataset register` may be repeated, with other settings, until the first ingest.",
    "audit mechanism": "The tests audit every mechanism; docs/python-flows.md shows one audit from Python.",
    "plan --label-allocation": "Each label has equally many texts.",
    "user delegate": "An admin grants a deputy the role for a time: `almoner user grant NAME steward --until DAY`.",
    "user undelegate": "An admin takes the deputy's role back: `almoner user revoke NAME steward`.",
    "approve --on-behalf-of": "Whoever has the role of steward decides in their own name.",
    "reject --on-behalf-of": "Whoever has the role of steward decides in their own name.",
    "budget scope": "A dataset has one lifetime budget; a standing authorisation bounds a series of releases.",
    "budget forecast --scope": "A dataset has one lifetime budget, and the forecast is of that.",
    "budget simulate --scope": "A dataset has one lifetime budget, and the releases draw on that.",
    "budget simulate --rotate-over": "A release reads every block of its cohorts; `--cohorts` chooses them.",
    "plan --scope": "A dataset has one lifetime budget, and every release draws on it.",
    "plan --label-rule": "Ingest the corpus with `--label-field`, and name the labels with `--label`.",
    "insights compare --level": "The comparison shows every level that both releases have.",
    "insights compare --likeness": "Topics are matched from a likeness of 0.2 on.",
    "insights compare --noise-only": "`p_value` under --json is the test against the noise of counts alone.",
}
"""A removed command ("audit mechanism") or a command with a removed option ("plan --label-rule"), and a sentence."""


@dataclass(frozen=True)
class Entry:
    """One command or group: its name, its panel on the help page, the module that defines it, and the first paragraph
    of its help."""

    name: str
    panel: str
    module: str
    help: str


COMMANDS = (
    Entry(
        "demo",
        "Ask",
        "cli.commands.release.demo",
        "Run a demo on a fictional clinic: a release from request to bundle, and secrets that leak without privacy.",
    ),
    Entry(
        "dataset",
        "Ask",
        "cli.commands.dataset.dataset",
        "Manage datasets: register, ingest, list, show, mock, cap, erase.",
    ),
    Entry(
        "plan",
        "Ask",
        "cli.commands.release.plan",
        "Plan a release: propose complete requests side by side. Reads no private text and spends nothing.",
    ),
    Entry(
        "rehearse",
        "Ask",
        "cli.commands.release.rehearse",
        "Rehearse a request on public data, beside the public model's own texts and texts without privacy.",
    ),
    Entry(
        "release",
        "Ask",
        "cli.commands.release.release",
        "Manage release requests: request, extend, list, show, texts, schema, withdraw, retract, mark-exposed.",
    ),
    Entry("keywords", "Ask", "cli.commands.models.keywords", "Build public keyword sets."),
    Entry(
        "approve",
        "Decide",
        "cli.commands.release.approve",
        "Approve a request or proposal at a gate. Shows the review, then asks for the dataset's name.",
    ),
    Entry(
        "reject",
        "Decide",
        "cli.commands.release.approve",
        "Reject a request or proposal at a gate; one rejection is enough. Spent budget stays spent.",
    ),
    Entry(
        "passkey",
        "Decide",
        "cli.commands.governance.passkey",
        "Manage passkeys, with which you decide in a browser: invite, add, import, list, revoke.",
    ),
    Entry(
        "withdraw-approval",
        "Decide",
        "cli.commands.release.approve",
        "Withdraw your own approval before it is used; the gate may close again.",
    ),
    Entry(
        "retract",
        "Decide",
        "cli.commands.release.release",
        "Propose to retract a published release; same as `almoner release retract`.",
    ),
    Entry(
        "proposal",
        "Decide",
        "cli.commands.governance.proposal",
        "Inspect proposals (caps, standing authorisations, retractions): list, show.",
    ),
    Entry(
        "standing",
        "Decide",
        "cli.commands.governance.standing",
        "Manage standing authorisations of schedules: propose, list, show, end.",
    ),
    Entry(
        "key",
        "Decide",
        "cli.commands.governance.key",
        "Record that keys of splits into batches got out: compromised.",
    ),
    Entry(
        "run",
        "Run",
        "cli.commands.release.run",
        "Run an approved request: reserve, arm, generate, evaluate, quarantine. `run sweep` cleans up after dead runs.",
    ),
    Entry(
        "serve",
        "Run",
        "cli.commands.operations.serve",
        "Run schedules until stopped, on the Prefect server that PREFECT_API_URL names or on one of its own.",
    ),
    Entry(
        "worker",
        "Run",
        "cli.commands.operations.deploy",
        "Carry out the releases of a Prefect work pool until stopped, each in a process of its own.",
    ),
    Entry(
        "publish",
        "Run",
        "cli.commands.release.publish",
        "Publish exactly the bytes that were approved, as a signed bundle.",
    ),
    Entry(
        "evaluate",
        "Run",
        "cli.commands.release.evaluate",
        "Compute internal metrics of a decided release: overlap, perplexity gap. They stay in this home.",
    ),
    Entry(
        "schedule",
        "Run",
        "cli.commands.operations.schedule",
        "Manage schedules: create, list, show, pause, resume, end, run.",
    ),
    Entry("attack", "Run", "cli.commands.release.attack", "Attack a release's public twin: run, list."),
    Entry("adapter", "Run", "cli.commands.models.adapter", "Manage adapters of one-shot summaries: train, list, show."),
    Entry(
        "verify-release",
        "Read",
        "cli.commands.release.publish",
        "Verify a bundle offline: digests, signatures, approvals, and epsilon recomputed from the stored events.",
    ),
    Entry(
        "report",
        "Read",
        "cli.commands.release.report",
        "Write a report on a release as one HTML page: claim, budget, measurements, texts, attacks.",
    ),
    Entry(
        "dashboard",
        "Read",
        "cli.commands.operations.dashboard",
        "Serve a dashboard: datasets, budgets, the approval queue, releases, the audit log.",
    ),
    Entry("budget", "Read", "cli.commands.dataset.budget", "Inspect budgets: show, forecast, simulate."),
    Entry(
        "audit",
        "Read",
        "cli.commands.governance.audit",
        "Read and verify the audit log: log, verify, checkpoint, export.",
    ),
    Entry("insights", "Read", "cli.commands.release.insights", "Compare releases of insights."),
    Entry(
        "docs",
        "Read",
        "cli.commands.operations.docs",
        "Read the documentation of the installed version: the list of pages, or one page in a pager.",
    ),
    Entry(
        "init",
        "Operate",
        "cli.commands.operations.home",
        "Create a project home: folders, keys, policy, ledger. Safe to repeat: it keeps what exists.",
    ),
    Entry(
        "doctor",
        "Operate",
        "cli.commands.operations.home",
        "Check the ledger (constraints, triggers, counters, chain), the home, the packages and the models.",
    ),
    Entry(
        "deploy",
        "Operate",
        "cli.commands.operations.deploy",
        "Deploy the release flow to a Prefect server: work pool, queues, deployment.",
    ),
    Entry(
        "backup",
        "Operate",
        "cli.commands.operations.backup",
        "Back up the home and its ledger into one file while others work; without a ledger on PostgreSQL.",
    ),
    Entry(
        "restore",
        "Operate",
        "cli.commands.operations.backup",
        "Restore a backup into an empty home, if it is whole and no anchor shows a newer ledger.",
    ),
    Entry("policy", "Operate", "cli.commands.governance.policy", "Manage the policy: show, check, adopt, schema."),
    Entry("user", "Operate", "cli.commands.governance.user", "Manage people and roles: add, list, grant, revoke."),
    Entry(
        "models", "Operate", "cli.commands.models.models", "Manage models: list, check, pull, add, remove, endpoint."
    ),
)
"""All commands in the order of the help page. A module has a group `app`, or a `register` that adds commands."""


START: Final = (
    ("init", ""),
    ("dataset register", "Register a dataset with its lifetime claim."),
    ("dataset ingest", "Copy a corpus into the home as the dataset's next version: all of it, or nothing."),
    ("plan", ""),
    ("release request", "Price a release and submit it to the spend gate."),
    ("approve", ""),
    ("run", ""),
    ("publish", ""),
)
"""The commands of a first release, in order, with what one does; "" where the table says it."""
READ_ON: Final = "Read on: `almoner help all`, `almoner help plan`, guides by `almoner docs`."

VALUE_NAMES: Final = {bool: "", int: "N", str: "TEXT", Path: "PATH", list[str]: "TEXT", list[Path]: "PATH"}
"""How help pages name the value of an option, by its type."""
HELP_OPTIONS: Final = ("--help", "-h")


def name_values(command: TyperCommand | TyperGroup) -> None:
    """Give arguments and options on help pages the names that other programs use: NAME, TEXT, none for a switch."""
    help_option = command.get_help_option(Context(command, help_option_names=list(HELP_OPTIONS)))
    for param in [*command.params, *([] if help_option is None else [help_option])]:
        if param.metavar is None and isinstance(param, TyperArgument):
            param.metavar = str(param.name).upper()
        elif param.metavar is None and isinstance(param, TyperOption):
            param.metavar = VALUE_NAMES.get(param.type_descriptor.annotation)
    for member in getattr(command, "commands", {}).values():
        if not isinstance(member, ListedCommand):
            name_values(member)


def print_first_page(group: TyperGroup, ctx: Context) -> None:
    """Print what a newcomer needs: the commands of a first release, the names of all others, the options."""
    from rich.box import ROUNDED
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Padding(Text(group.get_usage(ctx), "bold"), 1))
    console.print(Padding(Text(group.help or ""), (0, 1, 1, 1)))
    says = {entry.name: entry.help.partition(". ")[0].rstrip(".") + "." for entry in COMMANDS}
    panels: dict[str, list[str]] = {}
    for entry in COMMANDS:
        panels.setdefault(entry.panel, []).append(entry.name)
    options = (param.get_help_record(ctx) for param in group.get_params(ctx))
    for title, rows in (
        ("Start", [(words, line or says[words]) for words, line in START]),
        ("All commands", [(panel, ", ".join(names)) for panel, names in panels.items()]),
        ("Options", [record for record in options if record]),
    ):
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="bold cyan", no_wrap=True)
        grid.add_column(ratio=1)
        for name, line in rows:
            grid.add_row(name, line)
        console.print(Panel(grid, title=title, title_align="left", border_style="dim", box=ROUNDED))
    console.print(Padding(Text(READ_ON), (0, 1)))


class ListedCommand(TyperCommand):
    """A command or group as lists show it: its name and its help line, no parameters."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(name=entry.name, help=entry.help, rich_help_panel=entry.panel)
        self.module = entry.module

    def load(self) -> TyperCommand | TyperGroup:
        """Import the module and return the command or group itself."""
        module = importlib.import_module(self.module)
        root = typer.Typer()
        if hasattr(module, "register"):
            module.register(root)
        if self.name not in {command.name for command in root.registered_commands} and hasattr(module, "app"):
            root.add_typer(module.app, name=self.name)
        loaded = cast(TyperCommand | TyperGroup, get_group(root).commands[str(self.name)])
        name_values(loaded)
        return loaded


class CommandTable(TyperGroup):
    """The group of all commands of the table: it lists them without their modules, and loads the called one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for entry in COMMANDS:
            self.add_command(ListedCommand(entry))
        name_values(self)

    def main(  # type: ignore[override]  # nobody calls it with a program name in second place
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **settings: Any
    ) -> Any:
        """Run the command line; under --json a mistyped one is answered in JSON, as every other error."""
        typed = sys.argv[1:] if args is None else list(args)
        if not standalone_mode or "--json" not in typed:
            return super().main(args, standalone_mode=standalone_mode, **settings)
        try:
            code = super().main(args, standalone_mode=False, **settings)
        except UsageError as problem:
            from cli.framework.command import command_invalid, print_problem  # a help page needs none of it

            invalid = command_invalid(problem.format_message())
            print_problem(invalid, as_json=True)
            sys.exit(invalid.exit_code)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Context) -> Any:
        """Run the command; of a removed command or option, the error says what takes its place."""
        try:
            return super().invoke(ctx)
        except UsageError as problem:
            unknown = problem.option_name if isinstance(problem, NoSuchOption) else problem.message.split("'")[-2:-1]
            called = problem.ctx.command_path.removeprefix(ctx.command_path) if problem.ctx else ""
            if replacement := REMOVED_COMMANDS.get(f"{called} {''.join(unknown)}".strip()):
                problem.message = f"{problem.message.rstrip('.')}, for it was removed. {replacement}"
            raise

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the options before the command; an empty command line asks for help."""
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Print the first page."""
        print_first_page(self, ctx)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Load the command that `args` begin with; a name that is missing from the table imports nothing.

        `help` prints the first page, `help all` the help of every command, and `help NAME` that of one command.
        """
        if args == ["help", "all"]:
            super().format_help(ctx, ctx.make_formatter())
            ctx.exit()
        if args[0] == "help":
            args = [*args[1:], "--help"]
        if args == ["--help"]:
            self.format_help(ctx, ctx.make_formatter())
            ctx.exit()
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed.load() if isinstance(listed, ListedCommand) else listed, rest
