"""The privacy guarantee of one mechanism, as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from itertools import pairwise
from math import inf, nextafter, tanh
from sys import float_info
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax import checks
from dpjax.accounting.conversions import (
    AT_LEAST_0,
    public,
    rdp_of_bounded_range,
    rdp_of_laplace,
    rdp_of_pure,
    second_order,
)
from dpjax.checks.numbers import ABOVE_ONE
from dpjax.display import Shown

if TYPE_CHECKING:
    from dpjax.accounting.composition import Composition


Points = tuple[tuple[float, float], ...]  # pairs of an order and a Renyi divergence
UNITS = ("", "row", "person")
SAMPLES = {"poisson": "add_remove", "with": "swap", "without": "swap"}
_PROMISES = ("epsilon", "bounded_range", "zcdp", "gdp", "laplace")


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
        sampled: where this is the promise of mechanisms on a sample, its kind, how many records are
            taken of how many (of a Poisson sample, the probability and 1), and pairs of the
            guarantee of a mechanism on the sample and the number of mechanisms that have it; see
            :func:`poisson_subsample` and :func:`fixed_size_subsample`. Their privacy losses are
            used in compositions.
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
    sampled: tuple[str, float, int, tuple[tuple[Guarantee, int], ...]] | None = None
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
        if self.sampled and SAMPLES.get(self.sampled[0]) != self.neighbors:
            raise ValueError(
                f"sampled must be one of {tuple(SAMPLES)}, under the relation of that sample, got "
                f"{self.sampled} under {self.neighbors}."
            )
        checks.one_of("neighbors", self.neighbors, checks.RELATIONS)
        checks.one_of("unit", self.unit, UNITS)
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
        facts = {name: repr(value) for name, value in self.to_dict().items()}
        return facts | ({"renyi": f"{len(self.renyi)} points"} if self.renyi else {})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that were stated, of the types that :mod:`json` writes."""
        values = {of.name: getattr(self, of.name) for of in fields(self)}
        if self.sampled:
            *sample, parts = self.sampled
            values["sampled"] = [*sample, [[part.to_dict(), count] for part, count in parts]]
        return {
            of.name: values[of.name]
            for of in fields(self)
            if values[of.name] != of.default and not isinstance(values[of.name], Implied)
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Guarantee:
        """Return the guarantee that :meth:`to_dict` wrote."""
        promises = dict(given)
        if "sampled" in promises:
            *sample, parts = promises["sampled"]
            parts = tuple((cls.from_dict(part), count) for part, count in parts)
            promises["sampled"] = (*sample, parts)
        return cls(**promises)

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
            curve: a function of orders, float64 ``(128,)``, that returns finite divergences, not
                below the true ones and not decreasing.

        >>> noise = Guarantee(1.0, 2.0, "swap")  # Laplace
        >>> from dpjax.accounting import rdp_of_laplace
        >>> tight = noise.with_curve(lambda order: rdp_of_laplace(1.0, order=order))
        >>> [round((20 * each).rules_at(1e-6)["rdp"], 2) for each in (noise, tight)]
        [20.0, 19.74]
        """
        orders = 1 + np.geomspace(1e-3, 1e4, 128)
        points = zip(orders.tolist(), np.asarray(curve(orders), np.float64).tolist(), strict=True)
        return replace(self, renyi=tuple(points))

    def __add__(self, other: Guarantee | Composition) -> Composition:
        return 1 * self + other

    def __radd__(self, other: int) -> Composition:
        return (1 * self).__radd__(other)

    def __mul__(self, count: int) -> Composition:
        # Imported here, as it imports this module
        from dpjax.accounting.composition import Composition

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


def promising(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee; raise ``ValueError`` if it promises nothing."""
    if not (guarantee.renyi or guarantee.sampled) and guarantee.zcdp == inf:
        raise ValueError(
            "nothing is promised: no epsilon with a delta below 1, no range, and no zCDP or Renyi "
            "divergence is finite."
        )
    return guarantee


def one_of_all(what: str, values: Iterable[str]) -> str:
    """Return the common relation or unit of guarantees, where ``""`` is any; ``""`` of none.

    Raises:
        ValueError: they differ.

    >>> one_of_all("neighbors", ["swap", "swap"])
    'swap'
    """
    stated = sorted(set(values) - {""}, reverse=True)
    if len(stated) > 1:
        raise ValueError(
            f"guarantees for {what} {' and '.join(stated)} do not compose: state them all for one."
        )
    return stated[0] if stated else ""


def promised(number: float, digits: int = 6) -> str:
    """Return a privacy parameter as text of at most so many digits, rounded up.

    An excess over the digits of relatively less than 1e-12 is attributed to floating-point rounding
    and dropped.

    >>> promised(0.5), promised(0.12345649), promised(0.1 + 0.2), promised(9.41808e-07, 2)
    ('0.5', '0.123457', '0.3', '9.5e-07')
    >>> promised(1e-7), promised(float("inf"))
    ('1e-07', 'inf')
    """
    nearly = Decimal(number) * (1 - Decimal("1e-12"))
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(nearly)):g}"


def exact_total(numbers: Iterable[tuple[float, int]]) -> Fraction | float:
    """Return the exact sum of nonnegative numbers, each times its count.

    Infinite if one of them is.
    """
    parts = [*numbers]
    if any(number == inf for number, _ in parts):
        return inf
    return sum((Fraction(number) * count for number, count in parts), Fraction(0))


def rounded_up(exact: Fraction | float) -> float:
    """Return the smallest float that is not below a number.

    >>> rounded_up(10 * Fraction(0.1))
    1.0000000000000002
    """
    if exact > float_info.max:
        return inf
    nearest = float(exact)
    return nearest if nearest >= exact else nextafter(nearest, inf)


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
