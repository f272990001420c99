"""What a mechanism promises, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """A privacy guarantee of one draw, with the neighbour relation under which it holds.

    Attributes:
        epsilon: pure differential privacy: log P(Y in S) differs by at most this between neighbours.
        bounded_range: the largest log-ratio minus the smallest, over outputs, is at most this (Durfee and Rogers 2019). Composes
            better than ``epsilon`` alone says: it implies ``bounded_range**2 / 8``-zCDP.
        neighbors: ``"add_remove"`` or ``"swap"``.

    >>> print(Guarantee(1.0, 1.0, "swap"))
    1-DP and 1-bounded-range under swap neighbors
    """

    epsilon: float
    bounded_range: float
    neighbors: str

    def __str__(self) -> str:
        return f"{self.epsilon:g}-DP and {self.bounded_range:g}-bounded-range under {self.neighbors} neighbors"


def concrete_epsilon(epsilon: float) -> float:
    """Return a positive finite epsilon as a Python float: a guarantee is a fact about public numbers, not about arrays.

    Raises:
        ValueError: it is not finite and positive.
    """
    value = float(epsilon)
    if not 0 < value < float("inf"):
        raise ValueError(f"epsilon must be finite and positive, got {epsilon}.")
    return value
