"""What hostile people say where they move the budget, as in `lies`."""

import json

from tests.contracts.lies import LINK, add
from tests.contracts.rows import EVENT


def enter(holds: str, kinds: str, actor: str) -> list[str]:
    """A step of the budget: entries of some holds."""
    among = f"unnest(ARRAY[{holds}]::bigint[], ARRAY['{kinds}']) x(hold, kind)"
    return [
        (
            "INSERT INTO entry (hold_id, kind, at, actor_id)"
            f" SELECT x.hold, x.kind, '$now', CAST({actor} AS bigint) FROM {among}"
        ),
        LINK,
    ]


def reserve(
    request: str = "$running",
    actor: str = "$bad_runner",
    *,
    account: str = "$block",
    rho: int = 1,
    more: str = "",
    sequence: int = 1,
    instalment: int = 0,
) -> list[str]:
    """A mechanism and one hold for it."""
    mechanism = (
        f'{{"request_id": {request}, "attempt": 1, "sequence": {sequence}, "mechanism": "integer_draw",'
        f' "event": {json.dumps(EVENT)}, "relation":'
        ' "add_or_remove_one", "rng_kind": "os", "device": "cpu", "code_digest": "$d", "libraries": "{}",'
        f' "idem_key": "$d", "created_at": "$now", "created_by": {actor}{more}}}'
    )
    return [
        add("invocation", mechanism),
        (
            "INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)"
            f" SELECT max(i.id), {account}, {instalment}, {rho}, 0 FROM invocation i"
        ),
        (
            "INSERT INTO entry (hold_id, kind, at, actor_id)"
            f" SELECT max(h.id), 'HOLD', '$now', CAST({actor} AS bigint) FROM hold h"
        ),
        LINK,
    ]


STEP_LIES: dict[str, tuple[str, list[str], str]] = {
    # what, who, statements, and what the database says
    "a step as an analyst": ("analyst", enter("$held", "ARM", "$bad_analyst"), "only a runner"),
    "a step as a former runner": ("former", enter("$held", "ARM", "$bad_former"), "only a runner"),
    "a step that nobody approved": ("runner", enter("$vetoed", "ARM", "$bad_runner"), "spend gate"),
    "a second step of a kind": ("runner", enter("$armed", "ARM", "$bad_runner"), "uq_entry"),
    "two steps in one call": ("runner", enter("$held, $held", "ARM', 'ARM", "$bad_runner"), "uq_entry"),
    "a step before its first": ("runner", enter("$held", "FORFEIT", "$bad_runner"), "nothing is held, or armed"),
    "a step back": ("runner", enter("$armed", "RELEASE", "$bad_runner"), r"uq_entry|counters|ck_account"),
    "a step that is none": ("runner", enter("$held", "REFUND", "$bad_runner"), "ck_entry_kind|nothing is held"),
    "a step without a hold": ("runner", enter("NULL", "HOLD", "$bad_runner"), "the cap would be passed|null value"),
    "fewer kinds than holds": ("runner", enter("$held, $held", "ARM", "$bad_runner"), "null value|uq_entry"),
    "a plan as an analyst": ("analyst", reserve(actor="$bad_analyst"), "only a runner records"),
    "a plan of another author": (
        "runner", reserve("$submitted", more=', "created_by": $runner'), "under their own login"),
    "a plan for what does not run": ("runner", reserve("$submitted"), "only the running attempt"),
    "a plan that two people decide": ("runner", reserve("$approved"), "only the running attempt"),
    "a plan beyond the cap": ("runner", reserve(rho=1000, sequence=0, instalment=3), "the cap would be passed"),
    "a negative plan": ("runner", reserve(rho=-1), "approved for another charge"),
    "a plan on another dataset": ("runner", reserve(account="$harbour"), "approved for another charge"),
    "a plan on the root": ("runner", reserve(account="$root"), "approved for another charge"),
    "a hold without a mechanism": (
        "runner", [reserve()[1].replace("max(i.id)", "7 + max(i.id)")], "allows a release less"),
    "a hold without its entry": ("runner", [*reserve()[:2], LINK], "what is held has its entry"),
    "a guard of one's own making": ("runner", ["SELECT entry_is_sound()"], "permission denied|trigger"),
}  # fmt: skip
