"""Upper bounds of the largest divergence of adaptive mechanisms of bounded range, by a recursion.

A mechanism of range r has losses in [t - r, t] for a t in [0, r], and is dominated by the pair (P,
Q) whose only losses are t and t - r, with Q(t) = v(t) = (e^-t - e^-r)/(1 - e^-r). An adversary
chooses t after seeing the previous answers, so

    D_k(g) = max over t of  e^t v(t) D_(k-1)(g - t) + e^(t-r) (1 - v(t)) D_(k-1)(g - t + r),
    D_0(g) = (1 - e^g)_+,

is the largest hockey-stick divergence of k such mechanisms at epsilon = g (Dong, Durfee and Rogers
2020, Theorem 3). Two steps make the computed numbers upper bounds of it:

* D is convex in e^g, and is interpolated by chords.
* For t in a cell [s, s'], Y = e^(s'-s), either loss is split between the losses at both ends of the
  cell. The weights of the upper ends are linear in e^t, and v(t) is linear in e^-t, so the value is
  bilinear in two numbers in [0, 1]. It exceeds the larger of its ends by at most (v(s) - v(s')) /
  (1 + sqrt(Y))^2 (X' - Y X)_+, where F(l) = e^l D(g - l), and X and X' are F(t) - F(t - r) at t = s
  and t = s'.
"""

from __future__ import annotations

from math import exp, expm1, floor, sqrt

import numpy as np

_UNIT = 2.0**-53


def worst_divergences(
    bounded_range: float, count: int, *, cells: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid of g that contains 0 and all sums of grid losses, and upper bounds of D on it.

    Args:
        bounded_range: r, at most 500.
        count: k, the number of mechanisms.
        cells: the number of cells of t in [0, r]; the step of g is r / cells.
    """
    r = bounded_range
    t = np.linspace(0.0, r, cells + 1)
    ups, downs = t.tolist(), (t - r).tolist()
    step = r / cells
    reach = cells + 1
    side = count * reach  # every chord reaches one step further
    g = np.arange(-side, side + 1) * step
    outer = [np.arange(-side - reach, -side) * step, np.arange(side + 1, side + reach + 1) * step]
    left, values, right = (
        np.maximum(-np.expm1(np.minimum(at, 0.0)), 0.0) for at in (outer[0], g, outer[1])
    )
    mass = np.exp(-t) * np.expm1(t - r) / expm1(-r)
    ratio = exp(r / cells)
    bends = -np.diff(mass) / (1 + sqrt(ratio)) ** 2
    for _ in range(count):
        padded = np.concatenate([left, values, right])
        found = before = last = np.zeros_like(values)
        for i in range(cells + 1):
            at_up, at_down = (_chord(padded, loss, step, reach) for loss in (ups[i], downs[i]))
            spread, end = at_up - at_down, mass[i] * at_up + (1 - mass[i]) * at_down
            if i:
                bent = bends[i - 1] * np.maximum(spread - ratio * last, 0.0)
                found = np.maximum(found, np.maximum(before, end) + bent)
            before, last = end, spread
        values = found * (1 + 64 * _UNIT)
    return g, values


def _chord(padded: np.ndarray, loss: float, step: float, reach: int) -> np.ndarray:
    """Return F(loss) on the grid.

    It is e^loss times the chord in e^g between the grid neighbors of g - loss.
    """
    cells = floor(loss / step)
    near = expm1(step - (loss - cells * step)) / expm1(step)
    size, start = padded.size - 2 * reach, reach - cells
    return exp(loss) * (
        near * padded[start : start + size] + (1 - near) * padded[start - 1 : start - 1 + size]
    )
