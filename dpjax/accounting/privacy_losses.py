"""Numerical accounting: upper bounds from privacy loss distributions.

They are composed with Google's dp-accounting. The privacy loss of a pair (P, Q) that dominates a
mechanism is log P/Q at an outcome of P (``dominating_pairs``). The products of such pairs dominate
adaptive compositions (Zhu, Dong and Wang 2022, Theorem 10), with delta(epsilon) = E[(1 -
e^(epsilon - sum of losses))_+].

Lattice. The mass in a cell between two adjacent points of a lattice with step h is split between
these points so that the masses of P and of Q are preserved: merging both points again is
post-processing, so the split pair dominates ("Connect the dots", Doroshenko et al. 2022). This adds
a variance of at most h^2/4 to each loss, and increases epsilon by half the sum of these variances
times the slope of log(delta); h is chosen so that this is below 0.1 % of epsilon.

Tilt. Masses are multiplied by e^(t l - K), with K the log of their moment generating function,
before dp-accounting convolves them, and by the inverse afterwards. So its errors are relative to
Chernoff's bound of delta instead of 1: for a million losses without the tilt, rounding alone would
move a delta of 1e-10 by half of it, in either direction. A bound on the effect of rounding and of
truncated tails is added to delta.

This needs the extra ``accounting``: call the functions only where :func:`convolutions` is not None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, exp, expm1, floor, inf, log, log1p, sqrt
from types import ModuleType
from typing import NamedTuple

import numpy as np

from dpjax.accounting.dominating_pairs import Pair
from dpjax.numerics.solve import root

Pairs = Sequence[tuple[Pair, int]]
# The part of epsilon that the lattice may add, and of the tilted masses that is cut off.
_RELATIVE, _TAIL = 1e-3, 1e-15
_FEW_POINTS, _MOST_POINTS, _ROUNDS = 20_000, 200_000, 4


def convolutions() -> ModuleType | None:
    """Return dp-accounting's module for convolutions, or None if dp-accounting is not installed."""
    try:
        import dp_accounting  # noqa: F401
        from dp_accounting.pld import common
    except ImportError:
        return None
    return common


def epsilon_of_pairs(pairs: Pairs, delta: float) -> float:
    """Return an epsilon at ``delta``, in (0, 1), of all mechanisms.

    Infinite if their own deltas exceed it.
    """
    left = _left(pairs, delta)
    found = 0.0 if left > 0 else inf
    for back in _directions(pairs) if left > 0 else ():
        found = max(found, _epsilon(pairs, back, left, found))
    return found


def delta_of_pairs(pairs: Pairs, epsilon: float) -> float:
    """Return a delta at ``epsilon``, at least 0, of all mechanisms together."""
    found = 0.0
    for back in _directions(pairs):
        found = max(found, _delta(pairs, back, epsilon, found))
    kept = sum(count * log1p(-pair.lost) for pair, count in pairs)
    return max(min(-expm1(kept + log1p(-found)), 1.0), 0.0) if found < 1 else 1.0


def _epsilon(pairs: Pairs, back: bool, delta: float, enough: float) -> float:
    """Return the epsilon in one direction.

    The lattice is not refined for results of at most ``enough``.
    """
    sums, number = _Sums(pairs, back), sum(count for _, count in pairs)
    tilt, tail = sums.tilt_at_delta(log(delta)), delta * 1e-5 / number

    def at(step: float) -> tuple[float, float, float]:
        nonlocal tilt
        losses = _Losses(pairs, back, tilt, tail, step)
        found = losses.epsilon(delta)
        other = sums.tilt_at_epsilon(found)[0]
        # The tilt suits larger losses than these
        if other != tilt and losses.hides(found) > 1e-4 * delta:
            tilted = _Losses(pairs, back, other, tail, step)
            if (better := tilted.epsilon(delta)) < found:
                tilt, losses, found = other, tilted, better
        if not 0 < found < inf:
            return found, 0.0, losses.step
        moved = losses.added / 2 * losses.steepness(found)
        return found, moved / max(found, 0.1 * sums.deviation), losses.step

    return _refined(at, sums.step, enough)


def _delta(pairs: Pairs, back: bool, epsilon: float, enough: float) -> float:
    """Return the delta in one direction.

    The lattice is not refined for results of at most ``enough``.
    """
    sums, number = _Sums(pairs, back), sum(count for _, count in pairs)
    best, (tilt, guess) = 1.0, sums.tilt_at_epsilon(epsilon)
    for _ in range(_ROUNDS):  # until the tilt and tails fit the delta that is found
        tail = guess * 1e-5 / number

        def at(step: float, tilt: float = tilt, tail: float = tail) -> tuple[float, float, float]:
            losses = _Losses(pairs, back, tilt, tail, step)
            found = losses.delta(epsilon)
            return found, losses.added / 4 * losses.steepness(epsilon) ** 2, losses.step

        found = _refined(at, sums.step, enough)
        best = min(best, found)
        if best <= enough or guess / 30 < found < 1e3 * guess or not found:
            break
        guess = min(max(best, 1e-280), 0.5)
        tilt = sums.tilt_at_delta(log(guess))
    return best


def _refined(
    at: Callable[[float], tuple[float, float, float]], step: float, enough: float
) -> float:
    """Return the smallest result over finer and finer lattices, until refining changes little.

    Args:
        at: a function of a step that returns the result, the relative amount that the lattice adds
            to it, and the step that was used, which may be larger.
        step: the first step.
        enough: a result of at most this is not refined.
    """
    best = inf
    for _ in range(_ROUNDS):
        found, added, possible = at(step)
        gained, best = best - found, min(best, found)
        if (
            best <= enough
            or added <= _RELATIVE
            or possible > 1.001 * step
            or gained <= 2 * _RELATIVE * best
        ):
            break
        # The error of the lattice is proportional to the square of the step.
        step = possible * min(max(0.7 * sqrt(_RELATIVE / added), 0.02), 0.5)
    return best


def _left(pairs: Pairs, delta: float) -> float:
    """Return the part of ``delta`` that the mechanisms' own deltas leave."""
    return -expm1(log1p(-delta) - sum(count * log1p(-pair.lost) for pair, count in pairs))


def _directions(pairs: Pairs) -> tuple[bool, ...]:
    return (False,) if all(pair.probability == 1 for pair, _ in pairs) else (False, True)


class _Lattice(NamedTuple):
    """Masses at the multiples ``first``, ``first`` + 1, ... of a step.

    ``infinite`` is the mass of an infinite loss, and ``added`` the variance that the lattice adds.
    """

    first: int
    masses: np.ndarray
    infinite: float
    added: float


class _Sums:
    """Approximate moments of the sum of losses, to choose a tilt and a first step."""

    def __init__(self, pairs: Pairs, back: bool) -> None:
        coarse = [(pair.coarse(back), count) for pair, count in pairs]
        variance = sum(
            count * float(mass @ (loss - mass @ loss) ** 2) for (loss, mass), count in coarse
        )
        number = sum(count for _, count in pairs)
        self.deviation = sqrt(max(variance, 1e-300))
        widest = max(float(np.ptp(loss)) for (loss, _), _ in coarse)
        self.step = max(0.11 * self.deviation / sqrt(number), widest / _FEW_POINTS)
        self.tilts = np.geomspace(min(1e-3 / self.deviation, 1e-2), 1e4 / self.deviation, 200)
        self.moments = sum(
            count * _log_moments(loss, mass, self.tilts) for (loss, mass), count in coarse
        )

    def tilt_at_delta(self, log_delta: float) -> float:
        """Return the tilt that minimizes Chernoff's bound of epsilon at a delta."""
        return float(self.tilts[np.argmin((self.moments - log_delta) / self.tilts)])

    def tilt_at_epsilon(self, epsilon: float) -> tuple[float, float]:
        """Return the tilt that minimizes Chernoff's bound of delta at an epsilon, and the bound.

        The bound is clipped.
        """
        bounds = self.moments - self.tilts * epsilon
        at = int(np.argmin(bounds))
        return float(self.tilts[at]), exp(min(max(float(bounds[at]), -600.0), -14.0))


class _Losses:
    """The tilted distribution of the sum of all losses in one direction, on a lattice.

    Args:
        pairs: dominating pairs, and the number of mechanisms that each dominates.
        back: whether the individual is in the second dataset only.
        tilt: t, positive.
        tail: the mass of each loss that may be moved to infinity.
        step: the step of the lattice; it is increased for a wide pair.
    """

    def __init__(self, pairs: Pairs, back: bool, tilt: float, tail: float, step: float) -> None:
        number = sum(count for _, count in pairs)
        tail = max(tail, 1e-290)
        step = max(step, *(pair.width(back, tail) / _MOST_POINTS for pair, _ in pairs))
        atoms = [loss for pair, _ in pairs for loss, _, _ in pair.points()[:1]]
        if atoms:  # a lattice point at the atom avoids splitting it
            step = atoms[0] / ceil(atoms[0] / step)
        self.tilt, self.step = tilt, step
        common = convolutions()
        assert common is not None
        places, last, masses, log_scale, kept, self.added = 0, 0, np.ones(1), 0.0, 0.0, 0.0
        for pair, count in pairs:
            one = _on_lattice(pair, back, tail, step)
            logs = self.tilt * step * (one.first + np.arange(one.masses.size))
            with np.errstate(divide="ignore"):
                logs = logs + np.log(one.masses)
            top = float(logs.max())
            moment = top + log(float(np.exp(logs - top).sum()))
            low, many = _power(np.exp(logs - moment), count, common)
            places += count * one.first + low
            last += count * (one.first + one.masses.size - 1)
            masses = _product(masses, np.maximum(many, 0.0))
            log_scale += count * moment
            kept += count * log1p(-one.infinite)
            self.added += count * one.added
        self.infinite = -expm1(kept)
        self.largest = last * step
        self.losses = (places + np.arange(masses.size)) * step
        self.log_scale = log_scale + 2.0**-46 * (number + 100 + abs(log_scale))
        self.masses = masses * (1 + 2.0**-44)
        self.hidden = 4 * len(pairs) * _TAIL + 2.0**-52 * (number + 1000)

    def delta(self, epsilon: float) -> float:
        """Return the delta at an epsilon, without the mechanisms' own deltas."""
        if epsilon >= self.largest:
            return self.infinite
        start = int(np.searchsorted(self.losses, epsilon, "right"))
        losses, masses = self.losses[start:], self.masses[start:]
        bound = self.log_scale - self.tilt * epsilon  # Chernoff's, about
        kept = (
            float(
                np.sum(
                    masses * np.exp(self.tilt * (epsilon - losses)) * -np.expm1(epsilon - losses)
                )
            )
            + self.hidden
        )
        return min(
            exp(min(log(kept) + bound + 2.0**-46 * self.tilt * epsilon, 0.0)) + self.infinite, 1.0
        )

    def hides(self, epsilon: float) -> float:
        """Return the amount added to delta for rounding and truncated tails."""
        return self.hidden * exp(min(self.log_scale - self.tilt * epsilon, 700.0))

    def steepness(self, epsilon: float) -> float:
        """Return minus the slope of log(delta) at an epsilon."""
        ahead = epsilon + 2 * self.step
        here, there = self.delta(epsilon), max(self.delta(ahead), 1e-300)
        return (
            max(log(here / there) / (ahead - epsilon), 1e-3 / ahead)
            if here > there
            else 1e-3 / ahead
        )

    def epsilon(self, delta: float) -> float:
        """Return an epsilon with ``self.delta(epsilon) <= delta``, nearly the least one."""
        if self.delta(0.0) <= delta:
            return 0.0
        if self.infinite >= delta:
            return inf
        start = int(np.searchsorted(self.losses, 0.0, "right"))
        losses, masses = self.losses[start:], self.masses[start:]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scale = np.exp(np.minimum(self.log_scale - self.tilt * losses, 600.0))
            above = np.cumsum((masses * scale)[::-1])[::-1]
            below = np.cumsum((masses * scale * np.exp(-losses))[::-1])[::-1]
            hidden = self.hidden * scale
            passed = np.flatnonzero(above - np.exp(losses) * below + hidden + self.infinite > delta)
        after = int(passed[-1]) + 1 if passed.size else 0
        hidden_alone = (self.log_scale + log(self.hidden / (delta - self.infinite))) / self.tilt
        found = max(float(losses[after - 1]) if after else 0.0, hidden_alone)
        if after < losses.size and found < losses[after]:
            a, b = float(above[after]) + self.infinite - delta, float(below[after])

            def excess(epsilon: float) -> float:  # a and b are constant in a cell of the lattice
                return a - exp(min(epsilon, 700.0)) * b + self.hides(epsilon)

            if excess(found) > 0 >= excess(float(losses[after])):
                found = root(excess, found, float(losses[after]), 1e-13)
        more = 2.0**-40 * max(found, self.step)
        while self.delta(found) > delta:
            found, more = found + more, 2 * more
        return found


def _log_moments(losses: np.ndarray, masses: np.ndarray, tilts: np.ndarray) -> np.ndarray:
    """Return the log of the moment generating function at tilts, of shape ``(n,)``."""
    exponents = np.log(np.maximum(masses, 1e-300)) + tilts[:, None] * losses
    top = exponents.max(axis=1)
    return top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))


def _power(masses: np.ndarray, count: int, common: ModuleType) -> tuple[int, np.ndarray]:
    """Return the distribution of the sum of ``count`` independent losses.

    It is given by its first index and its masses, without tails of total mass 1e-15. Like
    ``self_convolve`` of dp-accounting, with its Chernoff bounds for the tails, but five times as
    fast, due to orders that fit the sum and real Fourier transforms.
    """
    if count == 1:
        return 0, masses
    from scipy import fft

    places = np.arange(masses.size)
    mean = float(masses @ places)
    deviation = sqrt(max(float(masses @ (places - mean) ** 2), 1e-12) * count)
    # The best orders: 8 / deviation for a normal sum, and up to some tens over the largest loss for
    # one of few large losses.
    normal, rare = 8.0 / deviation, [order / masses.size for order in (4.0, 10.0, 25.0, 64.0)]
    orders = [normal, *rare, -normal, -rare[1]]
    with np.errstate(all="ignore"):
        low, high = common.compute_self_convolve_bounds(masses, count, _TAIL, orders)
    size = fft.next_fast_len(max(high - low + 1, masses.size), real=True)
    spectrum = fft.rfft(masses, size)
    angles, sizes = np.angle(spectrum), np.abs(spectrum)
    with np.errstate(divide="ignore", under="ignore"):
        powers = np.exp(count * np.log(sizes))
    found = fft.irfft(powers * np.exp(1j * np.remainder(count * angles, 2 * np.pi)), size)
    return low, np.roll(found, -low)[: high - low + 1]


def _product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the masses of the sum of two independent losses."""
    if first.size == 1:
        return first * second
    from scipy.signal import fftconvolve

    return np.maximum(fftconvolve(first, second), 0.0)


@lru_cache(maxsize=8)
def _on_lattice(pair: Pair, back: bool, tail: float, step: float) -> _Lattice:
    """Return the losses of a pair, split to multiples of a step, rounded up."""
    low, high = pair.ends(back, tail)
    first, last = floor(low / step), ceil(high / step)
    last = max(last, first + 1)
    edges = np.arange(first, last + 1) * step
    p, q = pair.between(edges)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = -np.expm1(edges[:-1] + np.log(q / p)) / -expm1(-step) + 2.0**-44 / step
    share = np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)
    masses = np.append(0.0, p * share) + np.append(p * (1 - share), 0.0)
    added = float(np.sum(p * share * (1 - share)))
    for loss, mass, _ in pair.points():  # atoms
        at = min(max(floor(loss / step), first), last - 1)
        up = min(max(expm1(at * step - loss) / expm1(-step) + 2.0**-44 / step, 0.0), 1.0)
        masses[at - first] += mass * (1 - up)
        masses[at + 1 - first] += mass * up
        added += mass * up * (1 - up)
    (p_below, q_below), (p_above, q_above) = pair.beyond(edges[0], edges[-1])
    if not back:
        masses[0] += p_below
        return _Lattice(first, masses, p_above, added * step * step)
    masses = (masses * np.exp(-edges))[::-1]
    masses[0] += q_above
    return _Lattice(-last, masses, q_below, added * step * step)
