"""Datasets, the versions of their data, their units, erasures, and views of their unprotected figures.

Cohorts: units that come later bring budgets of their own, and no unit ever changes its block. So a root account has as
many blocks as its partition, times the number of its cohorts.

Erasure: an erasure says what is left of each version (no mark: nothing). Runs of an erased version are denied.
    `internal_view` marks accounts whose unprotected figures somebody has seen.

Secrecy: `assignment_exposure` says that an assignment of units to texts got out that attempts of a request were charged
    for, whether or not they have produced a release. From then on all of its charges in orders count with their rho.

Keys: `key_commitment` is a keyed hash of a fixed text under the key of a partition (`account`), or under the overlap
    key, by which units are recognised (`overlap_key`, one row, written when the ledger is founded). Every key file is
    compared with it whenever it is read (`tasks.corpus.keys`).

Registration: a dataset without a version, a proposal or an erasure may be registered again, as a further row of its
    name on an account of its own choice. The row with the highest `registration` is the dataset; the rows before it
    take no version and no proposal any more.
"""

from migrations.schema.definitions import REPLACED, Action, Guard, later_cohorts, replaced, state

GUARDS = (
    Guard(
        "dataset_like_its_account",
        "dataset",
        "datasets of one account are protected alike, and in several blocks name their units alike",
        """
        EXISTS (
            SELECT 1 FROM dataset d
             WHERE d.account_id = NEW.account_id
              AND (
                  d.governed <> NEW.governed
                   OR (
                       (
                           EXISTS (SELECT 1 FROM account r WHERE r.id = NEW.account_id AND r.blocks > 1)
                            OR EXISTS (SELECT 1 FROM cohort c WHERE c.account_id = NEW.account_id)
                       )
                        AND (NEW.unit_field IS NULL OR d.unit_field IS NULL OR d.unit_field <> NEW.unit_field)
                   )
              )
        )
        """,
    ),
    # Without a version there is no request, and so no approval of one, no hold and no spending.
    Guard(
        "dataset_final",
        "dataset",
        "a registration is final with the first version, proposal or erasure",
        """
        EXISTS (
            SELECT 1 FROM dataset d
             WHERE d.name = NEW.name
              AND (
                  EXISTS (SELECT 1 FROM dataset_version v WHERE v.dataset_id = d.id)
                   OR EXISTS (SELECT 1 FROM proposal m WHERE m.dataset_id = d.id)
                   OR EXISTS (SELECT 1 FROM erasure e WHERE e.dataset_id = d.id)
              )
        )
        """,
    ),
    # A number that nobody counted would be the newest one for ever.
    *(
        Guard(
            f"{table}_in_turn",
            table,
            f"{noun} are counted",
            f"NEW.{number} <> 1 + (SELECT count(*) FROM {table} x WHERE x.{parent} = NEW.{parent})",
        )
        for table, number, parent, noun in (
            ("dataset", "registration", "name", "registrations of a name"),
            ("dataset_version", "number", "dataset_id", "versions of a dataset"),
            ("schedule_change", "number", "schedule_id", "changes of a schedule"),
        )
    ),
    Guard(
        "dataset_with_blocks",
        "dataset",
        "a dataset is on a root account with all its blocks",
        f"""
        NOT EXISTS (
            SELECT 1 FROM account r
             WHERE r.id = NEW.account_id
              AND r.blocks * (1 + {later_cohorts("r.id")})
                  = (SELECT count(*) FROM account b WHERE b.parent_id = r.id)
        )
        """,
    ),
    *(
        Guard(f"{table}_of_replaced", table, REPLACED, replaced("NEW.dataset_id"))
        for table in ("dataset_version", "proposal")
    ),
    Guard(
        "version_keeps_blocks",
        "dataset_version",
        "units without a name stay in their blocks",
        """
        EXISTS (
            SELECT 1 FROM dataset d JOIN account r ON r.id = d.account_id
             WHERE d.id = NEW.dataset_id
              AND d.unit_field IS NULL
              AND r.blocks > 1
              AND EXISTS (
                  SELECT 1 FROM dataset_version v JOIN dataset o ON o.id = v.dataset_id
                   WHERE o.account_id = d.account_id
              )
        )
        """,
    ),
    Guard(
        "unit_mark_one_account",
        "unit_mark",
        "a unit belongs to one root account",
        "EXISTS (SELECT 1 FROM unit_mark m WHERE m.mark = NEW.mark AND m.account_id <> NEW.account_id)",
    ),
    Guard(
        "unit_mark_keeps_cohort",
        "unit_mark",
        "a unit stays in the cohort in which it was first seen",
        f"""
        NEW.cohort <> coalesce(
            (
                SELECT m.cohort FROM unit_mark m WHERE m.mark = NEW.mark AND m.account_id = NEW.account_id
            ), 1 + {later_cohorts("NEW.account_id")}
        )
        """,
    ),
    Guard(
        "unit_mark_open_claim",
        "unit_mark",
        "that claim of units is closed",
        "EXISTS (SELECT 1 FROM unit_claim c WHERE c.id = NEW.claim)",
    ),
    Guard(
        "cohort_of_named_units",
        "cohort",
        "units that are not named alike would come back as new ones",
        """
        NOT EXISTS (
            SELECT 1 FROM dataset_version v JOIN dataset d ON d.id = v.dataset_id
             WHERE v.id = NEW.version_id
              AND d.account_id = NEW.account_id
              AND d.governed
              AND d.unit_field IS NOT NULL
              AND NOT EXISTS (
                  SELECT 1 FROM dataset o
                   WHERE o.account_id = d.account_id AND (o.unit_field IS NULL OR o.unit_field <> d.unit_field)
              )
        )
        """,
    ),
    Guard(
        "internal_view_decided",
        "internal_view",
        "unprotected figures of governed data are seen after the publish decision, on their own account",
        f"""
        NOT EXISTS (
            SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id JOIN dataset d ON d.id = r.dataset_id
             WHERE f.id = NEW.artifact_id
              AND d.account_id = NEW.account_id
              AND d.governed
              AND (
                  EXISTS (SELECT 1 FROM publication p WHERE p.artifact_id = f.id)
                   OR {state("r.id")} = 'discarded'
              )
        )
        """,
    ),
    Guard(
        "internal_view_between_releases",
        "internal_view",
        "a release of the account is running or waits at the publish gate",
        f"""
        EXISTS (
            SELECT 1 FROM request r JOIN dataset d ON d.id = r.dataset_id
             WHERE d.account_id = NEW.account_id AND d.governed AND {state("r.id")} IN ('running', 'produced')
        )
        """,
    ),
    Guard(
        "erased_version_of_erasure",
        "erased_version",
        "an erasure concerns versions of its dataset, and says what is left of each",
        """
        NOT EXISTS (
            SELECT 1 FROM erasure e JOIN dataset_version w ON w.dataset_id = e.dataset_id
             WHERE e.id = NEW.erasure_id
              AND w.id = NEW.version_id
              AND (e.scope <> 'version' OR e.version_id = w.id)
              AND ((e.scope = 'unit') = (NEW.manifest_mark IS NOT NULL))
        )
         OR EXISTS (SELECT 1 FROM erasure_end n WHERE n.erasure_id = NEW.erasure_id)
        """,
    ),
)

ACTIONS = (
    # The blocks of a cohort are those of the first one again, with the cap that the root has now, so no client can
    # forget one.
    Action(
        "cohort_opens_blocks",
        "cohort",
        (
            """
            INSERT INTO account (parent_id, block, rho_cap, delta_cap, created_at, created_by)
             SELECT r.id, b.block + r.blocks * (NEW.number - 1), r.rho_cap, r.delta_cap,
                    NEW.created_at, NEW.created_by
              FROM account b JOIN account r ON r.id = b.parent_id
              WHERE r.id = NEW.account_id AND b.block < r.blocks ORDER BY b.block
            """,
        ),
        "(SELECT count(*) FROM account b WHERE b.parent_id = NEW.account_id)"
        " IS DISTINCT FROM NEW.number * (SELECT r.blocks FROM account r WHERE r.id = NEW.account_id)",
        "the blocks did not follow the cohort",
    ),
)
