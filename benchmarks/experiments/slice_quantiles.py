"""SliceQuantiles (Imola, Boninsegna, Keller, Aamand, Roy Chowdhury and Pagh, 2025) in NumPy, as a
contestant with pure DP.

The ranks get the noise of a continual counter, half of epsilon. Each noisy rank has a slice, the 2
h + 1 records around it, and the exponential mechanism draws a point near the median of each slice.
One record more moves all ranks behind it by one, which the noise of a counter hides at once, and
only one slice has another record. With probability gamma, and where slices overlap, all quantiles
are uniform instead. Source: "Differentially Private Quantiles with Smaller Error",
arXiv:2505.13662, and the authors' program. Their defaults are kept: half of epsilon for the
counter, a quarter as the cost of a slice, beta = .05; gamma = .001 is from an early version of
their program, where the random answer still was; the published program leaves it out, and is
(epsilon, delta)-DP.

Relation: add/remove of one record; under swap it costs twice as much. Public: the bounds, the
levels, ``size`` (the ranks are floor(q size); privacy does not need it to be right) and ``ratio``,
the bounds' distance over that of two records. Values have the unit of the records, and ranks count
records.

Privacy, for a dataset and one with a record more at position k. Positions beyond the ends read as
the bounds, so the noise and public numbers alone say whether slices overlap. (1) The ranks from k
on move up by one: the counter pays epsilon / 2, and in the slice around k one record replaces
another, 2 rate. (2) Back, two ranks may come from one. Where the new record is at offset d of its
slice, let a share of (d + h + 1) / (2 h + 2) of the rank move down: no rank gets more than 1 + 1 /
(2 h + 2) times its own. All of it is at most epsilon if 2 rate + 1 / (2 h + 2) <= epsilon / 2,
which is checked. (3) Slices that touch may overlap after (2). If that and overlaps have probability
delta, such draws have at most delta exp(m rate (h + 1/2)) times the density of the uniform answer,
as each slice is drawn between the bounds. Uniform answers cover them if delta (1 + exp(m rate (h +
1/2))) <= gamma (exp(epsilon) - 1), and that is the gap assumption: the ranks need to be about m
log(m ratio) / epsilon apart, times 4 to 6. If it fails, there is no pure guarantee:
``slice_quantiles`` raises a ValueError, or with ``pure=False`` draws all the same, which is
(epsilon, delta')-DP at best and only shows what the method could do.

Other than in the authors' program, the counter has Laplace noise and not an integer one, for its
nodes count by halves; each node has noise of its own; and a slice is drawn between the bounds, not
between neighbors, and all is sorted in the end.
"""

import math

import numpy as np

BETA, GAMMA = 0.05, 0.001


def counter(m: int, epsilon: float) -> tuple[np.ndarray, float]:
    """Signs ``(m, nodes)`` and Laplace scale of the noise of m running counts: the k-ary tree of
    least variance.

    A running count is half of (all + what is left of its end - what is right of it); a record
    counts in one node of each level.
    """
    heights = {k: next(h for h in range(1, 64) if k**h >= m) for k in range(2, max(m, 2) + 1)}
    best = min(heights, key=lambda k: (1 + heights[k] * (k - 1)) * (heights[k] + 1) ** 2)
    height, leaf = heights[best], np.arange(m)[:, None]
    signs = [np.ones((m, 1))]
    for level in range(1, height + 1):
        width = best ** (height - level)
        node = np.arange(-(-m // width))
        own, inside = leaf // width, node // best == leaf // (width * best)
        sign = np.where(
            node < own, 1.0, np.where(node > own, -1.0, 1.0 if level == height else 0.0)
        )
        signs.append(sign * inside)
    return np.hstack(signs), (height + 1) / (2 * epsilon)


def half_slice(m: int, rate: float, ratio: float) -> int:
    """The authors' h: all m draws are in their slices with probability 1 - beta."""
    return math.ceil(math.log(2 * m * ratio / BETA) / rate)


def log_overlap(ranks: np.ndarray, signs: np.ndarray, scale: float, h: int) -> float:
    """A bound of the log probability that slices overlap or touch: Chernoff for each two
    neighbors, and their sum.
    """
    room = np.diff(ranks) - 2 * h - 2  # 2 h + 1, and up to 1 by rounding
    changes = np.abs(np.diff(signs, axis=0)) * scale
    if not room.size:
        return -math.inf
    if room.min() <= 0:
        return 0.0
    parts = np.linspace(0.02, 0.998, 64)[:, None, None] / changes.max()
    bound = -parts[..., 0] * room - np.log1p(-np.square(parts * changes)).sum(-1)
    return min(0.0, float(np.logaddexp.reduce(bound.min(0))))


def is_pure(
    levels: np.ndarray, size: int, epsilon: float, ratio: float, share: float = 1 / 8
) -> bool:
    """Whether the gap assumption holds, so that the draw is epsilon-DP."""
    m, rate = len(levels), share * epsilon
    h = half_slice(m, rate, ratio)
    if 2 * rate + 1 / (2 * h + 2) > epsilon / 2:
        return False
    delta = log_overlap(np.floor(np.asarray(levels) * size), *counter(m, epsilon / 2), h)
    return delta + np.logaddexp(0, m * rate * (h + 0.5)) <= math.log(GAMMA * math.expm1(epsilon))


def slice_quantiles(
    x: np.ndarray,
    levels: np.ndarray,
    epsilon: float,
    lower: float,
    upper: float,
    *,
    size: int,
    ratio: float,
    draws: int,
    seed: int,
    share: float = 1 / 8,
    pure: bool = True,
) -> np.ndarray:
    """Draws ``(draws, m)``, ascending. A slice has the rate ``share`` epsilon: the authors' 1/8;
    .24 is valid too.
    """
    if pure and not is_pure(levels, size, epsilon, ratio, share):
        raise ValueError("the ranks are too near each other for pure differential privacy.")
    generator, m, rate = np.random.default_rng(seed), len(levels), share * epsilon
    h, (signs, scale) = half_slice(m, rate, ratio), counter(m, epsilon / 2)
    records, ranks = np.sort(np.clip(x, lower, upper)), np.floor(np.asarray(levels) * size)
    score = -rate * np.abs(np.arange(2 * h + 2) - (h + 0.5))
    found = generator.uniform(lower, upper, (draws, m))
    for draw in found:
        center = np.rint(ranks + signs @ generator.laplace(0, scale, signs.shape[1])).astype(int)
        if generator.random() < GAMMA or (np.diff(center) <= 2 * h).any():
            continue  # the uniform answer
        position = center[:, None] + np.arange(-h, h + 1) - 1
        inside = records[np.clip(position, 0, len(records) - 1)]
        inside = np.where(position < 0, lower, np.where(position >= len(records), upper, inside))
        edges = np.pad(inside, ((0, 0), (1, 1)), constant_values=((0, 0), (lower, upper)))
        weights = np.cumsum(np.diff(edges) * np.exp(score), axis=1)
        target = generator.random(m) * weights[:, -1]
        piece = np.minimum((weights <= target[:, None]).sum(1), 2 * h + 1)
        left, right = edges[np.arange(m), piece], edges[np.arange(m), piece + 1]
        draw[:] = left + (right - left) * generator.random(m)
    return np.sort(found, axis=1)
