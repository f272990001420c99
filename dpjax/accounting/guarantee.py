"""The privacy guarantee of one mechanism, as data, and the sum of many.

What sums cost is the least of several composition rules. Each is a function of the parts' own
promises, in ``ranges``, ``conversions``, ``gaussian_dp`` and ``losses``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise
from math import expm1, fsum, hypot, inf, log1p, nextafter, sqrt, tanh
from sys import float_info
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting import gaussian_dp, losses, ranges
from dpjax.accounting.conversions import (
    AT_LEAST_0,
    delta_of_rdp,
    epsilon_of_rdp,
    public,
    rdp_of_bounded_range,
    rdp_of_laplace,
    rdp_of_pure,
    second_order,
)
from dpjax.accounting.losses import Pair, Pairs
from dpjax.accounting.sums import exact_total, one_of_all, promised, rounded_up
from dpjax.checks.numbers import ABOVE_ONE
from dpjax.display import Shown

Points = tuple[tuple[float, float], ...]  # pairs of an order and a Renyi divergence
_PROMISES = ("epsilon", "bounded_range", "zcdp", "gdp", "laplace")
# The most guarantees that are composed by their losses, each of which takes Fourier transforms
_MOST_KINDS = 32
_NOISY, _PURE = 60.0, 500.0  # the largest mu and epsilon of losses


class Implied(float):
    """A promise that follows from others: where one of them is replaced, it is derived again."""


@dataclass(frozen=True, repr=False)
class Guarantee(Shown):
    """The privacy guarantee of one draw, with the neighbor relation under which it holds.

    A promise that a mechanism does not make is infinite, which is the default: noise that is zCDP
    but not pure DP has an infinite ``epsilon``. Attributes hold the promises as they were stated;
    ``epsilon`` and ``zcdp`` the smallest that follow from all of them. As text, a guarantee is one
    promise, which may be published.

    Attributes:
        epsilon: differential privacy: log P(Y in S) differs by at most this between neighbors.
        bounded_range: the largest log-ratio minus the smallest, over outputs, is at most this
            (Durfee and Rogers 2019). It implies an epsilon of this size and ``bounded_range**2 /
            8``-zCDP, and so composes better than ``epsilon`` alone.
        neighbors: ``"add_remove"``, ``"swap"`` or, for graphs, ``"edge"``; it has no default.
        delta: 0 if the promises always hold. Otherwise each of them holds except with probability
            ``delta``, between the two outputs conditioned on an event for each: (epsilon,
            delta)-DP, delta-approximate zCDP (Bun and Steinke 2016, Definition 8.1), and so on.
            These deltas add up under composition.
        zcdp: rho of zero-concentrated differential privacy (Bun and Steinke 2016). It follows from
            ``gdp`` as ``gdp**2 / 2``, from ``bounded_range`` as ``bounded_range**2 / 8``, from
            ``epsilon`` as ``epsilon * tanh(epsilon / 2)``, and from ``laplace`` as size + e^-size -
            1 (Harrison and Manurangsi 2025), rounded up.
        renyi: points of the mechanism's Renyi curve, pairs of an order above 1 and a divergence,
            increasing in both, if a curve is known below that which the other promises imply;
            :meth:`with_curve` computes them from a function.
        gdp: mu of Gaussian differential privacy (Dong, Roth and Su 2022), which Gaussian noise of
            standard deviation ``sensitivity / mu`` attains. It gives the exact delta at every
            epsilon.
        laplace: the size of Laplace noise that dominates this mechanism: of scale ``sensitivity /
            size`` on the real line. Its privacy losses are used in compositions.
        sampled: where this is the promise of mechanisms on a sample, pairs of the probability that
            the record in which neighbors differ is in it once, twice and so on, and of what the
            mechanisms on it then cost together, as :func:`poisson_subsample` (one pair, under
            add/remove) and :func:`fixed_size_subsample` (under swap) state them. Their privacy
            losses, which hold except with ``delta``, too, are used in compositions.
        unit: what neighbors differ in: a ``"row"``, a ``"person"`` with all their rows, or ``""``
            if not stated.

    Guarantees of one relation and one unit can be added and multiplied: ``g + h`` and ``100 * g``
    are a :class:`Composition`.

    >>> print(Guarantee(1.0, 1.0, "swap"))
    1-DP under swap neighbors
    >>> print(Guarantee(1.0, neighbors="add_remove", delta=1e-6, unit="person"))
    1-DP except with probability 1e-06 under add_remove neighbors, for a person
    >>> print(Guarantee(gdp=0.5, neighbors="swap"))
    0.5-GDP under swap neighbors
    >>> Guarantee(1.0, 1.0, "swap").zcdp
    0.125
    """

    epsilon: float = inf
    bounded_range: float = inf
    neighbors: str = ""
    delta: float = 0.0
    zcdp: float = inf
    renyi: Points = ()
    gdp: float = inf
    laplace: float = inf
    sampled: tuple[tuple[float, Composition], ...] = ()
    unit: str = ""

    def __post_init__(self) -> None:
        attributes = vars(self)  # writable although the dataclass is frozen
        given = {name: attributes[name] for name in _PROMISES}
        # As Python floats, since arithmetic in NumPy's narrow types overflows
        stated = {
            name: _not_below(AT_LEAST_0.single(name, value), value)
            for name, value in given.items()
            if not isinstance(value, Implied)
        }
        if min(stated.values()) == inf and not (self.renyi or self.sampled):
            stated = {name: float(value) for name, value in given.items()}
        attributes.update(dict.fromkeys(_PROMISES, inf) | stated)
        attributes["delta"] = _not_below(checks.concrete_fraction("delta", self.delta), self.delta)
        points = tuple((float(order), float(divergence)) for order, divergence in self.renyi)
        ordered = all(a < b and r <= s for (a, r), (b, s) in pairwise(points))
        if not (ordered and all(1 < order < inf and 0 <= r < inf for order, r in points)):
            raise ValueError(
                "renyi must be pairs of orders above 1 and divergences, increasing, got "
                f"{self.renyi}."
            )
        attributes["renyi"] = points
        shares = [share for share, _ in self.sampled]
        relations = [whole.neighbors for _, whole in self.sampled]
        if shares and not (
            relations in (["add_remove"], ["swap"] * len(shares))
            and relations[0] == self.neighbors
            and min(shares) > 0
            and sum(shares) <= 1 + 1e-9
        ):
            raise ValueError(
                "sampled must be one positive probability and its cost under add_remove neighbors, "
                "or several under swap that add up to at most 1, as no other samples amplify; got "
                f"{self.sampled} under {self.neighbors}."
            )
        checks.one_of("neighbors", self.neighbors, checks.RELATIONS)
        checks.one_of("unit", self.unit, ("", "row", "person"))
        if self.bounded_range < self.epsilon:
            attributes["epsilon"] = Implied(self.bounded_range)
        if (implied := self._implied_zcdp()) < self.zcdp:
            attributes["zcdp"] = Implied(implied)

    def __str__(self) -> str:
        promises = (self.epsilon, "DP"), (self.gdp, "GDP"), (self.zcdp, "zCDP")
        known = [f"{promised(value)}-{kind}" for value, kind in promises if value < inf]
        if self.renyi:
            known.append(f"Renyi DP at orders {self.renyi[0][0]:g} to {self.renyi[-1][0]:g}")
        first = [*known, "the privacy losses of a sample" if self.sampled else "no promise"][0]
        exception = f" except with probability {promised(self.delta, 2)}" if self.delta else ""
        unit = f", for a {self.unit}" if self.unit else ""
        return f"{first}{exception} under {self.neighbors} neighbors{unit}"

    def _facts(self) -> dict[str, Any]:
        """Return the promises that were stated; of a curve, the number of points."""
        return {
            name: f"{len(self.renyi)} points" if name == "renyi" else repr(value)
            for name, value in self.to_dict().items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that were stated, of the types that :mod:`json` writes.

        Those that are not there have their defaults: without ``"delta"``, it is 0.
        """
        named = [(of.name, getattr(self, of.name), of.default) for of in fields(self)]
        sampled = [(share, whole._listed()) for share, whole in self.sampled]
        return {
            name: sampled if name == "sampled" else value
            for name, value, default in named
            if value != default and not isinstance(value, Implied)
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Guarantee:
        """Return the guarantee that :meth:`to_dict` wrote."""
        samples = given.get("sampled", ())
        sampled = tuple((share, Composition._of_lists(parts)) for share, parts in samples)
        return cls(**{**given, "sampled": sampled})

    def to_json(self) -> str:
        """Return the guarantee as JSON.

        >>> Guarantee(1.0, float("inf"), "swap", delta=1e-6).to_json()
        '{"epsilon": 1.0, "neighbors": "swap", "delta": 1e-06}'
        """
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        """Return the guarantee that :meth:`to_json` wrote, exactly."""
        return cls.from_dict(json.loads(text))

    def with_curve(self, curve: Callable[[np.ndarray], Any]) -> Guarantee:
        """Return this guarantee with a curve of Renyi divergences.

        The curve has 128 points, at orders from 1.001 to 10001.

        Args:
            curve: a function of orders, float64 ``(128,)``, that returns divergences, not below the
                true ones.

        >>> noise = Guarantee(1.0, 2.0, "swap")  # Laplace
        >>> from dpjax.accounting import rdp_of_laplace
        >>> tight = noise.with_curve(lambda order: rdp_of_laplace(1.0, order=order))
        >>> [round((20 * each).rules_at(1e-6)["rdp"], 2) for each in (noise, tight)]
        [20.0, 19.74]
        """
        orders = 1 + np.geomspace(1e-3, 1e4, 128)
        return replace(self, renyi=points_of(orders, np.asarray(curve(orders), np.float64)))

    def __add__(self, other: Cost) -> Composition:
        return 1 * self + other

    def __radd__(self, other: int) -> Composition:
        return (1 * self).__radd__(other)

    def __mul__(self, count: int) -> Composition:
        return Composition(((self, count),))

    __rmul__ = __mul__

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at ``delta`` that this implies.

        See :meth:`Composition.epsilon_at`.

        >>> round(Guarantee(1.0, 1.0, "swap").epsilon_at(0.01), 3)
        0.834
        """
        return (1 * self).epsilon_at(delta)

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon`` that this implies.

        See :meth:`Composition.delta_at`.
        """
        return (1 * self).delta_at(epsilon)

    @np.errstate(over="ignore")
    def rdp(self, order: Any) -> Any:
        """Return the smallest Renyi divergence that is implied at an order above 1, of any shape.

        Float64 of the shape of ``order``; it holds except with probability ``delta``.
        """
        a = public(ABOVE_ONE, "order", order)
        found = np.minimum(self.zcdp * a, rdp_of_bounded_range(self.bounded_range, order=a))
        found = np.minimum(found, rdp_of_pure(self.epsilon, order=a))
        found = np.minimum(found, rdp_of_laplace(self.laplace, order=a) * (1 + 1e-12))
        if self.renyi:
            orders, divergences = np.array(self.renyi).T
            # (a - 1) D(a) is convex, so chords lie above it; below the first order, D is at most
            # its value there.
            between = np.interp(a, orders, (orders - 1) * divergences) / (a - 1)
            above = np.where(a > orders[-1], inf, between)
            found = np.minimum(found, np.where(a < orders[0], divergences[0], above))
        return found

    def _implied_zcdp(self) -> float:
        if not self.epsilon:
            return 0.0
        half = self.bounded_range / 2 or self.bounded_range  # of the smallest float it is 0
        rounded = self.epsilon * tanh(self.epsilon / 2), float(second_order(-self.laplace))
        # A product that underflows is not 0
        above = (max(rho * (1 + 2.0**-50), float_info.min) for rho in rounded)
        return min(_half_square(self.gdp), _half_square(half), self.epsilon, *above)


@dataclass(frozen=True, repr=False)
class Composition(Shown):
    """The cost of several adaptive mechanisms.

    Each mechanism may depend on the previous answers, while its cost may not. Sums and multiples of
    guarantees are compositions. Where the costs depend on answers too, use a
    :class:`PrivacyFilter`. As text, it is the promise of :meth:`guarantee`.

    Attributes:
        parts: pairs of a guarantee and the number of mechanisms that have it, all under one
            neighbor relation and for one unit.
        neighbors: the neighbor relation of all mechanisms.
        unit: that of the guarantees that state one, or ``""``.

    >>> each = Guarantee(0.1, 0.1, "add_remove")
    >>> spent = 100 * each + Guarantee(0.5, 1.0, "add_remove")
    >>> print(spent)
    10.5-DP under add_remove neighbors
    >>> round(spent.rules_at(1e-6)["rdp"], 5)
    2.85123
    """

    parts: Parts
    neighbors: str = field(init=False)
    unit: str = field(init=False)

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a composition needs at least one guarantee.")
        together: dict[Guarantee, int] = {}
        for guarantee, count in self.parts:
            checks.instance("Composition", guarantee, Guarantee, "what one mechanism costs")
            together[guarantee] = together.get(guarantee, 0) + checks.static_integer(
                "a number of mechanisms", count, 1
            )
        vars(self).update(
            parts=tuple(together.items()),
            neighbors=one_of_all("neighbors", (part.neighbors for part in together)),
            unit=one_of_all("unit", (part.unit for part in together)),
        )

    def __add__(self, other: Cost) -> Composition:
        if not isinstance(other, Cost):
            return NotImplemented
        return Composition(self.parts + (1 * other).parts)

    def __radd__(self, other: int) -> Composition:
        # The start of sum()
        return self if other == 0 else NotImplemented

    def __mul__(self, count: int) -> Composition:
        number = checks.static_integer("a number of mechanisms", count, 1)
        return Composition(tuple((guarantee, each * number) for guarantee, each in self.parts))

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
        return json.dumps(self._listed())

    @classmethod
    def from_json(cls, text: str) -> Composition:
        """Return the composition that :meth:`to_json` wrote, exactly."""
        return cls._of_lists(json.loads(text))

    def _listed(self) -> list[Any]:
        return [[guarantee.to_dict(), count] for guarantee, count in self.parts]

    @classmethod
    def _of_lists(cls, given: Any) -> Composition:
        return cls(tuple((Guarantee.from_dict(part), count) for part, count in given))

    @property
    def count(self) -> int:
        """The number of mechanisms."""
        return sum(count for _, count in self.parts)

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
        may depend on the previous answers, so it is twice the sum of the epsilons.
        """
        if self.count == 1:
            return self.parts[0][0].bounded_range
        return rounded_up(2 * self.exact_sum("epsilon"))

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
        orders = orders_of(part for part, _ in self.parts if self.zcdp == inf)
        return promising(
            Guarantee(
                self.epsilon,
                self.bounded_range,
                self.neighbors,
                self.delta,
                self.zcdp,
                points_of(orders, self.rdp(orders)),
                self.gdp,
                unit=self.unit,
            )
        )

    def rules_at(self, delta: float) -> dict[str, float]:
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

        Returns:
            A dictionary from the name of each rule to its epsilon.

        References:
            Kairouz, Oh and Viswanath (2015); Dong, Durfee and Rogers (2020); Canonne, Kamath and
            Steinke (2020); Dong, Roth and Su (2022); Zhu, Dong and Wang (2022). The files
            ``ranges``, ``conversions``, ``gaussian_dp`` and ``losses`` say more.
        """
        target = checks.concrete_delta(delta)
        # The mechanisms' own deltas leave 1 - (1 - delta) / prod(1 - delta_i).
        left = -expm1(log1p(-target) - self._log_kept())
        found = self.by_formulas(delta=left) if left >= 0 else {}
        if left > 0 and self._losses_help(found):
            found["losses"] = losses.epsilon_of(self._pairs, self.count, target)[0]
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
        known, target = self.losses_known(), checks.concrete_delta(delta)
        return losses.epsilon_of(self._pairs, self.count, target)[1] if known else None

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
        rules = self.by_formulas(epsilon=target)
        own = min([1.0, *rules.values()])
        # The mechanisms' own deltas included: 1 - (1 - delta) prod(1 - delta_i)
        found = -expm1(self._log_kept() + log1p(-own)) * (1 + 2.0**-50) if own < 1 else 1.0
        if self._losses_help(rules):
            found = min(found, losses.delta_of(self._pairs, self.count, target))
        return min(found, 1.0)

    def exact_sum(self, name: str) -> Fraction | float:
        """Return the exact sum of a promise of all mechanisms."""
        return exact_total((getattr(part, name), count) for part, count in self.parts)

    def by_formulas(self, **at: float) -> dict[str, float]:
        """Return the epsilon at a delta, or the delta at an epsilon, by every rule but losses.

        The mechanisms' own deltas are left out.
        """
        found, reverse = {}, "epsilon" in at
        if self.epsilon < inf:
            found["basic"] = float(self.epsilon > at["epsilon"]) if reverse else self.epsilon
        if at.get("delta") == 0:
            return found
        each = {part.epsilon for part, _ in self.parts if part.epsilon}
        paid = sum(count for part, count in self.parts if part.epsilon)
        if len(each) == 1 and self.epsilon < inf and paid < ranges.MOST_OUTCOMES:
            pure = ranges.optimal_pure_epsilon, ranges.optimal_pure_delta
            found["optimal"] = pure[reverse](*each, count=paid, **at)
        if 0 < self.gdp < inf:
            gaussian = gaussian_dp.epsilon_of_gdp, gaussian_dp.delta_of_gdp
            found["gaussian"] = gaussian[reverse](self.gdp, **at)
        one, *others = {part.bounded_range for part, _ in self.parts}
        if 0 < one < inf and not others and self.count <= ranges.MOST_STEPS:
            ranged = ranges.bounded_range_epsilon, ranges.bounded_range_delta
            found["bounded_range"] = ranged[reverse](one, count=self.count, **at)
        if all(part.zcdp < inf or part.renyi for part, _ in self.parts):
            curve = epsilon_of_rdp, delta_of_rdp
            found["rdp"] = float(curve[reverse](self.rdp, **at))
        return found

    def _log_kept(self) -> float:
        """Return the logarithm of prod(1 - delta_i) over all mechanisms."""
        return fsum(count * log1p(-part.delta) for part, count in self.parts)

    def losses_known(self) -> bool:
        """Return whether all mechanisms, of few kinds, are dominated by pairs that are known."""
        return len(self.parts) <= _MOST_KINDS and all(
            part.sampled or part.gdp < _NOISY or min(part.laplace, part.epsilon) < _PURE
            for part, _ in self.parts
        )

    def _losses_help(self, rules: dict[str, float]) -> bool:
        """Return whether all privacy losses are known, and none of these rules is exact for them.

        Where one is exact in the worst case, no sum of losses can be smaller.
        """
        exact = {"gaussian", "bounded_range"}
        if all(part.bounded_range >= 2 * part.epsilon for part, _ in self.parts):
            exact.add("optimal")
        more = any(part.sampled or part.laplace < inf for part, _ in self.parts)
        return self.losses_known() and (more or not exact & rules.keys()) and losses.installed()

    def _pairs(self, step: float) -> Pairs:
        """Return the pairs that dominate the mechanisms, on a lattice of this step."""
        return [(_pair(part, step), count) for part, count in self.parts]


Cost = Guarantee | Composition
Parts = tuple[tuple[Guarantee, int], ...]


def promising(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee; raise ``ValueError`` if it promises nothing."""
    if not (guarantee.renyi or guarantee.sampled) and guarantee.zcdp == inf:
        raise ValueError(
            "nothing is promised: no epsilon with a delta below 1, no range, and no zCDP or Renyi "
            "divergence is finite."
        )
    return guarantee


def orders_of(guarantees: Iterable[Guarantee]) -> np.ndarray:
    """Return the orders of the curves of all guarantees, ascending, float64."""
    return np.array(sorted({order for each in guarantees for order, _ in each.renyi}), np.float64)


def points_of(orders: np.ndarray, divergences: np.ndarray) -> Points:
    """Return the points of a curve where it is finite, made nondecreasing against rounding."""
    known = divergences < inf
    return tuple(
        zip(orders[known].tolist(), np.maximum.accumulate(divergences[known]).tolist(), strict=True)
    )


def _not_below(number: float, value: Any) -> float:
    """Return the float nearest to a value, or the next one where it is below it."""
    return number if number >= value else nextafter(number, inf)


def _half_square(number: float) -> float:
    """Return half of the square, rounded up, which is positive for a positive number."""
    if not 0 < number < inf:
        return number
    return max(rounded_up(Fraction(number) ** 2 / 2), float_info.min)


def _pair(part: Guarantee, step: float) -> Pair:
    """Return a pair that dominates a mechanism, by the tightest of its promises."""
    if part.sampled:
        # The lattice of the mechanisms on the sample is as fine as that of their sample
        inner = min(step / sum(share for share, _ in part.sampled), losses.COARSE)
        copies = [
            (share, losses.together(whole._pairs(inner), inner)) for share, whole in part.sampled
        ]
        pair = losses.fixed_size(copies)
        if part.neighbors == "add_remove":
            pair = losses.poisson(*copies[0])
    else:
        above: Callable[..., Any] = np.ones_like
        if part.gdp < _NOISY:
            above = partial(gaussian_dp.curve, max(part.gdp, 1e-12))
        elif part.laplace < _PURE:
            above = losses.laplace(part.laplace)
        elif part.epsilon < _PURE:
            above = losses.bounded(part.epsilon, min(part.bounded_range, 2 * part.epsilon))
        pair = losses.symmetric(above)
    return losses.failing(pair, part.delta) if part.delta else pair
