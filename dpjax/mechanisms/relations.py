"""The neighbour relation that a guarantee holds under: that of what a mechanism takes, or by its name."""

from math import inf
from typing import Any

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee


def relation_of(statistic: Any, neighbors: str | None = None, *, known: tuple[str, ...] = checks.RELATIONS) -> str:
    """Return the relation of a statistic (a profile, scores, records, a guarantee), or the one of this name.

    ``neighbors`` is that of an array whose shape matters; ``known`` are those that the mechanism is private under.

    >>> relation_of("swap"), relation_of(Guarantee(1.0, 1.0, "edge"))
    ('swap', 'edge')
    """
    found = getattr(statistic, "neighbors", statistic if neighbors is None else neighbors)
    if neighbors not in (None, found):
        raise ValueError(f"these scores hold under {found} neighbors, not {neighbors}.")
    if not isinstance(found, str):
        raise TypeError(
            "a guarantee takes first what the mechanism takes first, if that knows its neighbour relation, and otherwise the "
            f"relation itself, such as 'add_remove' or 'swap'; got {type(statistic).__name__}."
        )
    return checks.one_of("the neighbour relation", found, known)


def pure(statistic: Any, epsilon: float, *, ranges: int = 1, known: tuple[str, ...] = checks.RELATIONS) -> Guarantee:
    """Return epsilon-DP with a bounded range of ``ranges`` epsilon, under the relation of a statistic."""
    cost = checks.concrete_epsilon(epsilon)
    return Guarantee(cost, ranges * cost, relation_of(statistic, known=known))


def approximate(statistic: Any, epsilon: float, delta: float) -> Guarantee:
    """Return (epsilon, delta)-DP under the relation of a statistic."""
    return Guarantee(checks.concrete_epsilon(epsilon), inf, relation_of(statistic), delta=checks.concrete_delta(delta))
