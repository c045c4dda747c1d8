"""What a login may do on PostgreSQL: add rows under its own name, and call the few functions below.

A trigger before all guards of a table (`stamp`) gives each row its number and its time, and compares its actor with the
login. Triggers and functions belong to the owner of the schema and run with its rights; the caller is `session_user`.
The schema does not say which roles may add rows or call functions (`migrations.database_roles` does), only that PUBLIC
may not.
"""

from sqlalchemy import Table

from migrations.schema.definitions import Function, deny
from migrations.schema.tables import ACTORS, TIMES, author, by_whom

LOCK_HEAD = "PERFORM 1 FROM audit_head FOR UPDATE;"
"""What everything that writes does before it reads anything else."""


def stamp(table: Table) -> str:
    """Return the body of the trigger that comes before all guards of a table whose rows logins add."""
    columns = table.columns
    own = [name for name in (*ACTORS, "brought_by") if name in columns and columns[name].nullable]
    told = [name for name in ACTORS if name in columns and name not in own]
    lies = [f"NEW.{name} IS DISTINCT FROM me" for name in told]
    if table.name == "approval":
        lies = ["NEW.approver_id IS DISTINCT FROM me AND NOT almoner_brings(NEW.approver_id, me)"]
    if table.name == "erased_version":
        lies = ["NOT EXISTS (SELECT 1 FROM erasure e WHERE e.id = NEW.erasure_id AND e.actor_id = me)"]
    if table.name == "withdrawal":
        lies.append(
            "NOT EXISTS (SELECT 1 FROM approval a WHERE a.id = NEW.approval_id"
            " AND (a.approver_id = me OR almoner_brings(a.approver_id, me)))"
        )
    checks = [f"IF {' OR '.join(lies)} THEN {deny('everybody acts under their own login')} END IF;"] if lies else []
    if table.info["recorded_by"] and not author(table):
        allowed = " OR ".join(f"almoner_may(me, '{role}')" for role in table.info["recorded_by"])
        checks.append(f"IF NOT ({allowed}) THEN {deny(by_whom(table))} END IF;")
    if table.name == "request":
        digest = "encode(sha256(convert_to(NEW.canonical, 'UTF8')), 'hex')"
        checks.append(f"IF NEW.digest IS DISTINCT FROM {digest} THEN {deny('the digest is not of the text')} END IF;")
    values = {**dict.fromkeys(own, "me"), **{name: "almoner_now()" for name in TIMES if name in columns}}
    given = " ".join(f"NEW.{name} := {value};" for name, value in values.items())
    return f"""
        DECLARE
            me bigint;
            number bigint;
        BEGIN
            {LOCK_HEAD}
            number := 1 + coalesce((SELECT max(x.id) FROM {table.name} x), 0);
            IF NEW.id <> number THEN {deny("the ledger numbers its rows itself")} END IF;
            NEW.id := number;
            IF NOT almoner_owner() THEN
                me := almoner_principal();
                IF me IS NULL THEN {deny("the ledger knows nobody with this login")} END IF;
                {" ".join(checks)}
                {given}
            END IF;
            RETURN NEW;
        END
    """


# Who calls, and what they may.
CALLERS = (
    # Inside, current_user is the owner.
    Function(
        "almoner_owner",
        "",
        "boolean",
        "LANGUAGE plpgsql STABLE SECURITY DEFINER",
        """
        BEGIN
            RETURN pg_has_role(session_user, current_user, 'MEMBER');
        END
        """,
        settings="path",
    ),
    Function(
        "almoner_principal",
        "",
        "bigint",
        "LANGUAGE sql STABLE",
        """
        SELECT p.id FROM principal p WHERE p.login = session_user
        """,
    ),
    Function(
        "almoner_now",
        "",
        "text",
        "LANGUAGE sql",
        """
        SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        """,
    ),
    # As `conditions.role`.
    Function(
        "almoner_may",
        "who bigint, wanted text",
        "boolean",
        "LANGUAGE sql STABLE",
        """
        SELECT EXISTS (
            SELECT 1 FROM role_grant g
             WHERE g.principal_id = who
              AND g.role = wanted
              AND g.valid_from <= almoner_now()
              AND (g.valid_to IS NULL OR g.valid_to > almoner_now())
              AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id)
        )
        """,
    ),
    # An approval of somebody who has no login is brought by a steward or an admin.
    Function(
        "almoner_brings",
        "whose bigint, me bigint",
        "boolean",
        "LANGUAGE sql STABLE",
        """
        SELECT EXISTS (SELECT 1 FROM principal p WHERE p.id = whose AND p.login IS NULL)
         AND (almoner_may(me, 'steward') OR almoner_may(me, 'admin'))
        """,
    ),
    # The caller began that attempt, and it is the last one.
    Function(
        "almoner_runs",
        "number bigint, attempt bigint",
        "boolean",
        "LANGUAGE sql STABLE",
        """
        SELECT almoner_may(almoner_principal(), 'runner')
         AND attempt = count(*)
         AND (array_agg(t.actor_id ORDER BY t.number DESC))[1] = almoner_principal()
         FROM transition t
         WHERE t.request_id = $1 AND t.to_state = 'running'
        """,
    ),
)

CALLED = (
    # One transaction writes at a time, as on SQLite: it locks the head of the chain until it ends. So guards look at
    # all that was decided before, and what a service has read is still so when it writes.
    Function(
        "almoner_begin",
        "",
        "void",
        "LANGUAGE plpgsql SECURITY DEFINER",
        f"""
        BEGIN
            IF NOT almoner_owner() AND almoner_principal() IS NULL THEN
                {deny("the ledger knows nobody with this login")}
            END IF;
            {LOCK_HEAD}
        END
        """,
    ),
    # A lease is short, whoever asks.
    Function(
        "almoner_soon",
        "wanted text",
        "text",
        "LANGUAGE sql",
        """
        SELECT least(
            wanted, to_char(
                clock_timestamp() AT TIME ZONE 'UTC' + interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
            )
        )
        """,
    ),
    Function(
        "almoner_lease",
        "request bigint, attempt integer, token text, owner text, expires_at text",
        "void",
        "LANGUAGE plpgsql SECURITY DEFINER",
        f"""
        BEGIN
            IF NOT almoner_owner() AND NOT coalesce(almoner_runs($1, $2), FALSE) THEN
                {deny("only a runner runs a release")}
            END IF;
            INSERT INTO lease (request_id, attempt, token, owner, expires_at)
             VALUES ($1, $2, $3, $4, almoner_soon($5)) ON CONFLICT (request_id) DO UPDATE
             SET attempt = $2, token = $3, owner = $4, expires_at = almoner_soon($5)
             WHERE lease.attempt < $2;
        END
        """,
    ),
    Function(
        "almoner_renew",
        "request bigint, token text, expires_at text",
        "boolean",
        "LANGUAGE plpgsql SECURITY DEFINER",
        """
        BEGIN
            UPDATE lease l SET expires_at = almoner_soon($3)
             WHERE l.request_id = $1
              AND l.token = $2
              AND (almoner_owner() OR almoner_runs(l.request_id, l.attempt));
            RETURN FOUND;
        END
        """,
    ),
    # A transaction makes one claim for an account, however many units it has and in however many calls.
    Function(
        "almoner_claim_units",
        "root bigint, marks bytea[], cohorts integer[]",
        "void",
        "LANGUAGE plpgsql SECURITY DEFINER",
        f"""
        DECLARE
            number bigint;
        BEGIN
            IF NOT almoner_owner()
                AND NOT coalesce(
                    almoner_may(almoner_principal(), 'runner')
                     OR almoner_may(almoner_principal(), 'steward'), FALSE
                ) THEN
                {deny("only a runner or a steward takes data in")}
            END IF;
            {LOCK_HEAD}
            IF NOT EXISTS (SELECT 1 FROM account a WHERE a.id = root AND a.parent_id IS NULL) THEN
                {deny("a unit belongs to one root account")}
            END IF;
            SELECT p.first_id INTO number FROM pending_link p
             WHERE p.table_name = 'unit_claim' AND p.account_id = root;
            IF NOT FOUND THEN
                number := nextval(pg_get_serial_sequence('unit_claim', 'id'));
                INSERT INTO pending_link (table_name, first_id, last_id, account_id)
                 VALUES ('unit_claim', number, number, root);
            END IF;
            INSERT INTO unit_mark (mark, account_id, cohort, claim) SELECT u.m, root, u.c, number
             FROM unnest(marks, cohorts) u(m, c) ON CONFLICT DO NOTHING;
        END
        """,
    ),
)

FUNCTIONS = (*CALLERS, *CALLED)
