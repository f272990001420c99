"""The total cost of many mechanisms, by the tightest composition rule that applies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from math import expm1, fsum, hypot, inf, log1p, sqrt
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting import conversions, losses, ranges
from dpjax.accounting.gaussian_dp import delta_of_gdp, epsilon_of_gdp
from dpjax.accounting.guarantee import (
    Guarantee,
    Points,
    exact_total,
    one_of_all,
    orders_of,
    points_of,
    promising,
    rounded_up,
)
from dpjax.display import Shown

# The most guarantees that are composed by their losses, each of which takes Fourier transforms
_MOST_KINDS = 32
Parts = tuple[tuple[Guarantee, int], ...]


@dataclass(frozen=True, repr=False)
class Composition(Shown):
    """The cost of several adaptive mechanisms.

    Each mechanism may depend on the previous answers, while its cost may not. Sums and multiples of
    guarantees are compositions. Where the costs depend on answers too, use a
    :class:`PrivacyFilter`. As text, it is the promise of :meth:`guarantee`.

    Attributes:
        parts: pairs of a guarantee and the number of mechanisms that have it, all under one
            neighbor relation and for one unit.

    >>> each = Guarantee(0.1, 0.1, "add_remove")
    >>> spent = 100 * each + Guarantee(0.5, 1.0, "add_remove")
    >>> print(spent)
    10.5-DP under add_remove neighbors
    >>> round(spent.rules_at(1e-6)["rdp"], 5)
    2.85123
    """

    parts: Parts

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a composition needs at least one guarantee.")
        together: dict[Guarantee, int] = {}
        for guarantee, count in self.parts:
            checks.instance("Composition", guarantee, Guarantee, "what one mechanism costs")
            together[guarantee] = together.get(guarantee, 0) + checks.static_integer(
                "a number of mechanisms", count, 1
            )
        object.__setattr__(self, "parts", tuple(together.items()))
        one_of_all("neighbors", (part.neighbors for part in together))
        one_of_all("unit", (part.unit for part in together))

    def __add__(self, other: Guarantee | Composition) -> Composition:
        if not isinstance(other, Guarantee | Composition):
            return NotImplemented
        return Composition(self.parts + (1 * other).parts)

    def __radd__(self, other: int) -> Composition:
        # The start of sum()
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, count: int) -> Composition:
        times = checks.static_integer("a number of mechanisms", count, 1)
        return Composition(tuple((guarantee, number * times) for guarantee, number in self.parts))

    __rmul__ = __mul__

    def __str__(self) -> str:
        try:
            return str(self.guarantee())
        except ValueError:  # nothing is promised
            return str(Guarantee(neighbors=self.neighbors, unit=self.unit))

    def _facts(self) -> dict[str, Any]:
        names = ("count", "epsilon", "delta", "zcdp", "neighbors", "unit")
        return {name: repr(getattr(self, name)) for name in names}

    def to_json(self) -> str:
        """Return all parts as JSON: a list of pairs of a guarantee and a number of mechanisms."""
        return json.dumps([(guarantee.to_dict(), count) for guarantee, count in self.parts])

    @classmethod
    def from_json(cls, text: str) -> Composition:
        """Return the composition that :meth:`to_json` wrote, exactly."""
        return cls(
            tuple((Guarantee.from_dict(guarantee), count) for guarantee, count in json.loads(text))
        )

    @property
    def count(self) -> int:
        """The number of mechanisms."""
        return sum(count for _, count in self.parts)

    @property
    def neighbors(self) -> str:
        """The neighbor relation of all mechanisms."""
        return self.parts[0][0].neighbors

    @property
    def unit(self) -> str:
        """The unit of the guarantees that state one, or ``""``."""
        return one_of_all("unit", (part.unit for part, _ in self.parts))

    @cached_property
    def epsilon(self) -> float:
        """The sum of all epsilons, rounded up: the total epsilon at :attr:`delta`.

        This is basic composition.
        """
        return rounded_up(self.exact_sum("epsilon"))

    @cached_property
    def delta(self) -> float:
        """The sum of all deltas, rounded up.

        With this probability, :attr:`zcdp`, :meth:`rdp` and :attr:`gdp` need not hold.
        """
        return rounded_up(self.exact_sum("delta"))

    @cached_property
    def zcdp(self) -> float:
        """The sum of the rho of zCDP of all mechanisms, rounded up."""
        return rounded_up(self.exact_sum("zcdp"))

    @property
    def bounded_range(self) -> float:
        """The range of all mechanisms together.

        A single mechanism keeps its range. Of several, the interval of a later mechanism's losses
        may depend on the previous answers, so it adds twice its epsilon, which is at most its
        range. Only the first mechanism adds its range alone; it is taken to be the one for which
        this saves least.
        """
        later = 2 * self.exact_sum("epsilon")
        first = min(self.parts, key=lambda part: 2 * part[0].epsilon - part[0].bounded_range)[0]
        if later == inf or first.bounded_range >= 2 * first.epsilon:
            return rounded_up(later)
        return rounded_up(later - 2 * Fraction(first.epsilon) + Fraction(first.bounded_range))

    @property
    def gdp(self) -> float:
        """The mu of Gaussian DP of all mechanisms, the root of the sum of squares, rounded up.

        Infinite if one has none.
        """
        return hypot(*(part.gdp * sqrt(count) for part, count in self.parts)) * (1 + 2.0**-50)

    @np.errstate(over="ignore")
    def rdp(self, order: Any) -> Any:
        """Return the sum of the Renyi divergences of an order.

        It holds except with probability :attr:`delta`.

        Args:
            order: above 1, of any shape.

        Returns:
            Float64 of the shape of ``order``.
        """
        return sum(count * part.rdp(order) for part, count in self.parts)

    def guarantee(self) -> Guarantee:
        """Return the total cost as one guarantee: epsilon, delta, range, zCDP and Gaussian DP.

        Without zCDP, it has the sum of the Renyi divergences at the orders of the parts' curves.

        Raises:
            ValueError: nothing is promised, for instance because the deltas add up to 1.
        """
        if self.delta >= 1:
            return promising(Guarantee(neighbors=self.neighbors))
        if self.count == 1:
            return self.parts[0][0]
        curve: Points = ()
        if self.zcdp == inf:
            orders = orders_of(part for part, _ in self.parts)
            curve = points_of(orders, self.rdp(orders))
        total = Guarantee(
            self.epsilon,
            self.bounded_range,
            self.neighbors,
            self.delta,
            self.zcdp,
            curve,
            self.gdp,
            unit=self.unit,
        )
        return promising(total)

    def rules_at(self, delta: float, *, numerical: bool = True) -> dict[str, float]:
        """Return the epsilon at ``delta`` by every rule that applies to adaptive mechanisms.

        * ``"basic"``: the sum of the epsilons.
        * ``"optimal"``: exact in the worst case for up to two million pure mechanisms of one
          epsilon.
        * ``"gaussian"``: exact for mechanisms that all have Gaussian DP.
        * ``"bounded_range"``: the adaptive recursion, for up to 200 mechanisms of one range.
        * ``"rdp"``: the best order of the sum of Renyi divergences, each the tightest that its
          guarantee implies, zCDP included.
        * ``"losses"``: the privacy loss distributions of pairs that dominate the mechanisms,
          composed numerically by dp-accounting: for up to 32 different guarantees, each with an
          epsilon, Gaussian DP, or the losses of Laplace noise or of a sample, of which no other
          rule is exact. It needs the extra ``accounting``. Without it epsilon can be far larger.

        The mechanisms' own deltas are subtracted from ``delta`` first.

        Args:
            delta: in (0, 1).
            numerical: whether to include ``"losses"``; if false, the result does not depend on
                which packages are installed.

        Returns:
            A dictionary from the name of each rule to its epsilon.

        References:
            Kairouz, Oh and Viswanath (2015); Dong, Durfee and Rogers (2020); Canonne, Kamath and
            Steinke (2020); Dong, Roth and Su (2022); Zhu, Dong and Wang (2022). The files
            ``ranges``, ``conversions``, ``gaussian_dp`` and ``losses`` say more.
        """
        target = checks.concrete_delta(delta)
        # The mechanisms' own deltas leave 1 - (1 - delta) / prod(1 - delta_i).
        left = -expm1(log1p(-target) - self._log_kept)
        found = {
            name: float(rule(delta=left))
            for name, (rule, _) in self._rules.items()
            if left > 0 or (left == 0 and name == "basic")
        }
        if left > 0 and numerical and self._losses_help and losses.installed():
            found["losses"] = losses.epsilon_of(self.parts, target)[0]
        return found

    def losses(self, delta: float) -> Any:
        """Return the distribution of the privacy losses, on a lattice that is fine at ``delta``.

        It is an upper bound, and None if no privacy losses are known or composed at this delta.

        Returns:
            A ``dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution``, with all that
            it can do.

        Raises:
            ImportError: the extra ``accounting`` is not installed.

        >>> import pytest
        >>> _ = pytest.importorskip("dp_accounting")
        >>> twenty = 20 * Guarantee(0.5, 1.0, "add_remove", laplace=0.5)
        >>> round(float(twenty.losses(1e-6).get_delta_for_epsilon(5.0)), 4)
        0.0363
        """
        target = checks.concrete_delta(delta)
        return losses.epsilon_of(self.parts, target)[1] if self._known else None

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon of all rules at ``delta``, in (0, 1).

        Infinite if no rule applies.
        """
        return min(self.rules_at(delta).values(), default=inf)

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon``, at least 0, by the rules of :meth:`rules_at`.

        At most 1.
        """
        target = checks.concrete_nonnegative("epsilon", epsilon)
        own = min([1.0, *(float(rule(epsilon=target)) for _, rule in self._rules.values())])
        # The mechanisms' own deltas included: 1 - (1 - delta) prod(1 - delta_i)
        found = -expm1(self._log_kept + log1p(-own)) if own < 1 else 1.0
        if self._losses_help and losses.installed():
            found = min(found, losses.delta_of(self.parts, target))
        return found

    @cached_property
    def _rules(self) -> dict[str, tuple[Callable[..., float], Callable[..., float]]]:
        """Functions of delta and of epsilon, for mechanisms without a delta; not of the losses."""
        found: dict[str, tuple[Callable[..., float], Callable[..., float]]] = {}
        if self.epsilon < inf:
            found["basic"] = (lambda delta: self.epsilon, lambda epsilon: self.epsilon > epsilon)
        each = {part.epsilon for part, _ in self.parts if part.epsilon}
        paid = sum(count for part, count in self.parts if part.epsilon)
        if len(each) == 1 and self.epsilon < inf and paid < ranges.MOST_OUTCOMES:
            found["optimal"] = (
                partial(ranges.optimal_pure_epsilon, *each, count=paid),
                partial(ranges.optimal_pure_delta, *each, count=paid),
            )
        if 0 < self.gdp < inf:
            found["gaussian"] = (partial(epsilon_of_gdp, self.gdp), partial(delta_of_gdp, self.gdp))
        one, *others = {part.bounded_range for part, _ in self.parts}
        if 0 < one < inf and not others and self.count <= ranges.MOST_STEPS:
            of_all: dict[str, Any] = {"count": self.count, "queries": "adaptive"}
            found["bounded_range"] = (
                partial(ranges.bounded_range_epsilon, one, **of_all),
                partial(ranges.bounded_range_delta, one, **of_all),
            )
        if all(part.zcdp < inf or part.renyi for part, _ in self.parts):
            found["rdp"] = (
                partial(conversions.epsilon_of_rdp, self.rdp),
                partial(conversions.delta_of_rdp, self.rdp),
            )
        return found

    def exact_sum(self, name: str) -> Fraction | float:
        """Return the exact sum of a promise of all mechanisms."""
        return exact_total((getattr(part, name), count) for part, count in self.parts)

    @cached_property
    def _log_kept(self) -> float:
        """The logarithm of prod(1 - delta_i) over all mechanisms."""
        return fsum(count * log1p(-part.delta) for part, count in self.parts)

    @cached_property
    def _known(self) -> bool:
        few = len(self.parts) <= _MOST_KINDS
        return few and all(losses.known(part) for part, _ in self.parts)

    @cached_property
    def _losses_help(self) -> bool:
        """Whether all parts have known privacy losses, and no other rule is exact for them.

        Where one is exact in the worst case, no sum of losses can be smaller.
        """
        exact = {"gaussian", "bounded_range"}
        if all(part.bounded_range >= 2 * part.epsilon for part, _ in self.parts):
            exact.add("optimal")
        more = any(part.sampled or part.laplace < inf for part, _ in self.parts)
        return self._known and (more or not exact & self._rules.keys())


Cost = Guarantee | Composition
