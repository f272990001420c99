"""Group privacy, and parallel composition of mechanisms on disjoint parts of the data."""

from __future__ import annotations

from dataclasses import replace
from math import expm1, inf
from typing import Literal

import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Composition, Guarantee, orders_of, points_of, promising
from dpjax.accounting.sums import times


def for_groups(guarantee: Guarantee, *, size: int) -> Guarantee:
    """Return the guarantee of the same mechanism for groups of individuals.

    The ``size`` individuals of a group may all change at once. It has k epsilon, k times the range
    and the mu of Gaussian DP, and k^2 rho. If delta > 0, it has only k epsilon, at delta (1 +
    e^epsilon + ... + e^((k-1) epsilon)).

    Args:
        guarantee: the guarantee for one individual.
        size: k, at least 1 and at most 2^53.

    Returns:
        A :class:`Guarantee` whose neighbors differ in up to k individuals, each of them added,
        removed or replaced as its relation states.

    Raises:
        ValueError: nothing is promised to groups: delta would be 1 or more, or only Renyi
            divergences are known.

    References:
        Dwork and Roth (2014), Theorem 2.2; Bun and Steinke (2016), Proposition 1.9.

    >>> print(for_groups(Guarantee(0.5, 0.5, "swap"), size=3))
    1.5-DP under swap neighbors
    """
    checks.instance("for_groups", guarantee, Guarantee, "what one individual is promised")
    size = checks.static_integer("size", size, 1, 2**53)
    if size == 1:
        return guarantee

    epsilon = times(guarantee.epsilon, size)
    if guarantee.delta:
        # It refers to events that differ between the consecutive pairs of a group: only (epsilon,
        # delta)-DP carries over. The sum of the powers of e^epsilon, rounded up:
        growth: float = size
        if guarantee.epsilon:
            growth = expm1(epsilon) / expm1(guarantee.epsilon) if epsilon < 700 else inf
        delta = guarantee.delta * growth * (1 + 1e-12)
        if not (delta < 1 and epsilon < inf):
            return promising(Guarantee(neighbors=guarantee.neighbors))
        return Guarantee(epsilon, neighbors=guarantee.neighbors, delta=delta, unit=guarantee.unit)
    return promising(
        replace(
            guarantee,
            epsilon=epsilon,
            bounded_range=times(guarantee.bounded_range, size),
            zcdp=times(guarantee.zcdp, size**2),
            gdp=times(guarantee.gdp, size),
            renyi=(),
            laplace=inf,
            sampled=(),
        )
    )


def parallel(*guarantees: Guarantee, membership: Literal["by_value", "by_position"]) -> Guarantee:
    """Return the guarantee of mechanisms that each see one part of the data.

    Every record belongs to one part.

    Args:
        guarantees: the guarantees of the mechanisms, one per part, all under one relation and for
            one unit. The parts are public, and chosen without the data.
        membership: ``"by_value"`` if a record's part depends on its value, as with groups. A record
            that is added or removed then changes one part, but a replaced one can move to another
            part, so swap neighbors are refused. ``"by_position"`` if the part depends on the
            record's position only, so that a replaced record stays in its part. (Under add/remove
            the other records must keep their positions, as in a padded array, and not move up where
            one is missing.)

    Returns:
        A :class:`Guarantee` with the largest value of each promise, and of the zCDP that each
        part's guarantee implies. If some part has a delta, a part without an epsilon counts with
        its epsilon at the largest delta. If some part has a Renyi curve and none has a delta, the
        result has the largest divergence at each order, too: neighbors differ in one part, so the
        privacy loss of all parts together is that of one part.

    Raises:
        TypeError: an argument is not a :class:`Guarantee`.
        ValueError: the relations or units differ, or ``"by_value"`` with swap neighbors, or nothing
            is promised.

    References:
        McSherry (2009), Theorem 4.

    >>> parts = Guarantee(0.5, 0.5, "add_remove"), Guarantee(0.2, 0.4, "add_remove")
    >>> print(parallel(*parts, membership="by_value"))
    0.5-DP under add_remove neighbors
    """
    whole = Composition(tuple((part, 1) for part in guarantees))  # of one relation and unit
    check_membership(membership, whole.neighbors)
    delta = max(part.delta for part in guarantees)
    orders = orders_of(guarantees)
    return promising(
        Guarantee(
            float(
                max(
                    part.epsilon_at(delta) if delta and part.epsilon == inf else part.epsilon
                    for part in guarantees
                )
            ),
            max(part.bounded_range for part in guarantees),
            whole.neighbors,
            delta,
            float(max(part.zcdp for part in guarantees)),
            points_of(orders, np.max([part.rdp(orders) for part in guarantees], axis=0)),
            max(part.gdp for part in guarantees),
            unit=whole.unit,
        )
    )


def check_membership(membership: str, neighbors: str) -> None:
    """Validate ``membership``; ``"by_value"`` is refused under swap neighbors."""
    if (
        checks.one_of("membership", membership, ("by_value", "by_position")) == "by_value"
        and neighbors == "swap"
    ):
        raise ValueError(
            'membership="by_value" needs add_remove neighbors: a replaced record can move to '
            "another part and change the sizes of "
            "both, which swap guarantees do not cover; under add_remove, replacing costs the sum "
            "over the two parts."
        )
