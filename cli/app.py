"""The command `almoner`: every group and command by name."""

import os

import typer

from cli import (
    adapter,
    approve,
    attack,
    audit,
    backup,
    budget,
    dashboard,
    dataset,
    demo,
    evaluate,
    home,
    keywords,
    metrics,
    models,
    motion,
    notify,
    policy,
    publish,
    release,
    report,
    run,
    schedule,
    serve,
    standing,
    user,
)
from cli.command import HomeOption

app = typer.Typer(
    name="almoner",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a pretty traceback shows local variables, and those may hold private text
)


@app.callback()
def root(almoner_home: HomeOption = None) -> None:
    """Private text corpora in, differentially private releases out: priced, approved and recorded in one ledger."""
    if almoner_home is not None:
        os.environ["ALMONER_HOME"] = str(almoner_home)


for each in (home, approve, run, serve, publish, release, evaluate, report, backup, metrics, dashboard, demo):
    each.add_to(app)
for name, group in (
    ("dataset", dataset.app),
    ("budget", budget.app),
    ("release", release.app),
    ("motion", motion.app),
    ("standing", standing.app),
    ("schedule", schedule.app),
    ("notify", notify.app),
    ("audit", audit.app),
    ("attack", attack.app),
    ("policy", policy.app),
    ("user", user.app),
    ("models", models.app),
    ("adapter", adapter.app),
    ("keywords", keywords.app),
):
    app.add_typer(group, name=name)


def main() -> None:
    """The console script."""
    app()
