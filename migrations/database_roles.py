"""Database roles on PostgreSQL: groups of readers and writers, and no access for anybody else.

A statement that this session has no right to execute is returned to the caller, for a database administrator. Every
operation here is idempotent: repeating it ends in the same state. No password is ever set, read or printed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, text

from migrations.schema_inventory import newest_revision
from migrations.upgrade import require_supported
from models_db.errors import UsageError
from models_db.services.logins import ADDED_BY_LOGINS, LEDGER_TABLES, MOST_ROLE_BYTES, group_names, has_owner_rights
from models_db.sessions.database import BUSY_SECONDS, IDLE_SECONDS, Database, LedgerForbidden, SchemaOutdated

_ROLE_CHANGE_LOCK = 0x616C6D6F6E6573
SESSION_TIMEOUTS = {
    "idle_in_transaction_session_timeout": IDLE_SECONDS,
    "lock_timeout": BUSY_SECONDS,
    "statement_timeout": IDLE_SECONDS,
}
"""Seconds that every session of the database has, unless it says otherwise."""
LOGIN_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]*")


@dataclass(frozen=True)
class RoleChanges:
    """Changes of roles and their rights.

    Attributes:
        applied: statements that were executed.
        pending: statements that this session may not execute; an administrator must.
    """

    applied: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    def __add__(self, other: "RoleChanges") -> "RoleChanges":
        return RoleChanges(self.applied + other.applied, self.pending + other.pending)


def may_upgrade(database: Database) -> bool:
    """Return whether this session may create or upgrade the ledger, not only use it.

    Raises:
        LedgerForbidden: there is no ledger yet, and this role may not make one.
        SchemaOutdated: there is one, of another version than this, and the role does not own it.
        PostgreSQLTooOld: its server cannot hold what the ledger needs.
    """
    if database.is_sqlite:
        return True
    require_supported(database)
    with database.read() as session:
        connection = session.connection()
        if not has_owner_rights(connection):
            if connection.scalar(text("SELECT version_num FROM alembic_version")) != newest_revision():
                raise SchemaOutdated(_url_without_password(database))
            return False
        if not connection.scalar(_MAY_CREATE_IN_SCHEMA):
            raise LedgerForbidden(_url_without_password(database))
        return True


_MAY_CREATE_IN_SCHEMA = text(
    "SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), FALSE)"
    " AND has_database_privilege(current_database(), 'CREATE')"
)


def grant_access(database: Database) -> RoleChanges:
    """Let readers read and writers add rows; take every other right from everybody but the owner.

    For the owner of the tables, after each upgrade.
    """
    if database.is_sqlite:
        return RoleChanges()
    with database.engine.begin() as connection:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ROLE_CHANGE_LOCK})"))
        changes = _create_groups(connection) + _set_session_timeouts(connection)
        there = [name for name in group_names(connection) if _role_exists(connection, name)]
        schema = _grant_schema_usage(connection, there)
        for statement in (*_revoke_statements(connection), *_grant_statements(connection, there)):
            connection.exec_driver_sql(statement)
    return changes + schema


def grant_login(database: Database, login: str, *, writes: bool) -> RoleChanges:
    """Make a login if there is none, and put it into the group of writers or readers.

    Raises:
        InvalidLogin: no person's login can have that name.
    """
    require_valid_login(login)
    with database.engine.begin() as connection:
        group = group_names(connection)[1 if writes else 0]
        steps = []
        if not _role_exists(connection, login):
            steps.append((f"CREATE ROLE {_quote_identifier(login)} LOGIN", _may_create_roles(connection)))
        if not _role_exists(connection, login) or not _is_member(connection, login, group):
            grant = f"GRANT {_quote_identifier(group)} TO {_quote_identifier(login)}"
            steps.append((grant, _role_exists(connection, group) and _may_grant(connection, group)))
        return _execute_permitted(connection, steps)


def revoke_login(database: Database, login: str, *, including_read: bool) -> RoleChanges:
    """Take a login out of the group of writers; with `including_read` also out of that of readers."""
    with database.engine.begin() as connection:
        reader, writer = group_names(connection)
        steps = [
            (f"REVOKE {_quote_identifier(name)} FROM {_quote_identifier(login)}", _may_grant(connection, name))
            for name in ((reader, writer) if including_read else (writer,))
            if _role_exists(connection, name)
            and _role_exists(connection, login)
            and _is_direct_member(connection, login, name)
        ]
        return _execute_permitted(connection, steps)


def require_valid_login(login: str) -> None:
    """Check the name of a login before anything is recorded.

    Raises:
        InvalidLogin: no person's login can have that name.
    """
    reserved = login.lower() in ("public", "none") or login.lower().startswith("pg_")
    if not LOGIN_PATTERN.fullmatch(login) or len(login.encode()) > MOST_ROLE_BYTES or reserved:
        raise UsageError(
            f"{login!r} cannot be a person's login: letters, digits and `_.@-`, at most {MOST_ROLE_BYTES} bytes, and"
            " neither `public` nor `pg_...`.",
            "Name the PostgreSQL role under which that person works.",
            {"login": login},
            code="InvalidLogin",
        )


def _create_groups(connection: Connection) -> RoleChanges:
    allowed = _may_create_roles(connection)
    missing = [name for name in group_names(connection) if not _role_exists(connection, name)]
    return _execute_permitted(
        connection, [(f"CREATE ROLE {_quote_identifier(name)} NOLOGIN", allowed) for name in missing]
    )


def _grant_schema_usage(connection: Connection, there: list[str]) -> RoleChanges:
    """Give groups access to the schema and the database; no other role may create objects in the schema."""
    schema, database = connection.execute(text("SELECT current_schema(), current_database()")).one()
    owner = bool(
        connection.scalar(
            text("SELECT pg_has_role(current_user, nspowner, 'USAGE') FROM pg_namespace WHERE nspname = :schema"),
            {"schema": schema},
        )
    )
    steps = []
    if connection.scalar(text("SELECT has_schema_privilege('public', :schema, 'CREATE')"), {"schema": schema}):
        steps.append((f"REVOKE CREATE ON SCHEMA {_quote_identifier(schema)} FROM PUBLIC", owner))
    for name in there:
        parameters = {"name": name, "schema": schema, "database": database}
        if not connection.scalar(text("SELECT has_schema_privilege(:name, :schema, 'USAGE')"), parameters):
            steps.append((f"GRANT USAGE ON SCHEMA {_quote_identifier(schema)} TO {_quote_identifier(name)}", owner))
        if not connection.scalar(text("SELECT has_database_privilege(:name, :database, 'CONNECT')"), parameters):
            owned = connection.scalar(text(_OWNS_DATABASE))
            steps.append(
                (f"GRANT CONNECT ON DATABASE {_quote_identifier(database)} TO {_quote_identifier(name)}", bool(owned))
            )
    return _execute_permitted(connection, steps)


def _set_session_timeouts(connection: Connection) -> RoleChanges:
    """Limit the time that sessions of this database wait for locks or idle inside transactions.

    PostgreSQL lets every session change its own limits.
    """
    database = connection.scalar(text("SELECT current_database()"))
    owned = bool(connection.scalar(text(_OWNS_DATABASE)))
    there = connection.scalar(text(_DATABASE_SETTINGS)) or []
    steps = [
        (f"ALTER DATABASE {_quote_identifier(str(database))} SET {name} = '{seconds}s'", owned)
        for name, seconds in SESSION_TIMEOUTS.items()
        if f"{name}={seconds}s" not in there
    ]
    return _execute_permitted(connection, steps)


_DATABASE_SETTINGS = """
SELECT s.setconfig FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
 WHERE d.datname = current_database() AND s.setrole = 0"""

_OWNS_DATABASE = "SELECT pg_has_role(current_user, datdba, 'USAGE') FROM pg_database WHERE datname = current_database()"

_TABLE_RIGHTS = """
SELECT format('%I', c.relname), CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE format('%I', g.rolname) END, c.relkind = 'S'
  FROM pg_class c
  LEFT JOIN pg_attribute b ON b.attrelid = c.oid AND b.attacl IS NOT NULL
 CROSS JOIN LATERAL (SELECT * FROM aclexplode(c.relacl) UNION SELECT * FROM aclexplode(b.attacl)) a
  LEFT JOIN pg_roles g ON g.oid = a.grantee
 WHERE c.relnamespace = current_schema()::regnamespace AND a.grantee <> c.relowner AND a.grantor = c.relowner
   AND (c.relname = ANY (:ledger) OR (c.relkind = 'S' AND EXISTS (SELECT 1 FROM pg_depend d JOIN pg_class t
        ON t.oid = d.refobjid WHERE d.objid = c.oid AND d.deptype IN ('a', 'i') AND t.relname = ANY (:ledger))))
   AND (a.grantee = 0 OR a.privilege_type <> 'SELECT')
 GROUP BY 1, 2, 3 ORDER BY 1, 2"""

_LEDGER_FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
   AND (starts_with(p.proname, 'almoner_') OR p.oid IN (SELECT g.tgfoid FROM pg_trigger g
        JOIN pg_class t ON t.oid = g.tgrelid WHERE NOT g.tgisinternal AND t.relname = ANY (:ledger)
         AND t.relnamespace = current_schema()::regnamespace))
 ORDER BY 1"""

_WRITER_FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
   AND starts_with(p.proname, 'almoner_') AND p.prosecdef ORDER BY 1"""

_LEDGER_VIEWS = """
SELECT c.relname FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'v'
   AND starts_with(c.relname, 'link_of_') ORDER BY 1"""

_FUNCTION_RIGHTS = """
SELECT p.oid::regprocedure::text, format('%I', g.rolname) FROM pg_proc p
 CROSS JOIN LATERAL aclexplode(p.proacl) a JOIN pg_roles g ON g.oid = a.grantee
 WHERE p.pronamespace = current_schema()::regnamespace AND starts_with(p.proname, 'almoner_')
   AND a.grantee <> p.proowner AND a.grantor = p.proowner"""


def _revoke_statements(connection: Connection) -> Iterator[str]:
    """Yield the REVOKE statements: every right but reading from all but the owner, and all rights from PUBLIC."""
    granted_tables = {"ledger": list(LEDGER_TABLES)}
    for relation, grantee, is_sequence in connection.execute(text(_TABLE_RIGHTS), granted_tables).all():
        kind = "SEQUENCE" if is_sequence else "TABLE"
        yield f"REVOKE ALL ON {kind} {relation} FROM {grantee} CASCADE"
    functions = connection.scalars(text(_LEDGER_FUNCTIONS), granted_tables).all()
    yield from (f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC CASCADE" for name in functions)
    rights = connection.execute(text(_FUNCTION_RIGHTS)).all()
    yield from (f"REVOKE ALL ON FUNCTION {name} FROM {grantee} CASCADE" for name, grantee in rights)


def _grant_statements(connection: Connection, there: list[str]) -> Iterator[str]:
    """Yield the statements that grant the groups access: reading for both, adding rows for writers."""
    views = connection.scalars(text(_LEDGER_VIEWS)).all()
    tables = ", ".join(_quote_identifier(name) for name in (*LEDGER_TABLES, *views))
    yield from (f"GRANT SELECT ON TABLE {tables} TO {_quote_identifier(name)}" for name in there)
    writer = group_names(connection)[1]
    if writer in there:
        added = ", ".join(_quote_identifier(name) for name in sorted(ADDED_BY_LOGINS))
        yield f"GRANT INSERT ON TABLE {added} TO {_quote_identifier(writer)}"
        functions = connection.scalars(text(_WRITER_FUNCTIONS)).all()
        yield from (f"GRANT EXECUTE ON FUNCTION {name} TO {_quote_identifier(writer)}" for name in functions)


def _execute_permitted(connection: Connection, steps: list[tuple[str, bool]]) -> RoleChanges:
    """Execute the permitted steps; a step after one that is not permitted stays pending."""
    done: list[str] = []
    for statement, allowed in steps:
        if not allowed:
            break
        connection.exec_driver_sql(statement)
        done.append(statement)
    return RoleChanges(tuple(done), tuple(statement for statement, _ in steps[len(done) :]))


def _role_exists(connection: Connection, role: str) -> bool:
    return bool(connection.scalar(text("SELECT TRUE FROM pg_roles WHERE rolname = :role"), {"role": role}))


def _is_member(connection: Connection, role: str, of: str) -> bool:
    query = "SELECT pg_has_role(:role, oid, 'MEMBER') FROM pg_roles WHERE rolname = :of"
    return bool(connection.scalar(text(query), {"role": role, "of": of}))


def _is_direct_member(connection: Connection, role: str, of: str) -> bool:
    query = """
SELECT TRUE FROM pg_auth_members m JOIN pg_roles u ON u.oid = m.member JOIN pg_roles g ON g.oid = m.roleid
 WHERE u.rolname = :role AND g.rolname = :of"""
    return bool(connection.scalar(text(query), {"role": role, "of": of}))


def _may_create_roles(connection: Connection) -> bool:
    query = "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
    return bool(connection.scalar(text(query)))


def _may_grant(connection: Connection, role: str) -> bool:
    query = """
SELECT u.rolsuper OR EXISTS (SELECT 1 FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
  WHERE g.rolname = :role AND m.admin_option AND pg_has_role(u.oid, m.member, 'USAGE'))
FROM pg_roles u WHERE u.rolname = current_user"""
    return bool(connection.scalar(text(query), {"role": role}))


def _url_without_password(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=True)


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
