"""Numerical composition: dominating pairs as finite privacy losses, subsampled exactly and composed by FFT.

A pair of distributions (P, Q) dominates a mechanism if no neighbours x, x' have a larger hockey-stick divergence,

    sup_S P[M(x) in S] - e^epsilon P[M(x') in S] <= sup_S P(S) - e^epsilon Q(S)    for every real epsilon.

Here P is of the dataset with the individual and Q of that without (for add/remove neighbours; for replacement, of either), and the
reversed pair stands for the other order. Three facts carry everything (Zhu, Dong and Wang 2022):

* Products of dominating pairs dominate adaptive compositions (Theorem 10).
* ((1-p) Q + p P, Q) dominates the mechanism on a Poisson subsample (Theorem 11): of an outcome with loss l, the loss is then
  log(1 - p + p e^l), and Q is what it was.
* A pair that becomes (P, Q) by post-processing dominates it: so a cell of outcomes whose losses lie in [a, b] is replaced by two
  outcomes of losses a and b with the same masses of P and of Q together (the cell is got back by merging them).

The constructors say which pair they start from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log1p
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.accounting.bounded_ranges import mixed_losses, worst_divergences
from dpjax.accounting.numerical_composition import Product

_CELLS = 4096
_BLOCK, _CELLS_OF_RANGE = 64, 32  # mechanisms of bounded range in one recursion, and cells of their ranges
_WIDEST = 400.0  # a sum of ranges whose exponential is still a float
_TINY = 1e-200  # divergences below are not resolved, but added
_UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class _Pair:
    """Outcomes of two distributions: finite losses log p/q with the masses of both, and the masses that one of them has alone.

    ``width`` bounds the cells that losses were rounded in; infinite if there were none.
    """

    losses: np.ndarray
    p: np.ndarray
    q: np.ndarray
    p_alone: float = 0.0
    q_alone: float = 0.0
    width: float = 0.0

    def reversed(self) -> _Pair:
        return _Pair(-self.losses, self.q, self.p, self.q_alone, self.p_alone, self.width)

    def subsampled(self, share: float) -> _Pair:
        """((1-p) Q + p P, Q) for a share p."""
        if share == 1:
            return self
        losses, p, q = mixed_losses(self.losses, share), (1 - share) * self.q + share * self.p, self.q
        if self.q_alone:  # where P has no mass, the mixture has
            losses, p = np.append(losses, log1p(-share)), np.append(p, (1 - share) * self.q_alone)
            q = np.append(q, self.q_alone)
        return _Pair(losses, p, q, share * self.p_alone, 0.0, self.width)


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """The privacy losses of a pipeline, mechanism by mechanism; ``+`` and :meth:`compose` put pipelines together.

    Nothing is computed before an epsilon or a delta is asked for. Both are upper bounds, of what the grid, the truncation
    and rounding in the FFT do; ``numerical_composition.py`` states them. They hold for both orders of the neighbours, and for
    mechanisms that are chosen by the answers before (their costs are not).

    Attributes:
        parts: pairs of distributions and how many mechanisms each dominates.

    References:
        Zhu, Dong and Wang (2022), Theorems 10 and 11; Koskela et al. (2021); Doroshenko et al. (2022).

    >>> step = LossDistribution.laplace(1.0).poisson_subsample(0.01)
    >>> round(step.compose(1000).epsilon_at(1e-6), 2)
    1.29
    """

    parts: tuple[tuple[_Pair, int], ...]

    @staticmethod
    def pure(epsilon: float) -> LossDistribution:
        """Return what dominates every epsilon-DP mechanism: randomised response.

        >>> round(LossDistribution.pure(0.1).compose(100).epsilon_at(1e-6), 3)  # optimal_pure_epsilon: 4.775
        4.775
        """
        return LossDistribution.approximate(epsilon, 0.0)

    @staticmethod
    def approximate(epsilon: float, delta: float) -> LossDistribution:
        """Return what dominates every (epsilon, delta)-DP mechanism: randomised response that tells the truth outright at delta.

        References:
            Kairouz, Oh and Viswanath (2015), Theorem 3.1.
        """
        loss, alone = checks.concrete_nonnegative("epsilon", epsilon), checks.concrete_fraction("delta", delta)
        likely, rare = (1 - alone) / (1 + np.exp(-loss)), (1 - alone) * np.exp(-loss) / (1 + np.exp(-loss))
        return _one(_Pair(np.array([loss, -loss]), np.array([likely, rare]), np.array([rare, likely]), alone, alone))

    @staticmethod
    def laplace(epsilon: float) -> LossDistribution:
        """Return the losses of Laplace noise of scale sensitivity/epsilon on the line.

        A uniform loss with density e^(l/2) (times e^(-epsilon/2) / 4) between -epsilon and epsilon, and what lies beyond the two
        values, of loss epsilon and -epsilon. It costs less than the epsilon-DP that it has.
        """
        loss = checks.concrete_epsilon(epsilon)
        if loss > _WIDEST:  # all mass of either beyond its own value, but for next to nothing
            return LossDistribution.pure(loss)
        edges = np.linspace(-loss, loss, _CELLS + 1)
        # Of P: half beyond its own value; in between, a loss of at most l has the probability e^((l - epsilon)/2) / 2.
        inner = np.exp((edges[:-1] - loss) / 2) * np.expm1(np.diff(edges) / 2) / 2
        cells, rare = _in_cells(edges, inner, inner[::-1]), np.exp(-loss) / 2
        losses, p = np.append([loss, -loss], cells.losses), np.append([0.5, rare], cells.p)
        return _one(_Pair(losses, p, np.append([rare, 0.5], cells.q), width=cells.width))

    @staticmethod
    def gaussian(mu: float) -> LossDistribution:
        """Return the losses of Gaussian noise of standard deviation sensitivity/mu, in any dimension (under the L2 norm)."""
        from scipy.special import ndtr

        shift = checks.concrete_epsilon(mu)
        # P has mean mu; of the place y the loss is mu y - mu^2/2. Beyond 37 standard deviations the loss is called infinite.
        places = np.linspace(-37.0, 37.0 + shift, 2 * _CELLS + 1)
        cells = _in_cells(shift * (places - shift / 2), _normal(places - shift), _normal(places))
        beyond = float(ndtr(-37.0))
        return _one(replace(cells, p_alone=beyond, q_alone=beyond))

    @staticmethod
    def between(p: Any, q: Any) -> LossDistribution:
        """Return the losses between two probability vectors of the same outcomes, exactly as they are.

        Args:
            p: ``(n,)``, of the dataset with the individual; scaled to a sum of 1.
            q: ``(n,)``, without.
        """
        first, second = (np.asarray(given, np.float64) for given in (p, q))
        good = all(np.all(np.isfinite(given) & (given >= 0)) and given.sum() > 0 for given in (first, second))
        if first.ndim != 1 or first.shape != second.shape or not good:
            raise ValueError("between takes two vectors of probabilities of one length, with some mass each.")
        first, second = first / first.sum(), second / second.sum()
        both = (first > 0) & (second > 0)
        losses = np.log(first[both] / second[both]) if both.any() else np.zeros(0)
        return _one(_Pair(losses, first[both], second[both], float(first[second == 0].sum()), float(second[first == 0].sum())))

    @staticmethod
    def bounded_range(bounded_range: float, *, count: int = 1, probability: float = 1.0) -> LossDistribution:
        """Return what dominates ``count`` adaptive mechanisms of that range, each on a Poisson subsample of its own.

        No single pair of losses (t, t - r) dominates. The divergence of the worst adaptive choices of t (``bounded_ranges.py``) is
        computed from above for up to 64 mechanisms. The pair with that divergence dominates 64 of them, and is composed by FFT.
        (That of a single one, composed k times, would be up to 17 % worse in epsilon.)

        Args:
            bounded_range: r, of the mechanism on the subsample.
            count: k, at least 1.
            probability: p in (0, 1], with which each individual is taken, anew for each mechanism.

        Privacy:
            Under add/remove neighbours if ``probability`` is below 1. Also for fixed queries, which cost a little less.

        References:
            Dong, Durfee and Rogers (2020), Lemma 3.2 and Theorem 3, for the recursion; Zhu, Dong and Wang (2022), Theorem 10.

        >>> step = {"count": 200, "probability": 0.05}  # a training loop
        >>> round(LossDistribution.bounded_range(0.5, **step).epsilon_at(1e-6), 2)
        0.76
        """
        r, share = checks.concrete_epsilon(bounded_range), checks.concrete_proportion("probability", probability)
        times = checks.static_integer("count", count, 1)
        width = float(np.ptp(mixed_losses(np.array([r, -r]), share)))
        if r > _WIDEST or not width > 0:
            return LossDistribution.pure(r).poisson_subsample(share).compose(times)
        block = max(1, min(_BLOCK, int(_WIDEST / width)))
        sizes = [(block, times // block), (times % block, 1)]
        return LossDistribution(tuple((_worst_range(r, share, size), number) for size, number in sizes if size and number))

    def poisson_subsample(self, probability: float) -> LossDistribution:
        """Return the losses of the one mechanism on a Poisson subsample, in which each individual is with that probability.

        It takes one mechanism: subsample each, then compose. (One sample for all of them is another thing.)

        Privacy:
            Under add/remove neighbours, with P of the dataset with the individual; who was taken stays secret.
        """
        share = checks.concrete_proportion("probability", probability)
        if self.count != 1:
            raise ValueError(f"poisson_subsample takes one mechanism, got {self.count}: subsample each one, then compose.")
        return _one(self.parts[0][0].subsampled(share))

    def compose(self, count: int) -> LossDistribution:
        """Return the losses of ``count`` such pipelines, each with its own randomness."""
        times = checks.static_integer("count", count, 1)
        return LossDistribution(tuple((pair, number * times) for pair, number in self.parts))

    def __add__(self, other: LossDistribution) -> LossDistribution:
        return LossDistribution(self.parts + other.parts) if isinstance(other, LossDistribution) else NotImplemented

    @property
    def count(self) -> int:
        """How many pairs are composed."""
        return sum(number for _, number in self.parts)

    def delta_at(self, epsilon: float) -> float:
        """An upper bound of the delta at ``epsilon``, which is not negative."""
        return self.delta_bounds(epsilon)[1]

    def delta_bounds(self, epsilon: float) -> tuple[float, float]:
        """A lower and an upper bound of the composed pairs' delta at ``epsilon``: how much the numbers give away.

        The lower bound is of the pairs, not of a mechanism that they dominate; it is 0 for :meth:`bounded_range`.
        """
        at = checks.concrete_nonnegative("epsilon", epsilon)
        both = [product.delta(at) for product in self._products]
        return max(lower for lower, _ in both), max(upper for _, upper in both)

    def epsilon_at(self, delta: float) -> float:
        """An upper bound of the epsilon at ``delta``, in [0, 1): the inverse of :meth:`delta_at`; inf if there is none."""
        at = checks.concrete_fraction("delta", delta)
        return max(product.epsilon(at) for product in self._products)

    @cached_property
    def _products(self) -> list[Product]:
        """Both orders."""
        back = [(pair.reversed(), number) for pair, number in self.parts]
        return [
            Product([(pair.losses, pair.p, pair.p_alone, pair.width, number) for pair, number in parts])
            for parts in (self.parts, back)
        ]


def _one(pair: _Pair) -> LossDistribution:
    return LossDistribution(((pair, 1),))


def _normal(places: np.ndarray) -> np.ndarray:
    """The normal probabilities between neighbours, to relative accuracy in both tails."""
    from scipy.special import log_ndtr

    mirrored = np.where(places[:-1] + places[1:] > 0, -places[1:], places[:-1])
    top, bottom = log_ndtr(mirrored + np.diff(places)), log_ndtr(mirrored)
    return np.exp(top) * -np.expm1(bottom - top)


def _in_cells(edges: np.ndarray, p: np.ndarray, q: np.ndarray) -> _Pair:
    """Cells of losses, between neighbours of ``edges``, split to their ends: of p, (p - e^a q)/(1 - e^(a-b)) goes up.

    Rounded so that more goes up: in either order the losses are those of more than the cell.
    """
    low, width = edges[:-1], np.diff(edges)
    lost = 64 * _UNIT * (1 + np.abs(edges[1:]) + np.abs(edges[:-1]))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        up_p = np.clip(-np.expm1(low - np.log(p / q)) / -np.expm1(-width) + lost / width, 0, 1)
        up_q = np.clip(np.expm1(np.log(p / q) - low) / np.expm1(width) - lost / width, 0, 1)
    shares = (p, np.where(np.isnan(up_p), 1.0, up_p)), (q, np.where(np.isnan(up_q), 0.0, up_q))
    at_p, at_q = ((np.append(0.0, mass * up) + np.append(mass * (1 - up), 0.0)) * (1 + 64 * _UNIT) for mass, up in shares)
    return _Pair(edges, at_p, at_q, width=float(width.max()))


def _worst_range(r: float, share: float, count: int) -> _Pair:
    """The pair whose divergences are those of the worst adaptive choices, from above."""
    g, (divergence, complement) = worst_divergences(r, share, count, cells=_CELLS_OF_RANGE, orders=2)
    zero, gaps = int(np.flatnonzero(g == 0)[0]), np.exp(g[:-1]) * np.expm1(np.diff(g))
    # Masses of Q at the knots: the changes of its tail, which is minus the slope of D, and on the left the slope of C, in e^g.
    tail, head = -np.diff(divergence) / gaps, np.diff(complement) / gaps
    q = np.where(g > 0, np.append(0.0, tail) - np.append(tail, 0.0), np.append(head, 0.0) - np.append(0.0, head))
    q[zero] = 1 - head[zero - 1] - tail[zero]
    q = np.maximum(q, 0.0)
    p = q * np.exp(g)
    # Differences round: both are scaled up until their own divergences are nowhere below.
    p = p * _lacking(g, p, divergence)
    q = q * _lacking(-g[::-1], q[::-1], (complement * np.exp(-g))[::-1])
    return _Pair(g, p, q, _TINY, _TINY, inf)


def _lacking(g: np.ndarray, masses: np.ndarray, divergence: np.ndarray) -> float:
    """The largest ratio of the divergence to that of the masses, at least 1: between the knots both are chords."""
    above = np.cumsum((masses * np.exp(-g))[:0:-1])[::-1]  # mass of Q above each knot, minus the slope of the divergence in e^g
    own = np.cumsum((above * np.exp(g[:-1]) * np.expm1(np.diff(g)))[::-1])[::-1]
    known = divergence[:-1] > _TINY
    return max(1.0, float(np.max(divergence[:-1][known] / own[known])), 1 / float(masses.sum())) * (1 + 1e-12)
