"""What one mechanism promises, as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from math import inf
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


@dataclass(frozen=True, repr=False)
class Guarantee(Shown):
    """A privacy guarantee of one draw, with the neighbour relation under which it holds.

    A promise that a mechanism does not make is infinite (``delta`` is then 0): noise that is only zCDP has an infinite ``epsilon``.

    Attributes:
        epsilon: differential privacy: log P(Y in S) differs by at most this between neighbours, except with probability ``delta``.
        bounded_range: the largest log-ratio minus the smallest, over outputs, is at most this (Durfee and Rogers 2019). Composes
            better than ``epsilon`` alone says: it implies ``bounded_range**2 / 8``-zCDP.
        neighbors: ``"add_remove"``, ``"swap"`` or, for graphs, ``"edge"``.
        delta: 0 for pure differential privacy.
        zcdp: rho of zero-concentrated differential privacy (Bun and Steinke 2016), where the mechanism is analysed by it.
        renyi: pairs of an order above 1 and a Renyi divergence, increasing in both: points of the mechanism's own curve, where one
            is known that is below what the other promises imply; :meth:`with_curve` makes them of a function.
        gdp: mu of Gaussian differential privacy (Dong, Roth and Su 2022), which Gaussian noise of standard deviation
            ``sensitivity / mu`` attains. It implies ``mu**2 / 2``-zCDP, and says more: the exact delta at every epsilon.
        sampled_gdp: mu of Gaussian DP of a mechanism, and the probability of the Poisson subsample that it runs on
            (:func:`dpjax.accounting.poisson_subsample`), from which the privacy losses follow.
        unit: by what neighbours differ: a ``"row"``, a ``"person"`` with all their rows, or ``""`` where the caller knows what a
            record is.

    Guarantees of one relation and one unit add up, and multiply: ``g + h`` and ``100 * g`` are a :class:`Composition`.

    >>> print(Guarantee(1.0, 1.0, "swap"))
    1-DP and 1-bounded-range under swap neighbors
    >>> print(Guarantee(1.0, float("inf"), "add_remove", delta=1e-6))
    (1, 1e-06)-DP under add_remove neighbors
    >>> print(Guarantee(1.0, 1.0, "add_remove", unit="person"))
    1-DP and 1-bounded-range under add_remove neighbors, for a person
    """

    epsilon: float
    bounded_range: float
    neighbors: str
    delta: float = 0.0
    zcdp: float = inf
    renyi: Points = ()
    gdp: float = inf
    sampled_gdp: tuple[float, float] = (inf, 1.0)
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
        implied = max(self.gdp * self.gdp / 2, float_info.min) if self.gdp else 0.0  # a square that underflows
        given["zcdp"] = min(self.zcdp, implied)
        points = tuple((float(order), float(divergence)) for order, divergence in self.renyi)
        orders, divergences = np.array(points).reshape(-1, 2).T
        ordered = np.all(np.diff(orders) > 0) and np.all(np.diff(divergences) >= 0)
        if not (ordered and np.all(np.isfinite(points)) and np.all(orders > 1) and np.all(divergences >= 0)):
            raise ValueError(f"renyi must be pairs of orders above 1 and divergences, increasing, got {self.renyi}.")
        given["renyi"] = points
        mu, probability = (float(number) for number in self.sampled_gdp)
        if not (mu > 0 and 0 < probability <= 1):
            raise ValueError(f"sampled_gdp must be a positive mu and a probability up to 1, got {self.sampled_gdp}.")
        given["sampled_gdp"] = mu, probability if mu < inf else 1.0
        checks.one_of("neighbors", self.neighbors, checks.RELATIONS)
        checks.one_of("unit", self.unit, UNITS)

    def __str__(self) -> str:
        promises = [text_of(self.epsilon, self.delta)] if self.epsilon < inf else []
        kinds = (self.bounded_range, "bounded-range"), (self.zcdp, "zCDP"), (self.gdp, "GDP")
        promises += [f"{value:g}-{kind}" for value, kind in kinds if value < inf]
        if self.sampled_gdp[0] < inf:
            promises.append("{:g}-GDP on subsamples of probability {:g}".format(*self.sampled_gdp))
        if self.renyi:
            promises.append(f"Renyi DP at orders {self.renyi[0][0]:g} to {self.renyi[-1][0]:g}")
        return f"{' and '.join(promises) or 'no promise'} under {relation_text(self)}"

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
        """The smallest rho of zCDP that follows: of ``zcdp``, ``bounded_range**2 / 8`` and ``epsilon * tanh(epsilon / 2)``.

        With a delta that has no ``zcdp`` beside it, it holds except with probability ``delta``.
        """
        pure = self._pure_epsilon
        of_pure = pure * float(np.tanh(pure / 2))
        # The points of a curve say nothing of all orders.
        least = 0.0 if 0 in (self.zcdp, self.bounded_range, pure) else float_info.min  # a square that underflows
        return max(min(self.zcdp, self.bounded_range * self.bounded_range / 8, of_pure), least)

    def rdp(self, order: Any) -> np.ndarray:
        """The smallest Renyi divergence that follows, for orders above 1 of any shape, float64; ``delta`` as for :attr:`rho`."""
        a = np.asarray(order, np.float64)
        if not np.all(a > 1):
            raise ValueError(f"orders must be above 1, got {order}.")
        found = least_divergence(a, self.zcdp, self.bounded_range, self._pure_epsilon)
        if self.renyi:
            orders, divergences = np.array(self.renyi).T
            # (a - 1) D(a) is convex, so chords lie above it; below the first order D is at most what it is there.
            between = np.interp(a, orders, (orders - 1) * divergences) / (a - 1)
            found = np.minimum(found, np.where(a < orders[0], divergences[0], np.where(a > orders[-1], inf, between)))
        return found

    @property
    def _pure_epsilon(self) -> float:
        """The epsilon to convert; infinite if there is a delta that zCDP spares."""
        return inf if self.delta and self.zcdp < inf else self.epsilon

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
    promises = guarantee.epsilon, guarantee.bounded_range, guarantee.zcdp, guarantee.gdp, guarantee.sampled_gdp[0]
    if not guarantee.renyi and min(promises) == inf:
        raise ValueError(
            "nothing is promised: no epsilon with a delta below 1, no range, and no zCDP or Renyi divergence is finite."
        )
    return guarantee


def text_of(epsilon: float, delta: float) -> str:
    """Return the name of (epsilon, delta)-DP."""
    return f"({epsilon:g}, {delta:g})-DP" if delta else f"{epsilon:g}-DP"


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
