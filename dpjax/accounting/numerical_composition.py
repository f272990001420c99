"""The hockey-stick divergence of a product of many finite privacy losses, by FFT, with every error on the safe side.

The losses l with masses m of a part (the loss is log P/Q, the masses are of P) make, for all k draws of all parts,

    delta(epsilon) = E[(1 - e^(epsilon - sum of losses))_+].

Grid. A loss between two neighbours a < b of a lattice of step h is split between them so that the masses of P and of Q stay.
Merging both again is post-processing, so the split pair dominates (nothing on the lattice is tighter: Doroshenko et al. 2022).

Tilt. Masses are multiplied by e^(t l - K(t)), K(t) the log of their moment generating function, and the result by the inverse
(Gopi et al. 2021 and others compute without): every error below is relative to Chernoff's bound e^(K - t epsilon) of delta and
not to 1, so that a delta of 1e-30 is as good as one of 0.1.

Wrapping. The discrete Fourier transform of length N adds masses modulo N h. What wraps into the window only adds to the upper
bound; what lies above the window has at most the mass of P that Chernoff's bound gives, which is added.

Rounding. A transform of length N = 2^n is taken to have a relative error of at most 16 n u in the 2-norm, u = 2^-53 (Higham 2002,
Theorem 24.2, has about 7 n u for radix 2), a product of complex numbers 3 u. So a coefficient F of a part is off by at most
e = 16 n u sqrt(N) |m|_2, and with A = |F| + e a product of powers by sum_i k_i (e_i + 3 u A_i) / A_i prod_j A_j^k_j. By Parseval
this bounds the error of the masses in the 2-norm, which is multiplied by that of the weights e^(K - t l) (1 - e^(epsilon - l))_+.

References:
    Koskela, Jalkoe, Prediger and Honkela (2021) for the transform; Gopi, Lee and Wutschitz (2021) for the lower bound; Doroshenko,
    Ghazi, Kamath, Kumar and Manurangsi (2022), "Connect the dots".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import exp, expm1, inf, log, log1p, sqrt

import numpy as np

from dpjax.numerics.host_bisection import bisect_numbers

_UNIT = 2.0**-53
_HUGE = 1e15  # a sum of losses that no lattice resolves: then delta is at most 1, and epsilon the sum
_NATS = 45.0  # of what may lie outside the window, after the tilt
_FEWEST, _MOST = 16, 20  # log2 of the length of the transform


class Product:
    """Independent draws of finite losses, in one direction.

    Args:
        parts: losses ``(n,)``, masses ``(n,)`` of P, the mass where the loss is infinite, a bound on the width of the cells that
            the losses were rounded in before, and how many draws.
    """

    def __init__(self, parts: Sequence[tuple[np.ndarray, np.ndarray, float, float, int]]) -> None:
        self.parts = [(losses[masses > 0], masses[masses > 0], width, count) for losses, masses, _, width, count in parts]
        kept = [count * log1p(-alone) if alone < 1 else -inf for _, _, alone, _, count in parts]
        self.infinite = 0.0 - expm1(sum(kept))  # not -0.0
        self.count = sum(count for *_, count in self.parts)
        self.largest = sum(count * float(losses.max(initial=0.0)) for losses, _, _, count in self.parts)
        self.smallest = sum(count * float(losses.min(initial=0.0)) for losses, _, _, count in self.parts)

    @cached_property
    def _tilts(self) -> tuple[np.ndarray, np.ndarray]:
        """Tilts in ascending order, 0 among them, and K of the product at each."""
        variance = 0.0
        for losses, masses, _, count in self.parts:
            share = masses / masses.sum()
            variance += count * float(np.sum(share * (losses - np.sum(share * losses)) ** 2))
        up = np.geomspace(1e-3, 1e4, 120) / (sqrt(variance) or 1.0)
        tilts = np.concatenate([-up[::-1], [0.0], up])
        logs = [(losses, np.log(masses), count) for losses, masses, _, count in self.parts]
        return tilts, np.array([sum(count * _log_moment(at, mass, tilt) for at, mass, count in logs) for tilt in tilts])

    def delta(self, epsilon: float) -> tuple[float, float]:
        """A lower and an upper bound of delta, at most 1; the lower one is 0 where the cells are not narrow."""
        if epsilon >= self.largest or self.infinite == 1:
            return min(self.infinite, 1.0), min(self.infinite, 1.0)
        if self.largest > _HUGE:
            return min(self.infinite, 1.0), 1.0
        tilts, moments = self._tilts
        start = int(np.argmin(np.where(tilts >= 0, moments - tilts * epsilon, inf)))
        window = _Window(self, start, epsilon)
        upper = window.upper(epsilon)
        # Rounding moved a sum of losses by more than this with probability tau only (Hoeffding's inequality).
        tau = 1e-4 * min(upper, 1.0)
        narrow = [(count, (window.step + width) ** 2) for *_, width, count in self.parts]
        drift = sum(count * square for count, square in narrow) / 8
        moved = drift + sqrt(sum(count * square for count, square in narrow) / 2 * -log(max(tau, 1e-300))) + 1e-14 * self.count
        lower = max(window.lower(epsilon + moved) - tau, 0.0) if moved < inf else 0.0
        return min(self.infinite + lower, 1.0), min(self.infinite + upper, 1.0)

    def epsilon(self, delta: float) -> float:
        """An upper bound of the least epsilon at least 0 with that delta; inf if the infinite losses pass it."""
        if self.infinite >= delta:
            return max(self.largest, 0.0) if self.infinite == delta == 0 else inf
        if self.largest <= 0 or self.largest > _HUGE:
            return max(self.largest, 0.0)
        remaining = delta - self.infinite
        tilts, moments = self._tilts
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(tilts > 0, (moments - log(remaining)) / tilts, inf)
        start = int(np.argmin(needed))
        guess = min(max(float(needed[start]), 0.0), self.largest)
        window = _Window(self, start, 0.0)
        if window.upper(0.0) <= remaining:
            return 0.0
        if window.upper(guess) > remaining:  # by rounding only
            return self.largest
        return bisect_numbers(lambda epsilon: window.upper(epsilon) > remaining, 0.0, guess, 1e-7)[1]


class _Window:
    """The masses of the sum on a lattice, tilted, from ``lowest`` or below to where next to nothing is left."""

    def __init__(self, product: Product, start: int, lowest: float) -> None:
        tilts, moments = product._tilts
        self.tilt, gains = float(tilts[start]), moments - moments[start] + _NATS
        above, below = tilts > self.tilt, tilts < self.tilt
        top = float(np.min(gains[above] / (tilts[above] - self.tilt), initial=inf))
        bottom = float(np.max(gains[below] / (tilts[below] - self.tilt), initial=-inf))
        whole = product.largest <= top and product.count < 2**_FEWEST // 8
        low, high = min(max(bottom, product.smallest), lowest), min(top, product.largest)
        levels = min(max(int(np.ceil(np.log2(1600 * sqrt(product.count)))), _FEWEST), _MOST)
        size = 2**levels
        self.step = (high - low) / (size - 4 - (product.count if whole else 0))
        first = int(np.floor(low / self.step)) - 1
        self.losses = (first + np.arange(size)) * self.step
        self.rounded = 8 * _UNIT * float(np.max(np.abs(self.losses)))
        self.log_scale, sharpest, lattice = 0.0, 0.0, []
        spectrum, bound, relative = np.ones(size // 2 + 1, complex), np.ones(size // 2 + 1), np.zeros(size // 2 + 1)
        for losses, masses, _, count in product.parts:
            places, split = _on_lattice(losses, masses, self.step)
            values, logs = places * self.step, np.log(split)
            own = _log_moment(values, logs, self.tilt)
            lattice.append((values, logs, own, count))
            self.log_scale += count * own
            tilted = np.bincount(places % size, np.exp(logs + self.tilt * values - own), size)
            off = 16 * levels * _UNIT * sqrt(size) * float(np.linalg.norm(tilted))
            transform = np.fft.rfft(tilted)
            magnitude = np.abs(transform) * (1 + 1e-12) + off
            relative += count * (off + 3 * _UNIT * magnitude) / magnitude
            bound *= np.exp(count * np.log(magnitude))
            spectrum *= _power(transform, count)
            sharpest += count * (8 + float(np.max(np.abs(self.tilt * values))) + abs(own))
        self.slop = exp(min(8 * _UNIT * (sharpest + abs(self.log_scale)), 700.0))  # of exponentials, relative to each mass
        self.wrong = 2 * sqrt(2 * float(np.sum((bound * relative) ** 2)) / size) + 16 * levels * _UNIT
        self.masses = np.roll(np.fft.irfft(spectrum, size), -(first % size)).clip(0.0)

        def log_tail(tilt: float, end: float) -> float:
            """Chernoff's bound of the tilted mass beyond an end of the window, above it for a larger tilt, and below otherwise."""
            gain = sum(count * (_log_moment(values, logs, tilt) - own) for values, logs, own, count in lattice)
            return gain - (tilt - self.tilt) * end

        outwards = tilts[below][np.argmax(gains[below] / (tilts[below] - self.tilt))] if below.any() else self.tilt
        self.wraps, self.beyond = exp(min(log_tail(outwards, self.losses[0]), 0.0)), 0.0
        if not whole:
            end = self.losses[-1]
            further = tilts[above][:: max(1, above.sum() // 30)]
            self.wraps += exp(-_NATS)
            over = min((log_tail(tilt, end) for tilt in further), default=0.0)
            self.beyond = exp(min(self.log_scale - self.tilt * end + min(over, 0.0), 0.0))

    def upper(self, epsilon: float) -> float:
        weights, masses = self._weights(epsilon - self.rounded)
        with np.errstate(over="ignore", invalid="ignore"):
            found = (float(np.sum(weights * masses)) + self.wrong * sqrt(float(np.sum(weights**2)))) * self.slop + self.beyond
        return found if found < inf else inf  # weights that overflow bound nothing

    def lower(self, epsilon: float) -> float:
        weights, masses = self._weights(epsilon + self.rounded)
        with np.errstate(over="ignore", invalid="ignore"):
            lost = self.wrong * sqrt(float(np.sum(weights**2))) + self.wraps * float(weights.max(initial=0.0))
            found = (float(np.sum(weights * masses)) - lost) / self.slop
        return found if found > 0 else 0.0

    def _weights(self, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
        """What a mass counts for delta, and the masses, of the losses above epsilon."""
        start = int(np.searchsorted(self.losses, epsilon, "right"))
        losses = self.losses[start:]
        with np.errstate(over="ignore"):
            return np.exp(self.log_scale - self.tilt * losses) * -np.expm1(epsilon - losses), self.masses[start:]


def _log_moment(losses: np.ndarray, logs: np.ndarray, tilt: float) -> float:
    exponents = logs + tilt * losses
    top = float(exponents.max())
    return top + log(float(np.exp(exponents - top).sum()))


def _on_lattice(losses: np.ndarray, masses: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The places of all neighbours, and the masses split between them."""
    below = np.floor(losses / step)
    share = np.clip(np.expm1(below * step - losses) / np.expm1(-step) + 8 * _UNIT * (np.abs(losses) / step + 1), 0.0, 1.0)
    places = np.concatenate([below, below + 1]).astype(np.int64)
    split = np.concatenate([masses * (1 - share), masses * share])
    return places[split > 0], split[split > 0]


def _power(base: np.ndarray, count: int) -> np.ndarray:
    """By repeated squaring, whose rounding is known."""
    if count == 1:
        return base
    half = _power(base * base, count // 2)
    return half * base if count % 2 else half
