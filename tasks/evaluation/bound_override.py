"""Override of a policy's bounds: explicit, in the signed reason of an approval, in one form.

The reason of an approval is signed, stands in the audit log and on every screen, and is published with the release. An
override begins with a sentence that names every figure outside its bound as it is, so it is signed for these figures
and no others; what follows is the steward's own reason. A policy that says `overrides: refused` allows none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from models_db.errors import UsageError
from models_db.policies.policy import EffectiveRules
from tasks.evaluation.policy_bounds import BoundCheck, OutsideBounds, describe_checks, missed
from tasks.values.results import MetricResult

_HEAD: Final = "Overrides the bounds of the policy"
_STATED: Final = re.compile(rf"{_HEAD} \((.+?)\): ", re.DOTALL)


def override_reason(outside: Sequence[BoundCheck], reason: str) -> str:
    """Return the reason to sign, for an approval in spite of `outside`."""
    return f"{_override_prefix(outside)}{reason}"


def overridden_bounds(reason: str) -> str | None:
    """Return the bounds that a signed reason overrides, in its own words; None if it overrides none."""
    match = _STATED.match(reason)
    return match[1] if match else None


def require_admitted(
    request_id: int, rules: EffectiveRules, measured: Mapping[str, MetricResult], reasons: Iterable[str]
) -> None:
    """Check the figures of a release against its policy, given the reasons of its approvers.

    Raises:
        OutsideBounds: some are outside, and the policy allows no override, or not every reason overrides exactly these.
    """
    outside = missed(rules.required, measured)
    if not outside:
        return
    override_reasons = list(reasons)
    if (
        not rules.overrides
        or not override_reasons
        or not all(_has_override_prefix(reason, outside) for reason in override_reasons)
    ):
        raise OutsideBounds(request_id, outside, overridable=rules.overrides)


def _override_prefix(outside: Sequence[BoundCheck]) -> str:
    return f"{_HEAD} ({describe_checks(outside)}): "


def _has_override_prefix(reason: str, outside: Sequence[BoundCheck]) -> bool:
    head = _override_prefix(outside)
    return reason.startswith(head) and bool(reason.removeprefix(head).strip())


def nothing_to_override(request_id: int) -> UsageError:
    """Return the error of an override of bounds that the release keeps."""
    return UsageError(
        f"The release of request {request_id} is within the bounds of its policy: there is nothing to override.",
        f'Approve it: `almoner approve {request_id} --gate publish --reason "..."`.',
        {"request": request_id},
        code="NothingToOverride",
    )
