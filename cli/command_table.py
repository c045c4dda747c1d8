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
        "Make a project home: folders, keys, policy, ledger. Safe to repeat: what is there is kept.",
    ),
    Entry(
        "doctor",
        "cli.commands.operations.home",
        "Check the ledger (constraints, triggers, counters, chain), the home, the packages and the models.",
    ),
    Entry(
        "approve",
        "cli.commands.release.approve",
        "Approve what waits at a gate. Shows what is decided, then asks for the dataset's name.",
    ),
    Entry(
        "reject",
        "cli.commands.release.approve",
        "Reject what waits at a gate; one rejection is enough. At the publish gate the spent budget stays spent.",
    ),
    Entry(
        "withdraw-approval",
        "cli.commands.release.approve",
        "Take your own approval back, as long as it has not been used; the gate may then close again.",
    ),
    Entry(
        "run",
        "cli.commands.release.run",
        "Run an approved request: reserve, arm, generate, evaluate, quarantine. `run sweep` cleans up after dead runs.",
    ),
    Entry(
        "serve",
        "cli.commands.operations.serve",
        "Carry out schedules: worker and poller in one process, until it is stopped.",
    ),
    Entry(
        "publish", "cli.commands.release.publish", "Publish exactly the bytes that were approved, as a signed bundle."
    ),
    Entry(
        "verify-release",
        "cli.commands.release.publish",
        "Check a bundle offline: digests, signatures, approvals, and epsilon recomputed from the stored events.",
    ),
    Entry(
        "retract",
        "cli.commands.release.release",
        "Ask the stewards to call back a published release; the same as `almoner release retract`.",
    ),
    Entry(
        "evaluate",
        "cli.commands.release.evaluate",
        "Internal metrics of a decided release: overlap with the corpus, perplexity gap. They stay in this home.",
    ),
    Entry(
        "report",
        "cli.commands.release.report",
        "One page about a release, to be opened in a browser: claim, budget, measurements, texts, attacks.",
    ),
    Entry(
        "backup",
        "cli.commands.operations.backup",
        "Write the home and its ledger into one file, while others work. Of a ledger on PostgreSQL, the home alone.",
    ),
    Entry(
        "restore",
        "cli.commands.operations.backup",
        "Put a backup into an empty home, if it is whole and nothing shows that the ledger went on after it.",
    ),
    Entry(
        "metrics",
        "cli.commands.operations.metrics",
        "Tell budgets, requests, attempts and refusals by name, read from the ledger; nothing private is among it.",
    ),
    Entry(
        "dashboard",
        "cli.commands.operations.dashboard",
        "Show datasets and budgets, the queue of approvals, releases and the record in a browser. Nothing can be changed.",  # noqa: E501
    ),
    Entry(
        "demo",
        "cli.commands.release.demo",
        "The whole story: register, ingest, request, approve, run, publish, verify, and three refusals.",
    ),
    Entry("dataset", "cli.commands.dataset.dataset", "Private corpora: register, ingest, list, show, cap, erase."),
    Entry("budget", "cli.commands.dataset.budget", "Budgets: show, forecast, simulate; envelopes."),
    Entry("release", "cli.commands.release.release", "Release requests: submit, list, show, withdraw, retract."),
    Entry(
        "proposal",
        "cli.commands.governance.proposal",
        "Proposals: caps, standing authorisations, retractions; list, show.",
    ),
    Entry(
        "standing",
        "cli.commands.governance.standing",
        "Standing authorisations for schedules: propose, list, show, end.",
    ),
    Entry("schedule", "cli.commands.operations.schedule", "Schedules: create, list, show, pause, resume, end, run."),
    Entry("notify", "cli.commands.operations.notify", "Notices (docs/schedules.md): add, list, remove, test, send."),
    Entry(
        "audit",
        "cli.commands.governance.audit",
        "The record: log, verify, checkpoint, export; and the claim of a mechanism.",
    ),
    Entry("attack", "cli.commands.release.attack", "Attacks on a public twin: run, list."),
    Entry("policy", "cli.commands.governance.policy", "The policy: show, check, adopt, schema."),
    Entry("user", "cli.commands.governance.user", "People: add, list, grant, revoke, delegate, undelegate."),
    Entry("models", "cli.commands.models.models", "Models: list, pull, endpoint."),
    Entry("adapter", "cli.commands.models.adapter", "Adapters of one-shot summaries: train, list, show."),
    Entry("keywords", "cli.commands.models.keywords", "Public keyword sets: build."),
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
