"""The first page: every dataset with its budget, how many runs still fit, and what somebody should look at."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from flows.pages.figures import Figures, figures_of
from flows.pages.looking import Look
from flows.pages.request_rows import cost
from flows.sections import NEARLY_SPENT
from models_db.services import listings
from models_db.services.ledger import Balance
from models_db.services.listings import Claimed
from models_db.tables import Account, Dataset, Request
from tasks.reporting.numbers import small

PAGE = 50
WAITING = ("submitted", "produced")


@dataclass(frozen=True)
class Like:
    """How many more releases at the price of the newest request fit; `runs` is None where it costs nothing."""

    request: int
    runs: int | None


@dataclass(frozen=True)
class DatasetLine:
    """A dataset in the list.

    Attributes:
        figures: None where the policy keeps them from the viewer.
        like: None without figures, or without a request that has a price.
        waiting, running: requests that wait for stewards, or are being run.
        alerts: what somebody should look at, as sentences.
    """

    name: str
    unit: str
    governed: bool
    epsilon_cap: str
    delta_cap: str
    figures: Figures | None
    like: Like | None
    waiting: int
    running: int
    alerts: tuple[str, ...]


@dataclass(frozen=True)
class Overview:
    """One page of datasets by name; `next_after` asks for the following ones."""

    datasets: tuple[DatasetLine, ...]
    next_after: str | None
    having: str


@dataclass(frozen=True)
class _Known:
    """What the ledger has on the datasets of a page, by account or dataset."""

    balances: Mapping[int, Balance]
    claims: Mapping[int, Claimed]
    windows: Mapping[int, Account]
    newest: Mapping[int, Request]
    states: Mapping[tuple[int, str], int]


def overview(look: Look, after: str | None = None, having: str = "") -> Overview:
    """Some datasets by name, beginning after one, whose names have `having` in them."""
    found = listings.some_datasets(look.session, PAGE + 1, after, having)
    shown = found[:PAGE]
    known = _known(look, shown)
    lines = tuple(_line(dataset, known, figures=look.figures) for dataset in shown)
    return Overview(lines, shown[-1].name if len(found) > PAGE else None, having)


def _known(look: Look, datasets: Sequence[Dataset]) -> _Known:
    accounts, ids = {dataset.account_id for dataset in datasets}, [dataset.id for dataset in datasets]
    session = look.session
    return _Known(
        listings.balances(session, accounts),
        listings.lifetimes(session, accounts),
        listings.open_windows(session, accounts),
        listings.newest_requests(session, ids),
        listings.counted_states(session, ids, (*WAITING, "running")),
    )


def _line(dataset: Dataset, known: _Known, *, figures: bool) -> DatasetLine:
    claim, balance = known.claims[dataset.account_id], known.balances[dataset.account_id]
    waiting = sum(known.states.get((dataset.id, state), 0) for state in WAITING)
    like = _like(known.newest.get(dataset.id), balance) if figures else None
    window = known.windows.get(dataset.account_id)
    return DatasetLine(
        name=dataset.name,
        unit=dataset.unit_field or "record",
        governed=dataset.governed,
        epsilon_cap=claim.epsilon,
        delta_cap=small(claim.delta),
        figures=figures_of(balance, claim.delta_conversion) if figures else None,
        like=like,
        waiting=waiting,
        running=known.states.get((dataset.id, "running"), 0),
        alerts=tuple(_alerts(balance, like, window)) if figures else (),
    )


def _like(newest: Request | None, balance: Balance) -> Like | None:
    price = None if newest is None else cost(newest)
    return None if newest is None or price is None else Like(newest.id, price.times_in(balance.left))


def _alerts(balance: Balance, like: Like | None, window: Account | None) -> Iterator[str]:
    share = Decimal(balance.spent.rho) / balance.cap.rho if balance.cap.rho else Decimal(0)
    if not balance.left.rho:
        yield "Nothing is left of the lifetime budget."
    elif share > NEARLY_SPENT:
        yield f"More than {NEARLY_SPENT:.0%} of the lifetime budget is spent; it never comes back."
    if balance.left.rho and like is not None and like.runs == 0:
        yield f"Another release like request {like.request} does not fit."
    if window is not None and window.rho_held + window.rho_spent >= window.rho_cap:
        yield f"The window of time is used up; the next one opens on {str(window.closes_at)[:10]}."
