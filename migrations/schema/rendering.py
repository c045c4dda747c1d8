"""Rendering of schema definitions as statements of SQLite or PostgreSQL, and their execution."""

import re
from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, Table

from migrations.schema.definitions import STALE, WENT_BACK, Action, Both, Function, Guard, Sql, deny, role
from migrations.schema.logins import stamp
from migrations.schema.tables import author, by_whom, is_stamped, keys, times

BY_KEYS = ("plan_cache_mode = force_generic_plan", "enable_hashjoin = off", "enable_mergejoin = off")
"""Conditions of guards look rows up by keys: one plan serves every row, and a row is not worth reading a table for."""
READS_TIME = re.compile(r"timestamp|time zone|::date|to_char", re.IGNORECASE)


def execute(connection: Connection, statement: str) -> None:
    """Execute a statement as it is written; a colon or a percent sign in it is no parameter."""
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def wording(sql: Sql, dialect: str) -> str:
    """Return the SQL text for one of the databases, on one line."""
    text = getattr(sql, dialect) if isinstance(sql, Both) else sql
    if dialect == "sqlite":
        text = text.replace("IS DISTINCT FROM", "IS NOT")  # which SQLite knows before 3.39, too
    return " ".join(text.split())


# --- Guards ------------------------------------------------------------------------------------------------------


def general_guards(table: Table, dialect: str) -> Iterator[Guard]:
    """Yield the guards that follow from a table: who adds rows and when, and that they stay as they are."""
    name, message = table.name, f"{table.name} is append-only"
    if "at" in times(table):
        yield Guard(f"{name}_now", name, WENT_BACK, STALE)
    if table.info["recorded_by"] and (named := author(table)):
        who, when = named
        allowed = " OR ".join(role(f"NEW.{who}", each, f"NEW.{when}") for each in table.info["recorded_by"])
        yield Guard(f"{name}_by", name, by_whom(table), f"NOT ({allowed})")
    if "UPDATE" not in table.info["allows"]:
        yield Guard(f"{name}_no_update", name, message, "TRUE", "UPDATE")
    if "DELETE" not in table.info["allows"]:
        yield Guard(f"{name}_no_delete", name, message, "TRUE", "DELETE")
    if "REPLACE" not in table.info["allows"] and dialect == "sqlite":
        same = (" AND ".join(f"x.{column} = NEW.{column}" for column in key) for key in keys(table))
        denied = " OR ".join(f"EXISTS (SELECT 1 FROM {name} x WHERE {key})" for key in same)
        yield Guard(f"{name}_no_replace", name, f"{name} has recorded this already", denied)


def create_guards(connection: Connection, tables: Iterable[Table], guards: Iterable[Guard]) -> None:
    """Create the triggers that refuse rows, and on PostgreSQL those that number them and note them for a link."""
    dialect = connection.dialect.name
    for table in tables:
        if dialect == "postgresql" and is_stamped(table):
            when = f"BEFORE INSERT ON {table.name} FOR EACH ROW"  # triggers go by their names: an underscore is first
            _create_trigger(connection, f"_stamp_{table.name}", when, stamp(table))
            _create_pending(connection, table)
        own = [guard for guard in guards if guard.table == table.name]
        general = list(general_guards(table, dialect))
        if dialect == "postgresql":
            _create_row_guard(connection, table.name, [g for g in (*general, *own) if g.operation == "INSERT"])
            _create_truncate_guard(connection, table)
        for guard in (*own, *general):
            if dialect == "sqlite" or guard.operation != "INSERT":
                _create_guard(connection, guard)


def _create_guard(connection: Connection, guard: Guard) -> None:
    """Create the trigger of one guard."""
    if connection.dialect.name == "sqlite":
        execute(connection, sqlite_guard(guard))
    else:
        row = "OLD" if guard.operation == "DELETE" else "NEW"
        source = f"DECLARE denied text; BEGIN {_refusal([guard])} RETURN {row}; END"
        _create_trigger(connection, guard.name, f"BEFORE {guard.operation} ON {guard.table} FOR EACH ROW", source)


def sqlite_guard(guard: Guard) -> str:
    """Return the trigger of one guard."""
    denied = wording(guard.denied, "sqlite")
    condition = f"{guard.only} AND ({denied})" if guard.only else denied
    return (
        f"CREATE TRIGGER {guard.name} BEFORE {guard.operation} ON {guard.table} WHEN {condition}"
        f" BEGIN SELECT RAISE(ABORT, 'almoner: {guard.message}'); END"
    )


def _create_row_guard(connection: Connection, table: str, guards: list[Guard]) -> None:
    """Create the one trigger of PostgreSQL for the guards of new rows: those of every row first, then those of some."""
    conditions = _refusal([guard for guard in guards if not guard.only])
    conditions += "".join(f" IF {guard.only} THEN {_refusal([guard])} END IF;" for guard in guards if guard.only)
    if guards:
        when = f"BEFORE INSERT ON {table} FOR EACH ROW"
        _create_trigger(
            connection, f"{table}_is_sound", when, f"DECLARE denied text; BEGIN {conditions} RETURN NEW; END"
        )


def _refusal(guards: list[Guard]) -> str:
    """Return the statement that refuses a row which one of the guards denies; they are asked in their order."""
    cases = " ".join(f"WHEN {wording(guard.denied, 'postgresql')} THEN '{guard.message}'" for guard in guards)
    refuse = "IF denied IS NOT NULL THEN RAISE EXCEPTION 'almoner: %', denied USING ERRCODE = '23514'; END IF;"
    return f"denied := CASE {cases} END; {refuse}" if guards else ""


def _create_truncate_guard(connection: Connection, table: Table) -> None:
    if "DELETE" not in table.info["allows"]:
        source = f"BEGIN {deny(f'{table.name} is append-only')} END"
        when = f"BEFORE TRUNCATE ON {table.name} FOR EACH STATEMENT"
        _create_trigger(connection, f"{table.name}_no_truncate", when, source)


def create_deferred_guard(connection: Connection, name: str, table: str, source: str) -> None:
    """Create a guard of PostgreSQL for the end of the transaction of each new row, with the rights of the owner."""
    create_function(connection, Function(name, "", "trigger", "LANGUAGE plpgsql SECURITY DEFINER", source))
    when = f"AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
    execute(connection, f"CREATE CONSTRAINT TRIGGER {name} {when} EXECUTE FUNCTION {name}()")


# --- Actions and functions ---------------------------------------------------------------------------------------


def create_action(connection: Connection, action: Action) -> None:
    """Create the trigger that writes after a row is added."""
    statements = [" ".join(statement.split()) for statement in action.statements]
    failed = wording(action.failed, "sqlite")
    if connection.dialect.name == "sqlite":
        refusal = f"SELECT RAISE(ABORT, 'almoner: {action.message}') WHERE {failed}"
        body = f"BEGIN {'; '.join((*statements, refusal))}; END"
        execute(connection, f"CREATE TRIGGER {action.name} AFTER INSERT ON {action.table} {body}")
        return
    looked = f"IF {' '.join(action.failed.split())} THEN {deny(action.message)} END IF;"
    source = action.source or f"BEGIN {'; '.join(statements)}; {looked} RETURN NULL; END"
    _create_trigger(connection, action.name, f"AFTER INSERT ON {action.table} FOR EACH ROW", source)


def create_function(connection: Connection, function: Function) -> None:
    """Create a function of PostgreSQL; before rights are granted nobody but its owner may call it or make it a trigger.

    Unless a function names it last, pg_temp comes first on the search path: a temporary table `approval` or `account`
    would be read and moved in place of the ledger's. Since PostgreSQL 18 a session's own time zone says what UTC and Z
    are (under `<UTC>-167` it is always next week), so whatever reads or tells a time does it in UTC.
    """
    path = connection.exec_driver_sql("SELECT quote_ident(current_schema()) || ', pg_temp'").scalar()
    settings = [] if function.settings == "caller" else [f"search_path = {path}"]
    if function.settings == "keys":
        settings += BY_KEYS
    if READS_TIME.search(function.source):
        settings.append("timezone = 'UTC'")
    execute(
        connection,
        f"CREATE FUNCTION {function.name}({function.arguments}) RETURNS {function.result} {function.properties}"
        f"{''.join(f' SET {setting}' for setting in settings)} AS $${function.source}$$",
    )
    execute(connection, f"REVOKE ALL ON FUNCTION {function.name} FROM PUBLIC")


def _create_trigger(connection: Connection, name: str, when: str, source: str) -> None:
    create_function(connection, Function(name, "", "trigger", "LANGUAGE plpgsql SECURITY DEFINER", source))
    execute(connection, f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION {name}()")


def _create_pending(connection: Connection, table: Table) -> None:
    """Create the trigger that notes new rows for the link of their transaction."""
    note = (
        "INSERT INTO pending_link (table_name, first_id, last_id)"
        f" SELECT '{table.name}', min(x.id), max(x.id) FROM added x HAVING count(*) > 0;"
    )
    when = f"AFTER INSERT ON {table.name} REFERENCING NEW TABLE AS added FOR EACH STATEMENT"
    _create_trigger(connection, f"_pend_{table.name}", when, f"BEGIN {note} RETURN NULL; END")
