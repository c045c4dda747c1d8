"""The table of commands, and the group that imports a command's module when the command is called.

Help pages, shell completion and the correction of a mistyped command read the table alone;
tests/unit/cli/test_start.py compares its help lines with those of the modules.
"""

import importlib
from dataclasses import dataclass
from typing import Any, cast

import typer
from typer._click.core import Context
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


@dataclass(frozen=True)
class Entry:
    """One command or group: its name, the module that defines it, and the first paragraph of its help."""

    name: str
    module: str
    help: str


COMMANDS = (
    Entry(
        "init",
        "cli.commands.operations.home",
        "Create a project home: folders, keys, policy, ledger. Safe to repeat: it keeps what exists.",
    ),
    Entry(
        "doctor",
        "cli.commands.operations.home",
        "Check the ledger (constraints, triggers, counters, chain), the home, the packages and the models.",
    ),
    Entry(
        "approve",
        "cli.commands.release.approve",
        "Approve a request or proposal at a gate. Shows the review, then asks for the dataset's name.",
    ),
    Entry(
        "reject",
        "cli.commands.release.approve",
        "Reject a request or proposal at a gate; one rejection is enough. Spent budget stays spent.",
    ),
    Entry(
        "withdraw-approval",
        "cli.commands.release.approve",
        "Withdraw your own approval before it is used; the gate may close again.",
    ),
    Entry(
        "run",
        "cli.commands.release.run",
        "Run an approved request: reserve, arm, generate, evaluate, quarantine. `run sweep` cleans up after dead runs.",
    ),
    Entry(
        "serve",
        "cli.commands.operations.serve",
        "Run schedules until stopped: poller and worker in one process.",
    ),
    Entry(
        "publish", "cli.commands.release.publish", "Publish exactly the bytes that were approved, as a signed bundle."
    ),
    Entry(
        "verify-release",
        "cli.commands.release.publish",
        "Verify a bundle offline: digests, signatures, approvals, and epsilon recomputed from the stored events.",
    ),
    Entry(
        "retract",
        "cli.commands.release.release",
        "Propose to retract a published release; same as `almoner release retract`.",
    ),
    Entry(
        "evaluate",
        "cli.commands.release.evaluate",
        "Compute internal metrics of a decided release: overlap, perplexity gap. They stay in this home.",
    ),
    Entry(
        "report",
        "cli.commands.release.report",
        "Write a report on a release as one HTML page: claim, budget, measurements, texts, attacks.",
    ),
    Entry(
        "backup",
        "cli.commands.operations.backup",
        "Back up the home and its ledger into one file while others work; without a ledger on PostgreSQL.",
    ),
    Entry(
        "restore",
        "cli.commands.operations.backup",
        "Restore a backup into an empty home, if it is whole and no anchor shows a newer ledger.",
    ),
    Entry(
        "metrics",
        "cli.commands.operations.metrics",
        "Print Prometheus metrics of budgets, requests, attempts and refusals. Contains no private data.",
    ),
    Entry(
        "dashboard",
        "cli.commands.operations.dashboard",
        "Serve a read-only dashboard: datasets, budgets, the approval queue, releases, the audit log.",
    ),
    Entry(
        "demo",
        "cli.commands.release.demo",
        "Run a demo on a fictional clinic: register, ingest, request, approve, run, publish, verify, three refusals.",
    ),
    Entry("dataset", "cli.commands.dataset.dataset", "Manage datasets: register, ingest, list, show, cap, erase."),
    Entry("budget", "cli.commands.dataset.budget", "Inspect budgets: show, forecast, simulate; manage envelopes."),
    Entry(
        "release",
        "cli.commands.release.release",
        "Manage release requests: request, extend, list, show, withdraw, retract.",
    ),
    Entry(
        "proposal",
        "cli.commands.governance.proposal",
        "Inspect proposals (caps, standing authorisations, retractions): list, show.",
    ),
    Entry(
        "standing",
        "cli.commands.governance.standing",
        "Manage standing authorisations of schedules: propose, list, show, end.",
    ),
    Entry(
        "schedule", "cli.commands.operations.schedule", "Manage schedules: create, list, show, pause, resume, end, run."
    ),
    Entry(
        "notify",
        "cli.commands.operations.notify",
        "Manage channels of notices (docs/schedules.md): add, list, remove, test, send.",
    ),
    Entry(
        "audit",
        "cli.commands.governance.audit",
        "Read and verify the audit log: log, verify, checkpoint, export; test a mechanism's claim.",
    ),
    Entry("attack", "cli.commands.release.attack", "Attack a release's public twin: run, list."),
    Entry("policy", "cli.commands.governance.policy", "Manage the policy: show, check, adopt, schema."),
    Entry(
        "user",
        "cli.commands.governance.user",
        "Manage people and roles: add, list, grant, revoke, delegate, undelegate.",
    ),
    Entry("models", "cli.commands.models.models", "Manage models: list, pull, endpoint."),
    Entry("adapter", "cli.commands.models.adapter", "Manage adapters of one-shot summaries: train, list, show."),
    Entry("keywords", "cli.commands.models.keywords", "Build public keyword sets."),
)
"""In the order of the help page. A module offers a group as `app`, or a function `register` that adds commands."""


class ListedCommand(TyperCommand):
    """A command or group as lists show it: its name and its help line, no parameters."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(name=entry.name, help=entry.help)
        self.module = entry.module

    def load(self) -> TyperCommand | TyperGroup:
        """The command or group itself; its module is imported."""
        module = importlib.import_module(self.module)
        root = typer.Typer()
        if hasattr(module, "register"):
            module.register(root)
        if self.name not in {command.name for command in root.registered_commands} and hasattr(module, "app"):
            root.add_typer(module.app, name=self.name)
        return cast(TyperCommand | TyperGroup, get_group(root).commands[str(self.name)])


class CommandTable(TyperGroup):
    """The group of all commands of the table: it lists them without their modules, and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for entry in COMMANDS:
            self.add_command(ListedCommand(entry))

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that `args` begin with, loaded; a name that is not in the table imports nothing."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed.load() if isinstance(listed, ListedCommand) else listed, rest
