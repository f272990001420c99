"""Privacy losses of pairs of distributions, as curves and as sums: always upper bounds.

A curve is the delta at an epsilon of either sign: E_P[(1 - e^(epsilon - loss))_+] for a pair (P, Q)
that dominates a mechanism, whose loss is log P/Q. Products of such pairs dominate adaptive
compositions (Zhu, Dong and Wang 2022, Theorem 10), also of pairs that are only known by a convex
upper bound of their curves (Proposition 9).

    Gaussian DP     N(mu, 1) and N(0, 1)
    Laplace noise   1 - e^((epsilon - size) / 2) for an epsilon within the size
    bounded range   the largest over t of losses t and t - r (Dong, Durfee and Rogers 2020, Lemma
                    3.2); a pure epsilon is a range of twice that

On a Poisson sample with probability p the pair is ((1-p) Q + p P, Q) (Zhu, Dong and Wang 2022,
Theorem 11). On a sample of fixed size that takes the differing record k times with probability w_k,
let s = w_1 + w_2 + ... Then delta'(log(1 + s (e^epsilon - 1))) = sum of w_k delta_k(epsilon) for an
epsilon of at least 0, with delta_k for groups of k (Balle, Barthe and Gaboardi 2018, Theorems 9 and
10). As swap is symmetric, this holds for P and Q in both orders, and so gives the curve below 0. It
is convex there, too: -1 + delta'(0) is at most twice the slope at 0, since it is so for each k.

Sums of losses are composed by Google's dp-accounting, the extra ``accounting``, on lattices. A
curve is replaced by its chords in e^epsilon between lattice points ("Connect the dots", Doroshenko
et al. 2022), which lie above it, so that any lattice gives an upper bound. It is refined until that
changes the result by less than a thousandth. Fourier transforms have errors relative to 1, for
which 2^-52 (count + 500) is subtracted from delta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, expm1, inf, sqrt
from typing import Any

import numpy as np

from dpjax.accounting.conversions import mixed

Array = np.ndarray
Curve = Callable[[Array], Array]
Pair = tuple[Curve, ...]  # the curve of (P, Q), and that of (Q, P) where it differs
Pairs = Sequence[tuple[Pair, int]]  # with the number of mechanisms that they dominate
On = Callable[[float], Pairs]  # sums on one sample are composed on a lattice of this step
Losses = Any  # a dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution

COARSE = 0.05  # a lattice that is fine enough for the size of a loss
_CLOSE, _MOST_STEPS, _WIDEST = 3e-4, 140_000, 1e4


def installed() -> bool:
    """Return whether dp-accounting, which composes losses, can be imported."""
    try:
        import dp_accounting.pld  # noqa: F401
    except ImportError:
        return False
    return True


def symmetric(above: Curve) -> Pair:
    """Return a pair that may be exchanged, from its curve at an epsilon of at least 0."""

    def curve(epsilon: Array) -> Array:
        found, below = above(np.abs(epsilon)), np.minimum(epsilon, 0.0)
        return np.where(epsilon < 0, -np.expm1(below) + np.exp(below) * found, found)

    return (curve,)


def failing(pair: Pair, delta: float) -> Pair:
    """Return a pair of which nothing is known with the probability ``delta``."""

    def worse(curve: Curve) -> Curve:
        return lambda epsilon: delta + (1 - delta) * curve(epsilon)

    return tuple(map(worse, pair))


def laplace(size: float) -> Curve:
    """Return the curve of Laplace noise at an epsilon of at least 0."""
    return lambda epsilon: -np.expm1((np.minimum(epsilon, size) - size) / 2)


def bounded(epsilon: float, spread: float) -> Curve:
    """Return the curve of an epsilon and a range, at most twice as large, from 0 on."""

    def above(level: Array) -> Array:
        best = np.zeros_like(level)
        least = spread - epsilon
        for top in (least, epsilon, np.clip((level + spread) / 2, least, epsilon)):
            chance = np.expm1(top - spread) / expm1(-spread) if spread else 1.0  # of the loss top
            found = chance * np.maximum(-np.expm1(np.minimum(level - top, 1.0)), 0.0)
            other = -np.expm1(np.minimum(level - top + spread, 1.0))
            best = np.maximum(best, found + (1 - chance) * np.maximum(other, 0.0))
        return best

    return above


def poisson(share: float, inner: Pair) -> Pair:
    """Return the pair of mechanisms on a Poisson sample."""

    def ahead(epsilon: Array) -> Array:
        below = -np.expm1(np.minimum(epsilon, 0.0))
        level = np.where(below < share, mixed(epsilon, 1 / share), -inf)
        return np.maximum(share * inner[0](level), below)

    def back(epsilon: Array) -> Array:
        rest = -np.expm1(np.minimum(epsilon + np.log1p(-share), 0.0))
        possible = rest > 0
        odds = np.log(share / np.where(possible, rest, share))
        return rest * inner[-1](np.where(possible, epsilon + odds, inf))

    return ahead, back


def fixed_size(copies: Sequence[tuple[float, Pair]]) -> Pair:
    """Return the pair on a sample of fixed size, from those of 1, 2, ... copies of a record."""
    share = min(sum(weight for weight, _ in copies) * (1 + 2.0**-40), 1.0)

    def above(epsilon: Array) -> Array:
        inner = mixed(epsilon, 1 / share)
        terms = (weight * pair[0](inner) for weight, pair in copies)
        return sum(terms, np.zeros_like(epsilon))

    return symmetric(above)


def together(pairs: Pairs, step: float) -> Pair:
    """Return the pair of mechanisms that see the same data."""
    if [count for _, count in pairs] == [1]:
        return pairs[0][0]
    losses, lost = _composed(pairs, step, 1e-15), _rounding(sum(count for _, count in pairs))

    def curve(epsilon: Array) -> Array:
        order, found = np.argsort(epsilon), np.empty_like(epsilon)
        # The exponential is finite there; the curve decreases, and is at least 1 - e^epsilon.
        found[order] = losses.get_delta_for_epsilon(np.clip(epsilon[order], -700.0, 700.0))
        return np.maximum(found, -np.expm1(np.minimum(epsilon, 0.0))) + lost

    return (curve,)


def epsilon_of(on: On, number: int, delta: float) -> tuple[float, Losses]:
    """Return an epsilon at ``delta`` of so many mechanisms together, and their losses."""
    left = delta - _rounding(number)

    def epsilon(losses: Losses) -> float:
        none = losses.get_delta_for_epsilon(0.0) <= left
        return 0.0 if none else float(losses.get_epsilon_for_delta(left)) * (1 + 2.0**-48)

    return _refined(on, number, epsilon, left) if left > 0 else (inf, None)


def delta_of(on: On, number: int, epsilon: float) -> float:
    """Return a delta at ``epsilon`` of so many mechanisms together."""
    lost = _rounding(number)

    def delta(losses: Losses) -> float:
        return losses.get_delta_for_epsilon(epsilon) + lost

    return float(_refined(on, number, delta, lost)[0])


def _rounding(number: int) -> float:
    return 2.0**-52 * (number + 500)


def _refined(
    on: On, number: int, measure: Callable[[Losses], float], least: float
) -> tuple[float, Losses]:
    """Return the smallest result over finer and finer lattices, and the losses on that lattice."""
    spread = sqrt(sum(count * _deviation(pair) ** 2 for pair, count in on(COARSE)))
    step, best, kept = max(spread / sqrt(number), 1e-9), inf, None
    while spread / step < _MOST_STEPS:
        losses = _composed(on(step), step, 1e-6 * least / number)
        found, before = measure(losses), best
        if found < best:
            best, kept = found, losses
        if found >= before * (1 - _CLOSE):
            break
        step /= 3
    return best, kept


def _composed(pairs: Pairs, step: float, tail: float) -> Losses:
    """Return the losses of all mechanisms on the lattice of the multiples of ``step``."""
    total = None
    for pair, count in pairs:
        losses = _distribution(pair, count, step, tail)
        with np.errstate(over="ignore"):  # in Chernoff bounds that are then not used
            losses = losses.self_compose(count) if count > 1 else losses
        total = losses if total is None else total.compose(losses)
    return total


def _distribution(pair: Pair, count: int, step: float, tail: float) -> Losses:
    """Return the losses of one mechanism, without an upper tail of this mass."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    # On a narrow lattice, dp-accounting would bound the tails of a large sum too far out
    least = max(2 * step, _deviation(pair) * sqrt(count) / 4)
    ends, directions = np.geomspace(least, _WIDEST, 60), []
    for curve in pair:
        upper, lower = curve(ends), curve(-ends)
        high = ends[np.argmax(upper <= upper[-1] * (1 + 1e-12) + tail)]
        low = ends[np.argmax(lower <= -np.expm1(-ends) + 1e-15)]
        places = np.arange(-ceil(low / step), ceil(high / step) + 1)
        deltas = np.clip(curve(places * step) * (1 + 1e-15), 0.0, 1.0)
        masses = pld_pmf.create_pmf_pessimistic_connect_dots(step, places, deltas)
        directions.append(masses.to_dense_pmf())
    return PrivacyLossDistribution(*directions)


def _deviation(pair: Pair) -> float:
    """Return the total variation of a pair, about half the mean size of its loss."""
    return float(pair[0](np.zeros(1))[0])
