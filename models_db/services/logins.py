"""Access rights to the ledger's tables on PostgreSQL, where identity is the login; SQLite needs none of this.

Two groups of roles belong to a database, without a login of their own: readers may SELECT every table of the ledger,
writers may in addition INSERT rows into those that people add to, and call some functions. Nobody but the owner of the
tables may do anything else with them.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from models_db import tables
from models_db.database.base import Base
from models_db.errors import Finding, Refused, UsageError
from models_db.writes.insert import on_postgresql
from models_db.writes.link_content import LINKED_TABLES

LEDGER_TABLES = (*sorted(Base.metadata.tables), "alembic_version")
"""Every table of a ledger."""

ADDED_BY_LOGINS = LINKED_TABLES - {"unit_claim"}
"""The tables to which writers add rows; those of the others the database writes itself (`migrations.schema`)."""

MOST_ROLE_BYTES = 63
"""Bytes of a role's name that PostgreSQL keeps."""

MAINTAIN_SINCE = 170000
"""The version of PostgreSQL that knows the right to MAINTAIN."""

SqlConnection = Session | Connection

OWNER_QUERY = "(SELECT c.relowner FROM pg_class c WHERE c.oid = to_regclass('audit_head'))"


def group_name(database: str, kind: str) -> str:
    """Return the group of `kind` reader or writer of a database; roles are shared by all databases of a server."""
    name = f"almoner_{database}_{kind}"
    if len(name.encode()) <= MOST_ROLE_BYTES:
        return name
    return f"almoner_{hashlib.sha256(database.encode()).hexdigest()[:32]}_{kind}"


def group_names(asks: SqlConnection) -> tuple[str, str]:
    """Return the names of this database's readers and writers."""
    database = str(asks.scalar(text("SELECT current_database()")))
    return group_name(database, "reader"), group_name(database, "writer")


def session_login(session: Session) -> str | None:
    """Return the role this session has logged in as; None on SQLite."""
    return str(session.scalar(text("SELECT session_user"))) if on_postgresql(session) else None


def has_owner_rights(asks: SqlConnection) -> bool:
    """Return whether this session has the rights of the tables' owner, also for tables not yet created."""
    return bool(asks.scalar(text(f"SELECT coalesce(pg_has_role(session_user, {OWNER_QUERY}, 'MEMBER'), TRUE)")))


def require_logins(is_sqlite: bool) -> None:
    """Check that the ledger's database has logins.

    Raises:
        LoginNotSupported: it is a file.
    """
    if is_sqlite:
        raise UsageError(
            "This ledger is a file: its people have keys and no logins.", "Leave out --login.", code="LoginNotSupported"
        )


def require_own_login(session: Session, principal: tables.Principal) -> None:
    """Check that a principal is the one this session's login belongs to; the database checks it at every write.

    Raises:
        LoginMismatch: it is somebody else's. The owner of the tables is exempt: nothing could bind that role.
    """
    if (
        on_postgresql(session)
        and principal.login != (login := session_login(session))
        and not has_owner_rights(session)
    ):
        raise _login_mismatch(principal, str(login))


def _login_mismatch(principal: tables.Principal, login: str) -> Refused:
    own = f"works under the login {principal.login!r}" if principal.login else "has no login in this database"
    return Refused(
        f"The key of this home is {principal.name!r}'s, who {own}; this session has logged in as {login!r}.",
        "Everybody acts under their own login: name yours in ALMONER_DATABASE_URL, or use the home of the login's"
        " principal; see `almoner user list`.",
        {"principal": principal.name, "login": principal.login, "session": login},
        code="LoginMismatch",
    )


# --- What `almoner doctor` looks at --------------------------------------------------------------------------

_QUERY_PARTS = {
    "owner": OWNER_QUERY,
    # role r is above every guard
    "above": f"(r.rolsuper OR pg_has_role(r.oid, {OWNER_QUERY}, 'MEMBER'))",
    # every other role, and everybody
    "roles": "(SELECT r.rolname, r.oid FROM pg_roles r WHERE NOT {above} AND NOT starts_with(r.rolname, 'pg_')"
    " UNION ALL SELECT 'public', 0)",
    "relations": """
 (SELECT c.oid, c.relname, c.relkind FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
   AND (c.relname = ANY (:ledger) OR (c.relkind = 'S' AND EXISTS (SELECT 1 FROM pg_depend d JOIN pg_class t
    ON t.oid = d.refobjid WHERE d.objid = c.oid AND d.deptype IN ('a', 'i') AND t.relname = ANY (:ledger)))))""",
    "functions": """
 (SELECT p.oid, p.proname, p.proowner, p.prosecdef FROM pg_proc p
   WHERE p.pronamespace = current_schema()::regnamespace AND starts_with(p.proname, 'almoner_'))""",
}

_MAY_WRITE = """
SELECT r.rolname, c.relname FROM {roles} r, {relations} c WHERE CASE WHEN c.relkind = 'S'
  THEN has_sequence_privilege(r.rolname, c.oid, 'USAGE,UPDATE')
  ELSE has_table_privilege(r.rolname, c.oid, :changes)
    OR has_any_column_privilege(r.rolname, c.oid, 'UPDATE,REFERENCES')
    OR (has_any_column_privilege(r.rolname, c.oid, 'INSERT') AND NOT (c.relname = ANY (:added)
      AND EXISTS (SELECT 1 FROM pg_roles w WHERE w.rolname = :writer AND r.oid <> 0
       AND pg_has_role(r.oid, w.oid, 'MEMBER'))))
    OR (r.oid = 0 AND has_table_privilege(r.rolname, c.oid, 'SELECT')) END
UNION ALL
SELECT r.rolname, g.rolname FROM pg_roles r, pg_roles g
 WHERE g.rolname IN ('pg_write_all_data', 'pg_maintain', 'pg_write_server_files', 'pg_execute_server_program')
   AND NOT starts_with(r.rolname, 'pg_') AND NOT {above} AND pg_has_role(r.oid, g.oid, 'MEMBER')"""

_MAY_CREATE_FUNCTIONS = """
SELECT r.rolname, current_schema() FROM {roles} r
 WHERE has_schema_privilege(r.rolname, current_schema(), 'CREATE')
   AND NOT coalesce((SELECT pg_has_role(o.oid, n.nspowner, 'MEMBER') FROM pg_roles o, pg_namespace n
                      WHERE o.rolname = r.rolname AND n.nspname = current_schema()), FALSE)"""

_MAY_CALL = """
SELECT r.rolname, f.proname FROM {roles} r, {functions} f WHERE has_function_privilege(r.rolname, f.oid, 'EXECUTE')
  AND NOT (f.prosecdef AND r.oid <> 0 AND EXISTS (SELECT 1 FROM pg_roles w WHERE w.rolname = :writer
    AND pg_has_role(r.oid, w.oid, 'MEMBER')))
UNION ALL SELECT pg_get_userbyid(f.proowner), f.proname FROM {functions} f WHERE f.proowner <> {owner}"""

_UNKNOWN_WRITERS = """
SELECT r.rolname FROM pg_roles r JOIN pg_roles w ON w.rolname = :writer
 WHERE r.rolcanlogin AND NOT {above} AND pg_has_role(r.oid, w.oid, 'MEMBER')
   AND r.rolname NOT IN (SELECT p.login FROM principal p WHERE p.login IS NOT NULL) ORDER BY r.rolname"""

_MEMBERS_WITHOUT_ACCESS = """
SELECT p.login FROM principal p WHERE p.login IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pg_roles r
 WHERE r.rolname = p.login AND ({above} OR (r.rolcanlogin AND EXISTS (SELECT 1 FROM pg_roles g
  WHERE g.rolname IN (:reader, :writer) AND pg_has_role(r.oid, g.oid, 'MEMBER'))))) ORDER BY p.login"""


def check_access(session: Session) -> list[Finding]:
    """Return the findings about the rights of all roles of the server on this ledger; none on SQLite."""
    if not on_postgresql(session):
        return []
    findings = [_check_groups(session), _check_tables(session), _check_schema(session), _check_functions(session)]
    if findings[0].ok:
        findings += [_check_unknown_writers(session), _check_members(session)]
    return [*findings, _check_administrators(session), _check_blocking_sessions(session), _check_superusers(session)]


_LOGIN_ADMINISTRATORS = """
SELECT p.login, 'every login it creates (CREATEROLE)' FROM principal p JOIN pg_roles r ON r.rolname = p.login
 WHERE r.rolcreaterole AND NOT {above}
UNION ALL
SELECT p.login, o.login FROM principal p JOIN pg_roles r ON r.rolname = p.login, principal o JOIN pg_roles g
    ON g.rolname = o.login
 WHERE o.id <> p.id AND NOT {above} AND EXISTS (SELECT 1 FROM pg_auth_members m WHERE m.roleid = g.oid
   AND pg_has_role(r.oid, m.member, 'MEMBER'))"""

_BLOCKING_SESSIONS = """
SELECT a.pid, coalesce(a.usename, '?') FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND a.xact_start < clock_timestamp() - interval '1 minute'
   AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.relation = to_regclass('audit_head')
    AND l.mode IN ('RowShareLock', 'RowExclusiveLock')) ORDER BY a.pid"""


def _check_administrators(session: Session) -> Finding:
    """Warn about logins that administer another person's login.

    An administrator of a login can set its password and act as that person; only a steward's signing key prevents it
    from voting. This is a warning, because a small team may intend it (docs/deploy.md).
    """
    by_login: dict[str, list[str]] = {}
    for login_, what in _query_rows(session, _LOGIN_ADMINISTRATORS):
        by_login.setdefault(login_, []).append(what)
    details = [f"{login} administers {_first_names(what)}" for login, what in sorted(by_login.items())]
    return Finding("nobody administers another person's login", True, "; ".join(details), warning=bool(details))


def _check_blocking_sessions(session: Session) -> Finding:
    """Name the sessions that keep all writers waiting for more than a minute: idle, or busy with a statement of their
    own. A session may lift its timeouts. Without `pg_read_all_stats` only one's own login's sessions are visible."""
    sees = bool(session.scalar(text("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")))
    rows = session.execute(text(_BLOCKING_SESSIONS)).all()
    details = [f"session {pid} of {role}: `SELECT pg_terminate_backend({pid})`" for pid, role in rows]
    unseen = "" if sees else "of one's own login; that of others takes the right pg_read_all_stats"
    return Finding("no session keeps the writers waiting", not details, "; ".join(details) or unseen)


def _check_groups(session: Session) -> Finding:
    present = set(session.scalars(text("SELECT rolname FROM pg_roles WHERE NOT rolcanlogin AND NOT rolsuper")))
    missing = [name for name in group_names(session) if name not in present]
    advice = f"{', '.join(missing)} missing, or able to log in: `almoner init`, as the tables' owner, says what to do"
    return Finding("the groups of readers and writers are there", not missing, advice if missing else "")


def _check_tables(session: Session) -> Finding:
    """Find roles, besides owner and superusers, that may do more with a table, column or sequence than their group."""
    changes = "UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER"
    maintains = int(session.scalar(text("SHOW server_version_num")) or 0) >= MAINTAIN_SINCE
    rows = _query_rows(
        session,
        _MAY_WRITE,
        ledger=list(LEDGER_TABLES),
        added=list(ADDED_BY_LOGINS),
        writer=group_names(session)[1],
        changes=changes + ",MAINTAIN" * maintains,
    )
    return _access_finding("nobody but the owner may change a table", "has rights on", rows)


def _check_schema(session: Session) -> Finding:
    """Find roles that may create objects in the schema: the ledger's functions could call these."""
    return _access_finding(
        "nobody else may add to the schema", "may create objects in", _query_rows(session, _MAY_CREATE_FUNCTIONS)
    )


def _check_functions(session: Session) -> Finding:
    """Check that only writers may call functions of the ledger, and that the owner owns all functions."""
    rows = _query_rows(session, _MAY_CALL, writer=group_names(session)[1])
    return _access_finding("only writers may call the ledger's functions", "may call, or owns,", rows)


def _check_unknown_writers(session: Session) -> Finding:
    """Find writers whom the ledger does not know: they can record nothing and should not be writers."""
    writer = group_names(session)[1]
    names = ", ".join(row[0] for row in _query_rows(session, _UNKNOWN_WRITERS, writer=writer))
    advice = f"{names}: `almoner user add NAME --login ROLE`, or `REVOKE {writer} FROM ROLE`" if names else ""
    return Finding("every writer is a principal", not names, advice)


def _check_members(session: Session) -> Finding:
    """Check that every login of a principal has access to the ledger."""
    reader, writer = group_names(session)
    names = ", ".join(row[0] for row in _query_rows(session, _MEMBERS_WITHOUT_ACCESS, reader=reader, writer=writer))
    advice = f"{names}: a database administrator lets them in, `GRANT {writer} TO ROLE`" if names else ""
    return Finding("every principal's login can reach the ledger", not names, advice)


def _check_superusers(session: Session) -> Finding:
    """Name the superusers, whom no guard binds: their changes show in the chain and against bundles only."""
    rows = _query_rows(session, "SELECT r.rolname FROM pg_roles r WHERE r.rolcanlogin AND {above} ORDER BY r.rolname")
    return Finding("logins above the guards", True, ", ".join(row[0] for row in rows) or "none")


def _query_rows(session: Session, query: str, **values: object) -> Sequence[Any]:
    """Return the rows of one of the queries above; parts may name parts."""
    return session.execute(text(query.format_map(_QUERY_PARTS).format_map(_QUERY_PARTS)), values).all()


def _access_finding(check: str, verb: str, rows: Iterable[Any]) -> Finding:
    by_role: dict[str, list[str]] = {}
    for role, what in rows:
        by_role.setdefault(role, []).append(what)
    details = [f"{role} {verb} {_first_names(what)}" for role, what in sorted(by_role.items())]
    advice = "; REVOKE it, as the owner of the tables" if details else ""
    return Finding(check, not details, "; ".join(details) + advice)


def _first_names(names: Sequence[str], most: int = 4) -> str:
    some = sorted(set(names))
    return ", ".join(some[:most]) + (f" and {len(some) - most} more" if len(some) > most else "")
