"""The worst that adaptive mechanisms of bounded range can do together: a recursion, from above.

A mechanism of range r has losses in [t - r, t] for a t in [0, r], and the pair with the two losses t and t - r and nothing between
dominates it: (P, Q) with Q(t) = v(t) = (e^-t - e^-r)/(1 - e^-r). On a Poisson subsample with probability p the losses become a =
log(1 - p + p e^t) and b = log(1 - p + p e^(t-r)), with the same masses of Q. An adversary chooses t by the answers before, so

    D_k(g) = max over t of  e^a v(t) D_(k-1)(g - a) + e^b (1 - v(t)) D_(k-1)(g - b),    D_0(g) = (1 - e^g)_+,

is the largest hockey-stick divergence of k of them at epsilon = g (Dong, Durfee and Rogers 2020, Theorem 3, for p = 1). Two steps
keep the numbers above it:

* D is convex in e^g, and is interpolated by chords.
* For t in a cell [s, s'], Y = e^(s'-s), either loss is split to those of both ends of the cell. The shares of the upper ends are
  linear in e^t, and v(t) is in e^-t, so the value is bilinear in two numbers in [0, 1]. It passes the larger of its ends by at
  most (v(s) - v(s')) / (1 + sqrt(Y))^2 (X' - Y X)_+, where X = F(a) - F(b), F(l) = e^l D(g - l), at s, and X' at s'.

The complement C(g) = D(g) - 1 + e^g, which is e^g times the divergence of the other order at -g, obeys the same recursion. Each is
computed, since each is exact to rounding in its own tail only.
"""

from __future__ import annotations

from math import ceil, exp, expm1, floor, sqrt

import numpy as np

_UNIT = 2.0**-53


def mixed_losses(losses: np.ndarray, probability: float) -> np.ndarray:
    """log(1 - p + p e^loss), of a mechanism on a Poisson subsample."""
    near = np.log1p(probability * np.expm1(np.clip(losses, -1, 700)))
    with np.errstate(divide="ignore"):  # at p = 1 the exponential of a loss below -745 is 0
        low = np.log(probability * np.exp(np.minimum(losses, 0.0)) + (1 - probability))
    high = losses + np.log(probability)
    return np.where(losses > 700, high, np.where(losses < -1, low, near))


def worst_divergences(
    bounded_range: float, probability: float, count: int, *, cells: int, orders: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return g, on a grid with 0 in it that holds all sums of losses, and upper bounds of D there, and of C for both orders.

    Args:
        bounded_range: r, at most 500.
        probability: p.
        count: k, of mechanisms.
        cells: of t; a subsampled loss has twice as many steps of g.
        orders: 1 for D, 2 for D and C: then e^g must be a float.
    """
    r, share = bounded_range, probability
    t = np.linspace(0.0, r, cells + 1)
    ups, downs = (mixed_losses(t - shift, share).tolist() for shift in (0.0, r))
    most, least = ups[-1], -downs[0]
    step = (most + least) / (2 * cells)
    reach = max(ceil(most / step), ceil(least / step)) + 1
    below, above = (count * (ceil(end / step) + 1) for end in (least, most))  # chords spread by a step each time
    g = np.arange(-below, above + 1) * step
    outer = [np.arange(-below - reach, -below) * step, np.arange(above + 1, above + reach + 1) * step]
    left, values, right = (
        np.stack([np.maximum(-np.expm1(order * np.minimum(order * at, 0.0)) * order, 0.0) for order in (1, -1)[:orders]])
        for at in (outer[0], g, outer[1])
    )
    mass = np.exp(-t) * np.expm1(t - r) / expm1(-r)
    ratio = exp(r / cells)
    bends = -np.diff(mass) / (1 + sqrt(ratio)) ** 2
    for _ in range(count):
        padded = np.concatenate([left, values, right], axis=1)
        found = before = last = np.zeros_like(values)
        for i in range(cells + 1):
            high, low = (_chord(padded, loss, step, reach) for loss in (ups[i], downs[i]))
            spread, end = high - low, mass[i] * high + (1 - mass[i]) * low
            if i:
                bent = bends[i - 1] * np.maximum(spread - ratio * last, 0.0)
                found = np.maximum(found, np.maximum(before, end) + bent)
            before, last = end, spread
        values = found * (1 + 64 * _UNIT)
    return g, values


def _chord(padded: np.ndarray, loss: float, step: float, reach: int) -> np.ndarray:
    """F(loss) on the grid: e^loss times the chord in e^g between the neighbours of g - loss."""
    cells = floor(loss / step)
    near = expm1(step - (loss - cells * step)) / expm1(step)
    size, start = padded.shape[1] - 2 * reach, reach - cells
    return exp(loss) * (near * padded[:, start : start + size] + (1 - near) * padded[:, start - 1 : start - 1 + size])
