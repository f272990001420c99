"""The epsilon of each of several queries, from the epsilon and delta of all of them together."""

from __future__ import annotations

from math import inf, log, nextafter
from sys import float_info
from typing import Literal

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.composition_theorems import Queries, bounded_range_delta
from dpjax.accounting.guarantee import Guarantee, exact_total
from dpjax.numerics.solve import root


def epsilon_per_query(
    *,
    count: int,
    epsilon: float,
    delta: float,
    promise: Literal["pure", "bounded_range"] = "bounded_range",
    queries: Queries = "adaptive",
) -> float:
    """Return the largest epsilon of each of ``count`` queries, together (epsilon, delta)-DP.

    The inverse of the tightest rule of :class:`Composition`, and for fixed queries of bounded range
    of :func:`bounded_range_delta`, rounded down, to a relative error of 1e-6. The rule ``"losses"``
    is not used, since the noise of a mechanism must not depend on which packages are installed. For
    JAX arrays and gradients, use zCDP instead:
    ``bounded_range_of_zcdp(zcdp_of(epsilon, delta=delta) / count)``, or ``pure_of_zcdp``.

    Args:
        count: the number of queries, at least 1.
        epsilon: the epsilon of all queries together, positive.
        delta: the delta of all queries together, in [0, 1); at 0 epsilon is divided evenly.
        promise: the guarantee of each query: ``"bounded_range"`` epsilon (all exponential
            mechanisms of this library, among them piecewise Laplace), or ``"pure"`` epsilon-DP only
            (Laplace noise).
        queries: ``"fixed"`` or ``"adaptive"``, as for :func:`bounded_range_delta`.

    >>> each = epsilon_per_query(count=4, epsilon=1.0, delta=1e-6)
    >>> round(each, 3), round((4 * Guarantee(each, each, "swap")).epsilon_at(1e-6), 4)
    (0.276, 1.0)
    """
    checks.one_of("promise", promise, ("pure", "bounded_range"))
    checks.one_of("queries", queries, ("fixed", "adaptive"))
    count = checks.static_integer("count", count, 1)
    epsilon, delta = checks.concrete_epsilon(epsilon), checks.concrete_fraction("delta", delta)

    def excess(each: float) -> float:
        if queries == "fixed" and promise == "bounded_range":
            spent_delta = bounded_range_delta(each, count=count, epsilon=epsilon, queries="fixed")
            return log(max(spent_delta, float_info.min)) - log(delta)
        spent = Composition(
            ((Guarantee(each, each if promise == "bounded_range" else inf, "swap"), count),)
        )
        return min(spent.rules_at(delta, numerical=False).values()) - epsilon

    low = epsilon / count
    if delta == 0:
        while exact_total([(low, count)]) > epsilon:
            low = nextafter(low, 0.0)
        return low
    high = 2 * low
    while excess(high) <= 0:
        high *= 2
    while excess(low) > 0:
        low *= 1 - 5e-7
    return root(excess, low, high, 5e-7)
