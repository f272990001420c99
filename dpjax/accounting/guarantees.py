"""What a mechanism promises, as data."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Guarantee:
    """A privacy guarantee of one draw, with the neighbour relation under which it holds.

    A promise that a mechanism does not make is infinite (``delta`` is then 0): noise that is only zCDP has an infinite ``epsilon``.

    Attributes:
        epsilon: differential privacy: log P(Y in S) differs by at most this between neighbours, but for ``delta``.
        bounded_range: the largest log-ratio minus the smallest, over outputs, is at most this (Durfee and Rogers 2019). Composes
            better than ``epsilon`` alone says: it implies ``bounded_range**2 / 8``-zCDP.
        neighbors: ``"add_remove"``, ``"swap"`` or, for graphs, ``"edge"``.
        delta: 0 for pure differential privacy.
        zcdp: rho of zero-concentrated differential privacy (Bun and Steinke 2016), where the mechanism is analysed by it.

    >>> print(Guarantee(1.0, 1.0, "swap"))
    1-DP and 1-bounded-range under swap neighbors
    >>> print(Guarantee(1.0, float("inf"), "add_remove", delta=1e-6))
    (1, 1e-06)-DP under add_remove neighbors
    """

    epsilon: float
    bounded_range: float
    neighbors: str
    delta: float = 0.0
    zcdp: float = inf

    def __str__(self) -> str:
        promises = []
        if self.epsilon < inf:
            promises.append(f"({self.epsilon:g}, {self.delta:g})-DP" if self.delta else f"{self.epsilon:g}-DP")
        if self.bounded_range < inf:
            promises.append(f"{self.bounded_range:g}-bounded-range")
        if self.zcdp < inf:
            promises.append(f"{self.zcdp:g}-zCDP")
        return f"{' and '.join(promises)} under {self.neighbors} neighbors"


def concrete_epsilon(epsilon: float) -> float:
    """Return a positive finite epsilon as a Python float: a guarantee is a fact about public numbers, not about arrays.

    Raises:
        TypeError: it is an array of several, or traced.
        ValueError: it is not finite and positive.
    """
    value = _concrete("epsilon", epsilon)
    if not 0 < value < float("inf"):
        raise ValueError(f"epsilon must be finite and positive, got {epsilon}.")
    return value


def concrete_delta(delta: float) -> float:
    """Return a delta strictly between 0 and 1 as a Python float.

    Raises:
        TypeError: it is an array of several, or traced.
        ValueError: it is not between them.
    """
    value = _concrete("delta", delta)
    if not 0 < value < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}.")
    return value


def _concrete(name: str, value: float) -> float:
    try:
        return float(value)
    except TypeError:  # JAX's error for a traced value is one too
        raise TypeError(f"a guarantee is about one concrete {name}, not about an array or a traced value; got {value!r}.") from None
