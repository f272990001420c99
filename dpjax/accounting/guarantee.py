"""What a mechanism promises, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import exp, expm1, fsum, inf, isnan, log, log1p, prod
from sys import float_info
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting import composition, formulas


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
        renyi: pairs of an order above 1 and a Renyi divergence, increasing in both: points of the mechanism's own curve, where one
            is known that is below what the other promises imply; :meth:`with_curve` makes them of a function.

    Guarantees of one relation add up, and multiply: ``g + h`` and ``100 * g`` are a :class:`Composition`.

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
    renyi: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("epsilon", "bounded_range", "delta", "zcdp"):
            value = getattr(self, name)
            if isinstance(value, (bool, str)):
                raise TypeError(f"{name} must be a number, got {value!r}.")
            number = float(value)  # of NumPy's narrow types, too, whose arithmetic overflows
            if isnan(number) or number < 0 or (name == "delta" and number >= 1):
                raise ValueError(f"{name} must not be negative{' and below 1' if name == 'delta' else ''}, got {value}.")
            object.__setattr__(self, name, number)
        points = tuple((float(order), float(divergence)) for order, divergence in self.renyi)
        orders, divergences = np.array(points).reshape(-1, 2).T
        ordered = np.all(np.diff(orders) > 0) and np.all(np.diff(divergences) >= 0)
        if not (ordered and np.all(np.isfinite(points)) and np.all(orders > 1) and np.all(divergences >= 0)):
            raise ValueError(f"renyi must be pairs of orders above 1 and divergences, increasing, got {self.renyi}.")
        object.__setattr__(self, "renyi", points)
        if self.neighbors not in checks.RELATIONS:
            raise ValueError(f"neighbors must be one of {', '.join(checks.RELATIONS)}, got {self.neighbors!r}.")

    def __str__(self) -> str:
        promises = []
        if self.epsilon < inf:
            promises.append(f"({self.epsilon:g}, {self.delta:g})-DP" if self.delta else f"{self.epsilon:g}-DP")
        if self.bounded_range < inf:
            promises.append(f"{self.bounded_range:g}-bounded-range")
        if self.zcdp < inf:
            promises.append(f"{self.zcdp:g}-zCDP")
        if self.renyi:
            promises.append(f"Renyi DP at orders {self.renyi[0][0]:g} to {self.renyi[-1][0]:g}")
        return f"{' and '.join(promises) or 'no promise'} under {self.neighbors} neighbors"

    def with_curve(self, curve: Callable[[np.ndarray], Any]) -> Guarantee:
        """Return the same promises and 128 points of a curve of Renyi divergences, at orders from 1.001 to 10^4.

        Args:
            curve: from orders, float64 ``(128,)``, to divergences, not below the true ones and not decreasing.

        Raises:
            ValueError: divergences that decrease or are not finite.

        >>> noise = Guarantee(1.0, 2.0, "swap")  # Laplace
        >>> from dpjax.accounting import rdp_of_laplace
        >>> tight = noise.with_curve(lambda order: rdp_of_laplace(1.0, order=order))
        >>> round((20 * noise).rules_at(1e-6)["rdp"], 2), round((20 * tight).rules_at(1e-6)["rdp"], 2)
        (20.0, 19.74)
        """
        orders = 1 + np.geomspace(1e-3, 1e4, 128)
        points = zip(orders.tolist(), np.asarray(curve(orders), np.float64).tolist(), strict=True)
        return replace(self, renyi=tuple(points))

    def __add__(self, other: Guarantee | Composition) -> Composition:
        return Composition(((self, 1),)) + other

    def __radd__(self, other: int) -> Composition:
        return Composition(((self, 1),)).__radd__(other)

    def __mul__(self, count: int) -> Composition:
        return Composition(((self, count),))

    __rmul__ = __mul__

    def epsilon_at(self, delta: float) -> float:
        """The smallest epsilon at ``delta`` that follows; see :meth:`Composition.epsilon_at`.

        >>> round(Guarantee(1.0, 1.0, "swap").epsilon_at(0.01), 3)
        0.834
        """
        return (1 * self).epsilon_at(delta)

    def delta_at(self, epsilon: float) -> float:
        """The smallest delta at ``epsilon`` that follows; see :meth:`Composition.delta_at`."""
        return (1 * self).delta_at(epsilon)

    @property
    def rho(self) -> float:
        """The smallest rho of zCDP that follows: of ``zcdp``, ``bounded_range**2 / 8`` and ``epsilon * tanh(epsilon / 2)``.

        With a delta that has no ``zcdp`` beside it, it holds but for an event of probability ``delta``.
        """
        pure = float(formulas.zcdp_of_pure(np.asarray(self._pure), np)) if self._pure < inf else inf
        # The points of a curve say nothing of all orders.
        least = 0.0 if 0 in (self.zcdp, self.bounded_range, self._pure) else float_info.min  # a square that underflows
        return max(min(self.zcdp, self.bounded_range * self.bounded_range / 8, pure), least)

    def rdp(self, order: Any) -> np.ndarray:
        """The smallest Renyi divergence that follows, for orders above 1 of any shape, float64; ``delta`` as for :attr:`rho`.

        Raises:
            ValueError: an order that is not above 1.
        """
        a = np.asarray(order, np.float64)
        if not np.all(a > 1):
            raise ValueError(f"orders must be above 1, got {order}.")
        found = self.zcdp * a
        if self.bounded_range < inf:
            found = np.minimum(found, formulas.rdp_of_bounded_range(np.full_like(a, self.bounded_range), a, np))
        if self._pure < inf:
            found = np.minimum(found, formulas.rdp_of_pure(np.full_like(a, self._pure), a, np))
        if self.renyi:
            orders, divergences = np.array(self.renyi).T
            # (a - 1) D(a) is convex, so chords lie above it; below the first order D is at most what it is there.
            between = np.interp(a, orders, (orders - 1) * divergences) / (a - 1)
            found = np.minimum(found, np.where(a < orders[0], divergences[0], np.where(a > orders[-1], inf, between)))
        return found

    @property
    def _pure(self) -> float:
        """The epsilon to convert; none if there is a delta that zCDP spares."""
        return inf if self.delta and self.zcdp < inf else self.epsilon


@dataclass(frozen=True)
class Composition:
    """What a pipeline of mechanisms costs, each of which may depend on the answers before it (their costs may not).

    Sums of guarantees make it. Where the costs depend on answers too, a :class:`PrivacyFilter` is needed.

    Attributes:
        parts: pairs of a guarantee and how many mechanisms have it, all under one neighbour relation.

    Raises:
        ValueError: no parts, or parts under different relations, which do not compose.

    >>> each = Guarantee(0.1, 0.1, "add_remove")
    >>> spent = 100 * each + Guarantee(0.5, 1.0, "add_remove")
    >>> print(spent)
    101 mechanisms: 10.5-DP and 0.247459-zCDP and (2.85123, 1e-06)-DP (rdp) under add_remove neighbors
    """

    parts: tuple[tuple[Guarantee, int], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a composition needs at least one guarantee.")
        for guarantee, count in self.parts:
            if not isinstance(guarantee, Guarantee):
                raise TypeError(f"parts are pairs of a Guarantee and a number, got {type(guarantee).__name__}.")
            checks.static_integer("a number of mechanisms", count, 1)
        relations = sorted({guarantee.neighbors for guarantee, _ in self.parts})
        if len(relations) > 1:
            raise ValueError(
                f"guarantees under {' and '.join(relations)} neighbors do not compose: state them all for one relation."
            )
        together: dict[Guarantee, int] = {}
        for guarantee, count in self.parts:
            together[guarantee] = together.get(guarantee, 0) + int(count)
        object.__setattr__(self, "parts", tuple(together.items()))

    def __add__(self, other: Guarantee | Composition) -> Composition:
        if isinstance(other, Guarantee):
            other = Composition(((other, 1),))
        return Composition(self.parts + other.parts) if isinstance(other, Composition) else NotImplemented

    def __radd__(self, other: int) -> Composition:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # the start of sum()

    def __mul__(self, count: int) -> Composition:
        times = checks.static_integer("a number of mechanisms", count, 1)
        return Composition(tuple((guarantee, number * times) for guarantee, number in self.parts))

    __rmul__ = __mul__

    def __str__(self) -> str:
        promises = [] if self.epsilon == inf or self.delta else [f"{self.epsilon:g}-DP"]
        if self.delta and self.epsilon < inf:
            promises.append(f"({self.epsilon:g}, {self.delta:g})-DP")
        if self.rho < inf and not self.slack:
            promises.append(f"{self.rho:g}-zCDP")
        target = max(1e-6, 2 * self.delta)
        if target < 1:
            rule, epsilon = self.best_rule_at(target)
            promises.append(f"({epsilon:g}, {target:g})-DP ({rule})")
        return f"{self.count} mechanisms: {' and '.join(promises)} under {self.neighbors} neighbors"

    @property
    def count(self) -> int:
        """How many mechanisms."""
        return sum(count for _, count in self.parts)

    @property
    def neighbors(self) -> str:
        """The relation of all of them."""
        return self.parts[0][0].neighbors

    @property
    def epsilon(self) -> float:
        """The sum: epsilon of the whole at :attr:`delta` (basic composition)."""
        return _total(guarantee.epsilon * count for guarantee, count in self.parts)

    @property
    def delta(self) -> float:
        """The sum of all deltas."""
        return _total(guarantee.delta * count for guarantee, count in self.parts)

    @property
    def slack(self) -> float:
        """The sum of the deltas that :attr:`rho` and :meth:`rdp` leave out: of parts with no zCDP promise beside them."""
        return _total(guarantee.delta * count for guarantee, count in self.parts if guarantee.zcdp == inf)

    @property
    def bounded_range(self) -> float:
        """The sum of the ranges."""
        return _total(guarantee.bounded_range * count for guarantee, count in self.parts)

    @property
    def rho(self) -> float:
        """The sum of zCDP, each by its tightest conversion, but for an event of probability :attr:`slack`."""
        return _total(guarantee.rho * count for guarantee, count in self.parts)

    def rdp(self, order: Any) -> np.ndarray:
        """The sum of Renyi divergences, but for an event of probability :attr:`slack`; float64 of the shape of ``order``."""
        return np.sum([count * guarantee.rdp(order) for guarantee, count in self.parts], axis=0)

    def guarantee(self) -> Guarantee:
        """All mechanisms as one, by what adds up: epsilon at the sum of deltas, range, and zCDP if it leaves out no delta."""
        zcdp = inf if self.slack else self.rho
        if self.delta >= 1:  # nothing is left of the epsilon
            return Guarantee(inf, self.bounded_range, self.neighbors, 0.0, zcdp)
        return Guarantee(self.epsilon, self.bounded_range, self.neighbors, self.delta, zcdp)

    def rules_at(self, delta: float) -> dict[str, float]:
        """The epsilon at ``delta`` by every rule that applies, for adaptive mechanisms.

        ``"basic"``: the sum. ``"optimal"``: exact for the worst pure mechanisms, if they have few outcomes together.
        ``"bounded_range"``: the adaptive recursion, for up to 200 mechanisms of one range. ``"rdp"``: the best order of the summed
        Renyi divergences (zCDP among them), each the tightest of its mechanism. Deltas of the parts are taken off ``delta`` first.

        Args:
            delta: in (0, 1).

        Raises:
            ValueError: a ``delta`` out of range.
        """
        if not 0 < float(delta) < 1:
            raise ValueError(f"delta must be between 0 and 1, got {delta}.")
        found: dict[str, float] = {}
        pure = all(guarantee.epsilon < inf for guarantee, _ in self.parts)
        kept = self._kept()
        if pure and -expm1(kept) <= delta:
            found["basic"] = self.epsilon
            rest = -expm1(log1p(-delta) - kept)  # 1 - (1 - delta) / prod(1 - delta_i)
            if rest > 0 and self._few_outcomes():
                found["optimal"] = composition.optimal_pure_epsilon(*self._pure_parts(), delta=rest) if self.epsilon else 0.0
        if self.slack >= delta:
            return found
        if (one := self._one_range()) is not None:
            found["bounded_range"] = composition.bounded_range_epsilon(one, count=self.count, delta=delta, queries="adaptive")
        if self._has_curve():
            nats = -log(delta - self.slack)

            def epsilon(order: Any, log_above: Any) -> Any:
                return formulas.epsilon_at_order(self.rdp(order), order, log_above, nats, np)

            found["rdp"] = max(float(epsilon(*formulas.best_order(epsilon, (), np.float64, np))), 0.0)
        return found

    def best_rule_at(self, delta: float) -> tuple[str, float]:
        """The rule with the smallest epsilon at ``delta``, and that epsilon; ``("none", inf)`` if none applies."""
        return min(self.rules_at(delta).items(), key=lambda rule: rule[1], default=("none", inf))

    def epsilon_at(self, delta: float) -> float:
        """The smallest epsilon of all rules at ``delta``; inf if the parts' own deltas are larger.

        Args:
            delta: in (0, 1).

        Raises:
            ValueError: a ``delta`` out of range.
        """
        return self.best_rule_at(delta)[1]

    def delta_at(self, epsilon: float) -> float:
        """The smallest delta at ``epsilon``, by the same rules; at most 1.

        Args:
            epsilon: not negative.

        Raises:
            ValueError: a negative ``epsilon``.
        """
        if not 0 <= float(epsilon) < inf:
            raise ValueError(f"epsilon must be finite and not negative, got {epsilon}.")
        found = [1.0]
        if all(guarantee.epsilon < inf for guarantee, _ in self.parts):
            kept = self._kept()
            if self.epsilon <= epsilon:
                found.append(-expm1(kept))
            elif self._few_outcomes():
                rest = composition.optimal_pure_delta(*self._pure_parts(), epsilon=epsilon)
                found.append(-expm1(kept + log1p(-rest)) if rest < 1 else 1.0)
        if (one := self._one_range()) is not None:
            found.append(composition.bounded_range_delta(one, count=self.count, epsilon=epsilon, queries="adaptive"))
        if self._has_curve():

            def log_delta(order: Any, log_above: Any) -> Any:
                return formulas.log_delta_at_order(self.rdp(order), order, log_above, epsilon, np)

            rest = exp(min(float(log_delta(*formulas.best_order(log_delta, (), np.float64, np))), 0.0))
            found.append(self.slack + max(rest, float_info.min))  # 0 would say pure DP
        return min(found)

    def _kept(self) -> float:
        """The logarithm of the product of all 1 - delta."""
        return _total(count * log1p(-guarantee.delta) for guarantee, count in self.parts)

    def _pure_parts(self) -> tuple[list[float], list[int]]:
        """Epsilons above 0 and how often, as :func:`optimal_pure_delta` takes them."""
        parts = [(guarantee.epsilon, count) for guarantee, count in self.parts if guarantee.epsilon]
        return [epsilon for epsilon, _ in parts], [count for _, count in parts]

    def _has_curve(self) -> bool:
        return all(guarantee.rho < inf or guarantee.renyi for guarantee, _ in self.parts)

    def _few_outcomes(self) -> bool:
        return prod(count + 1 for _, count in self.parts) <= composition.MOST_OUTCOMES

    def _one_range(self) -> float | None:
        """The range of all, if it is one and they are few."""
        ranges = {guarantee.bounded_range for guarantee, _ in self.parts}
        one = min(ranges)
        pure = not any(guarantee.delta for guarantee, _ in self.parts)
        return one if pure and len(ranges) == 1 and 0 < one < inf and self.count <= 200 else None


def _total(numbers: Iterable[float]) -> float:
    try:
        return fsum(numbers)
    except OverflowError:
        return inf
