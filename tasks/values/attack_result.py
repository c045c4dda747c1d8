"""Result of an attack: a metric's result, so code that stores, shows or bounds metrics handles attacks, too.

Its exposure is `internal` wherever the attack was judged by governed data: it says who was in it (PRIVACY §7). On a
public twin everything is public.
"""

from typing import TypeAlias

from tasks.values.metric_result import MetricResult

AttackResult: TypeAlias = MetricResult
"""Result of an attack on a release: name, exposure, figures with 95 % intervals, source, method, line."""
