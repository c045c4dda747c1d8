"""Definitions of guards, actions and functions, and conditions that several guards share, as SQL.

Conditions that several guards share, as SQL. Aliases of rows are the same in all guards: `r` a request, `m` a proposal,
`p` its policy, `d` a dataset, `a` an approval or an account, `b` a block, `h` a hold, `e` an entry, `i` an invocation,
`f` an artifact, `t` a transition.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from models_db.tables.accounts import CURVE_COLUMNS
from models_db.tables.principals import LIMIT_COLUMNS
from models_db.values.amounts import RENYI_ORDERS


class Both(NamedTuple):
    """SQL text with one form for each of the two databases."""

    sqlite: str
    postgresql: str

    def within(self, template: str) -> "Both":
        """Return both texts inside other SQL, in place of each `@`."""
        return Both(template.replace("@", self.sqlite), template.replace("@", self.postgresql))


Sql = str | Both
"""SQL that both databases read, or one text for each. `IS DISTINCT FROM` is written `IS NOT` for SQLite."""


def with_article(noun: str) -> str:
    """Return a noun behind its article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def deny(message: str) -> str:
    """Return the statement with which a function of PostgreSQL refuses."""
    return f"RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514';"


@dataclass(frozen=True)
class Guard:
    """A condition under which the database refuses to add or change a row.

    Attributes:
        name: of its trigger; on PostgreSQL the guards of new rows are one trigger, `<table>_is_sound`.
        table: whose rows it concerns.
        message: the rule that it keeps; `models_db.writes.database_errors` turns it into a named error.
        denied: true of the row NEW (and OLD) that is refused. What must hold is written NOT EXISTS (all that must
            hold), so that a missing row or a NULL denies.
        operation: INSERT, UPDATE or DELETE. only: the rows of an INSERT for which `denied` is asked at all.
    """

    name: str
    table: str
    message: str
    denied: Sql
    operation: str = "INSERT"
    only: str = ""


@dataclass(frozen=True)
class Action:
    """Statements that the database itself runs after a row is added.

    SQLite runs the statements of a trigger under the conflict rule of the outer one: after a CHECK refuses one of them,
    `INSERT OR IGNORE` would go on without it, and `INSERT OR FAIL` would stop with the outer row in place. So it is
    looked afterwards whether they were done; RAISE(ABORT) undoes the whole statement under any rule.

    Attributes:
        name: of its trigger.
        table: after whose rows it is done.
        statements: what is done.
        failed: true if it was not done.
        message: what is said then.
        source: PostgreSQL only: the whole function, where it is not these statements and this look.
    """

    name: str
    table: str
    statements: tuple[str, ...]
    failed: str
    message: str
    source: str = ""


@dataclass(frozen=True)
class Function:
    """A function of PostgreSQL.

    Attributes:
        name: it begins with `almoner_`. arguments: as it declares them. result: what it returns. properties: language,
            volatility, and whether it works with the rights of its owner. source: its text. settings: "keys": the
            search path, and queries planned by keys; "path": the search path alone, of what asks no table; "caller":
            those of its caller, because functions and guards call it, and to set them again costs more than it does.
    """

    name: str
    arguments: str
    result: str
    properties: str
    source: str
    settings: Literal["keys", "path", "caller"] = "keys"


NEWEST = "(SELECT y.at FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k))"
"""The time of the newest link of the chain."""
TIME = '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\''
STALE = Both(
    sqlite=f"NEW.at < {NEWEST}",
    postgresql=f"NEW.at < to_char(({NEWEST})::timestamptz AT TIME ZONE 'UTC' - interval '5 minutes', {TIME})",
)
"""The time of a row is older than the newest link; on PostgreSQL, where several machines write, by five minutes."""
WENT_BACK = "the clock went backwards"
IN_FORCE = "(SELECT y.policy_id FROM policy_adoption y ORDER BY y.id DESC LIMIT 1)"
"""The policy in force is the one adopted last."""
REQUEST_DAYS = "(SELECT p.request_days FROM policy_version p WHERE p.id = NEW.policy_id)"
LAST_DAY = Both(
    sqlite="strftime('%Y-%m-%dT23:59:59.999999Z', substr({at}, 1, 10), '+' || (1 + {days}) || ' days')",
    postgresql=(
        "(to_char(left({at}, 10)::date::timestamp + (1 + {days}) * interval '1 day', 'YYYY-MM-DD')"
        " || 'T23:59:59.999999Z')"
    ),
)


def later_than(time: str, at: str, days: str) -> Both:
    """A time lies after the end of the day that comes `days` after the day behind `at`, in UTC."""
    return Both(*(f"{time} > {last.format(at=at, days=days)}" for last in LAST_DAY))


# --- Requests and their attempts ---------------------------------------------------------------------------------


def state(request: str) -> str:
    """Return the state of a request."""
    return (
        f"coalesce((SELECT t.to_state FROM transition t WHERE t.request_id = {request}"
        " ORDER BY t.number DESC LIMIT 1), 'draft')"
    )


def attempts(request: str) -> str:
    """Return how often a request was started."""
    return f"(SELECT count(*) FROM transition t WHERE t.request_id = {request} AND t.to_state = 'running')"


def begun(request: str) -> str:
    """Return the newest attempt at a request that began from nothing: what earlier ones have armed is lost to it."""
    return (
        "(SELECT max(y.n) FROM (SELECT t.detail, row_number() OVER (ORDER BY t.number) AS n FROM transition t"
        f" WHERE t.request_id = {request} AND t.to_state = 'running') y WHERE y.detail = '')"
    )


def latest_artifact(request: str) -> str:
    """Return the digest of the artifact of the last attempt."""
    return f"(SELECT f.digest FROM artifact f WHERE f.request_id = {request} ORDER BY f.attempt DESC LIMIT 1)"


def has_entry(hold: str, *kinds: str) -> str:
    """A hold has an entry of one of these kinds."""
    listed = " = " + f"'{kinds[0]}'" if len(kinds) == 1 else " IN (" + ", ".join(f"'{kind}'" for kind in kinds) + ")"
    return f"EXISTS (SELECT 1 FROM entry e WHERE e.hold_id = {hold} AND e.kind{listed})"


# --- People ------------------------------------------------------------------------------------------------------


def role(who: str, name: str, at: str = "NEW.at") -> str:
    """A person has a role at a time."""
    return _role(who, f"'{name}'", at)


def _role(who: str, name: str, at: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM role_grant g WHERE g.principal_id = {who} AND g.role = {name} AND g.valid_from <= {at}"
        f" AND (g.valid_to IS NULL OR g.valid_to > {at})"
        " AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id))"
    )


def erased(version: str) -> str:
    """Return the condition that a version of the data was erased."""
    return f"EXISTS (SELECT 1 FROM erased_version x WHERE x.version_id = {version} AND x.manifest_mark IS NULL)"


def replaced(dataset: str) -> str:
    """Return the condition that a dataset was registered again: another row has its name and a later registration."""
    return (
        "EXISTS (SELECT 1 FROM dataset o JOIN dataset n ON n.name = o.name AND n.registration > o.registration"
        f" WHERE o.id = {dataset})"
    )


REPLACED = "that dataset was registered again"


# --- The gates ---------------------------------------------------------------------------------------------------


def _passed(gate: str, subject: str, row: str, digest: str) -> str:
    """Enough approvals count for the subject in `row`, whose policy is row `p`, and nobody has rejected it.

    An approval counts while it has not expired, was not withdrawn, the passkey that gave it, if one did, was not
    revoked, and its steward still has the role. People are counted, not rows. The number needed is the largest of all
    datasets of the account, because they protect the same people.
    """
    counted = (
        "(SELECT count(DISTINCT a.approver_id) FROM approval a"
        f" WHERE a.{subject}_id = {row}.id AND a.gate = '{gate}' AND a.subject_digest = {digest}"
        " AND a.decision = 'approve' AND a.expires_at > NEW.at"
        " AND NOT EXISTS (SELECT 1 FROM withdrawal w WHERE w.approval_id = a.id)"
        " AND NOT EXISTS (SELECT 1 FROM passkey_end x WHERE x.passkey_id = a.passkey_id)"
        f" AND {role('a.approver_id', 'steward')})"
    )
    needed = (
        f"(SELECT max(coalesce(q.{gate}_approvals, p.{gate}_approvals)) FROM dataset o JOIN dataset y"
        " ON y.account_id = o.account_id LEFT JOIN policy_rule q ON q.policy_id = p.id AND q.dataset = y.name"
        f" WHERE o.id = {row}.dataset_id)"
    )
    return f"({counted} >= {needed} AND NOT {_rejected(gate, subject, f'{row}.id')})"


def _rejected(gate: str, subject: str, number: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM approval a WHERE a.{subject}_id = {number} AND a.gate = '{gate}'"
        " AND a.decision = 'reject')"
    )


SPEND_GATE = _passed("spend", "request", "r", "r.digest")
"""The stewards have approved request `r`."""
PUBLISH_GATE = _passed("publish", "request", "r", "f.digest")
"""The stewards have approved artifact `f` of request `r`."""
PROPOSAL_GATE = _passed("proposal", "proposal", "m", "m.digest")
"""The stewards have approved proposal `m`."""
STANDING = (
    "EXISTS (SELECT 1 FROM proposal m WHERE m.id = r.standing_id AND m.kind = 'standing' AND m.until > NEW.at"
    " AND m.dataset_id = r.dataset_id AND m.config_digest = r.config_digest"
    " AND EXISTS (SELECT 1 FROM carried c WHERE c.proposal_id = m.id)"
    f" AND NOT {_rejected('proposal', 'proposal', 'm.id')})"
)
"""The standing authorisation of request `r` is in force."""
RUNS_LEFT = (
    "(SELECT m.runs FROM proposal m WHERE m.id = r.standing_id) > (SELECT count(*) FROM request q"
    " JOIN transition t ON t.request_id = q.id WHERE q.standing_id = r.standing_id AND t.to_state = 'running')"
)
"""Not every run is used that the standing authorisation of request `r` allows, finished or not."""


# --- Budgets -----------------------------------------------------------------------------------------------------


def later_cohorts(account: str) -> str:
    """Return how many cohorts an account has behind the first one."""
    return f"(SELECT count(*) FROM cohort c WHERE c.account_id = {account})"


def uncharged(request: str) -> str:
    """Some part of a request's plan was never armed, at what it was planned for, on one of the blocks of the plan.

    What the attempts have armed counts from which this one goes on. SQLite takes a CROSS JOIN in the order in which it
    is written.
    """
    return (
        f"EXISTS (SELECT 1 FROM planned_instalment q WHERE q.request_id = {request}"
        " AND (q.last_instalment - q.first_instalment + 1) * (SELECT sum(k.last_block - k.first_block + 1)"
        " FROM planned_block k WHERE k.request_id = q.request_id) IS DISTINCT FROM"
        " (SELECT count(*) FROM (SELECT DISTINCT h.account_id, h.instalment"
        " FROM invocation i CROSS JOIN hold h CROSS JOIN entry e CROSS JOIN account b CROSS JOIN planned_block k"
        f" WHERE i.request_id = q.request_id AND i.sequence = q.sequence AND i.attempt >= {begun(request)}"
        " AND h.invocation_id = i.id AND h.instalment >= q.first_instalment AND h.instalment <= q.last_instalment"
        " AND h.rho = q.rho AND h.delta = q.delta AND e.hold_id = h.id AND e.kind = 'ARM'"
        " AND b.id = h.account_id AND k.request_id = q.request_id"
        " AND b.block >= k.first_block AND b.block <= k.last_block) armed))"
    )


BLOCK_MISSING = """
    NOT EXISTS (SELECT 1 FROM planned_block k WHERE k.request_id = NEW.request_id)
     OR EXISTS (
         SELECT 1 FROM planned_block k WHERE k.request_id = NEW.request_id AND k.last_block - k.first_block + 1 <> (
             SELECT count(*) FROM request r JOIN dataset d ON d.id = r.dataset_id
              JOIN account b ON b.parent_id = d.account_id
              WHERE r.id = k.request_id AND b.block >= k.first_block AND b.block <= k.last_block
         )
     )
"""
"""The plan of a submitted request reads no block, or one that has no account, so that nothing could be charged."""
_PARTS = "(q.last_instalment - q.first_instalment + 1)"
TOO_MUCH = f"""
    EXISTS (
        SELECT 1 FROM (
            SELECT sum(q.rho * 1.0 * {_PARTS}) AS rho, sum(q.delta * 1.0 * {_PARTS}) AS delta
             FROM planned_instalment q WHERE q.request_id = NEW.request_id
        ) x WHERE x.rho > 9E18 OR x.delta > 9E18
    )
"""
"""The amounts of its plan add up to more than a counter of 64 bits holds; SQLite adds them up as floats."""


# --- The account in Rényi orders ---------------------------------------------------------------------------------


def _known(request: str) -> str:
    """Return the condition that the assignment of a request's texts is no longer secret."""
    return (
        f"(EXISTS (SELECT 1 FROM assignment_exposure w WHERE w.request_id = {request})"
        " OR EXISTS (SELECT 1 FROM internal_view v JOIN artifact f ON f.id = v.artifact_id"
        f" WHERE f.request_id = {request}))"
    )


_SUMS = ", ".join(
    f"coalesce(sum(CASE WHEN s.known THEN s.rho ELSE s.{name} END), 0) AS {name}" for name in CURVE_COLUMNS
)
_CHARGED_ON_BLOCK = f"""
    SELECT {_SUMS} FROM (
        SELECT c.*, {_known("c.request_id")} AS known FROM renyi_charge c
    ) s JOIN request o ON o.id = s.request_id JOIN dataset y ON y.id = o.dataset_id
     JOIN planned_block z ON z.request_id = o.id
     WHERE y.account_id = d.account_id AND a.block >= z.first_block AND a.block <= z.last_block
"""
"""Sums of the charges on block `a` of the account of dataset `d`; a release whose secret is out counts with its rho."""


def _fits(direction: str) -> str:
    return " OR ".join(
        f"x.{direction}_{order} + CASE WHEN e.known THEN NEW.rho ELSE NEW.{direction}_{order} END"
        f" <= coalesce(q.{limit}, p.{limit})"
        for order, limit in zip(RENYI_ORDERS, LIMIT_COLUMNS, strict=True)
    )


LIMIT_IN_ORDERS_PASSED = f"""
    NEW.rho > 0 AND EXISTS (
        SELECT 1 FROM request r JOIN dataset d ON d.id = r.dataset_id JOIN account a ON a.parent_id = d.account_id
         JOIN planned_block k ON k.request_id = r.id JOIN dataset g ON g.account_id = d.account_id
         CROSS JOIN policy_version p LEFT JOIN policy_rule q ON q.policy_id = p.id AND q.dataset = g.name
         CROSS JOIN (SELECT {_known("NEW.request_id")} AS known) e
         WHERE r.id = NEW.request_id
          AND a.block >= k.first_block
          AND a.block <= k.last_block
          AND p.id = {IN_FORCE}
          AND coalesce(q.{LIMIT_COLUMNS[0]}, p.{LIMIT_COLUMNS[0]}) IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM ({_CHARGED_ON_BLOCK}) x WHERE ({_fits("remove")}) AND ({_fits("add")}))
    )
"""
"""Charge NEW would pass the limit that the policy in force sets for a dataset of its account, on a block of its plan.

A charge of nothing passes none. The limits of one claim divide delta among the orders, so that in each direction one
of them has to hold. If an earlier assignment of the request got out, NEW counts with its rho too.
"""
