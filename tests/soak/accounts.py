"""Whether the budget is exact: what each request has spent, from the entries alone, against its plan and its draws.

Nothing here asks the services: rows are read as they are, and added up again in another way than the ledger does.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from models_db.sessions.database import Database
from tests.support import fetch

Draw = tuple[int, int]
"""A text and the number of its draw."""
Key = tuple[int, int]
"""A request, and the attempt with which a split into batches began."""
Amounts = dict[int, tuple[int, int]]
"""By account: rho and delta."""

_ENTRIES = """
SELECT i.request_id, i.attempt, i.sequence, h.id, h.account_id, h.instalment, h.rho, h.delta, e.kind
FROM entry e JOIN hold h ON h.id = e.hold_id JOIN invocation i ON i.id = h.invocation_id
"""
COMMITTED = {"HOLD", "ARM", "COMMIT"}
LOST = ({"HOLD", "ARM", "FORFEIT"}, {"HOLD", "RELEASE"})


@dataclass
class Plan:
    """A request as it was approved: its blocks, and rho and delta of each instalment of each invocation."""

    number: int
    dataset: int
    blocks: tuple[int, ...]
    parts: list[list[tuple[int, int]]]
    samples: int
    draws: int
    instalment: int
    state: str = ""
    produced: int = 0
    first_of: dict[int, int] = field(default_factory=dict)
    """For each attempt the one that began what it goes on with."""

    @property
    def whole(self) -> set[tuple[int, int]]:
        """Every instalment, by invocation."""
        return {(sequence, number) for sequence, parts in enumerate(self.parts) for number in range(len(parts))}


def plans(database: Database) -> dict[int, Plan]:
    """Every request of the ledger."""
    found = {}
    for number, dataset, canonical in fetch(database, "SELECT id, dataset_id, canonical FROM request"):
        body = json.loads(str(canonical))
        parts = [[(int(part["rho"]), int(part["delta"])) for part in each["instalments"]]
                 for each in body["plan"]["invocations"]]  # fmt: skip
        sizes = body["parameters"]
        found[number] = Plan(
            number,
            dataset,
            tuple(body["plan"]["blocks"]),
            parts,
            sizes["samples"],
            sizes["max_new_tokens"],
            sizes["instalment"],
        )
    for number, attempt in fetch(database, "SELECT request_id, attempt FROM artifact"):
        found[number].produced = attempt
    query = "SELECT request_id, to_state, detail FROM transition ORDER BY request_id, number"
    for number, state, before in fetch(database, query):
        plan = found[number]
        plan.state = state
        if state == "running":
            attempt = len(plan.first_of) + 1
            plan.first_of[attempt] = plan.first_of[int(before)] if before else attempt
    return found  # type: ignore[return-value]


@dataclass
class Spent:
    """What the entries say: by request and beginning, which instalments are armed and what was paid for each."""

    armed: dict[Key, dict[tuple[int, int], Amounts]]
    by_account: Amounts
    open_holds: list[int]
    odd_holds: list[int]


def spent(database: Database, known: Mapping[int, Plan]) -> Spent:
    """Add the entries up."""
    kinds: dict[Any, set[str]] = defaultdict(set)
    holds: dict[Any, tuple[Any, ...]] = {}
    for request, attempt, sequence, hold, account, instalment, rho, delta, kind in fetch(database, _ENTRIES):
        kinds[hold].add(str(kind))
        holds[hold] = (request, attempt, sequence, account, instalment, int(str(rho)), int(str(delta)))
    armed: dict[Key, dict[tuple[int, int], Amounts]] = defaultdict(lambda: defaultdict(dict))
    totals: Amounts = {}
    for hold, (request, attempt, sequence, account, instalment, rho, delta) in holds.items():
        if "ARM" not in kinds[hold]:
            continue
        paid = armed[request, known[request].first_of[attempt]][sequence, instalment]
        _add(paid, account, rho, delta)
        _add(totals, account, rho, delta)
    running = {number for number, plan in known.items() if plan.state == "running"}
    closed = {hold: found for hold, found in kinds.items() if holds[hold][0] not in running}
    still_open = [hold for hold, found in closed.items() if found in ({"HOLD"}, {"HOLD", "ARM"})]
    odd = [
        hold
        for hold, found in closed.items()
        if hold not in still_open and found not in _ends(known[holds[hold][0]], holds[hold][1])
    ]
    return Spent(armed, totals, still_open, odd)


def _ends(plan: Plan, attempt: int) -> Iterable[set[str]]:
    """Which entries a hold of an attempt may have: a release is charged its whole plan."""
    return (COMMITTED,) if plan.produced == attempt else LOST


def _add(amounts: Amounts, account: int, rho: int, delta: int) -> None:
    before = amounts.get(account, (0, 0))
    amounts[account] = (before[0] + rho, before[1] + delta)


def examine(database: Database, drawn: Mapping[Key, Iterable[Draw]]) -> Iterator[str]:
    """Everything that is wrong with the budget, as sentences.

    Args:
        drawn: what pollers told before each draw.
    """
    known = plans(database)
    found = spent(database, known)
    yield from (f"hold {hold} is open though nothing runs" for hold in found.open_holds)
    yield from (f"hold {hold} has entries that do not fit" for hold in found.odd_holds)
    yield from _counters(database, found)
    blocks = _blocks(database)
    for key, armed in found.armed.items():
        yield from _as_planned(known[key[0]], key, armed, blocks)
    for plan in known.values():
        yield from _whole(plan, found)
    for key, draws in drawn.items():
        yield from _paid_for(known[key[0]], key, draws, found)


def _counters(database: Database, found: Spent) -> Iterator[str]:
    query = "SELECT id, rho_held, rho_spent, delta_held, delta_spent, rho_cap, delta_cap FROM account"
    for number, *counters in fetch(database, f"{query} WHERE parent_id IS NOT NULL"):
        rho_held, rho_spent, delta_held, delta_spent, rho_cap, delta_cap = (int(str(value)) for value in counters)
        if (rho_spent, delta_spent) != found.by_account.get(int(str(number)), (0, 0)):
            yield f"account {number} says that {rho_spent} is spent; its entries say {found.by_account.get(number)}"
        if rho_held or delta_held:
            yield f"account {number} holds {rho_held} though nothing runs"
        if rho_spent > rho_cap or delta_spent > delta_cap:
            yield f"account {number} is over its cap"


def _blocks(database: Database) -> dict[tuple[int, int], int]:
    """The account of each block of each dataset."""
    query = "SELECT d.id, a.block, a.id FROM account a JOIN dataset d ON d.account_id = a.parent_id"
    return {(int(str(d)), int(str(block))): int(str(account)) for d, block, account in fetch(database, query)}


def _as_planned(
    plan: Plan, key: Key, armed: Mapping[tuple[int, int], Amounts], blocks: Mapping[tuple[int, int], int]
) -> Iterator[str]:
    """What was armed is a beginning of the plan, on its blocks, each instalment once and at its price."""
    accounts = {blocks[plan.dataset, block] for block in plan.blocks}
    for (sequence, instalment), paid in armed.items():
        price = plan.parts[sequence][instalment]
        if set(paid) != accounts or set(paid.values()) != {price}:
            yield f"request {key}: instalment {(sequence, instalment)} costs {price} and was charged {dict(paid)}"
    for sequence in range(len(plan.parts)):
        numbers = sorted(instalment for at, instalment in armed if at == sequence)
        if numbers != list(range(len(numbers))):
            yield f"request {key}: instalments {numbers} of invocation {sequence} are armed"


def _whole(plan: Plan, found: Spent) -> Iterator[str]:
    """What was produced is paid exactly once, whatever attempts that died before it began anew have armed."""
    if not plan.produced:
        return
    if plan.state not in ("produced", "published"):
        yield f"request {plan.number} has an artifact and is {plan.state}"
    armed = found.armed.get((plan.number, plan.first_of[plan.produced]), {})
    if set(armed) != plan.whole:
        yield f"request {plan.number} was produced with {sorted(armed)} of its plan {sorted(plan.whole)}"


def _paid_for(plan: Plan, key: Key, draws: Iterable[Draw], found: Spent) -> Iterator[str]:
    """No draw was made twice on one split into batches, and none that is not paid for."""
    seen: set[Draw] = set()
    armed = sum(sequence == len(plan.parts) - 1 for sequence, _ in found.armed.get(key, {}))
    for text, number in draws:
        if (text, number) in seen:
            yield f"request {key}: draw {number} of text {text} was made twice"
        if not (0 <= text < plan.samples and 0 <= number < plan.draws):
            yield f"request {key}: draw {number} of text {text} is not in the plan"
        if number >= armed * plan.instalment:
            yield f"request {key}: draw {number} of text {text} was made with {armed} instalments armed"
        seen.add((text, number))
