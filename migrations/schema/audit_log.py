"""The audit log: the chain of links, its head and checkpoints, and the rows of the ledger that its links record."""

from migrations.schema.definitions import Action, Function, Guard, deny

GENESIS = f"INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '{'0' * 64}')"
"""The head of a chain without links."""

GUARDS = (
    Guard(
        "audit_links",
        "audit",
        "the audit chain has moved on",
        "NOT EXISTS (SELECT 1 FROM audit_head d WHERE d.seq + 1 = NEW.seq AND d.hash = NEW.prev_hash)",
    ),
    Guard(
        "audit_head_follows",
        "audit_head",
        "the head follows the chain",
        """
        NEW.seq <> OLD.seq + 1
         OR NOT EXISTS (
             SELECT 1 FROM audit a WHERE a.seq = NEW.seq AND a.prev_hash = OLD.hash AND a.row_hash = NEW.hash
         )
        """,
        operation="UPDATE",
    ),
    Guard("audit_head_no_insert", "audit_head", "audit_head has one row", "TRUE"),
    Guard(
        "checkpoint_on_chain",
        "checkpoint",
        "the chain has no such link",
        f"NOT (NEW.seq = 0 AND NEW.hash = '{'0' * 64}')"
        " AND NOT EXISTS (SELECT 1 FROM audit y WHERE y.seq = NEW.seq AND y.row_hash = NEW.hash)",
    ),
)

ACTIONS = (
    Action(
        "audit_moves_head",
        "audit",
        ("UPDATE audit_head SET seq = NEW.seq, hash = NEW.row_hash WHERE id = 1",),
        "NOT EXISTS (SELECT 1 FROM audit_head d WHERE d.seq = NEW.seq AND d.hash = NEW.row_hash)",
        "the head did not follow the link",
    ),
)

# --- Links on PostgreSQL -----------------------------------------------------------------------------------------
# A trigger notes new rows in `pending_link`, and `almoner_link` makes the link of a transaction from that; nobody else
# may append one. On SQLite `models_db.writes.links` does the same with the same views.

UNTOLD = f"""
BEGIN
    IF almoner_owner() THEN
        DELETE FROM pending_link p WHERE p.id = NEW.id;
    ELSIF EXISTS (SELECT 1 FROM pending_link p WHERE p.id = NEW.id) THEN
        {deny("every change is told in the chain")}
    END IF;
    RETURN NULL;
END
"""
"""A login's transaction ends with a link for everything that it has added; what the owner adds by hand has none, as on
SQLite, and verification finds it."""

FUNCTIONS = (
    # The content of a row: its columns as text, by name. Counters and caps that proposals move are derived, not told.
    Function(
        "almoner_row",
        "kind text, given jsonb",
        "text",
        "LANGUAGE plpgsql STABLE",
        """
        BEGIN
            IF kind = 'account' THEN
                given := given - ARRAY['rho_cap', 'delta_cap', 'rho_held', 'rho_spent', 'delta_held', 'delta_spent',
                 'last_entry_id'];
            END IF;
            RETURN (
                SELECT '{' || string_agg(
                    to_json(g.key)::text || ':' || coalesce(to_json(g.value)::text, 'null'), ',' ORDER BY g.key
                     COLLATE "C"
                ) || '}'
                 FROM jsonb_each_text(given) g
            );
        END
        """,
        settings="caller",
    ),
    # A new row has the next number, so that those of a transaction are a range.
    Function(
        "almoner_rows",
        "kind text, first_id bigint, last_id bigint",
        "text",
        "LANGUAGE plpgsql STABLE",
        """
        DECLARE
            content text;
        BEGIN
            EXECUTE format(
                'SELECT encode(sha256(convert_to(string_agg(almoner_row(%L, to_jsonb(x)), chr(10) ORDER BY x.id),'
                 || ' ''UTF8'')), ''hex'') FROM %I x WHERE x.id BETWEEN $1 AND $2', kind, kind
            ) INTO STRICT content USING first_id, last_id;
            RETURN '{"content":"' || content || '","ids":"' || first_id
             || CASE WHEN last_id > first_id THEN '-' || last_id ELSE '' END || '","table":"' || kind || '"}';
        END
        """,
        settings="caller",
    ),
    Function(
        "almoner_chain",
        "who text, kind text, dataset text, request_id integer, body text",
        "bigint",
        "LANGUAGE plpgsql",
        """
        DECLARE
            last audit_head%ROWTYPE;
            made_at text;
            made text;
        BEGIN
            SELECT * INTO last FROM audit_head FOR UPDATE;
            made_at := almoner_now();
            made := encode(
                sha256(
                    convert_to(
                        '{"actor":' || to_json(who)::text || ',"at":"' || made_at || '","body":'
                         || to_json(body)::text || ',"dataset":' || coalesce(to_json(dataset)::text, 'null')
                         || ',"kind":' || to_json(kind)::text
                         || ',"prev_hash":"' || last.hash || '","request_id":'
                         || coalesce(request_id::text, 'null') || ',"seq":"' || (last.seq + 1) || '"}', 'UTF8'
                    )
                ), 'hex'
            );
            INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body)
             VALUES (last.seq + 1, last.hash, made, made_at, who, kind, dataset, request_id, body);
            RETURN last.seq + 1;
        END
        """,
        settings="caller",
    ),
    Function(
        "almoner_marks",
        "number bigint, secret text",
        "text",
        "LANGUAGE sql STABLE",
        """
        SELECT encode(
            sha256(
                convert_to(secret, 'UTF8') || coalesce(
                    string_agg(
                        int4send(octet_length(u.mark)) || u.mark || int8send(u.account_id) || int8send(u.cohort),
                         ''::bytea ORDER BY u.mark
                    ), ''::bytea
                )
            ), 'hex'
        )
         FROM unit_mark u
         WHERE u.claim = number
        """,
        settings="caller",
    ),
    Function(
        "almoner_close_claims",
        "",
        "void",
        "LANGUAGE plpgsql",
        """
        DECLARE
            p record;
            secret text;
        BEGIN
            FOR p IN SELECT q.first_id, q.account_id FROM pending_link q WHERE q.table_name = 'unit_claim'
             AND NOT EXISTS (SELECT 1 FROM unit_claim c WHERE c.id = q.first_id) LOOP
                secret := replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
                INSERT INTO unit_claim (id, account_id, salt, digest, created_at, created_by)
                 VALUES (
                     p.first_id, p.account_id, secret, almoner_marks(p.first_id, secret), almoner_now(),
                      almoner_principal()
                 );
            END LOOP;
        END
        """,
        settings="caller",
    ),
    # One link for all that this transaction has added; others see nothing of it, so what waits is ours.
    Function(
        "almoner_link",
        "",
        "bigint",
        "LANGUAGE plpgsql SECURITY DEFINER",
        f"""
        DECLARE
            views text;
            said text;
            about record;
        BEGIN
            IF NOT almoner_owner() AND almoner_principal() IS NULL THEN
                {deny("the ledger knows nobody with this login")}
            END IF;
            PERFORM almoner_close_claims();
            SELECT '{{"rows":[' || string_agg(almoner_rows(g.name, g.first, g.last), ',' ORDER BY g.name) || ']}}',
             string_agg(
                 format('SELECT %L AS name, v.* FROM %I v WHERE v.row_id = %s', g.name, 'link_of_' || g.name, g.last),
                  ' UNION ALL '
             )
             INTO said, views
             FROM (
                 SELECT p.table_name COLLATE "C" AS name, min(p.first_id) AS first, max(p.last_id) AS last
                  FROM pending_link p
                  GROUP BY p.table_name
             ) g;
            IF said IS NULL THEN
                RETURN NULL;
            END IF;
            EXECUTE 'SELECT string_agg(DISTINCT y.kind, ''+'' ORDER BY y.kind) AS kind,'
             || ' (array_agg(y.actor ORDER BY y.name) FILTER (WHERE y.actor IS NOT NULL))[1] AS actor,'
             || ' (array_agg(y.dataset ORDER BY y.name) FILTER (WHERE y.dataset IS NOT NULL))[1] AS dataset,'
             || ' (array_agg(y.request_id ORDER BY y.name) FILTER (WHERE y.request_id IS NOT NULL))[1] AS request_id'
             || ' FROM (SELECT x.name COLLATE "C" AS name, x.kind COLLATE "C" AS kind, x.actor, x.dataset,'
             || ' x.request_id, rank() OVER (ORDER BY x.rank) AS place FROM (' || views || ') x) y WHERE y.place = 1'
             INTO about;
            IF about.actor IS NULL AND NOT almoner_owner() THEN
                {deny("that is recorded together with what it belongs to")}
            END IF;
            IF EXISTS (
                SELECT 1 FROM pending_link p JOIN hold h ON h.id BETWEEN p.first_id AND p.last_id
                 WHERE p.table_name = 'hold'
                  AND NOT EXISTS (SELECT 1 FROM entry e WHERE e.hold_id = h.id)
            ) THEN
                {deny("what is held has its entry")}
            END IF;
            DELETE FROM pending_link;
            RETURN almoner_chain(
                coalesce(about.actor, 'unknown'), about.kind, about.dataset, about.request_id, said
            );
        END
        """,
    ),
)
