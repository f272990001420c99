"""Laws on the line that break samplers and closed forms, and their exact probabilities."""

from dataclasses import dataclass, replace

import numpy as np

from dpjax import PiecewiseExponential, Tails

SIZE = 104  # pieces of every law, so that one program serves all


@dataclass(frozen=True)
class Pieces:
    """Density ~ exp(-rate * cost), the cost linear between edges; ``tails`` are as in ``Tails``."""

    edges: np.ndarray
    left: np.ndarray
    right: np.ndarray
    rate: float
    tails: tuple[float, float, float, float] | None = None
    size: int = SIZE

    def rounded(self, dtype):
        """What is left of it in a dtype."""
        fields = {name: np.asarray(getattr(self, name), dtype) for name in ("left", "right")}
        edges = np.asarray(self.edges, dtype)
        return replace(self, edges=edges, rate=dtype(self.rate), **fields)

    def distribution(self, dtype, rows):
        """As many equal rows, with pieces without width at the upper end."""
        own = self.rounded(dtype)
        more = self.size - len(own.left)
        edges, *costs = (
            np.pad(a, (0, more), mode="edge") for a in (own.edges, own.left, own.right)
        )
        rate = np.full(rows, own.rate)
        tails = None if self.tails is None else Tails(*np.asarray(self.tails, dtype))
        return PiecewiseExponential(edges, *costs, rate, tails)

    def masses(self, off=1.0):
        """Edges, decays, where the cost rises, and the masses of all pieces, tails among them.

        A control has rates and the logarithms of widths off by a factor.
        """
        edges, left, right = (np.float64(a) for a in (self.edges, self.left, self.right))
        rate, widths = np.float64(self.rate), np.diff(edges)
        if self.tails is not None:
            lower, below, upper, above = self.tails
            below, above = 700 * below / rate, 700 * above / rate
            edges = np.concatenate([edges[:1] - below, edges, edges[-1:] + above])
            widths = np.concatenate([[below], widths, [above]])
            left = np.concatenate([[lower + 700 / rate], left, [upper]])
            right = np.concatenate([[lower], right, [upper + 700 / rate]])
        wide = widths > 0
        low = np.minimum(left, right)
        decay = np.maximum(off * rate * np.abs(right - left), 1e-14)
        score = np.where(wide, off * np.log(np.where(wide, widths, 1)), -np.inf)
        score = score - off * rate * (low - low[wide].min()) + np.log(-np.expm1(-decay) / decay)
        mass = np.exp(score - score.max())
        return edges, widths, decay, right >= left, mass / mass.sum()

    def both(self, y, off=1.0):
        """P(Y <= y) and P(Y > y), each with the digits of its tail."""
        edges, widths, decay, rises, mass = self.masses(off)
        piece = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(mass) - 1)
        low, high = edges[piece], edges[piece + 1]
        width, s, up = np.where(widths > 0, widths, 1)[piece], decay[piece], rises[piece]
        away = np.clip(np.where(up, y - low, high - y) / width, 0, 1)
        near = mass[piece] * np.expm1(-s * away) / np.expm1(-s)
        far = mass[piece] * np.exp(-s * away) * np.expm1(-s * (1 - away)) / np.expm1(-s)
        below = np.append(0, np.cumsum(mass))[piece] + np.where(up, near, far)
        above = np.append(np.cumsum(mass[::-1])[::-1], 0)[piece + 1] + np.where(up, far, near)
        return below, above

    def cdf(self, y, off=1.0):
        """P(Y <= y)."""
        return self.both(np.float64(y), off)[0]


def of_records(x, rate, low=-4.0, high=4.0, flat=False):
    """As of the median of 101 records: the cost rises by 1 from one to the next."""
    cost = np.abs(np.arange(103) - 51.0)
    left, right = cost[:-1], cost[1:]
    if flat:
        left = right = np.minimum(left, right)
    return Pieces(np.concatenate([[low], x, [high]]), left, right, rate)


def _hostile():
    x = np.sort(np.random.default_rng(1).normal(size=101)).clip(-4, 4)
    x = x - x[50]  # steep densities need fine floats, which there are around 0
    tied, some = np.full(101, 1.5), np.sort(np.round(x))
    for rate in (5e-7, 5e-4, 0.05, 0.5, 5.0, 500.0, 5e8):
        yield f"epsilon {2 * rate:g}", of_records(x, rate)
    for rate in (5e-4, 0.5, 500.0):
        yield f"all tied, epsilon {2 * rate:g}", of_records(tied, rate)
    yield "some tied, flat pieces", of_records(some, 0.5, flat=True)
    for scale in (1e-30, 1e30):
        yield f"range {8 * scale:g}", of_records(x * scale, 0.5, -4 * scale, 4 * scale)
    thin = np.concatenate([[0.0, 1e-30], np.linspace(1, 3, 99)])
    yield "a piece 1e-30 wide", of_records(thin, 0.5)
    cost = 1e6 + np.array([0.0, 0.0625, 0.125, 9.0])
    yield "all mass at a cost of 10^6", Pieces(np.array([0.0, 1, 2, 3, 3]), cost, cost, 30.0)
    nothing = np.zeros(0)
    laplace = Pieces(np.zeros(1), nothing, nothing, 0.5, (1.0, 2.0, 1.2, 3.0), 0)
    yield "two tails and no piece", laplace
    yield "steep tails at a high cost", replace(laplace, rate=3e6, tails=(1e3, 2.0, 1e3, 3.0))
    mixed = np.array([0.0, 3.0, 1.0]), np.array([2.0, 0.5, 1.0])
    yield "one tail", Pieces(np.arange(4.0), *mixed, 1.5, (2.0, 1.0, 1.5, 0.0), 3)


HOSTILE = dict(_hostile())
