"""What one mechanism promises, as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import inf, isfinite, nextafter
from sys import float_info
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax import checks
from dpjax.accounting import formulas
from dpjax.display import Picture, Shown

if TYPE_CHECKING:
    from dpjax.accounting.composition import Composition


Points = tuple[tuple[float, float], ...]  # of a curve: orders and Renyi divergences
UNITS = ("", "row", "person")
NOISES = ("gaussian", "laplace")


@dataclass(frozen=True, repr=False)
class Guarantee(Shown):
    """A privacy guarantee of one draw, with the neighbour relation under which it holds.

    It keeps what it was given; what follows from that is derived when it is read. A promise that a mechanism does not make is
    infinite: noise that is only zCDP has an infinite ``epsilon``.

    Attributes:
        epsilon: differential privacy: log P(Y in S) differs by at most this between neighbours.
        bounded_range: the largest log-ratio minus the smallest, over outputs, is at most this (Durfee and Rogers 2019). Composes
            better than ``epsilon`` alone says: it implies ``bounded_range**2 / 8``-zCDP.
        neighbors: ``"add_remove"``, ``"swap"`` or, for graphs, ``"edge"``.
        delta: 0 if the promises always hold. Otherwise each of them holds except with probability ``delta``, between outputs that
            are conditioned on an event of each: (epsilon, delta)-DP, delta-approximate zCDP (Bun and Steinke 2016, Definition 8.1),
            and so on. These deltas add up under composition.
        zcdp: rho of zero-concentrated differential privacy (Bun and Steinke 2016), where the mechanism is analysed by it;
            :attr:`rho` is what all promises imply.
        renyi: pairs of an order above 1 and a Renyi divergence, increasing in both: points of the mechanism's own curve, where one
            is known that is below what the other promises imply; :meth:`with_curve` makes them of a function.
        gdp: mu of Gaussian differential privacy (Dong, Roth and Su 2022), which Gaussian noise of standard deviation
            ``sensitivity / mu`` attains. It implies ``mu**2 / 2``-zCDP, and says more: the exact delta at every epsilon.
        noise: the name of a noise, its size and a probability: the mechanism is no easier to tell apart than ``"gaussian"`` noise
            of standard deviation ``sensitivity / size``, or ``"laplace"`` noise of scale ``sensitivity / size``, on a Poisson
            subsample of that probability (1 for all data), from whose privacy losses sums are composed.
        unit: by what neighbours differ: a ``"row"``, a ``"person"`` with all their rows, or ``""`` where the caller knows what a
            record is.

    Guarantees of one relation and one unit add up, and multiply: ``g + h`` and ``100 * g`` are a :class:`Composition`.

    >>> print(Guarantee(1.0, 1.0, "swap"))
    1-DP and 1-bounded-range under swap neighbors
    >>> print(Guarantee(1.0, float("inf"), "add_remove", delta=1e-6))
    (1, 1e-06)-DP under add_remove neighbors
    >>> print(Guarantee(1.0, 1.0, "add_remove", unit="person"))
    1-DP and 1-bounded-range under add_remove neighbors, for a person
    >>> print(Guarantee(float("inf"), float("inf"), "swap", delta=0.001, zcdp=0.01))
    0.01-zCDP except with probability 0.001 under swap neighbors
    """

    epsilon: float
    bounded_range: float
    neighbors: str
    delta: float = 0.0
    zcdp: float = inf
    renyi: Points = ()
    gdp: float = inf
    noise: tuple[str, float, float] | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        given = vars(self)  # the way round a frozen field
        for name in ("epsilon", "bounded_range", "delta", "zcdp", "gdp"):
            value = given[name]
            if isinstance(value, (bool, str)):
                raise TypeError(f"{name} must be a number, got {value!r}.")
            given[name] = float(value)  # of NumPy's narrow types, too, whose arithmetic overflows
            if not given[name] >= 0 or (name == "delta" and given[name] >= 1):
                raise ValueError(f"{name} must not be negative{' and below 1' if name == 'delta' else ''}, got {value}.")
        points = tuple((float(order), float(divergence)) for order, divergence in self.renyi)
        orders, divergences = np.array(points).reshape(-1, 2).T
        ordered = np.all(np.diff(orders) > 0) and np.all(np.diff(divergences) >= 0)
        if not (ordered and np.all(np.isfinite(points)) and np.all(orders > 1) and np.all(divergences >= 0)):
            raise ValueError(f"renyi must be pairs of orders above 1 and divergences, increasing, got {self.renyi}.")
        given["renyi"] = points
        if self.noise:
            name, size, probability = self.noise
            if name not in NOISES or not (0 < size < inf and 0 < probability <= 1):
                raise ValueError(
                    f"noise must be one of {NOISES}, a positive size and a probability above 0 and up to 1, got {self.noise}."
                )
            if probability < 1 and self.neighbors != "add_remove":
                raise ValueError(
                    f"what noise on a subsample promises is known under add_remove neighbors only, got {self.neighbors}."
                )
            given["noise"] = name, float(size), float(probability)
        checks.one_of("neighbors", self.neighbors, checks.RELATIONS)
        checks.one_of("unit", self.unit, UNITS)

    def __str__(self) -> str:
        first = [text_of(promised(self.epsilon), self.delta)] if self.epsilon < inf else []
        zcdp = min(self.zcdp, half_square(self.gdp))
        kinds = (self.bounded_range, "bounded-range"), (zcdp, "zCDP"), (self.gdp, "GDP")
        others = [f"{promised(value)}-{kind}" for value, kind in kinds if value < inf]
        if self.noise and self.noise[2] < 1:
            kind = "GDP" if self.noise[0] == "gaussian" else "DP Laplace noise"
            others.append(f"{promised(self.noise[1])}-{kind} on subsamples of probability {promised(self.noise[2])}")
        if self.renyi:
            others.append(f"Renyi DP at orders {self.renyi[0][0]:g} to {self.renyi[-1][0]:g}")
        if others and self.delta:
            others[-1] += f" except with probability {promised(self.delta)}"
        return f"{' and '.join(first + others) or 'no promise'} under {relation_text(self)}"

    def _facts(self) -> dict[str, Any]:
        """The fields that promise something, so that the repr makes it again; of a curve, how many points it has."""
        facts = {name: repr(value) for name, value in self._given().items()}
        return facts | ({"renyi": f"{len(self.renyi)} points"} if self.renyi else {})

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        return {}, profile_of(self)

    def _given(self) -> dict[str, Any]:
        """The fields that are not at their defaults."""
        return {of.name: getattr(self, of.name) for of in fields(self) if getattr(self, of.name) != of.default}

    def to_dict(self) -> dict[str, Any]:
        """Return what is promised as numbers, text and lists, which :mod:`json` takes; None stands for infinity."""
        return {name: None if value == inf else value for name, value in self._given().items()}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Guarantee:
        """Return the guarantee of :meth:`to_dict`."""
        promises: dict[str, Any] = {name: inf if value is None else value for name, value in given.items()}
        return cls(**promises)

    def to_json(self) -> str:
        """Return it as JSON.

        >>> Guarantee(1.0, float("inf"), "swap", delta=1e-6).to_json()
        '{"epsilon": 1.0, "bounded_range": null, "neighbors": "swap", "delta": 1e-06}'
        """
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        """Return the guarantee of :meth:`to_json`, exactly."""
        return cls.from_dict(json.loads(text))

    def with_curve(self, curve: Callable[[np.ndarray], Any]) -> Guarantee:
        """Return the same promises and 128 points of a curve of Renyi divergences, at orders from 1.001 to 10^4.

        Args:
            curve: from orders, float64 ``(128,)``, to finite divergences, not below the true ones and not decreasing.

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
        return self._once() + other

    def __radd__(self, other: int) -> Composition:
        return self._once().__radd__(other)

    def __mul__(self, count: int) -> Composition:
        return self._once() * count

    __rmul__ = __mul__

    def epsilon_at(self, delta: float) -> float:
        """The smallest epsilon at ``delta`` that follows; see :meth:`Composition.epsilon_at`.

        >>> round(Guarantee(1.0, 1.0, "swap").epsilon_at(0.01), 3)
        0.834
        """
        return self._once().epsilon_at(delta)

    def delta_at(self, epsilon: float) -> float:
        """The smallest delta at ``epsilon`` that follows; see :meth:`Composition.delta_at`."""
        return self._once().delta_at(epsilon)

    @property
    def rho(self) -> float:
        """The smallest rho of zCDP that follows, rounded up; it holds except with probability ``delta``.

        That of ``zcdp``, ``gdp**2 / 2``, ``bounded_range**2 / 8``, ``epsilon * tanh(epsilon / 2)``, and of Laplace noise of a size
        its size + e^-size - 1 (Harrison and Manurangsi 2025).
        """
        given = [self.zcdp, half_square(self.gdp), half_square(self.bounded_range / 2), self.epsilon]
        pure = [self.epsilon * float(np.tanh(self.epsilon / 2)) if self.epsilon < inf else inf]
        if self.noise and self.noise[0] == "laplace":
            pure.append(formulas.zcdp_of_laplace(self.noise[1]))
        if self.epsilon:
            given += [max(rho * (1 + 2.0**-50), float_info.min) for rho in pure]  # a product that underflows promises no 0
        return min(given) if self.epsilon else 0.0

    def rdp(self, order: Any) -> np.ndarray:
        """Return the smallest Renyi divergence that follows, float64 of the shape of ``order``; it holds as :attr:`rho` does."""
        a = orders_above_one(order)
        found = least_divergence(a, min(self.zcdp, half_square(self.gdp)), self.bounded_range, self.epsilon)
        if self.noise and self.noise[0] == "laplace":
            found = np.minimum(found, formulas.rdp_of_laplace(np.full_like(a, self.noise[1]), a, np) * (1 + 1e-12))
        if self.renyi:
            orders, divergences = np.array(self.renyi).T
            # (a - 1) D(a) is convex, so chords lie above it; below the first order D is at most what it is there.
            between = np.interp(a, orders, (orders - 1) * divergences) / (a - 1)
            found = np.minimum(found, np.where(a < orders[0], divergences[0], np.where(a > orders[-1], inf, between)))
        return found

    def _once(self) -> Composition:
        from dpjax.accounting.composition import Composition  # which is made of guarantees

        return Composition(((self, 1),))


def one_unit(units: Iterable[str]) -> str:
    """Return the unit of guarantees together: one that is not stated is taken to be that of the others.

    Raises:
        ValueError: some are for a row and some for a person.
    """
    stated = sorted(set(units) - {""})
    if len(stated) > 1:
        raise ValueError(
            f"guarantees for {' and for '.join(f'a {unit}' for unit in reversed(stated))} do not compose: a person may have "
            "several rows, so state them all for one unit."
        )
    return stated[0] if stated else ""


def relation_text(spent: Guarantee | Composition) -> str:
    """Return the words for a relation and a unit."""
    return f"{spent.neighbors} neighbors{f', for a {spent.unit}' if spent.unit else ''}"


def promising(guarantee: Guarantee) -> Guarantee:
    """Return it, if it promises anything; raise otherwise."""
    promises = guarantee.epsilon, guarantee.bounded_range, guarantee.zcdp, guarantee.gdp
    if not (guarantee.renyi or guarantee.noise) and min(promises) == inf:
        raise ValueError(
            "nothing is promised: no epsilon with a delta below 1, no range, and no zCDP or Renyi divergence is finite."
        )
    return guarantee


def text_of(epsilon: str, delta: float) -> str:
    """Return the name of (epsilon, delta)-DP, of an epsilon as :func:`promised` prints it."""
    return f"({epsilon}, {promised(delta)})-DP" if delta else f"{epsilon}-DP"


def promised(*epsilons: float, times: int | Sequence[int] = 1) -> str:
    """Return a privacy parameter, or the sum of several, as text of at most six digits, rounded up.

    What it passes six digits by relatively less than 1e-12 is rounding of floats, and is left out: three times 0.1 is 0.3.

    Args:
        *epsilons: not negative.
        times: how often each of them counts, or one number for all.

    >>> promised(0.5), promised(0.1, times=3), promised(0.12345649), promised(0.1 + 0.2), promised(1e-7), promised(float("inf"))
    ('0.5', '0.3', '0.123457', '0.3', '1e-07', 'inf')
    """
    counts = [times] * len(epsilons) if isinstance(times, int) else times
    total = exact_total(zip(epsilons, counts, strict=True))
    if not isinstance(total, Fraction):
        return f"{total:g}"
    digits = Context(prec=30).divide(Decimal(total.numerator), Decimal(total.denominator)) * (1 - Decimal("1e-12"))
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(digits)):g}"


def exact_total(numbers: Iterable[tuple[float, int]]) -> Fraction | float:
    """Return the exact sum of numbers that are not negative, each so many times; infinite if one of them is."""
    ratios = []
    for number, count in numbers:
        if not isfinite(number):
            return inf
        ratios.append((*number.as_integer_ratio(), count))
    # Denominators are powers of two: over the largest one all are integers, which is faster than to add fractions.
    whole = max((below for _, below, _ in ratios), default=1)
    return Fraction(sum(above * (whole // below) * count for above, below, count in ratios), whole)


def rounded_up(exact: Fraction | float) -> float:
    """Return the least float that is not below a number.

    >>> rounded_up(10 * Fraction(0.1))
    1.0000000000000002
    """
    if exact > float_info.max:
        return inf
    nearest = float(exact)
    return nearest if nearest >= exact else nextafter(nearest, inf)


def half_square(number: float) -> float:
    """Return mu^2 / 2, the rho of zCDP that mu-GDP implies, rounded up; above 0 for a number above 0."""
    square = number * number
    if not 1e-140 < number < 1e140:
        return max(rounded_up(Fraction(number) ** 2 / 2), float_info.min) if 0 < number < inf else number
    high = 134217729.0 * number - (134217729.0 * number - number)  # the upper half of the digits: what the square lost is exact
    low = number - high
    return (nextafter(square, inf) if (high * high - square) + 2 * high * low + low * low > 0 else square) / 2


def orders_above_one(order: Any) -> np.ndarray:
    """Return orders as float64, or raise where one is not above 1."""
    orders = np.asarray(order, np.float64)
    if not np.all(orders > 1):
        raise ValueError(f"orders must be above 1, got {order}.")
    return orders


def least_divergence(order: np.ndarray, zcdp: Any, bounded_range: Any, epsilon: Any) -> np.ndarray:
    """Return the smallest Renyi divergence that rho-zCDP, a bounded range and pure DP imply together; infinite for none."""
    a, rho, r, pure = np.broadcast_arrays(order, zcdp, bounded_range, epsilon)
    with np.errstate(over="ignore"):
        return np.minimum(rho * a, np.minimum(formulas.rdp_of_bounded_range(r, a, np), formulas.rdp_of_pure(pure, a, np)))


def orders_of(guarantees: Iterable[Guarantee]) -> np.ndarray:
    """Return all orders of their curves, ascending, float64."""
    return np.array(sorted({order for guarantee in guarantees for order, _ in guarantee.renyi}), np.float64)


def points_of(orders: np.ndarray, divergences: np.ndarray) -> Points:
    """Return the pairs of a curve where it is finite, rising but for rounding."""
    known = divergences < inf
    return tuple(zip(orders[known].tolist(), np.maximum.accumulate(divergences[known]).tolist(), strict=True))


def profile_of(spent: Guarantee | Composition) -> Picture:
    """The picture of all pairs of an epsilon and a delta."""
    delta = np.logspace(-12, -1, 34)
    epsilon = np.array([spent.epsilon_at(float(target)) for target in delta])
    return Picture(epsilon[None], delta[None], "epsilon", "delta", log=True)
