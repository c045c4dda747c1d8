"""`almoner budget`: what a dataset may lose, has lost, and can still afford."""

from decimal import Decimal
from typing import Annotated

import typer

from cli.command import Answer, Opened, command
from cli.dataset import Name
from cli.tables import facts, table
from flows.policy import require_figures
from flows.workspace import Workspace, open_workspace
from models_db.budgets import Amount
from models_db.requests import plain_decimal
from models_db.services import datasets, ledger, releases
from models_db.services.datasets import LifetimeClaim
from models_db.services.ledger import Balance
from tasks.accounting.zcdp import release_amount
from tasks.generation.quote import lifetime_epsilon

app = typer.Typer(no_args_is_help=True, help="Budgets: show, forecast, simulate.")

LADDER = ("0.5", "1", "2", "3", "4", "6", "8", "10")


@command(app, "show")
def show(opened: Opened, name: Name) -> Answer:
    """The lifetime budget of a dataset, and which requests spent it.

    Example: almoner budget show clinic
    """
    workspace = open_workspace(opened.home)
    cap, balance, blocks = _read(workspace, name)
    with workspace.database.read() as session:
        account = datasets.find(session, name).account_id
        sharing = [d.name for d in datasets.every(session) if d.account_id == account]
        spenders = [
            (request.id, dataset.name, releases.state_of(session, request.id), spent.rho_text)
            for dataset in datasets.every(session)
            if dataset.account_id == account
            for request in releases.every(session)
            if request.dataset_id == dataset.id and (spent := ledger.spent_by(session, request.id)).rho
        ]
    data = {
        "dataset": name,
        "sharing": sharing,
        "blocks": blocks,
        "epsilon_cap": cap.epsilon,
        "delta_cap": cap.delta,
        "epsilon_spent": lifetime_epsilon(balance.spent, cap.delta_conversion),
        "rho_cap": balance.cap.rho_text,
        "rho_spent": balance.spent.rho_text,
        "rho_held": balance.held.rho_text,
        "rho_left": balance.left.rho_text,
        "delta_fail_cap": balance.cap.delta_text,
        "delta_fail_spent": balance.spent.delta_text,
        "share_spent": f"{balance.spent.rho / balance.cap.rho:.1%}",
    }
    columns = ("request", "dataset", "state", "rho spent")
    spent_by = [dict(zip(("request", "dataset", "state", "rho_spent"), row, strict=True)) for row in spenders]
    return Answer({**data, "spent_by": spent_by}, [facts(data), table(columns, spenders, "Spent by")])


@command(app, "forecast")
def forecast(
    opened: Opened, name: Name, delta: Annotated[str, typer.Option(help="Delta of each release.")] = "1e-7"
) -> Answer:
    """How many further releases the remaining budget affords, by epsilon.

    Example: almoner budget forecast clinic --delta 1e-7
    """
    cap, balance, _ = _read(open_workspace(opened.home), name)
    rows = []
    for epsilon in LADDER:
        price = release_amount(epsilon, delta)
        rows.append((epsilon, delta, price.rho_text, _times(balance, price), _after(cap, balance, price)))
    columns = ("epsilon", "delta", "rho each", "releases left", "lifetime epsilon after one")
    data = [dict(zip(("epsilon", "delta", "rho", "releases_left", "epsilon_after_one"), r, strict=True)) for r in rows]
    left = f"rho {balance.left.rho_text} of {balance.cap.rho_text} is left (lifetime epsilon {cap.epsilon})."
    return Answer(data, [left, table(columns, rows)])


@command(app, "simulate")
def simulate(
    opened: Opened,
    name: Name,
    epsilon: Annotated[str, typer.Option(help="Epsilon of each release.")],
    delta: Annotated[str, typer.Option(help="Delta of each release.")] = "1e-7",
    releases_: Annotated[int, typer.Option("--releases", min=1, max=10_000, help="How many.")] = 10,
) -> Answer:
    """The lifetime epsilon after each of a number of equal releases, until the budget is used up.

    Example: almoner budget simulate clinic --epsilon 1 --releases 12
    """
    cap, balance, _ = _read(open_workspace(opened.home), name)
    price, rows = release_amount(epsilon, delta), []
    for number in range(1, releases_ + 1):
        asked = price * number
        if not asked.fits(balance.left):
            break
        rows.append((number, (balance.spent + asked).rho_text, _after(cap, balance, asked)))
    data = {
        "dataset": name,
        "epsilon": plain_decimal(Decimal(epsilon)),
        "delta": plain_decimal(Decimal(delta)),
        "affordable": len(rows),
        "steps": [dict(zip(("release", "rho_spent", "epsilon_spent"), row, strict=True)) for row in rows],
    }
    told = f"{len(rows)} of {releases_} releases fit into what is left."
    return Answer(data, [table(("release", "rho spent", "lifetime epsilon"), rows), told])


def _read(workspace: Workspace, name: str) -> tuple[LifetimeClaim, Balance, int]:
    require_figures(workspace, name)
    with workspace.database.read() as session:
        dataset = datasets.find(session, name)
        blocks = datasets.partition(session, dataset).blocks
        return datasets.lifetime(session, dataset), ledger.balance(session, dataset.account_id), blocks


def _times(balance: Balance, price: Amount) -> int:
    return balance.left.rho // price.rho


def _after(cap: LifetimeClaim, balance: Balance, price: Amount) -> str:
    if not price.fits(balance.left):
        return "not affordable"
    return lifetime_epsilon(balance.spent + price, cap.delta_conversion)
