"""What a release claims while its assignment is secret, and the record that the assignment got out.

The libraries of the arithmetic are loaded only for an account with a release that states such a figure.
"""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from flows.governance.principals import parse_period
from flows.workspace.policy_file import read_policy_in_force
from flows.workspace.workspace import Workspace
from models_db.errors import Refused, UsageError
from models_db.policies.policy import Policy
from models_db.services import budget, datasets, exposures, requests
from models_db.services.audit.stored_text import request_body
from models_db.services.gates import artifacts_by_request
from models_db.services.queries import lists
from models_db.tables import Account, Request
from models_db.values.amounts import RHO_UNIT
from models_db.values.exposures import SecrecyEnd
from models_db.values.requests import format_decimal
from models_db.values.untrusted_text import LONGEST_REASON, is_reason
from tasks.common.published_values import round_up

if TYPE_CHECKING:
    from tasks.accounting.renyi_account import OrdersBudget
    from tasks.planning.secret_assignment import SecretAssignment
    from tasks.release.claim import Claim


def stated_claim(request: Request) -> "Claim | None":
    """Return a request's claim; None where it makes none, and for a request in a format that this version cannot read.

    Raises:
        LedgerAltered: its text is not the one that its digest names.
    """
    body = request_body(request)
    from tasks.release.claim import ClaimTooSmall
    from tasks.release.record import claim_of_plan, planned_events

    try:
        return claim_of_plan(planned_events(body), body)
    except (ClaimTooSmall, KeyError, TypeError, ValueError):
        return None


def stated_figure(request: Request) -> "SecretAssignment | None":
    """Return the figure that a request's claim states while the assignment is secret.

    None where it states none, and for a request in a format that this version cannot read.

    Raises:
        LedgerAltered: its text is not the one that its digest names.
    """
    if "assignment" not in request_body(request).get("plan", {}):
        return None
    claim = stated_claim(request)
    return None if claim is None else claim.secret_assignment


def standing_figure(session: Session, request: Request) -> "tuple[SecretAssignment | None, SecrecyEnd | None]":
    """Return the figure that holds now, and its end; one of the two at most, none where a claim states none.

    Raises:
        LedgerAltered: the request's text is not the one that its digest names.
    """
    stated = stated_figure(request)
    end = None if stated is None else exposures.find_secrecy_end(session, request.id)
    return (stated, None) if end is None else (None, end)


def ended_figures(session: Session, account_id: int) -> tuple[tuple[int, SecrecyEnd], ...]:
    """Return the releases of an account whose figure while the assignment was secret has ended, by number."""
    ends = exposures.find_secrecy_ends_of_account(session, account_id)
    return tuple(
        (number, end)
        for number, end in sorted(ends.items())
        if stated_figure(requests.find_request(session, number)) is not None
    )


SIZES_FIXED = "if the sizes of all releases were fixed in advance"
"""The condition of `AccountFigure`: wherever the figure stands, this stands beside it."""


@dataclass(frozen=True)
class AccountFigure:
    """Epsilon of all that an account has spent, while the assignments of some of its releases are secret.

    It is proven for releases whose sizes were fixed beforehand. Where earlier outputs decided the later sizes it is no
    guarantee, because no limit on the divergences stops the releases (docs/proofs/secret-assignment.md, *Composition*).

    Attributes:
        epsilon: rounded up to four places, at the delta of the unconditional figure beside it.
        releases: how many releases count with a secret assignment; all else counts with its whole rho.
    """

    epsilon: str
    releases: int

    @property
    def sentence(self) -> str:
        """The figure in words, to stand beside the unconditional one."""
        whose = "assignment of one release is" if self.releases == 1 else f"assignments of {self.releases} releases are"
        return (
            f"While the {whose} secret, what is spent comes to epsilon {self.epsilon} at the same delta, {SIZES_FIXED}."
        )


def account_figure(session: Session, account_id: int, delta: Fraction) -> AccountFigure | None:
    """Derive the figure of an account from its releases; None if none of them counts with a secret assignment.

    A release counts from when it is produced until its secrecy ends, each block with what the draws armed on it, at
    most what the approved plan says. If an earlier attempt armed a part of that with another split, the two count as
    one, which costs no less: for remove, the logarithm of a moment is that of E[exp(2 rho C)], convex in rho and 0 at
    0, so that of a sum is at least the sum; for add the divergence is linear in rho. None also where a mechanism spent
    a failure probability.

    Args:
        delta: of the conversion, as for the unconditional figure.
    """
    asked = requests.list_of_account(session, account_id)
    produced = artifacts_by_request(session, [request.id for request in asked])
    stated = {
        request.id: secret
        for request in asked
        if request.id in produced and (secret := stated_figure(request)) is not None
    }
    for number in exposures.find_secrecy_ends_of_account(session, account_id):
        stated.pop(number, None)
    if not stated:
        return None
    from tasks.mechanisms.tokens import integer_table
    from tasks.planning.secret_assignment import SpentOnBlock, epsilon_of_account
    from tasks.values.plan import BatchAssignment

    armed = lists.armed_on_blocks(session, account_id, stated, integer_table.MECHANISM)
    accounts = [session.get_one(Account, block) for block in armed]
    if any(account.delta_spent for account in accounts):
        return None
    sizes = {number: BatchAssignment(secret.batches, secret.read) for number, secret in stated.items()}
    most = {number: int(Decimal(secret.rho) * RHO_UNIT) for number, secret in stated.items()}
    blocks = [
        SpentOnBlock(
            account.rho_spent,
            tuple((sizes[number], min(rho, most[number])) for number, rho in armed[account.id].items()),
        )
        for account in accounts
    ]
    return AccountFigure(round_up(str(epsilon_of_account(blocks, delta))), len(stated))


@dataclass(frozen=True)
class LimitInOrders:
    """What an account is charged in Rényi orders, of what the policy in force allows.

    Unlike `AccountFigure` it is a claim for the whole life of the account, whatever outputs decided: the limit stops
    the releases (docs/proofs/secret-assignment.md, *Account in orders*).

    Attributes:
        epsilon, delta: the policy's limit; of the account's datasets, the one that leaves least room.
        charged: the epsilon of the fullest block, rounded up to four places, at the same delta.
    """

    epsilon: str
    delta: str
    charged: str

    @property
    def sentence(self) -> str:
        """The limit in words."""
        return (
            f"Charged in orders is epsilon {self.charged} of the {self.epsilon} at delta {self.delta} that the policy"
            " allows while assignments are secret."
        )


def orders_budget(session: Session, account_id: int) -> "OrdersBudget | None":
    """Return the limits on an account in orders that the policy in force sets, and its charges; None without a limit.

    Each dataset of the account has a limit of its own, and all of them hold.
    """
    return orders_budgets(session, [account_id], read_policy_in_force(session)).get(account_id)


def orders_budgets(session: Session, accounts: Collection[int], policy: Policy | None) -> "dict[int, OrdersBudget]":
    """Return `orders_budget` of the accounts that have a limit by the policy in force; no statement if it sets none."""
    if policy is None:
        return {}
    own = [rules.lifetime_while_secret for rules in policy.datasets.values()]
    if not any((policy.lifetime_while_secret, *own)):
        return {}
    from flows.audit.charges import differing_charges
    from tasks.accounting.renyi_account import OrdersBudget

    limits = {
        account_id: {limit for name in sharing if (limit := policy.rules_for(name).lifetime_while_secret) is not None}
        for account_id, sharing in lists.datasets_by_account(session, accounts).items()
    }
    limited = [account_id for account_id, own in limits.items() if own]
    differing = {
        number
        for account_id in limited
        for number in differing_charges(session, budget.list_charges(session, account_id))
    }
    sums = budget.sums_of_blocks(session, limited, differing)
    return {
        account_id: OrdersBudget(tuple(sorted((limit.epsilon, limit.delta) for limit in own)), sums[account_id])
        for account_id, own in limits.items()
        if own
    }


def limit_in_orders(budget: "OrdersBudget", blocks: Collection[int]) -> LimitInOrders:
    """Return what blocks of an account are charged in orders, of what the policy in force allows.

    Args:
        blocks: which of its blocks; the fullest counts.
    """
    epsilon, delta = budget.strictest(blocks)
    charged = budget.epsilon(delta, blocks)
    return LimitInOrders(format_decimal(epsilon), format_decimal(delta), round_up(str(charged)))


def record_exposure(workspace: Workspace, request_id: int, since: str | None, reason: str) -> SecrecyEnd:
    """Record that an assignment of a request's units to texts got out; returns the end of its second figure.

    The request may have produced a release, or runs that failed or were given up: whatever was charged can be exposed.

    Args:
        since: the first day (UTC) on which others could know it; None if unknown: since the release was produced, or
            where there is none, since the first attempt was charged.

    Raises:
        InvalidExposureReason: the audit log could not carry the reason.
        InvalidDate: `since` is not a date.
        RequestUnknown: there is no such request.
        NothingCharged: no attempt of it was charged.
        NothingToExpose: it claims nothing for the secrecy of its assignment.
        RoleRequired: only a steward or an admin records it.
        AlreadyExposed, ExposedLater: it is recorded already, or the day is to come.
    """
    if not is_reason(reason):
        raise _invalid_exposure_reason()
    beginning = None if since is None else parse_period(since, None)[0]
    with workspace.database.write() as session:
        request = requests.find_request(session, request_id)
        if stated_figure(request) is None:
            raise Refused(
                f"Release {request_id} claims nothing for the secrecy of its assignment, so nothing of its claim ends.",
                "Its unconditional claim holds as before. A leak of texts of the dataset is an incident of its own.",
                {"request": request_id},
                code="NothingToExpose",
            )
        exposures.record_exposure(session, workspace.actor, request_id, beginning, reason)
    with workspace.database.read() as session:
        end = exposures.find_secrecy_end(session, request_id)
    if end is None:
        raise ArithmeticError(f"the exposure of request {request_id} was recorded and is not there")
    return end


@dataclass(frozen=True)
class KeyCompromise:
    """What a leak of keys of splits ended, by number.

    Attributes:
        recorded: the releases whose figure while the assignment was secret has ended with it.
        unfinished: the requests that were charged and have produced nothing, whose figure has ended too: a key of
            theirs may be in a journal that got out. What they produce later has the unconditional claim alone.
    """

    recorded: tuple[int, ...]
    unfinished: tuple[int, ...]


def record_key_compromise(
    workspace: Workspace, since: str, reason: str, dataset: str | None = None, *, dry_run: bool = False
) -> KeyCompromise:
    """Record that keys of splits got out: of every release whose key can have existed on that day or later.

    A release has a key of its own, from when its attempt begins until it is produced; if the run died just then, until
    it is published (decision 0131). The key of a run that failed is in its journal. So all that were charged count,
    unless they were published before the day, in one transaction.

    Args:
        since: the first day (UTC) on which others could read journals or memory of runs.
        dataset: only releases of the account of this dataset; None for all.
        dry_run: find them and record nothing.

    Raises:
        InvalidExposureReason: the audit log could not carry the reason.
        InvalidDate, ExposedLater: `since` is not a date, or is to come.
        DatasetUnknown: there is no such dataset.
        RoleRequired: only a steward or an admin records it.
    """
    if not is_reason(reason):
        raise _invalid_exposure_reason()
    beginning = parse_period(since, None)[0]
    with workspace.database.read() if dry_run else workspace.database.write() as session:
        exposures.require_may_expose(session, workspace.actor, beginning)
        asked = (
            requests.list_all(session)
            if dataset is None
            else requests.list_of_account(session, datasets.find_dataset(session, dataset).account_id)
        )
        produced = artifacts_by_request(session, [request.id for request in asked])
        published = lists.published_at(session, [artifact.id for artifact in produced.values()])
        charged, exposed = budget.charged_requests(session), exposures.exposed_requests(session)
        recorded, unfinished = list[int](), list[int]()
        for request in asked:
            artifact = produced.get(request.id)
            if stated_figure(request) is None or request.id not in charged:
                continue
            before = artifact is not None and published.get(artifact.id, beginning) < beginning
            if before or request.id in exposed:
                continue
            if not dry_run:
                exposures.record_exposure(session, workspace.actor, request.id, None, reason)
            (unfinished if artifact is None else recorded).append(request.id)
    return KeyCompromise(tuple(sorted(recorded)), tuple(sorted(unfinished)))


def _invalid_exposure_reason() -> UsageError:
    return UsageError(
        f"To record that an assignment got out takes a reason of at most {LONGEST_REASON} characters; it stays in"
        " the audit log.",
        'For example `--reason "the journal of the run was copied"`.',
        code="InvalidExposureReason",
    )
