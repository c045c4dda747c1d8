"""The audit log: the chain of links, its head and checkpoints, and the rows of the ledger that its links record."""

from migrations.schema.conditions import replaced
from migrations.schema.definitions import Action, Function, Guard, Index, Table, deny

GENESIS = f"INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '{'0' * 64}')"
"""The head of a chain without links."""

TABLES = (
    Table(
        "audit",
        """
        seq {number} NOT NULL
        prev_hash VARCHAR(64) NOT NULL
        row_hash VARCHAR(64) NOT NULL
        at VARCHAR(27) NOT NULL
        actor VARCHAR(255) NOT NULL
        kind VARCHAR(255) NOT NULL
        dataset VARCHAR(255)
        request_id INTEGER
        body TEXT NOT NULL
        """,
        key=("seq",),
        unique=(("prev_hash",), ("row_hash",)),
        indexes=(
            Index("ix_audit_at", "at"),
            Index("ix_audit_dataset_seq", "dataset, seq"),
            Index("ix_audit_request_id_seq", "request_id, seq"),
            Index("ix_audit_actor_seq", "actor, seq"),
            Index("ix_audit_kind_seq", "kind, seq"),
        ),
    ),
    Table(
        "audit_head",
        """
        id {number} NOT NULL
        seq {number} NOT NULL
        hash VARCHAR(64) NOT NULL
        """,
        checks={"single": "id = 1"},
        no_update=False,
        no_replace=False,
    ),
    Table(
        "checkpoint",
        """
        id {key}
        seq {number} NOT NULL
        hash VARCHAR(64) NOT NULL
        at VARCHAR(27) NOT NULL
        signature VARCHAR(255) NOT NULL
        public_key VARCHAR(255) NOT NULL
        created_by {number} -> principal
        artifact_id {number} -> artifact
        signed_at VARCHAR(27)
        """,
        checks={"signed": "(artifact_id IS NULL) <> (signed_at IS NULL)"},
        by=("runner", "steward", "auditor", "admin"),
    ),
    Table(
        "pending_link",
        """
        id {serial}
        kind VARCHAR(255) NOT NULL
        row_id {number} NOT NULL
        rank INTEGER NOT NULL
        account_id {number}
        """,
        no_update=False,
        no_delete=False,
        no_replace=False,
    ),
    Table(
        "restoration",
        """
        id {key}
        taken_at VARCHAR(27) NOT NULL
        link {number} NOT NULL
        reason TEXT NOT NULL
        at VARCHAR(27) NOT NULL
        actor_id {number} NOT NULL -> principal
        """,
        by=("admin",),
    ),
    Table(
        "twin_attack",
        """
        id {key}
        dataset VARCHAR(255) NOT NULL
        request_id {number} -> request
        configuration VARCHAR(64) NOT NULL
        result VARCHAR(64) NOT NULL
        attacks TEXT NOT NULL
        at VARCHAR(27) NOT NULL
        actor_id {number} NOT NULL -> principal
        """,
        by=("runner",),
    ),
    Table(
        "rehearsal",
        """
        id {key}
        dataset VARCHAR(255) NOT NULL
        request_id {number} -> request
        configuration VARCHAR(64) NOT NULL
        result TEXT NOT NULL
        at VARCHAR(27) NOT NULL
        actor_id {number} NOT NULL -> principal
        """,
    ),
)

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
        "NEW.seq <> 0 AND NOT EXISTS (SELECT 1 FROM audit y WHERE y.seq = NEW.seq AND y.row_hash = NEW.hash)",
    ),
    Guard(
        "checkpoint_signer",
        "checkpoint",
        "nobody has the key that signed the checkpoint",
        "NOT EXISTS (SELECT 1 FROM principal w WHERE w.public_key = NEW.public_key)",
    ),
    Guard(
        "twin_attack_on_public",
        "twin_attack",
        "an attack is on a public dataset",
        f"""
        NOT EXISTS (
            SELECT 1 FROM dataset d WHERE d.name = NEW.dataset AND NOT d.governed AND NOT {replaced("d.id")}
        )
        """,
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
# A trigger notes each new row in `pending_link`, and `almoner_link` makes links of that; nobody may append one. On
# SQLite `models_db.writes.links` does the same with the same views.

# Of the rows that one transaction records, those of the lowest rank have a link each, in their order; the others are
# named by the link of the row before them, or by the first one.
LEADING = (
    "approval", "artifact", "assignment_exposure", "carried", "checkpoint", "cohort", "dataset",
    "dataset_version", "delivery", "erasure", "erasure_end", "internal_view", "passkey", "passkey_end", "proposal",
    "policy_adoption", "principal",
    "publication", "rehearsal", "request", "restoration", "role_grant", "role_revocation", "schedule",
    "schedule_change",
    "schedule_slot", "slot_end", "twin_attack", "withdrawal",
)  # fmt: skip
FOLLOWING = (
    "account", "transition", "evaluation", "policy_version", "unit_claim", "standing_use", "policy_rule",
    "invocation", "hold", "entry", "erased_version", "renyi_charge", "overlap_key",
)  # fmt: skip
RANKS = {**dict.fromkeys(LEADING, 1), **{table: number for number, table in enumerate(FOLLOWING, 2)}}
BLOCK_RANK = len(RANKS) + 2
"""Rank of an account that is a block: it is opened with its root, or with a cohort. The steps that begin and end a run
without an artifact have links of their own always."""


def rank_of_row(table: str) -> str:
    """Return the rank of a new row `NEW` of a table, as SQL."""
    rank = str(RANKS[table])
    if table == "account":
        rank = f"CASE WHEN NEW.parent_id IS NULL THEN {rank} ELSE {BLOCK_RANK} END"
    if table == "transition":
        ends = "NEW.from_state = 'running' AND NEW.to_state = 'approved'"
        rank = f"CASE WHEN NEW.to_state IN ('running', 'withdrawn') OR {ends} THEN 1 ELSE {rank} END"
    return rank


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
    Function(
        "almoner_ranges",
        "ids bigint[]",
        "text",
        "LANGUAGE sql STABLE",
        """
        SELECT string_agg(CASE WHEN y.a = y.b THEN y.a::text ELSE y.a || '-' || y.b END, ',' ORDER BY y.a)
         FROM (
             SELECT min(x.n) AS a, max(x.n) AS b
              FROM (SELECT u.n, u.n - row_number() OVER (ORDER BY u.n) AS island FROM unnest(ids) u(n)) x
              GROUP BY x.island
         ) y
        """,
        settings="caller",
    ),
    Function(
        "almoner_rows",
        "kind text, ids bigint[]",
        "text",
        "LANGUAGE plpgsql STABLE",
        """
        DECLARE
            content text;
        BEGIN
            EXECUTE format(
                'SELECT encode(sha256(convert_to(string_agg(almoner_row(%L, to_jsonb(x)), chr(10) ORDER BY x.id),'
                 || ' ''UTF8'')), ''hex'') FROM %I x WHERE x.id = ANY ($1)', kind, kind
            ) INTO STRICT content USING ids;
            RETURN '{"content":"' || content || '","ids":"' || almoner_ranges(ids) || '","table":"' || kind || '"}';
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
            FOR p IN SELECT q.row_id, q.account_id FROM pending_link q WHERE q.kind = 'unit_claim'
             AND NOT EXISTS (SELECT 1 FROM unit_claim c WHERE c.id = q.row_id) LOOP
                secret := replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
                INSERT INTO unit_claim (id, account_id, salt, digest, created_at, created_by)
                 VALUES (
                     p.row_id, p.account_id, secret, almoner_marks(p.row_id, secret), almoner_now(),
                      almoner_principal()
                 );
            END LOOP;
        END
        """,
        settings="caller",
    ),
    Function(
        "almoner_body",
        "told jsonb, rows text",
        "text",
        "LANGUAGE sql STABLE",
        """
        SELECT '{' || string_agg(to_json(g.key)::text || ':' || g.value, ',' ORDER BY g.key COLLATE "C") || '}'
         FROM (
             SELECT t.key, t.value::text AS value
              FROM jsonb_each(
                  jsonb_strip_nulls(
                      told - ARRAY['row_id', 'link_kind', 'link_actor', 'link_dataset', 'link_request']
                  )
              ) t
              UNION ALL SELECT 'rows', '[' || rows || ']'
         ) g
        """,
        settings="caller",
    ),
    # Of what this transaction has recorded and not told, links; others see nothing of it, so all that is there is ours.
    # Some tables do not say who records a row: its link is that of an account, a dataset or an adoption.
    Function(
        "almoner_link",
        "",
        "bigint",
        "LANGUAGE plpgsql SECURITY DEFINER",
        """
        DECLARE
            top integer;
            lead record;
            after bigint;
            before bigint := 0;
            rows text;
            told jsonb;
            number bigint;
        BEGIN
            number := almoner_link_step();
            IF NOT almoner_owner() AND almoner_principal() IS NULL THEN
                RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514';
            END IF;
            PERFORM almoner_close_claims();
            SELECT min(p.rank) INTO top FROM pending_link p;
            FOR lead IN SELECT p.id, p.kind, p.row_id FROM pending_link p WHERE p.rank = top ORDER BY p.id LOOP
                IF NOT almoner_owner() AND lead.kind IN ('policy_version', 'policy_rule') THEN
                    RAISE EXCEPTION 'almoner: that is recorded together with what it belongs to' USING ERRCODE =
                     '23514';
                END IF;
                SELECT min(q.id) INTO after FROM pending_link q WHERE q.rank = top AND q.id > lead.id;
                rows := almoner_rows(lead.kind, ARRAY[lead.row_id]) || coalesce(
                    (
                        SELECT string_agg(',' || almoner_rows(f.kind, f.ids), '' ORDER BY f.kind COLLATE "C")
                         FROM (
                             SELECT q.kind, array_agg(q.row_id) AS ids FROM pending_link q
                              WHERE q.id >= before AND (after IS NULL OR q.id < after) AND q.id <> lead.id
                              GROUP BY q.kind
                         ) f
                    ), ''
                );
                EXECUTE format(
                    'SELECT to_jsonb(v) FROM %I v WHERE v.row_id = $1', 'link_of_' || lead.kind
                ) INTO STRICT told USING lead.row_id;
                number := almoner_chain(
                    told ->> 'link_actor', told ->> 'link_kind', told ->> 'link_dataset', (told ->>
                     'link_request')::integer, almoner_body(told, rows)
                );
                before := after;
            END LOOP;
            DELETE FROM pending_link;
            RETURN number;
        END
        """,
    ),
    # One link for the mechanisms, holds and entries of one attempt that wait for it; each entry and hold is spelled as
    # `almoner_row` does. It comes before that of other rows of its transaction, if there are any.
    Function(
        "almoner_link_step",
        "",
        "bigint",
        "LANGUAGE plpgsql SECURITY DEFINER",
        f"""
        DECLARE
            invocations bigint[];
            made bigint[];
            entries bigint[];
            kinds text[];
            holds bigint[];
            every bigint[];
            actor bigint;
            which text;
            about record;
            said text;
            rows text;
        BEGIN
            SELECT coalesce(array_agg(p.row_id) FILTER (WHERE p.kind = 'invocation'), '{{}}'),
             coalesce(array_agg(p.row_id) FILTER (WHERE p.kind = 'hold'), '{{}}'),
             coalesce(array_agg(p.row_id) FILTER (WHERE p.kind = 'entry'), '{{}}')
             INTO invocations, made, entries FROM pending_link p WHERE p.kind IN ('invocation', 'hold', 'entry');
            IF cardinality(invocations || made || entries) = 0 THEN
                RETURN NULL;
            END IF;
            SELECT array_agg(DISTINCT e.kind), array_agg(DISTINCT e.hold_id), min(e.actor_id) INTO kinds, holds, actor
             FROM entry e WHERE e.id = ANY (entries);
            IF NOT made <@ coalesce(holds, '{{}}') THEN {deny("what is held has its entry")} END IF;
            every := CASE WHEN cardinality(invocations) > 0 THEN invocations ELSE ARRAY(
                SELECT DISTINCT h.invocation_id FROM hold h WHERE h.id = ANY (holds)
            ) END;
            which := CASE
                WHEN kinds IS NULL OR kinds <@ ARRAY['HOLD'] THEN 'hold'
                WHEN kinds <@ ARRAY['ARM'] THEN 'arm'
                WHEN kinds <@ ARRAY['RELEASE'] THEN 'release'
                WHEN kinds <@ ARRAY['COMMIT', 'RELEASE'] THEN 'commit'
                WHEN kinds <@ ARRAY['FORFEIT', 'RELEASE'] THEN 'forfeit'
                ELSE 'mixed' END;
            SELECT min(i.request_id) AS request, max(i.request_id) AS other, min(i.attempt) AS attempt, max(i.attempt)
             AS last, min(i.sequence) AS sequence, min(i.created_by) AS made_by
             INTO about FROM invocation i
             WHERE i.id = ANY (every) OR i.id IN (SELECT h.invocation_id FROM hold h WHERE h.id = ANY (holds));
            IF which = 'mixed'
                OR about.request IS NULL
                OR about.request <> about.other
                OR about.attempt <> about.last THEN
                {deny("a step is of one attempt")}
            END IF;
            rows := '[' || array_to_string(ARRAY[
                (
                    SELECT '{{"content":"' || encode(sha256(convert_to(string_agg(
                        '{{"actor_id":"' || e.actor_id || '","at":' || to_json(e.at)::text || ',"hold_id":"'
                         || e.hold_id || '","id":"' || e.id || '","kind":"' || e.kind || '"}}', chr(10) ORDER BY e.id
                    ), 'UTF8')), 'hex') || '","ids":"' || almoner_ranges(entries) || '","table":"entry"}}'
                     FROM entry e WHERE e.id = ANY (entries) HAVING count(*) > 0
                ), (
                    SELECT '{{"content":"' || encode(sha256(convert_to(string_agg(
                        '{{"account_id":"' || h.account_id || '","delta":"' || h.delta || '","id":"' || h.id
                         || '","instalment":"' || h.instalment || '","invocation_id":"' || h.invocation_id
                         || '","rho":"' || h.rho || '"}}', chr(10) ORDER BY h.id
                    ), 'UTF8')), 'hex') || '","ids":"' || almoner_ranges(made) || '","table":"hold"}}'
                     FROM hold h WHERE h.id = ANY (made) HAVING count(*) > 0
                ), CASE WHEN cardinality(invocations) > 0 THEN almoner_rows('invocation', invocations) END
            ], ',') || ']';
            IF which = 'arm' THEN
                SELECT '{{"attempt":' || about.attempt || ',"delta":"' || min(h.delta) || '","instalment":' ||
                 min(h.instalment) || ',"rho":"' || min(h.rho) || '","rows":' || rows || ',"sequence":' ||
                 about.sequence || '}}'
                 INTO said FROM hold h
                 WHERE h.id = ANY (holds)
                 HAVING count(DISTINCT (h.invocation_id, h.instalment, h.rho, h.delta)) = 1;
                IF said IS NULL THEN {deny("an instalment is armed by itself")} END IF;
            ELSIF which = 'hold' THEN
                SELECT '{{"attempt":' || about.attempt || ',"blocks":[' || coalesce(
                    (
                        SELECT string_agg(y.block::text, ',' ORDER BY y.block)
                         FROM (
                             SELECT DISTINCT a.block FROM hold h JOIN account a ON a.id = h.account_id
                              WHERE h.id = ANY (holds)
                         ) y
                    ), ''
                )
                 || '],"delta":"' || coalesce(sum(h.delta), 0) || '","mechanisms":[' || (
                     SELECT string_agg(to_json(i.mechanism)::text, ',' ORDER BY i.sequence) FROM invocation i
                      WHERE i.id = ANY (every)
                 ) || '],"rho":"' || coalesce(sum(h.rho), 0) || '","rows":' || rows || '}}'
                 INTO said FROM hold h
                 WHERE h.id = ANY (holds)
                  AND h.account_id = (SELECT min(g.account_id) FROM hold g WHERE g.id = ANY (holds));
            ELSE
                SELECT '{{"armed_holds":' || count(*) FILTER (WHERE e.kind <> 'RELEASE') || ',"attempt":' ||
                 about.attempt || ',"released_holds":' || count(*) FILTER (WHERE e.kind = 'RELEASE') ||
                 ',"rows":' || rows || '}}'
                 INTO said FROM entry e
                 WHERE e.id = ANY (entries);
            END IF;
            DELETE FROM pending_link p WHERE p.kind IN ('invocation', 'hold', 'entry');
            RETURN almoner_chain(
                (SELECT p.name::text FROM principal p WHERE p.id = coalesce(actor, about.made_by)),
                'ledger.' || which, (
                    SELECT d.name::text FROM request r JOIN dataset d ON d.id = r.dataset_id
                     WHERE r.id = about.request
                ), about.request::integer, said
            );
        END
        """,
    ),
)
