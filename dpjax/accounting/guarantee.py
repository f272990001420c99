"""The privacy guarantee of one mechanism, as data."""

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


Points = tuple[tuple[float, float], ...]  # pairs of an order and a Renyi divergence
UNITS = ("", "row", "person")
SAMPLES = {"poisson": "add_remove", "with": "swap", "without": "swap"}


@dataclass(frozen=True, repr=False)
class Guarantee(Shown):
    """The privacy guarantee of one draw, with the neighbor relation under which it holds.

    Fields hold the promises as they were stated; methods derive what they imply. A promise that a
    mechanism does not make is infinite, which is the default: noise that is zCDP but not pure DP
    has an infinite ``epsilon``.

    Attributes:
        epsilon: differential privacy: log P(Y in S) differs by at most this between neighbors.
        bounded_range: the largest log-ratio minus the smallest, over outputs, is at most this
            (Durfee and Rogers 2019). It implies ``bounded_range**2 / 8``-zCDP, and so composes
            better than ``epsilon`` alone.
        neighbors: ``"add_remove"``, ``"swap"`` or, for graphs, ``"edge"``; it has no default.
        delta: 0 if the promises always hold. Otherwise each of them holds except with probability
            ``delta``, between the two outputs conditioned on an event for each: (epsilon,
            delta)-DP, delta-approximate zCDP (Bun and Steinke 2016, Definition 8.1), and so on.
            These deltas add up under composition.
        zcdp: rho of zero-concentrated differential privacy (Bun and Steinke 2016), if the mechanism
            was analyzed that way; :attr:`rho` is the smallest rho that all promises imply.
        renyi: points of the mechanism's Renyi curve, pairs of an order above 1 and a divergence,
            increasing in both, if a curve is known below that which the other promises imply;
            :meth:`with_curve` computes them from a function.
        gdp: mu of Gaussian differential privacy (Dong, Roth and Su 2022), which Gaussian noise of
            standard deviation ``sensitivity / mu`` attains. It implies ``mu**2 / 2``-zCDP, and is
            stronger: it gives the exact delta at every epsilon.
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
    1-DP and 1-bounded-range under swap neighbors
    >>> print(Guarantee(1.0, neighbors="add_remove", delta=1e-6))
    (1, 1e-06)-DP under add_remove neighbors
    >>> print(Guarantee(gdp=0.5, neighbors="swap"))
    0.125-zCDP and 0.5-GDP under swap neighbors
    >>> print(Guarantee(1.0, 1.0, "add_remove", unit="person"))
    1-DP and 1-bounded-range under add_remove neighbors, for a person
    >>> print(Guarantee(zcdp=0.01, delta=0.001, neighbors="swap"))
    0.01-zCDP except with probability 0.001 under swap neighbors
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
        for name in ("epsilon", "bounded_range", "delta", "zcdp", "gdp", "laplace"):
            value = attributes[name]
            if isinstance(value, (bool, str)):
                raise TypeError(f"{name} must be a number, got {value!r}.")
            attributes[name] = float(value)  # as arithmetic in NumPy's narrow types overflows
            if not attributes[name] >= 0 or (name == "delta" and attributes[name] >= 1):
                raise ValueError(
                    f"{name} must be at least 0{' and below 1' if name == 'delta' else ''}, got "
                    f"{value}."
                )
        points = tuple((float(order), float(divergence)) for order, divergence in self.renyi)
        orders, divergences = np.array(points).reshape(-1, 2).T
        ordered = np.all(np.diff(orders) > 0) and np.all(np.diff(divergences) >= 0)
        if not (
            ordered
            and np.all(np.isfinite(points))
            and np.all(orders > 1)
            and np.all(divergences >= 0)
        ):
            raise ValueError(
                "renyi must be pairs of orders above 1 and divergences, increasing, got "
                f"{self.renyi}."
            )
        attributes["renyi"] = points
        if self.sampled:
            kind, taken, records, parts = self.sampled
            within = 0 < taken <= (inf if kind == "with" else records)
            relations = {self.neighbors, *(part.neighbors for part, _ in parts)}
            if not (within and relations == {SAMPLES.get(kind)}):
                raise ValueError(
                    f"sampled must be one of {tuple(SAMPLES)}, a number taken out of another one, "
                    f"and guarantees under the relation of the sample, got {self.sampled}."
                )
        if not self.neighbors:
            raise TypeError(f"a Guarantee needs neighbors=, one of {', '.join(checks.RELATIONS)}.")
        checks.one_of("neighbors", self.neighbors, checks.RELATIONS)
        checks.one_of("unit", self.unit, UNITS)

    def __str__(self) -> str:
        first = [text_of(promised(self.epsilon), self.delta)] if self.epsilon < inf else []
        zcdp = min(self.zcdp, half_square(self.gdp))
        kinds = (self.bounded_range, "bounded-range"), (zcdp, "zCDP"), (self.gdp, "GDP")
        others = [f"{promised(value)}-{kind}" for value, kind in kinds if value < inf]
        if self.sampled and self.epsilon == inf:
            others.append("the privacy losses of a sample")
        if self.renyi:
            others.append(f"Renyi DP at orders {self.renyi[0][0]:g} to {self.renyi[-1][0]:g}")
        if others and self.delta:
            others[-1] += f" except with probability {promised(self.delta)}"
        return f"{' and '.join(first + others) or 'no promise'} under {relation_text(self)}"

    def _facts(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults; of a curve, the number of points."""
        facts = {name: repr(value) for name, value in self._given().items()}
        return facts | ({"renyi": f"{len(self.renyi)} points"} if self.renyi else {})

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        return {}, profile_of(self)

    def _given(self) -> dict[str, Any]:
        """Return the first three fields, and the others that differ from their defaults."""
        first = {
            "epsilon": self.epsilon,
            "bounded_range": self.bounded_range,
            "neighbors": self.neighbors,
        }
        return first | {
            of.name: getattr(self, of.name)
            for of in fields(self)
            if getattr(self, of.name) != of.default
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the first three fields, and the others that differ from their defaults.

        The types are those that :mod:`json` writes; None is infinity.
        """
        given = {name: None if value == inf else value for name, value in self._given().items()}
        if self.sampled:
            *sample, parts = self.sampled
            given["sampled"] = [*sample, [[part.to_dict(), count] for part, count in parts]]
        return given

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Guarantee:
        """Return the guarantee that :meth:`to_dict` wrote."""
        promises: dict[str, Any] = {
            name: inf if value is None else value for name, value in given.items()
        }
        if "sampled" in promises:
            *sample, parts = promises["sampled"]
            parts = tuple((cls.from_dict(part), count) for part, count in parts)
            promises["sampled"] = (*sample, parts)
        return cls(**promises)

    def to_json(self) -> str:
        """Return the guarantee as JSON.

        >>> Guarantee(1.0, float("inf"), "swap", delta=1e-6).to_json()
        '{"epsilon": 1.0, "bounded_range": null, "neighbors": "swap", "delta": 1e-06}'
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
        return self._once() + other

    def __radd__(self, other: int) -> Composition:
        return self._once().__radd__(other)

    def __mul__(self, count: int) -> Composition:
        return self._once() * count

    __rmul__ = __mul__

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at ``delta`` that this implies.

        See :meth:`Composition.epsilon_at`.

        >>> round(Guarantee(1.0, 1.0, "swap").epsilon_at(0.01), 3)
        0.834
        """
        return self._once().epsilon_at(delta)

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon`` that this implies.

        See :meth:`Composition.delta_at`.
        """
        return self._once().delta_at(epsilon)

    @property
    def rho(self) -> float:
        """The smallest rho of zCDP that is implied, rounded up.

        It holds except with probability ``delta``. The smallest of ``zcdp``, ``gdp**2 / 2``,
        ``bounded_range**2 / 8``, ``epsilon * tanh(epsilon / 2)``, and for Laplace noise size +
        e^-size - 1 (Harrison and Manurangsi 2025).
        """
        half = self.bounded_range / 2 or self.bounded_range  # of the smallest float it is 0
        rhos = [self.zcdp, half_square(self.gdp), half_square(half), self.epsilon]
        pure = [self.epsilon * float(np.tanh(self.epsilon / 2)) if self.epsilon < inf else inf]
        if self.laplace < inf:
            pure.append(formulas.zcdp_of_laplace(self.laplace))
        if self.epsilon:
            # A product that underflows is not 0
            rhos += [max(rho * (1 + 2.0**-50), float_info.min) for rho in pure]
        return min(rhos) if self.epsilon else 0.0

    def rdp(self, order: Any) -> np.ndarray:
        """Return the smallest Renyi divergence that is implied at an order above 1, of any shape.

        Float64 of the shape of ``order``; it holds except with probability ``delta``.
        """
        a = orders_above_one(order)
        found = least_divergence(
            a, min(self.zcdp, half_square(self.gdp)), self.bounded_range, self.epsilon
        )
        if self.laplace < inf:
            found = np.minimum(
                found, formulas.rdp_of_laplace(np.full_like(a, self.laplace), a, np) * (1 + 1e-12)
            )
        if self.renyi:
            orders, divergences = np.array(self.renyi).T
            # (a - 1) D(a) is convex, so chords lie above it; below the first order, D is at most
            # its value there.
            between = np.interp(a, orders, (orders - 1) * divergences) / (a - 1)
            found = np.minimum(
                found,
                np.where(a < orders[0], divergences[0], np.where(a > orders[-1], inf, between)),
            )
        return found

    def _once(self) -> Composition:
        # Imported here, as it imports this module
        from dpjax.accounting.composition import Composition

        return Composition(((self, 1),))


def one_unit(units: Iterable[str]) -> str:
    """Return the common unit of guarantees; those that state none are assumed to have it.

    Raises:
        ValueError: some guarantees are for a row and others for a person.
    """
    stated = sorted(set(units) - {""})
    if len(stated) > 1:
        raise ValueError(
            f"guarantees for {' and for '.join(f'a {unit}' for unit in reversed(stated))} do not "
            "compose: a person may have several rows, so state all guarantees for one unit."
        )
    return stated[0] if stated else ""


def relation_text(spent: Guarantee | Composition) -> str:
    """Return the text of a relation and a unit."""
    return f"{spent.neighbors} neighbors{f', for a {spent.unit}' if spent.unit else ''}"


def promising(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee; raise ``ValueError`` if it promises nothing."""
    promises = guarantee.epsilon, guarantee.bounded_range, guarantee.zcdp, guarantee.gdp
    if not (guarantee.renyi or guarantee.sampled) and min(promises) == inf:
        raise ValueError(
            "nothing is promised: no epsilon with a delta below 1, no range, and no zCDP or Renyi "
            "divergence is finite."
        )
    return guarantee


def text_of(epsilon: str, delta: float) -> str:
    """Return the text of (epsilon, delta)-DP, for an epsilon as formatted by :func:`promised`."""
    return f"({epsilon}, {promised(delta)})-DP" if delta else f"{epsilon}-DP"


def promised(*epsilons: float, times: int | Sequence[int] = 1) -> str:
    """Return a privacy parameter, or the sum of several, as text of at most six digits, rounded up.

    An excess over six digits of relatively less than 1e-12 is attributed to floating-point rounding
    and dropped: three times 0.1 is printed as 0.3.

    Args:
        *epsilons: at least 0.
        times: the multiplicity of each of them, or of all.

    >>> promised(0.5), promised(0.1, times=3), promised(0.12345649), promised(0.1 + 0.2)
    ('0.5', '0.3', '0.123457', '0.3')
    >>> promised(1e-7), promised(float("inf"))
    ('1e-07', 'inf')
    """
    counts = [times] * len(epsilons) if isinstance(times, int) else times
    total = exact_total(zip(epsilons, counts, strict=True))
    if not isinstance(total, Fraction):
        return f"{total:g}"
    digits = Context(prec=30).divide(Decimal(total.numerator), Decimal(total.denominator)) * (
        1 - Decimal("1e-12")
    )
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(digits)):g}"


def exact_total(numbers: Iterable[tuple[float, int]]) -> Fraction | float:
    """Return the exact sum of nonnegative numbers, each times its count.

    Infinite if one of them is.
    """
    ratios = []
    for number, count in numbers:
        if not isfinite(number):
            return inf
        ratios.append((*number.as_integer_ratio(), count))
    # Denominators are powers of two: integers over the largest denominator add up faster than
    # fractions.
    denominator = max((below for _, below, _ in ratios), default=1)
    return Fraction(
        sum(above * (denominator // below) * count for above, below, count in ratios), denominator
    )


def rounded_up(exact: Fraction | float) -> float:
    """Return the smallest float that is not below a number.

    >>> rounded_up(10 * Fraction(0.1))
    1.0000000000000002
    """
    if exact > float_info.max:
        return inf
    nearest = float(exact)
    return nearest if nearest >= exact else nextafter(nearest, inf)


def half_square(number: float) -> float:
    """Return mu^2 / 2, the rho of zCDP that mu-GDP implies, rounded up.

    Positive for positive mu.
    """
    square = number * number
    if not 1e-140 < number < 1e140:
        return (
            max(rounded_up(Fraction(number) ** 2 / 2), float_info.min)
            if 0 < number < inf
            else number
        )
    # Veltkamp's split, for the exact rounding error of the square
    high = 134217729.0 * number - (134217729.0 * number - number)
    low = number - high
    return (
        nextafter(square, inf)
        if (high * high - square) + 2 * high * low + low * low > 0
        else square
    ) / 2


def orders_above_one(order: Any) -> np.ndarray:
    """Return orders as float64; raise ``ValueError`` if one is not above 1."""
    orders = np.asarray(order, np.float64)
    if not np.all(orders > 1):
        raise ValueError(f"orders must be above 1, got {order}.")
    return orders


def least_divergence(order: np.ndarray, zcdp: Any, bounded_range: Any, epsilon: Any) -> np.ndarray:
    """Return the smallest Renyi divergence that zCDP, bounded range and pure DP imply.

    Infinite if none does.
    """
    a, rho, r, pure = np.broadcast_arrays(order, zcdp, bounded_range, epsilon)
    with np.errstate(over="ignore"):
        return np.minimum(
            rho * a,
            np.minimum(formulas.rdp_of_bounded_range(r, a, np), formulas.rdp_of_pure(pure, a, np)),
        )


def orders_of(guarantees: Iterable[Guarantee]) -> np.ndarray:
    """Return the orders of the curves of all guarantees, ascending, float64."""
    return np.array(
        sorted({order for guarantee in guarantees for order, _ in guarantee.renyi}), np.float64
    )


def points_of(orders: np.ndarray, divergences: np.ndarray) -> Points:
    """Return the points of a curve where it is finite, made nondecreasing against rounding."""
    known = divergences < inf
    return tuple(
        zip(orders[known].tolist(), np.maximum.accumulate(divergences[known]).tolist(), strict=True)
    )


def profile_of(spent: Guarantee | Composition) -> Picture:
    """Return the plot of delta against epsilon."""
    delta = np.logspace(-12, -1, 34)
    epsilon = np.array([spent.epsilon_at(float(target)) for target in delta])
    return Picture(epsilon[None], delta[None], "epsilon", "delta", log=True)
