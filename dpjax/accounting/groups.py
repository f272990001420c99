"""Guarantees for several individuals at once, and for mechanisms on disjoint parts of the data."""

from __future__ import annotations

from dataclasses import replace
from math import expm1, inf
from typing import Literal

import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee, one_unit, orders_of, points_of, promising


def for_groups(guarantee: Guarantee, *, size: int) -> Guarantee:
    """Return what the same mechanism promises to groups of ``size`` individuals, who may all change at once.

    k epsilon, k times the range and mu of Gaussian DP, and k^2 rho; with a delta, k epsilon at delta (1 + e^epsilon + ... +
    e^((k-1) epsilon)) alone.

    Args:
        guarantee: for one individual.
        size: k, at least 1 and at most 2^53.

    Returns:
        A :class:`Guarantee` whose neighbours differ in up to k individuals, of the kind that its relation says.

    Raises:
        ValueError: nothing is promised to groups: delta would be 1 or more, or only Renyi divergences are known.

    References:
        Dwork and Roth (2014), Theorem 2.2; Bun and Steinke (2016), Proposition 1.9.

    >>> print(for_groups(Guarantee(0.5, 0.5, "swap"), size=3))
    1.5-DP and 1.5-bounded-range under swap neighbors
    """
    checks.instance("for_groups", guarantee, Guarantee, "what one individual is promised")
    size = checks.static_integer("size", size, 1, 2**53)
    if size == 1:
        return guarantee
    epsilon, delta = size * guarantee.epsilon, guarantee.delta
    if delta and guarantee.epsilon:  # the sum of the powers of e^epsilon, rounded up
        delta *= expm1(epsilon) / expm1(guarantee.epsilon) * (1 + 1e-15) if epsilon < 700 else inf
    elif delta:
        delta *= size
    if not (delta < 1 and epsilon < inf):  # it promises nothing
        epsilon, delta = inf, 0.0
    # The events of which a delta speaks are others for each pair on the way: only (epsilon, delta)-DP carries over then.
    kept = (size * guarantee.bounded_range, size**2 * guarantee.zcdp, size * guarantee.gdp)
    bounded_range, zcdp, gdp = (inf, inf, inf) if guarantee.delta else kept
    return promising(Guarantee(epsilon, bounded_range, guarantee.neighbors, delta, zcdp, gdp=gdp, unit=guarantee.unit))


def parallel(*guarantees: Guarantee, membership: Literal["by_value", "by_position"]) -> Guarantee:
    """Return what mechanisms cost together that each see one part of the data, where every record belongs to one part.

    Args:
        guarantees: of the mechanisms, all under one relation and for one unit; the parts are public, and chosen without the data.
        membership: ``"by_value"``: a record's part depends on the record, as with groups. Then one person more or less is in one
            part, but a replaced one can leave a part for another: swap neighbours are refused. ``"by_position"``: it depends on the
            record's number only, so that a replaced record stays in its part. (Under add/remove the others must keep their numbers:
            places of a padded array, not what moves up when one is missing.)

    Returns:
        A :class:`Guarantee`: the largest of each promise, and of the zCDP that each part's promises imply. A part without an
        epsilon beside one with a delta counts with its epsilon at the largest delta. Where a part has a curve of Renyi divergences
        and no part has a delta, the largest of the parts' at each order, too: neighbours differ in one part, so the privacy loss of
        all parts together is that of one.

    References:
        McSherry (2009), Theorem 4.

    >>> parts = Guarantee(0.5, 0.5, "add_remove"), Guarantee(0.2, 0.4, "add_remove")
    >>> print(parallel(*parts, membership="by_value"))
    0.5-DP and 0.5-bounded-range under add_remove neighbors
    """
    for part in guarantees:
        checks.instance("parallel", part, Guarantee, "what one part costs; of a Composition, its guarantee()")
    relations = sorted({part.neighbors for part in guarantees})
    if len(relations) != 1:
        raise ValueError(f"parallel composition needs guarantees under one relation, got {relations}.")
    check_membership(membership, relations[0])
    unit = one_unit(part.unit for part in guarantees)
    delta = max(part.delta for part in guarantees)
    epsilon = max(part.epsilon_at(delta) if delta and part.epsilon == inf else part.epsilon for part in guarantees)
    bounded_range, gdp = max(part.bounded_range for part in guarantees), max(part.gdp for part in guarantees)
    kept = Guarantee(epsilon, bounded_range, relations[0], delta, gdp=gdp, unit=unit)
    rho = max(part.rho for part in guarantees)
    if rho < kept.rho:
        kept = replace(kept, zcdp=rho)
    orders = orders_of(guarantees)
    divergences = np.max([part.rdp(orders) for part in guarantees], axis=0)
    if not np.any(divergences < kept.rdp(orders)):
        return promising(kept)
    return replace(kept, renyi=points_of(orders, divergences))


def check_membership(membership: str, neighbors: str) -> None:
    """Refuse an unknown option, and replaced records that can change their part."""
    if checks.one_of("membership", membership, ("by_value", "by_position")) == "by_value" and neighbors == "swap":
        raise ValueError(
            "a replaced record can move from one part to another, which changes the size of both; swap guarantees do not cover "
            "that: use mechanisms under add_remove neighbors, whose sum for the two parts holds."
        )
