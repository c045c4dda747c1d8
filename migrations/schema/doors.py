"""Write functions of PostgreSQL: every write goes through them, because application roles may write no table.

The functions belong to the owner of the schema and run with its rights; the caller is `session_user`, and the time is
the server's. The schema does not say which roles may call them (`migrations.database_roles` does), only that PUBLIC may
not.
"""

from migrations.schema.audit_log import RANKS
from migrations.schema.definitions import Function

RECORDED = (
    "account", "approval", "artifact", "assignment_exposure", "cap", "carried", "checkpoint", "cohort", "dataset",
    "dataset_version",
    "delivery", "entry", "erased_version", "erasure", "erasure_end", "evaluation",
    "hold", "internal_view", "invocation", "overlap_key", "passkey", "passkey_end", "proposal", "partition_scheme",
    "policy_adoption", "policy_rule",
    "policy_version", "principal", "publication", "rehearsal", "renyi_charge", "request", "restoration", "role_grant",
    "role_revocation",
    "schedule", "schedule_change", "schedule_slot", "slot_end", "standing_use", "transition",
    "twin_attack", "withdrawal",
)  # fmt: skip
"""The tables whose rows `almoner_record` takes; the others are written by the database itself, or by doors of their
own."""
_RECORDED = ", ".join(f"'{table}'" for table in RECORDED)

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

# What every table takes.
RECORDING = (
    # Guards look before they let pass; whoever changes what they look at waits here. Order: schedule or request,
    # proposal, accounts, request. No run of an account begins and no release of it is produced while somebody begins to
    # look at its figures. No version comes in while somebody erases: who takes one in locks the marks of units. The
    # caps of the blocks of a cohort are the root's, so nobody may change or spend them while it is opened. What was
    # decided may be taken back at this very moment; who spends or publishes waits for that, then sees it. Nothing comes
    # into a dataset while it is registered again: whoever does that waits for all that refer to it.
    Function(
        "almoner_queue",
        "kind text, given jsonb",
        "void",
        "LANGUAGE plpgsql",
        """
        BEGIN
            IF kind = 'dataset' THEN
                PERFORM 1 FROM dataset d
                 WHERE d.name IN (SELECT g.value ->> 'name' FROM jsonb_array_elements(given) g)
                 ORDER BY d.id FOR UPDATE;
            ELSIF kind IN ('dataset_version', 'erasure', 'proposal') THEN
                PERFORM 1 FROM dataset d
                 WHERE d.id IN (SELECT (g.value ->> 'dataset_id')::bigint FROM jsonb_array_elements(given) g)
                 ORDER BY d.id FOR KEY SHARE;
            END IF;
            IF kind = 'internal_view' THEN
                PERFORM 1 FROM request r
                 WHERE r.dataset_id IN (
                     SELECT d.id FROM dataset d
                      WHERE d.account_id IN (
                          SELECT (g.value ->> 'account_id')::bigint FROM jsonb_array_elements(given) g
                      )
                 )
                 ORDER BY r.id FOR NO KEY UPDATE;
            END IF;
            IF kind = 'erasure' THEN
                PERFORM 1 FROM request r
                 WHERE r.dataset_id IN (
                     SELECT (g.value ->> 'dataset_id')::bigint FROM jsonb_array_elements(given) g
                 )
                 ORDER BY r.id FOR NO KEY UPDATE;
                LOCK TABLE unit_mark IN SHARE ROW EXCLUSIVE MODE;
            END IF;
            IF kind = 'cohort' THEN
                PERFORM 1 FROM account a
                 WHERE coalesce(a.parent_id, a.id) IN (
                     SELECT (g.value ->> 'account_id')::bigint FROM jsonb_array_elements(given) g
                 )
                 ORDER BY a.id FOR UPDATE;
            END IF;
            IF kind IN ('schedule_change', 'schedule_slot') THEN
                PERFORM 1 FROM schedule s
                 WHERE s.id IN (SELECT (g.value ->> 'schedule_id')::bigint FROM jsonb_array_elements(given) g)
                 ORDER BY s.id FOR NO KEY UPDATE;
            ELSIF kind = 'slot_end' THEN
                PERFORM 1 FROM request r
                 WHERE r.id IN (
                     SELECT o.request_id FROM schedule_slot o
                      WHERE o.id IN (SELECT (g.value ->> 'slot_id')::bigint FROM jsonb_array_elements(given) g)
                 )
                 ORDER BY r.id FOR NO KEY UPDATE;
            END IF;
            IF kind IN ('approval', 'carried', 'withdrawal') THEN
                PERFORM 1 FROM proposal m
                 WHERE m.id IN (
                     SELECT (g.value ->> 'proposal_id')::bigint FROM jsonb_array_elements(given) g
                      UNION SELECT a.proposal_id FROM approval a
                      WHERE a.id IN (
                          SELECT (g.value ->> 'approval_id')::bigint FROM jsonb_array_elements(given) g
                      )
                 )
                 ORDER BY m.id FOR NO KEY UPDATE;
            END IF;
            IF kind = 'entry' THEN
                PERFORM 1 FROM account a
                 WHERE a.id IN (
                     SELECT h.account_id FROM hold h
                      WHERE h.id IN (SELECT (g.value ->> 'hold_id')::bigint FROM jsonb_array_elements(given) g)
                 )
                 ORDER BY a.id FOR UPDATE;
            ELSIF kind IN ('hold', 'dataset') THEN
                PERFORM 1 FROM account a
                 WHERE a.id IN (SELECT (g.value ->> 'account_id')::bigint FROM jsonb_array_elements(given) g)
                 ORDER BY a.id FOR UPDATE;
            ELSIF kind = 'renyi_charge' THEN
                PERFORM 1 FROM account a
                 WHERE a.kind = 'block'
                  AND a.parent_id IN (
                      SELECT d.account_id FROM request r JOIN dataset d ON d.id = r.dataset_id
                       WHERE r.id IN (SELECT (g.value ->> 'request_id')::bigint FROM jsonb_array_elements(given) g)
                  )
                 ORDER BY a.id FOR UPDATE;
            ELSIF kind = 'account' THEN
                PERFORM 1 FROM account a
                 WHERE coalesce(a.parent_id, a.id) IN (
                     SELECT (g.value ->> 'parent_id')::bigint FROM jsonb_array_elements(given) g
                 )
                 ORDER BY a.id FOR UPDATE;
            ELSIF kind = 'carried' THEN
                PERFORM 1 FROM account a
                 WHERE coalesce(a.parent_id, a.id) IN (
                     SELECT d.account_id FROM proposal m JOIN dataset d ON d.id = m.dataset_id
                      WHERE m.kind = 'cap'
                       AND m.id IN (SELECT (g.value ->> 'proposal_id')::bigint FROM jsonb_array_elements(given) g)
                 )
                 ORDER BY a.id FOR UPDATE;
            ELSIF kind IN ('approval', 'artifact', 'invocation', 'standing_use', 'transition') THEN
                PERFORM 1 FROM request r
                 WHERE r.id IN (SELECT (g.value ->> 'request_id')::bigint FROM jsonb_array_elements(given) g)
                 ORDER BY r.id FOR NO KEY UPDATE;
            ELSIF kind IN ('publication', 'withdrawal') THEN
                PERFORM 1 FROM request r
                 WHERE r.id IN (
                     SELECT f.request_id FROM artifact f
                      WHERE f.id IN (
                          SELECT (g.value ->> 'artifact_id')::bigint FROM jsonb_array_elements(given) g
                      )
                      UNION SELECT a.request_id FROM approval a
                      WHERE a.id IN (
                          SELECT (g.value ->> 'approval_id')::bigint FROM jsonb_array_elements(given) g
                      )
                 )
                 ORDER BY r.id FOR NO KEY UPDATE;
            ELSIF kind IN ('policy_adoption', 'policy_rule') THEN
                PERFORM 1 FROM policy_version p
                 WHERE p.id IN (SELECT (g.value ->> 'policy_id')::bigint FROM jsonb_array_elements(given) g)
                 ORDER BY p.id FOR UPDATE;
            ELSIF kind = 'role_revocation' THEN
                PERFORM 1 FROM role_grant g WHERE g.role = 'admin' ORDER BY g.id FOR UPDATE;
            END IF;
            IF kind IN ('carried', 'publication') OR (kind = 'entry' AND given @> '[{"kind": "ARM"}]') THEN
                LOCK TABLE role_revocation, withdrawal, passkey_end IN SHARE MODE;
                PERFORM 1 FROM proposal m
                 WHERE m.id IN (
                     SELECT r.standing_id FROM hold h JOIN invocation i ON i.id = h.invocation_id
                      JOIN request r ON r.id = i.request_id
                      WHERE h.id IN (SELECT (g.value ->> 'hold_id')::bigint FROM jsonb_array_elements(given) g)
                 )
                 ORDER BY m.id FOR SHARE;
            ELSIF kind IN ('request', 'proposal') THEN
                LOCK TABLE policy_adoption IN SHARE MODE;
            END IF;
        END
        """,
    ),
    # A row as it is recorded: the login, the time and a proposal's digest are not those that the caller says.
    Function(
        "almoner_stamped",
        "kind text, given jsonb, me bigint",
        "jsonb",
        "LANGUAGE plpgsql STABLE",
        """
        DECLARE
            made jsonb := given;
            who text;
        BEGIN
            IF given ? 'id' THEN
                RAISE EXCEPTION 'almoner: the ledger numbers its rows itself' USING ERRCODE = '23514';
            END IF;
            FOREACH who IN ARRAY ARRAY['actor_id', 'created_by', 'requester_id', 'granted_by', 'revoked_by',
             'ended_by', 'proposer_id', 'adopted_by', 'approver_id'] LOOP
                IF given ? who
                    AND (given ->> who)::bigint IS DISTINCT FROM me
                    AND NOT (kind = 'approval' AND almoner_brings((given ->> who)::bigint, me)) THEN
                    RAISE EXCEPTION 'almoner: everybody acts under their own login' USING ERRCODE = '23514';
                END IF;
            END LOOP;
            IF kind = 'withdrawal'
                AND NOT EXISTS (
                    SELECT 1 FROM approval a
                     WHERE a.id = (given ->> 'approval_id')::bigint
                      AND (a.approver_id = me OR almoner_brings(a.approver_id, me))
                ) THEN
                RAISE EXCEPTION 'almoner: everybody acts under their own login' USING ERRCODE = '23514';
            END IF;
            IF NOT coalesce(CASE
                WHEN kind IN ('overlap_key', 'principal', 'policy_version', 'policy_rule') THEN almoner_may(me, 'admin')
                WHEN kind IN ('cap', 'partition_scheme') THEN almoner_may(me, 'admin') OR almoner_may(me, 'steward')
                WHEN kind = 'account' THEN almoner_may(me, 'admin') OR almoner_may(me, 'steward')
                WHEN kind IN ('hold', 'artifact', 'renyi_charge') THEN almoner_may(me, 'runner')
                WHEN kind IN ('evaluation', 'delivery') THEN almoner_may(me, 'runner') OR almoner_may(me, 'steward')
                WHEN kind = 'checkpoint' THEN almoner_may(me, 'runner') OR almoner_may(me, 'steward')
                  OR almoner_may(me, 'auditor') OR almoner_may(me, 'admin')
                ELSE TRUE END, FALSE
            ) THEN
                RAISE EXCEPTION 'almoner: your roles do not record that' USING ERRCODE = '23514';
            END IF;
            IF kind = 'request'
                AND given ->> 'digest' IS DISTINCT FROM encode(
                    sha256(convert_to(given ->> 'canonical', 'UTF8')), 'hex'
                ) THEN
                RAISE EXCEPTION 'almoner: the digest is not of the text' USING ERRCODE = '23514';
            END IF;
            IF given ? 'at' THEN made := jsonb_set(made, '{at}', to_jsonb(almoner_now())); END IF;
            IF given ? 'created_at' THEN made := jsonb_set(made, '{created_at}', to_jsonb(almoner_now())); END IF;
            IF kind IN ('account', 'evaluation', 'delivery', 'checkpoint', 'principal') THEN
                made := made || jsonb_build_object('created_by', me);
            END IF;
            IF kind = 'proposal' THEN made := made || jsonb_build_object('digest', almoner_digest_of(given)); END IF;
            IF kind IN ('approval', 'withdrawal') THEN
                made := made || jsonb_build_object('brought_by', me);
            END IF;
            RETURN made;
        END
        """,
    ),
    Function(
        "almoner_record",
        "kind text, given jsonb",
        "SETOF jsonb",
        "LANGUAGE plpgsql SECURITY DEFINER",
        f"""
        DECLARE
            stored jsonb;
            me bigint;
            stamped jsonb := given;
            columns text;
            each jsonb;
        BEGIN
            IF kind <> ALL (ARRAY[{_RECORDED}]) THEN
                RAISE EXCEPTION 'almoner: nothing is recorded there' USING ERRCODE = '23514';
            END IF;
            IF NOT almoner_owner() THEN
                me := almoner_principal();
                IF me IS NULL THEN
                    RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514';
                END IF;
                SELECT jsonb_agg(almoner_stamped(kind, g.value, me) ORDER BY g.ordinality) INTO stamped
                 FROM jsonb_array_elements(given) WITH ORDINALITY g;
            END IF;
            PERFORM almoner_queue(kind, given);
            SELECT string_agg(quote_ident(k), ', ') INTO columns FROM jsonb_object_keys(stamped -> 0) k;
            FOR each IN SELECT g.value FROM jsonb_array_elements(stamped) WITH ORDINALITY g ORDER BY
             g.ordinality LOOP
                EXECUTE format(
                    'INSERT INTO %I AS made (%s) SELECT %s FROM jsonb_populate_record(NULL::%I, $1)'
                     || ' RETURNING to_jsonb(made)', kind, columns, columns, kind
                ) INTO STRICT stored USING each;
                PERFORM almoner_pend(kind, stored);
                RETURN NEXT stored;
            END LOOP;
        END
        """,
    ),
)

# What a run writes again and again, in one call a step. Locks as in `almoner_queue`: accounts, then what may be taken
# back, then the authorisation.
BUDGETS = (
    Function(
        "almoner_enter",
        "holds bigint[], kinds text[], at text, actor bigint",
        "bigint",
        "LANGUAGE plpgsql SECURITY DEFINER",
        """
        DECLARE
            me bigint;
            made_at text := at;
            number bigint;
            entries bigint[];
        BEGIN
            IF NOT almoner_owner() THEN
                me := almoner_principal();
                IF me IS NULL THEN
                    RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514';
                END IF;
                IF actor IS DISTINCT FROM me THEN
                    RAISE EXCEPTION 'almoner: everybody acts under their own login' USING ERRCODE = '23514';
                END IF;
            END IF;
            PERFORM 1 FROM account a
             WHERE a.id IN (SELECT h.account_id FROM hold h WHERE h.id = ANY (holds)) ORDER BY a.id FOR UPDATE;
            IF 'ARM' = ANY (kinds) THEN
                LOCK TABLE role_revocation, withdrawal, passkey_end IN SHARE MODE;
                PERFORM 1 FROM proposal m
                 WHERE m.id IN (
                     SELECT r.standing_id FROM hold h JOIN invocation i ON i.id = h.invocation_id
                      JOIN request r ON r.id = i.request_id
                      WHERE h.id = ANY (holds)
                 )
                 ORDER BY m.id FOR SHARE;
            END IF;
            IF me IS NOT NULL THEN made_at := almoner_now(); END IF;
            FOR i IN 1 .. cardinality(holds) LOOP
                INSERT INTO entry (hold_id, kind, at, actor_id) VALUES (holds[i], kinds[i], made_at, actor)
                 RETURNING id INTO number;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'almoner: nothing is recorded there' USING ERRCODE = '23514';
                END IF;
                entries[i] := number;
            END LOOP;
            RETURN almoner_step(
                CASE
                    WHEN kinds <@ ARRAY['ARM'] THEN 'arm'
                    WHEN kinds <@ ARRAY['HOLD'] THEN 'hold'
                    WHEN kinds <@ ARRAY['RELEASE'] THEN 'release'
                    WHEN kinds <@ ARRAY['COMMIT', 'RELEASE'] THEN 'commit'
                    WHEN kinds <@ ARRAY['FORFEIT', 'RELEASE'] THEN 'forfeit'
                    ELSE 'mixed' END, '{}', holds, entries, actor
            );
        END
        """,
    ),
    Function(
        "almoner_reserve",
        "plan jsonb, places integer[], accounts bigint[], instalments integer[], rhos bigint[], deltas bigint[],"
        " at text, actor bigint",
        "bigint",
        "LANGUAGE plpgsql SECURITY DEFINER",
        """
        DECLARE
            me bigint;
            made_at text := at;
            number bigint;
            numbers bigint[];
            holds bigint[] := '{}';
            entries bigint[];
        BEGIN
            IF NOT almoner_owner() THEN
                me := almoner_principal();
                IF me IS NULL THEN
                    RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514';
                END IF;
                IF actor IS DISTINCT FROM me THEN
                    RAISE EXCEPTION 'almoner: everybody acts under their own login' USING ERRCODE = '23514';
                END IF;
            END IF;
            IF me IS NOT NULL AND NOT coalesce(almoner_may(me, 'runner'), FALSE) THEN
                RAISE EXCEPTION 'almoner: your roles do not record that' USING ERRCODE = '23514';
            END IF;
            PERFORM 1 FROM account a WHERE a.id = ANY (accounts) ORDER BY a.id FOR UPDATE;
            PERFORM 1 FROM request r
             WHERE r.id IN (SELECT (g.value ->> 'request_id')::bigint FROM jsonb_array_elements(plan) g)
             ORDER BY r.id FOR NO KEY UPDATE;
            IF me IS NOT NULL THEN made_at := almoner_now(); END IF;
            FOR i IN 1 .. jsonb_array_length(plan) LOOP
                INSERT INTO invocation (
                    request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest, libraries,
                    idem_key, created_at, created_by
                )
                 SELECT r.request_id, r.attempt, r.sequence, r.mechanism, r.event, r.relation, r.rng_kind, r.device,
                    r.code_digest, r.libraries, r.idem_key, made_at, actor
                  FROM jsonb_populate_record(NULL::invocation, plan -> (i - 1)) r
                 RETURNING id INTO STRICT number;
                numbers[i] := number;
            END LOOP;
            FOR i IN 1 .. cardinality(accounts) LOOP
                INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
                 VALUES (numbers[places[i]], accounts[i], instalments[i], rhos[i], deltas[i]) RETURNING id
                 INTO STRICT number;
                holds[i] := number;
            END LOOP;
            FOR i IN 1 .. cardinality(holds) LOOP
                INSERT INTO entry (hold_id, kind, at, actor_id) VALUES (holds[i], 'HOLD', made_at, actor)
                 RETURNING id INTO number;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'almoner: nothing is recorded there' USING ERRCODE = '23514';
                END IF;
                entries[i] := number;
            END LOOP;
            RETURN almoner_step('hold', numbers, holds, entries, actor);
        END
        """,
    ),
)


def _row_lock(table: str) -> Function:
    """Return the function that locks one row of a table until the transaction ends."""
    row = table[0]
    return Function(
        f"almoner_lock_{table}",
        "number bigint",
        "void",
        "LANGUAGE plpgsql SECURITY DEFINER",
        f"""
        BEGIN
            IF NOT almoner_owner() AND almoner_principal() IS NULL THEN
                RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514';
            END IF;
            PERFORM 1 FROM {table} {row} WHERE {row}.id = number FOR NO KEY UPDATE;
        END
        """,
    )


LOCKS = (
    Function(
        "almoner_lock_accounts",
        "root bigint, blocks integer[]",
        "void",
        "LANGUAGE plpgsql SECURITY DEFINER",
        """
        BEGIN
            IF NOT almoner_owner() AND almoner_principal() IS NULL THEN
                RAISE EXCEPTION 'almoner: the ledger knows nobody with this login' USING ERRCODE = '23514';
            END IF;
            PERFORM 1 FROM account a
             WHERE a.id = root OR (a.parent_id = root AND a.block = ANY (blocks))
             ORDER BY a.id FOR UPDATE;
        END
        """,
    ),
    *(_row_lock(table) for table in ("request", "proposal", "schedule")),
)

OTHERS = (
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
        """
        BEGIN
            IF NOT almoner_owner() AND NOT coalesce(almoner_runs($1, $2), FALSE) THEN
                RAISE EXCEPTION 'almoner: only a runner runs a release' USING ERRCODE = '23514';
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
    # Whoever opens a cohort holds the root; who came first is waited for, before the marks are locked. A transaction
    # makes one claim for an account, however many units it has and in however many calls.
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
                RAISE EXCEPTION 'almoner: only a runner or a steward takes data in' USING ERRCODE = '23514';
            END IF;
            PERFORM 1 FROM account a WHERE a.id = root AND a.kind = 'root' FOR KEY SHARE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'almoner: a unit belongs to one root account' USING ERRCODE = '23514';
            END IF;
            LOCK TABLE unit_mark IN SHARE ROW EXCLUSIVE MODE;
            SELECT p.row_id INTO number FROM pending_link p WHERE p.kind = 'unit_claim' AND p.account_id = root;
            IF NOT FOUND THEN
                number := nextval(pg_get_serial_sequence('unit_claim', 'id'));
                INSERT INTO pending_link (kind, row_id, rank, account_id)
                 VALUES ('unit_claim', number, {RANKS["unit_claim"]}, root);
            END IF;
            INSERT INTO unit_mark (mark, account_id, cohort, claim) SELECT u.m, root, u.c, number
             FROM unnest(marks, cohorts) u(m, c) ON CONFLICT DO NOTHING;
        END
        """,
    ),
)

FUNCTIONS = (*CALLERS, *RECORDING, *BUDGETS, *LOCKS, *OTHERS)
