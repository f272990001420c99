"""Privacy losses of mechanisms, as curves and as distributions: always upper bounds.

A curve is the delta at an epsilon of either sign: E_P[(1 - e^(epsilon - loss))_+] for a pair (P, Q)
that dominates the mechanism, whose loss is log P/Q. Products of such pairs dominate adaptive
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
from functools import partial
from math import ceil, expm1, inf, sqrt
from typing import Any

import numpy as np

from dpjax.accounting import gaussian_dp
from dpjax.accounting.conversions import mixed
from dpjax.accounting.groups import for_groups
from dpjax.accounting.guarantee import Guarantee

Array = np.ndarray
Curve = Callable[[Array, bool], Array]
Parts = Sequence[tuple[Guarantee, int]]
Losses = Any  # a dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution

_CLOSE, _COARSE, _MOST_STEPS = 3e-4, 0.05, 140_000
_NOISY, _PURE, _WIDEST = 60.0, 500.0, 1e4  # the largest mu and epsilon of a curve, and loss


def installed() -> bool:
    """Return whether dp-accounting, which composes losses, can be imported."""
    try:
        import dp_accounting.pld  # noqa: F401
    except ImportError:
        return False
    return True


def known(part: Guarantee) -> bool:
    """Return whether a pair is known that dominates a mechanism with this guarantee."""
    pure = min(part.laplace, part.epsilon)
    return bool(part.sampled) or part.gdp < _NOISY or pure < _PURE


def epsilon_of(parts: Parts, delta: float) -> tuple[float, Losses]:
    """Return an epsilon at ``delta`` of all mechanisms together, and their losses."""
    left = delta - _rounding(parts)

    def epsilon(losses: Losses) -> float:
        none = losses.get_delta_for_epsilon(0.0) <= left
        return 0.0 if none else float(losses.get_epsilon_for_delta(left)) * (1 + 2.0**-48)

    return _refined(parts, epsilon, left) if left > 0 else (inf, None)


def delta_of(parts: Parts, epsilon: float) -> float:
    """Return a delta at ``epsilon`` of all mechanisms together."""
    lost = _rounding(parts)
    found, _ = _refined(parts, lambda losses: losses.get_delta_for_epsilon(epsilon) + lost, lost)
    return min(float(found), 1.0)


def curve_of(part: Guarantee, step: float) -> Curve:
    """Return the curve of a mechanism; others that see its sample are composed with this step."""
    if part.sampled:
        kind, taken, records, parts = part.sampled
        share = taken / records
        # The lattice of the mechanisms on the sample is as fine as that of their sample
        step = min(step / share, _COARSE)
        if kind == "poisson":
            return _poisson(_together(parts, step), share)
        draws, chance = (1, share) if kind == "without" else (int(taken), 1 / records)
        return _fixed_size(parts, draws, chance, step)
    if part.gdp < _NOISY:
        curve = _symmetric(partial(gaussian_dp.curve, max(part.gdp, 1e-12)))
    elif part.laplace < _PURE:
        size = part.laplace
        curve = _symmetric(lambda epsilon: -np.expm1((np.minimum(epsilon, size) - size) / 2))
    else:
        curve = _bounded(part.epsilon, min(part.bounded_range, 2 * part.epsilon))
    if not part.delta:
        return curve
    return lambda epsilon, back: part.delta + (1 - part.delta) * curve(epsilon, back)


def _symmetric(above: Callable[[Array], Array]) -> Curve:
    """Return the curve of a pair that may be exchanged, from its values at an epsilon >= 0."""

    def curve(epsilon: Array, back: bool) -> Array:
        found, below = above(np.abs(epsilon)), np.minimum(epsilon, 0.0)
        return np.where(epsilon < 0, -np.expm1(below) + np.exp(below) * found, found)

    return curve


def _bounded(epsilon: float, spread: float) -> Curve:
    def above(level: Array) -> Array:
        best = np.zeros_like(level)
        least = spread - epsilon
        for top in (least, epsilon, np.clip((level + spread) / 2, least, epsilon)):
            chance = np.expm1(top - spread) / expm1(-spread) if spread else 1.0  # of the loss top
            found = chance * np.maximum(-np.expm1(np.minimum(level - top, 1.0)), 0.0)
            other = -np.expm1(np.minimum(level - top + spread, 1.0))
            best = np.maximum(best, found + (1 - chance) * np.maximum(other, 0.0))
        return best

    return _symmetric(above)


def _poisson(inner: Curve, share: float) -> Curve:
    def curve(epsilon: Array, back: bool) -> Array:
        if back:
            rest = -np.expm1(np.minimum(epsilon + np.log1p(-share), 0.0))
            possible = rest > 0
            odds = np.log(share / np.where(possible, rest, share))
            return rest * inner(np.where(possible, epsilon + odds, inf), back)
        below = -np.expm1(np.minimum(epsilon, 0.0))
        level = np.where(below < share, mixed(epsilon, 1 / share), -inf)
        return np.maximum(share * inner(level, back), below)

    return curve


def _fixed_size(parts: Parts, draws: int, chance: float, step: float) -> Curve:
    """Return the curve where the differing record is a binomial number of times in the sample."""
    from scipy.stats import binom

    most = min(int(binom.isf(1e-18, draws, chance)) + 1, draws)
    groups, rest = [], float(binom.sf(most, draws, chance))
    for size in range(1, most + 1):
        weight = float(binom.pmf(size, draws, chance))
        try:
            group = [(for_groups(part, size=size), count) for part, count in parts]
        except ValueError:  # nothing is promised to a group of this size
            group = []
        if group and all(known(part) for part, _ in group):
            groups.append((weight, _together(group, step)))
        else:
            rest += weight
    share = min((sum(weight for weight, _ in groups) + rest) * (1 + 2.0**-40), 1.0)

    def above(epsilon: Array) -> Array:
        inner = mixed(epsilon, 1 / share)
        terms = (weight * curve(inner, False) for weight, curve in groups)
        return sum(terms, np.full_like(epsilon, rest))

    return _symmetric(above)


def _together(parts: Parts, step: float) -> Curve:
    """Return the curve of mechanisms that see the same data."""
    if len(parts) == 1 and parts[0][1] == 1:
        return curve_of(parts[0][0], step)
    losses = _composed(parts, step, 1e-15)

    def curve(epsilon: Array, back: bool) -> Array:
        order, found = np.argsort(epsilon), np.empty_like(epsilon)
        # The exponential is finite there; the curve decreases, and is at least 1 - e^epsilon.
        found[order] = losses.get_delta_for_epsilon(np.clip(epsilon[order], -700.0, 700.0))
        return np.maximum(found, -np.expm1(np.minimum(epsilon, 0.0))) + _rounding(parts)

    return curve


def _rounding(parts: Parts) -> float:
    return 2.0**-52 * (sum(count for _, count in parts) + 500)


def _refined(
    parts: Parts, measure: Callable[[Losses], float], least: float
) -> tuple[float, Losses]:
    """Return the smallest result over finer and finer lattices, and the losses on that lattice."""
    number = sum(count for _, count in parts)
    step = deviation = max(
        sqrt(
            sum(count * _deviation(curve_of(part, _COARSE)) ** 2 for part, count in parts) / number
        ),
        1e-9,
    )
    best, kept = inf, None
    while sqrt(number) * deviation / step < _MOST_STEPS:
        losses = _composed(parts, step, 1e-6 * least / number)
        found, before = measure(losses), best
        if found < best:
            best, kept = found, losses
        if found >= before * (1 - _CLOSE):
            break
        step /= 3
    return best, kept


def _composed(parts: Parts, step: float, tail: float) -> Losses:
    """Return the losses of all mechanisms on the lattice of the multiples of ``step``."""
    total = None
    for part, count in parts:
        losses = _distribution(part, count, step, tail)
        with np.errstate(over="ignore"):  # in Chernoff bounds that are then not used
            losses = losses.self_compose(count) if count > 1 else losses
        total = losses if total is None else total.compose(losses)
    return total


def _distribution(part: Guarantee, count: int, step: float, tail: float) -> Losses:
    """Return the losses of one mechanism, without an upper tail of this mass."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    curve, directions = curve_of(part, step), []
    # On a narrow lattice, dp-accounting would bound the tails of a large sum too far out
    least = max(2 * step, _deviation(curve) * sqrt(count) / 4)
    ends = np.geomspace(least, _WIDEST, 60)
    for back in (False, True) if part.sampled and part.neighbors == "add_remove" else (False,):
        upper, lower = curve(ends, back), curve(-ends, back)
        high = ends[np.argmax(upper <= upper[-1] * (1 + 1e-12) + tail)]
        low = ends[np.argmax(lower <= -np.expm1(-ends) + 1e-15)]
        places = np.arange(-ceil(low / step), ceil(high / step) + 1)
        deltas = np.clip(curve(places * step, back) * (1 + 1e-15), 0.0, 1.0)
        masses = pld_pmf.create_pmf_pessimistic_connect_dots(step, places, deltas)
        directions.append(masses.to_dense_pmf())
    return PrivacyLossDistribution(*directions)


def _deviation(curve: Curve) -> float:
    """Return the total variation of a pair, about half the mean size of its loss."""
    return float(curve(np.zeros(1), False)[0])
