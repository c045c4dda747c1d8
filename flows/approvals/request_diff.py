"""Differences between a request and the previous release of its dataset: field, then, now."""

from collections.abc import Iterator, Mapping
from typing import Any

ABSENT_VALUE = "-"
IGNORED_FIELDS = ("format", "nonce", "dataset.uid", "plan.invocations")
"""Fields that are random by design, or shown in their own table."""

ADAPTER, OF_THE_ADAPTER = "parameters.adapter.sha256", "parameters.adapter.meta."
"""Fields that an adapter's digest covers: they are left out if the digest itself differs."""


def request_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return the fields that differ between two canonical requests; IGNORED_FIELDS are not compared."""
    before, after = dict(flatten_fields(then)), dict(flatten_fields(now))
    names = [*after, *(name for name in before if name not in after)]
    if before.get(ADAPTER) != after.get(ADAPTER):
        names = [name for name in names if not name.startswith(OF_THE_ADAPTER)]
    return tuple(
        (name, before.get(name, ABSENT_VALUE), after.get(name, ABSENT_VALUE))
        for name in names
        if before.get(name) != after.get(name)
    )


def flatten_fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield a request's fields as (dotted name, value)."""
    if path in IGNORED_FIELDS:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from flatten_fields(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) and "id" in one for one in value):
        yield path, ", ".join(str(one["id"]) for one in value)
        for one in value:  # groups: a changed title is shown alone, not as two whole lists
            yield from flatten_fields({name: item for name, item in one.items() if name != "id"}, f"{path}.{one['id']}")
    elif isinstance(value, list | tuple):
        yield path, ", ".join(map(str, value)) or ABSENT_VALUE
    else:
        yield path, ABSENT_VALUE if value is None else str(value)
