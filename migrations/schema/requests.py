"""Requests, their plans and states, and the mechanisms that their attempts invoke.

The plan of a request is written by the database itself, from the request's own text, so nobody passes one; holds and
mechanisms outside it are denied.
"""

from migrations.schema.definitions import (
    BLOCK_MISSING,
    IN_FORCE,
    REQUEST_DAYS,
    RUNS_LEFT,
    SPEND_GATE,
    STANDING,
    TOO_MUCH,
    Action,
    Both,
    Guard,
    attempts,
    erased,
    has_entry,
    later_than,
    role,
    state,
    with_article,
)

SUBMITS = "NEW.from_state = 'draft'"
WRITTEN_ALREADY = (
    "NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id)"
    " OR EXISTS (SELECT 1 FROM planned_release w WHERE w.request_id = NEW.request_id)"
)
# Functions on JSON are none that SQLite lets a trigger call (`trusted_schema=OFF`); the table `json_each` is.
INVOCATIONS = "json_each(NEW.canonical, '$.plan.invocations') j"
PARTS = "json_each(j.value, '$.instalments') k"
LISTED = "EXISTS (SELECT 1 FROM json_each(NEW.canonical, '$.plan') e WHERE e.key = '{name}' AND e.type = 'array')"
AMOUNTS = (  # whole numbers as text, which fit 64 bits; a name may be there twice, and the other one not at all
    "(SELECT count(DISTINCT a.key) FROM json_each(k.value) a WHERE a.key IN ('rho', 'delta') AND a.type = 'text'"
    " AND length(a.value) BETWEEN 1 AND 19 AND a.value NOT GLOB '*[^0-9]*'"
    " AND (length(a.value) < 19 OR a.value <= '9223372036854775807'))"
)
MEMBER = "EXISTS (SELECT 1 FROM json_each({of}) e WHERE e.key = '{name}' AND e.type = '{kind}')"
WHOLE_INVOCATION = " AND ".join((
    MEMBER.format(of="j.value", name="event", kind="object"),
    MEMBER.format(of="j.value", name="instalments", kind="array"),
    MEMBER.format(of="j.value, '$.event'", name="mechanism", kind="text"),
))  # fmt: skip
_UNFIT_SQLITE = (
    f"NOT {LISTED.format(name='blocks')} OR NOT {LISTED.format(name='invocations')}"
    " OR EXISTS (SELECT 1 FROM json_each(NEW.canonical, '$.plan.blocks') j"
    " WHERE j.type <> 'integer' OR j.value NOT BETWEEN 0 AND 2147483647)"
    f" OR EXISTS (SELECT 1 FROM {INVOCATIONS} WHERE CASE WHEN j.type = 'object' THEN NOT ({WHOLE_INVOCATION})"
    " ELSE TRUE END)"
    f" OR EXISTS (SELECT 1 FROM {INVOCATIONS}, {PARTS}"
    f" WHERE CASE WHEN k.type = 'object' THEN {AMOUNTS} <> 2 ELSE TRUE END)"
)
_UNFIT_POSTGRESQL = (
    "CASE WHEN pg_input_is_valid(NEW.canonical, 'json') THEN"
    " json_typeof(NEW.canonical::json #> '{plan,blocks}') IS DISTINCT FROM 'array'"
    " OR json_typeof(NEW.canonical::json #> '{plan,invocations}') IS DISTINCT FROM 'array' ELSE TRUE END"
)
PLAN_UNFIT = Both(_UNFIT_SQLITE, _UNFIT_POSTGRESQL)
"""The text of a request says no plan, or one that cannot be written in rows."""

GUARDS = (
    Guard(
        "request_own_version",
        "request",
        "a request reads a version of its own dataset",
        """
        NOT EXISTS (
            SELECT 1 FROM dataset_version v WHERE v.id = NEW.version_id AND v.dataset_id = NEW.dataset_id
        )
        """,
    ),
    *(
        Guard(
            f"{table}_policy_in_force",
            table,
            f"a {table} is made under the policy in force",
            f"NEW.policy_id IS DISTINCT FROM {IN_FORCE}",
        )
        for table in ("request", "proposal")
    ),
    Guard("request_says_plan", "request", "a request says its plan", PLAN_UNFIT),
    Guard(
        "request_expires",
        "request",
        "a request expires as the policy says",
        later_than("NEW.expires_at", "NEW.created_at", REQUEST_DAYS),
    ),
    *(
        Guard(f"{table}_with_its_request", table, "a plan is written with its request", WRITTEN_ALREADY)
        for table in ("planned_release", "planned_block", "planned_invocation", "planned_instalment")
    ),
    Guard(
        "transition_follows",
        "transition",
        "the request has moved on",
        f"""
        NEW.number <> 1 + (SELECT count(*) FROM transition t WHERE t.request_id = NEW.request_id)
         OR NEW.from_state <> {state("NEW.request_id")}
        """,
    ),
    Guard(
        "transition_closes_holds",
        "transition",
        "an attempt ends with every hold closed",
        f"""
        NEW.from_state = 'running'
         AND EXISTS (
             SELECT 1 FROM invocation i JOIN hold h ON h.invocation_id = i.id
              WHERE i.request_id = NEW.request_id
               AND {has_entry("h.id", "HOLD")}
               AND NOT {has_entry("h.id", "COMMIT", "RELEASE", "FORFEIT")}
         )
        """,
    ),
    Guard(
        "transition_produced",
        "transition",
        "nothing was produced",
        f"""
        NEW.to_state = 'produced'
         AND NOT EXISTS (
             SELECT 1 FROM artifact f
              WHERE f.request_id = NEW.request_id AND f.attempt = {attempts("NEW.request_id")}
         )
        """,
    ),
    Guard(
        "transition_published",
        "transition",
        "nothing was published",
        """
        NEW.to_state = 'published'
         AND NOT EXISTS (
             SELECT 1 FROM publication p JOIN artifact f ON f.id = p.artifact_id
              WHERE f.request_id = NEW.request_id
         )
        """,
    ),
    Guard(
        "transition_approved",
        "transition",
        "the spend gate is not passed",
        f"""
        NOT EXISTS (
            SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id
             WHERE r.id = NEW.request_id AND ({SPEND_GATE} OR {STANDING})
        )
        """,
        only="NEW.to_state = 'approved' AND NEW.from_state = 'submitted'",
    ),
    Guard(
        "transition_by_runner",
        "transition",
        "only a runner runs a release",
        f"(NEW.to_state = 'running' OR NEW.from_state = 'running') AND NOT {role('NEW.actor_id', 'runner')}",
    ),
    Guard(
        "transition_submits",
        "transition",
        "a request is submitted by its requester",
        "NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id AND r.requester_id = NEW.actor_id)",
        only=SUBMITS,
    ),
    Guard("transition_of_blocks", "transition", "a plan reads blocks that have accounts", BLOCK_MISSING, only=SUBMITS),
    Guard("transition_of_amounts", "transition", "a plan costs what the ledger can count", TOO_MUCH, only=SUBMITS),
    Guard(
        "transition_reopens",
        "transition",
        "the spend gate is passed",
        f"""
        EXISTS (
            SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id
             WHERE r.id = NEW.request_id AND ({SPEND_GATE} OR {STANDING})
        )
        """,
        only="NEW.from_state = 'approved' AND NEW.to_state = 'submitted'",
    ),
    Guard(
        "transition_rejected",
        "transition",
        "nobody has rejected it",
        """
        NEW.to_state IN ('rejected', 'discarded')
         AND NOT EXISTS (
             SELECT 1 FROM approval a
              WHERE a.request_id = NEW.request_id
               AND a.decision = 'reject'
               AND a.gate = CASE NEW.to_state WHEN 'rejected' THEN 'spend' ELSE 'publish' END
         )
        """,
    ),
    Guard(
        "transition_withdrawn",
        "transition",
        "a request is withdrawn by its requester, a steward or an admin",
        f"""
        NOT (
            EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id AND r.requester_id = NEW.actor_id)
             OR {role("NEW.actor_id", "steward")}
             OR {role("NEW.actor_id", "admin")}
        )
        """,
        only="NEW.to_state = 'withdrawn'",
    ),
    Guard(
        "transition_authorised",
        "transition",
        "the standing authorisation does not cover this run",
        f"""
        NOT EXISTS (
            SELECT 1 FROM request r
             WHERE r.id = NEW.request_id AND (r.standing_id IS NULL OR ({STANDING} AND {RUNS_LEFT}))
        )
        """,
        only="NEW.to_state = 'running'",
    ),
    Guard(
        "transition_retracted",
        "transition",
        "the stewards have not retracted it",
        """
        NOT EXISTS (
            SELECT 1 FROM carried c JOIN proposal m ON m.id = c.proposal_id
             JOIN publication p ON p.id = m.publication_id JOIN artifact f ON f.id = p.artifact_id
             WHERE m.kind = 'retraction' AND f.request_id = NEW.request_id
        )
        """,
        only="NEW.to_state = 'retracted'",
    ),
    Guard(
        "transition_begins",
        "transition",
        "the request has expired, the policy allows no further attempt, or its data was erased",
        f"""
        NOT EXISTS (
            SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id
             WHERE r.id = NEW.request_id
              AND r.expires_at > NEW.at
              AND p.attempts > {attempts("r.id")}
              AND NOT {erased("r.version_id")}
        )
        """,
        only="NEW.to_state = 'running'",
    ),
    *(
        Guard(
            f"{table}_of_running_attempt",
            table,
            f"only the running attempt of a request records {with_article(table.replace('_', ' '))}",
            f"{state('NEW.request_id')} <> 'running' OR NEW.attempt <> {attempts('NEW.request_id')}",
        )
        for table in ("invocation", "renyi_charge", "artifact")
    ),
    Guard(
        "invocation_separate",
        "invocation",
        "nobody runs what they requested or approved",
        """
        EXISTS (
            SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id
             LEFT JOIN approval a ON a.request_id = r.id OR a.proposal_id = r.standing_id
             WHERE r.id = NEW.request_id
              AND NOT p.several_roles
              AND (
                  NEW.created_by = r.requester_id
                   OR NEW.created_by = a.approver_id
                   OR (a.proposal_id = r.standing_id AND r.requester_id = a.approver_id)
              )
        )
        """,
    ),
    Guard(
        "invocation_planned",
        "invocation",
        "the request was approved for other mechanisms",
        """
        NOT EXISTS (
            SELECT 1 FROM planned_invocation q
             WHERE q.request_id = NEW.request_id
              AND q.sequence = NEW.sequence
              AND q.mechanism = NEW.mechanism
              AND q.event = NEW.event
        )
        """,
    ),
)

AMOUNT = "(SELECT CAST(a.value AS INTEGER) FROM json_each(k.value) a WHERE a.key = '{name}')"
PLAN_SQLITE = (
    """
    INSERT INTO planned_block (request_id, first_block, last_block)
     SELECT NEW.id, min(b), max(b) FROM (
         SELECT b, b - row_number() OVER (ORDER BY b) AS run FROM (
             SELECT DISTINCT j.value AS b FROM json_each(NEW.canonical, '$.plan.blocks') j
         )
     ) GROUP BY run
    """,
    f"""
    INSERT INTO planned_invocation (request_id, sequence, mechanism, event, instalments)
     SELECT NEW.id, j.key, (SELECT e.value FROM json_each(j.value, '$.event') e WHERE e.key = 'mechanism'),
      (SELECT e.value FROM json_each(j.value) e WHERE e.key = 'event'), (SELECT count(*) FROM {PARTS})
      FROM {INVOCATIONS}
    """,
    f"""
    INSERT INTO planned_instalment (request_id, sequence, first_instalment, last_instalment, rho, delta)
     SELECT NEW.id, sequence, min(n), max(n), rho, delta FROM (
         SELECT sequence, n, rho, delta,
          n - row_number() OVER (PARTITION BY sequence, rho, delta ORDER BY n) AS run FROM (
             SELECT j.key AS sequence, k.key AS n, {AMOUNT.format(name="rho")} AS rho,
              {AMOUNT.format(name="delta")} AS delta FROM {INVOCATIONS}, {PARTS}
         )
     ) GROUP BY sequence, rho, delta, run
    """,
    f"INSERT INTO planned_release (request_id, invocations) SELECT NEW.id, count(*) FROM {INVOCATIONS}",
)
PLAN_LOST = (
    "NOT EXISTS (SELECT 1 FROM planned_release w WHERE w.request_id = NEW.id AND w.invocations ="
    " (SELECT count(*) FROM planned_invocation q WHERE q.request_id = NEW.id))"
    " OR EXISTS (SELECT 1 FROM planned_invocation q WHERE q.request_id = NEW.id AND q.instalments <>"
    " (SELECT coalesce(sum(k.last_instalment - k.first_instalment + 1), 0) FROM planned_instalment k"
    " WHERE k.request_id = q.request_id AND k.sequence = q.sequence))"
)
"""Some row of a plan was not written, as under INSERT OR IGNORE one that a constraint refuses."""
ACTIONS = (
    Action(
        "request_writes_plan",
        "request",
        PLAN_SQLITE,
        PLAN_LOST,
        "the plan did not follow the request",
        source="""
        DECLARE
            plan json := NEW.canonical::json -> 'plan';
        BEGIN
            IF EXISTS (SELECT 1 FROM json_array_elements(plan -> 'blocks') j WHERE json_typeof(j.value) <> 'number')
             OR EXISTS (
                 SELECT 1 FROM json_array_elements(plan -> 'invocations') j
                  WHERE json_typeof(j.value #> '{event,mechanism}') IS DISTINCT FROM 'string'
             )
             OR EXISTS (
                 SELECT 1 FROM json_array_elements(plan -> 'invocations') j,
                  json_array_elements(j.value -> 'instalments') k, (VALUES ('rho'), ('delta')) a(name)
                  WHERE json_typeof(k.value -> a.name) IS DISTINCT FROM 'string'
                   OR k.value ->> a.name !~ '^[0-9]{1,19}$'
             ) THEN
                RAISE data_exception;
            END IF;
            INSERT INTO planned_block (request_id, first_block, last_block)
             SELECT NEW.id, min(b), max(b) FROM (SELECT b, b - row_number() OVER (ORDER BY b) AS run FROM (
                 SELECT DISTINCT j.value::integer AS b FROM json_array_elements_text(plan -> 'blocks') j
             ) d) e GROUP BY run;
            INSERT INTO planned_invocation (request_id, sequence, mechanism, event, instalments)
             SELECT NEW.id, j.n - 1, j.value #>> '{event,mechanism}', (j.value -> 'event')::text,
              json_array_length(j.value -> 'instalments')
              FROM json_array_elements(plan -> 'invocations') WITH ORDINALITY j(value, n);
            INSERT INTO planned_instalment (request_id, sequence, first_instalment, last_instalment, rho, delta)
             SELECT NEW.id, sequence, min(n), max(n), rho, delta FROM (
                 SELECT sequence, n, rho, delta,
                  n - row_number() OVER (PARTITION BY sequence, rho, delta ORDER BY n) AS run FROM (
                     SELECT j.n - 1 AS sequence, k.n - 1 AS n, (k.value ->> 'rho')::bigint AS rho,
                      (k.value ->> 'delta')::bigint AS delta
                      FROM json_array_elements(plan -> 'invocations') WITH ORDINALITY j(value, n),
                      json_array_elements(j.value -> 'instalments') WITH ORDINALITY k(value, n)
                 ) d
             ) e GROUP BY sequence, rho, delta, run;
            INSERT INTO planned_release (request_id, invocations)
             SELECT NEW.id, json_array_length(plan -> 'invocations');
            IF @ THEN
                RAISE EXCEPTION 'almoner: the plan did not follow the request' USING ERRCODE = '23514';
            END IF;
            RETURN NULL;
        EXCEPTION WHEN data_exception OR not_null_violation OR check_violation THEN
            RAISE EXCEPTION 'almoner: a request says its plan' USING ERRCODE = '23514';
        END
        """.replace("@", PLAN_LOST),
    ),
)
