"""The neighbor relation of a guarantee: that of a mechanism's first argument, or a name."""

from __future__ import annotations

from math import inf
from typing import Any

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee


def relation_of(
    statistic: Any, neighbors: str | None = None, *, known: tuple[str, ...] = checks.RELATIONS
) -> str:
    """Return the relation of a profile, scores, records or a guarantee, or the one of a name.

    ``neighbors`` is the relation if ``statistic`` is an array; ``known`` are the relations under
    which the mechanism is private.

    >>> relation_of("swap"), relation_of(Guarantee(1.0, 1.0, "edge"))
    ('swap', 'edge')
    """
    found = getattr(statistic, "neighbors", statistic if neighbors is None else neighbors)
    if neighbors not in (None, found):
        raise ValueError(
            f"neighbors must be {found!r}, the relation of these scores, got {neighbors!r}."
        )
    if not isinstance(found, str):
        raise TypeError(
            "the first argument of guarantee must be that of the mechanism, if it has a neighbor "
            "relation, and otherwise the name of the relation, such as 'add_remove' or 'swap'; "
            f"got {type(statistic).__name__}."
        )
    return checks.one_of("the neighbor relation", found, known)


def pure(
    statistic: Any, epsilon: float, *, ranges: int = 1, known: tuple[str, ...] = checks.RELATIONS
) -> Guarantee:
    """Return an epsilon-DP guarantee with bounded range ``ranges * epsilon``."""
    cost = checks.concrete_epsilon(epsilon)
    return Guarantee(cost, ranges * cost, relation_of(statistic, known=known))


def approximate(statistic: Any, epsilon: float, delta: float) -> Guarantee:
    """Return an (epsilon, delta)-DP guarantee under the relation of a statistic."""
    return Guarantee(
        checks.concrete_epsilon(epsilon),
        inf,
        relation_of(statistic),
        delta=checks.concrete_delta(delta),
    )
