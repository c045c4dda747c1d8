"""The token draw by OpenDP's noisy maximum: a second implementation, which checks the draw from the integer table.

Gumbel noise of scale tau/u is added to every score, and the place of the largest is drawn: P(v) ~ exp(k_v u / tau).
"""

from typing import Any

from tasks.accounting.rounding import float_above
from tasks.mechanisms.core.opendp import check_with_opendp, load_opendp
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism


def noisy_max(draw: IntegerTableMechanism) -> Any:
    """Return OpenDP's measurement of a list of scores, with the parameters of a draw whose charge its map confirms.

    Scores may move in opposite directions, so the metric is not the monotonic one, which charges a quarter.

    Raises:
        OpenDPChargesMore: its map does not confirm the charge.
    """
    dp = load_opendp()
    scores = dp.vector_domain(dp.atom_domain(T="i64"))
    metric = dp.linf_distance(T="i64", monotonic=False)
    scale = float_above(draw.temperature * draw.references * 2**draw.grid_exponent)
    measurement = dp.m.make_noisy_max(scores, metric, dp.zero_concentrated_divergence(), scale=scale)
    return check_with_opendp(measurement, draw.clip_steps, draw.loss())
