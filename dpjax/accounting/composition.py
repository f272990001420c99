"""The total cost of many mechanisms, by the tightest composition rule that applies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from html import escape
from math import ceil, exp, expm1, fsum, hypot, inf, log, log1p, log2, prod, sqrt
from sys import float_info
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax import checks
from dpjax.accounting import composition_theorems, formulas, losses
from dpjax.accounting._gaussian_dp import delta_of_gdp, epsilon_of_gdp
from dpjax.accounting.guarantee import (
    Guarantee,
    Points,
    exact_total,
    half_square,
    least_divergence,
    one_unit,
    orders_above_one,
    orders_of,
    points_of,
    profile_of,
    promised,
    promising,
    relation_text,
    rounded_up,
)
from dpjax.display import Picture, Shown

_FEW_ULPS = 2.0**-48  # above the rounding error of the rules' formulas
Parts = tuple[tuple[Guarantee, int], ...]
# With more different guarantees, Renyi divergences are rounded up and merged before the sum.
_MANY_KINDS = 512
# The most guarantees that are composed by their losses: each takes Fourier transforms.
_MOST_KINDS = 32


@dataclass(frozen=True, repr=False)
class Composition(Shown):
    """The cost of several adaptive mechanisms.

    Each mechanism may depend on the previous answers, while its cost may not. Sums and multiples of
    guarantees are compositions. Where the costs depend on answers too, use a
    :class:`PrivacyFilter`.

    Attributes:
        parts: pairs of a guarantee and the number of mechanisms that have it, all under one
            neighbor relation and for one unit.

    >>> each = Guarantee(0.1, 0.1, "add_remove")
    >>> spent = 100 * each + Guarantee(0.5, 1.0, "add_remove")
    >>> print(spent)  # doctest: +NORMALIZE_WHITESPACE
    101 mechanisms: 10.5-DP and 0.24746-zCDP and (2.85123, 1e-06)-DP (rdp)
    under add_remove neighbors
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
        _check_relation({guarantee.neighbors for guarantee in together})
        one_unit(guarantee.unit for guarantee in together)
        object.__setattr__(self, "parts", tuple(together.items()))

    def __add__(self, other: Guarantee | Composition) -> Composition:
        if isinstance(other, Guarantee):
            other = Composition(((other, 1),))
        if not isinstance(other, Composition):
            return NotImplemented
        _check_relation({self.neighbors, other.neighbors})
        unit = one_unit((self.unit, other.unit))
        # The parts are merged on first use: sum() of many guarantees would otherwise take quadratic
        # time.
        total = object.__new__(Composition)
        vars(total).update(neighbors=self.neighbors, unit=unit, _terms=(self, other))
        return total

    if not TYPE_CHECKING:  # with __getattr__ a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name != "parts":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            parts: list[tuple[Guarantee, int]] = []
            stack = [self]
            while stack:
                term = stack.pop()
                if terms := vars(term).get("_terms"):
                    stack += reversed(terms)
                else:
                    parts += term.parts
            Composition.__init__(self, tuple(parts))
            vars(self).pop("_terms", None)  # only now, as another thread may be reading the terms
            return self.parts

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts}  # the terms of a sum are merged first

    def __radd__(self, other: int) -> Composition:
        # The start of sum()
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, count: int) -> Composition:
        times = checks.static_integer("a number of mechanisms", count, 1)
        return Composition(tuple((guarantee, number * times) for guarantee, number in self.parts))

    __rmul__ = __mul__

    def __str__(self) -> str:
        kinds, counts = zip(*self.parts, strict=True)
        delta = promised(*(kind.delta for kind in kinds), times=counts)
        epsilon = promised(*(kind.epsilon for kind in kinds), times=counts)
        promises = (
            [f"({epsilon}, {delta})-DP" if self.delta else f"{epsilon}-DP"]
            if self.epsilon < inf
            else []
        )
        if self.rho < inf:
            exception = f" except with probability {delta}" if self.delta else ""
            promises.append(f"{promised(self.rho)}-zCDP{exception}")
        target = max(1e-6, 2 * self.delta)
        if target < 1:
            rule, epsilon_there = self.best_rule_at(target)
            hint = (
                "; less with the extra dpjax[accounting]"
                if self._losses_help and not losses.installed()
                else ""
            )
            promises.append(f"({promised(epsilon_there)}, {promised(target)})-DP ({rule}{hint})")
        return f"{self.count} mechanisms: {' and '.join(promises)} under {relation_text(self)}"

    def _facts(self) -> dict[str, Any]:
        numbers = {"count": f"{self.count}"} | {
            name: promised(getattr(self, name)) for name in ("epsilon", "delta", "rho")
        }
        return {**numbers, "neighbors": repr(self.neighbors)} | (
            {"unit": repr(self.unit)} if self.unit else {}
        )

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        # May take seconds, as some rules are recursions over all mechanisms
        return {}, profile_of(self)

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"

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

    @cached_property
    def neighbors(self) -> str:
        """The neighbor relation of all mechanisms."""
        return self.parts[0][0].neighbors

    @cached_property
    def unit(self) -> str:
        """The unit of the guarantees that state one, or ``""``."""
        return one_unit(guarantee.unit for guarantee, _ in self.parts)

    @cached_property
    def epsilon(self) -> float:
        """The sum of all epsilons, rounded up: the total epsilon at :attr:`delta`.

        This is basic composition.
        """
        return rounded_up(
            exact_total((guarantee.epsilon, count) for guarantee, count in self.parts)
        )

    @cached_property
    def delta(self) -> float:
        """The sum of all deltas, rounded up."""
        return rounded_up(exact_total((guarantee.delta, count) for guarantee, count in self.parts))

    @property
    def slack(self) -> float:
        """The probability with which :attr:`rho`, :meth:`rdp` and :attr:`gdp` need not hold.

        Equal to :attr:`delta`.
        """
        return self.delta

    @property
    def bounded_range(self) -> float:
        """The range of all mechanisms together.

        A single mechanism keeps its range. Of several, the interval of a later mechanism's losses
        may depend on the previous answers, so it adds twice the smaller of its range and its
        epsilon. Only the first mechanism adds its range alone; it is taken to be the one for which
        this saves least.
        """
        ends = [2 * min(part.bounded_range, part.epsilon) for part, _ in self.parts]
        first = min(
            range(len(ends)), key=lambda at: max(ends[at] - self.parts[at][0].bounded_range, 0.0)
        )
        terms = [
            (end, count - (at == first))
            for at, (end, (_, count)) in enumerate(zip(ends, self.parts, strict=True))
        ]
        return rounded_up(
            exact_total([*terms, (min(ends[first], self.parts[first][0].bounded_range), 1)])
        )

    @cached_property
    def rho(self) -> float:
        """The sum of the rho of zCDP of all mechanisms, rounded up.

        It holds except with probability :attr:`slack`.
        """
        return rounded_up(exact_total((guarantee.rho, count) for guarantee, count in self.parts))

    def rdp(self, order: Any) -> np.ndarray:
        """Return the sum of the Renyi divergences of an order.

        It holds except with probability :attr:`slack`.

        Args:
            order: above 1, of any shape.

        Returns:
            Float64 of the shape of ``order``.
        """
        usual = [
            (part, count) for part, count in self.parts if not part.renyi and part.laplace == inf
        ]
        found = np.zeros(np.shape(order))
        with np.errstate(over="ignore"):
            for part, count in self.parts:
                if part.renyi or part.laplace < inf:
                    found = found + count * part.rdp(order)
            for first in range(0, len(usual), 1024):
                chunk = usual[first : first + 1024]
                columns = [
                    (min(part.zcdp, half_square(part.gdp)), part.bounded_range, part.epsilon, count)
                    for part, count in chunk
                ]
                numbers = np.array(columns, np.float64).T[..., *(None,) * np.ndim(order)]
                found = found + np.sum(
                    numbers[3] * least_divergence(orders_above_one(order), *numbers[:3]), axis=0
                )
        return found

    @property
    def gdp(self) -> float:
        """The mu of Gaussian DP of all mechanisms, the root of the sum of squares.

        Infinite if one has none.
        """
        return _gdp(self.parts)

    def guarantee(self) -> Guarantee:
        """Return the total cost as one guarantee: epsilon, delta, range, zCDP and Gaussian DP.

        Without zCDP, it has the sum of the Renyi divergences at the orders of the parts' curves.

        Raises:
            ValueError: nothing is promised, for instance because the deltas add up to 1.
        """
        if self.delta >= 1:
            return promising(Guarantee(neighbors=self.neighbors))
        if len(self.parts) == 1 and self.count == 1:
            return self.parts[0][0]
        curve: Points = ()
        if self.rho == inf:
            orders = orders_of(guarantee for guarantee, _ in self.parts)
            curve = points_of(orders, self.rdp(orders))
        total = Guarantee(
            self.epsilon,
            self.bounded_range,
            self.neighbors,
            self.delta,
            self.rho,
            curve,
            self.gdp,
            unit=self.unit,
        )
        if (
            total.epsilon == inf
            and min(total.bounded_range, total.zcdp, total.gdp) == inf
            and not curve
        ):
            return promising(Guarantee(neighbors=self.neighbors))
        return total

    def rules_at(self, delta: float, *, numerical: bool = True) -> dict[str, float]:
        """Return the epsilon at ``delta`` by every rule that applies to adaptive mechanisms.

        * ``"basic"``: the sum of the epsilons.
        * ``"optimal"``: exact for pure mechanisms in the worst case, if the number of outcomes of
          their randomized responses is small enough.
        * ``"bounded_range"``: the adaptive recursion, for up to 200 mechanisms of one range.
        * ``"rdp"``: the best order of the sum of Renyi divergences, each the tightest that its
          guarantee implies, zCDP included.
        * ``"gaussian"``: the exact epsilon of all Gaussian DP mechanisms together, plus the sum of
          the epsilons of the others.
        * ``"losses"``: the privacy loss distributions of pairs that dominate the mechanisms,
          composed numerically by dp-accounting: for up to 32 different guarantees, each with an
          epsilon, a range, Gaussian DP, or the losses of Laplace noise or of a sample. It needs the
          extra ``accounting``. Without it epsilon can be far larger. ``str(composition)`` says
          where installing the extra would add this rule.

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
            ``composition_theorems``, ``conversions``, ``_gaussian_dp`` and ``losses`` say more.
        """
        target = checks.concrete_delta(delta)
        found: dict[str, float] = {}
        if self.epsilon < inf and (remaining := _without(target, self.parts)) >= 0:
            found["basic"] = self.epsilon
            if remaining > 0 and self._few_outcomes():
                found["optimal"] = (
                    composition_theorems.optimal_pure_epsilon(*self._pure_parts(), delta=remaining)
                    if self.epsilon
                    else 0.0
                )
        mu, epsilon = self._gaussian
        remaining = _without(target, self.parts)
        if epsilon < inf and remaining > 0:
            found["gaussian"] = epsilon + epsilon_of_gdp(mu, delta=remaining)
        if remaining <= 0:
            return found
        if self._losses_help and numerical and losses.installed():
            found["losses"] = losses.epsilon_of(self.parts, target)[0]
        if (one := self._one_range()) is not None:
            found["bounded_range"] = composition_theorems.bounded_range_epsilon(
                one, count=self.count, delta=remaining, queries="adaptive"
            )
        if self._has_curve():
            least = formulas.smallest_on_host(
                formulas.epsilon_at_order, self._rdp_up, -log(remaining)
            )
            found["rdp"] = (least + 1e-15) * (1 + _FEW_ULPS) if least > 0 else 0.0
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
        if len(self.parts) > _MOST_KINDS or not all(losses.known(part) for part, _ in self.parts):
            return None
        return losses.epsilon_of(self.parts, target)[1]

    def best_rule_at(self, delta: float) -> tuple[str, float]:
        """Return the rule with the smallest epsilon at ``delta``, and that epsilon.

        ``("none", inf)`` if none applies.
        """
        return min(self.rules_at(delta).items(), key=lambda rule: rule[1], default=("none", inf))

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon of all rules at ``delta``, in (0, 1).

        Infinite if no rule applies.
        """
        return self.best_rule_at(delta)[1]

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon``, at least 0, by the rules of :meth:`rules_at`.

        At most 1.
        """
        target = checks.concrete_nonnegative("epsilon", epsilon)
        found = [1.0]
        if self.epsilon <= target:
            found.append(_together(0.0, self.parts))
        elif self.epsilon < inf and self._few_outcomes():
            found.append(
                _together(
                    composition_theorems.optimal_pure_delta(*self._pure_parts(), epsilon=target),
                    self.parts,
                )
            )
        mu, other_epsilon = self._gaussian
        if other_epsilon <= target:
            found.append(_together(delta_of_gdp(mu, epsilon=target - other_epsilon), self.parts))
        if self._losses_help and losses.installed():
            found.append(losses.delta_of(self.parts, target))
        if (one := self._one_range()) is not None:
            ranges = composition_theorems.bounded_range_delta(
                one, count=self.count, epsilon=target, queries="adaptive"
            )
            found.append(_together(ranges, self.parts))
        if self._has_curve():
            nearly = target * (1 - _FEW_ULPS)
            least = exp(
                min(
                    formulas.smallest_on_host(formulas.log_delta_at_order, self._rdp_up, nearly)
                    + 1e-13,
                    0.0,
                )
            )
            found.append(_together(max(least, float_info.min), self.parts))  # 0 would state pure DP
        return min(min(found), 1.0)

    def _rdp_up(self, order: np.ndarray) -> np.ndarray:
        """Return :meth:`rdp`, rounded up.

        Of many different guarantees, an upper bound from fewer.
        """
        return self._fewer.rdp(order) * (1 + _FEW_ULPS)

    @cached_property
    def _fewer(self) -> Composition:
        """The same mechanisms with fewer different guarantees.

        If there are many, promises are rounded up by at most 0.3 %.
        """
        if len(self.parts) <= _MANY_KINDS:
            return self
        together: dict[tuple[float, ...], int] = {}
        parts = []
        for part, count in self.parts:
            if part.renyi or part.laplace < inf:
                parts.append((part, count))
            else:
                numbers = part.epsilon, part.bounded_range, min(part.zcdp, half_square(part.gdp))
                steps: tuple[float, ...] = tuple(
                    ceil(256 * log2(number)) if 0 < number < inf else number for number in numbers
                )
                together[steps] = together.get(steps, 0) + count
        for steps, count in together.items():
            epsilon, spread, zcdp = (
                2 ** (step / 256) * (1 + 1e-12) if isinstance(step, int) else step for step in steps
            )
            parts.append((Guarantee(epsilon, spread, self.neighbors, zcdp=zcdp), count))
        return Composition(tuple(parts))

    @cached_property
    def _gaussian(self) -> tuple[float, float]:
        """The mu of the parts that have Gaussian DP, and the sum of the epsilons of the others.

        Infinite if no part has a mu. Trade-off functions compose in any order (Dong, Roth and Su
        2022, Section 3.1), so that the others may be placed last, where they add their epsilons.
        """
        gaussian = tuple(part for part in self.parts if 0 < part[0].gdp < inf)
        others = ((part.epsilon, count) for part, count in self.parts if part.gdp == inf)
        return _gdp(gaussian), rounded_up(exact_total(others)) if gaussian else inf

    @cached_property
    def _losses_help(self) -> bool:
        """Whether all parts have known privacy losses, and no other rule is exact for them.

        Where one is exact in the worst case, no sum of losses can be smaller.
        """
        parts = [part for part, _ in self.parts]
        if len(parts) > _MOST_KINDS or not all(losses.known(part) for part in parts):
            return False
        if any(part.sampled or part.laplace < inf for part in parts):
            return True
        pure = self._few_outcomes() and all(
            part.bounded_range >= 2 * part.epsilon for part in parts
        )
        gaussian = any(part.gdp < inf for part in parts)
        return self.gdp == inf and (gaussian or not (pure or self._one_range() is not None))

    def _pure_parts(self) -> tuple[list[float], list[int]]:
        """Return the positive epsilons and their counts, for :func:`optimal_pure_delta`."""
        parts = [(guarantee.epsilon, count) for guarantee, count in self.parts if guarantee.epsilon]
        return [epsilon for epsilon, _ in parts], [count for _, count in parts]

    def _has_curve(self) -> bool:
        return all(guarantee.rho < inf or guarantee.renyi for guarantee, _ in self.parts)

    def _few_outcomes(self) -> bool:
        few = len(self.parts) <= 32  # the product of more counts is too large anyway
        return (
            few and prod(count + 1 for _, count in self.parts) <= composition_theorems.MOST_OUTCOMES
        )

    def _one_range(self) -> float | None:
        """Return the common bounded range of all parts, if any, for at most 200 mechanisms."""
        ranges = {guarantee.bounded_range for guarantee, _ in self.parts}
        one = min(ranges)
        return one if len(ranges) == 1 and 0 < one < inf and self.count <= 200 else None


def _check_relation(relations: set[str]) -> None:
    if len(relations) > 1:
        raise ValueError(
            f"guarantees under {' and '.join(sorted(relations))} neighbors do not compose: state "
            "them all for one relation."
        )


def _gdp(parts: Parts) -> float:
    """Return the mu of Gaussian DP of all parts together, rounded up."""
    return hypot(*(guarantee.gdp * sqrt(count) for guarantee, count in parts)) * (1 + 2.0**-50)


def _log_kept(parts: Parts) -> float:
    """Return log(prod(1 - delta_i)) over all mechanisms."""
    return fsum(count * log1p(-guarantee.delta) for guarantee, count in parts)


def _without(delta: float, parts: Parts) -> float:
    """Return the part of ``delta`` that the mechanisms' own deltas leave.

    It is 1 - (1 - delta) / prod(1 - delta_i).
    """
    return -expm1(log1p(-delta) - _log_kept(parts))


def _together(delta: float, parts: Parts) -> float:
    """Return ``delta`` combined with the mechanisms' own deltas.

    It is 1 - (1 - delta) prod(1 - delta_i).
    """
    return -expm1(_log_kept(parts) + log1p(-delta)) if delta < 1 else 1.0
