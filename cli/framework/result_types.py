"""Types of results that several commands print under --json, the price of a request among them."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from models_db.values.exposures import SecrecyEnd


class SecrecyEndData(TypedDict):
    """The end of what a release claims while its assignment is secret; `reason` is empty where figures were seen."""

    since: str
    cause: Literal["exposed", "viewed"]
    by: str
    reason: str


class MetricData(TypedDict):
    """A metric of a release: counts as integers, reals as decimal text, null where nothing could be measured."""

    name: str
    exposure: str
    values: dict[str, int | str | None]
    source: str
    method: str
    line: str


def secrecy_end_data(end: SecrecyEnd) -> SecrecyEndData:
    """Return the end of a secret assignment for programs."""
    return SecrecyEndData(since=end.since, cause=end.cause, by=end.by, reason=end.reason)


class SecretFigure(TypedDict):
    """The epsilon while the assignment of units to batches is secret, and what it follows from."""

    epsilon: str
    remove: str
    add: str
    batches: int
    read: int
    rho: str
    rho_other: str
    method: str


class BudgetOfPrice(TypedDict):
    """The lifetime budget before and after a request; where the policy hides balances, only caps and `affordable`."""

    epsilon_cap: str
    delta_cap: str
    rho_cap: str
    rho_spent: NotRequired[str]
    rho_held: NotRequired[str]
    rho_left_before: NotRequired[str]
    rho_left_after: NotRequired[str | None]
    epsilon_spent_before: NotRequired[str]
    epsilon_spent_after: NotRequired[str]
    epsilon_limit_while_secret: NotRequired[str]
    delta_limit_while_secret: NotRequired[str]
    epsilon_charged_before: NotRequired[str]
    epsilon_charged_after: NotRequired[str]
    affordable: bool


class ChosenParameter(TypedDict):
    """A parameter that almoner chose, and why."""

    value: object
    reason: str


class ExternalCost(TypedDict):
    """What a model behind an API costs."""

    requests: int
    tokens_in: int
    tokens_out_at_most: int
    money_at_most: str
    seconds_at_least: NotRequired[int]


class ViewingData(TypedDict):
    """Who saw unprotected figures of the account, since when, and what that means for claims."""

    since: str
    people: list[str]
    meaning: str


class PriceData(TypedDict):
    """The price of a request. `facts` are sizes of its mechanism; fields that do not apply are absent."""

    dataset: str
    unit: str
    relation: str
    kind: str
    mechanism: str
    epsilon: str | None
    delta: str | None
    epsilon_while_secret: NotRequired[str]
    secret_assignment: NotRequired[SecretFigure]
    rho: str
    rho_replace_one: str | None
    delta_fail: str
    facts: dict[str, object]
    choices: NotRequired[dict[str, ChosenParameter]]
    influence: NotRequired[str]
    units_behind: NotRequired[str]
    prompt: dict[str, object]
    prompt_sha256: NotRequired[str]
    public_metadata: dict[str, object]
    groups: NotRequired[dict[str, str]]
    budget: BudgetOfPrice
    cost: str
    external: NotRequired[ExternalCost]
    expected_rows: int
    expected_texts: int
    expected_seconds: int
    expected_seconds_per_unit: NotRequired[str]
    unprotected_figures: NotRequired[ViewingData]
    warnings: NotRequired[list[str]]
