"""What many mechanisms cost together: the theorems, for numbers on the host, in float64.

    advanced_epsilon       k epsilon-DP mechanisms by Dwork, Rothblum and Vadhan (2010); never better than the next
    optimal_pure_*         any epsilon_i-DP mechanisms, adaptive: exact for the worst ones (Kairouz, Oh and Viswanath 2015)
    bounded_range_*        k mechanisms of bounded range: exact for the worst fixed queries, and the adaptive ones, which are worse

zCDP and Renyi DP compose by adding (``conversions``); :class:`Composition` takes the best of all rules that hold.

``epsilons`` and ``bounded_range`` are of each mechanism and positive; ``counts`` or ``count`` say how many there are, at least 1.
``epsilon`` (but that of :func:`advanced_epsilon`) and ``delta`` are of the whole, and may be 0: at a delta of 0 epsilons add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from dpjax import checks

Queries = Literal["fixed", "adaptive"]
MOST_OUTCOMES = 2_000_000  # of randomised responses with several epsilons
_WIDEST = 500.0  # a range whose exponential is still a float; beyond, it says no more than pure DP


def advanced_epsilon(epsilon: float, *, count: int, delta: float) -> float:
    """Return the epsilon at ``delta`` of ``count`` adaptive epsilon-DP mechanisms, by the advanced composition theorem.

    sqrt(2 k log(1/delta)) epsilon + k epsilon (e^epsilon - 1). For comparison: :func:`optimal_pure_epsilon` is never larger.

    References:
        Dwork, Rothblum and Vadhan (2010), Theorem III.3.

    >>> round(advanced_epsilon(0.1, count=100, delta=1e-6), 3)
    6.308
    """
    ((epsilon, count),) = _mechanisms([epsilon], [count])
    return math.sqrt(2 * count * -math.log(checks.concrete_delta(delta))) * epsilon + count * epsilon * math.expm1(epsilon)


def optimal_pure_delta(epsilons: Sequence[float], counts: Sequence[int], *, epsilon: float) -> float:
    """Return the smallest delta such that all adaptive compositions of these pure mechanisms are (epsilon, delta)-DP.

    That of independent randomised responses, which attain it: the sum over their outcomes of (P - e^epsilon Q)_+.

    Raises:
        ValueError: also for more than two million outcomes (the product of the counts + 1): use zCDP or Renyi DP there.

    References:
        Kairouz, Oh and Viswanath (2015), Theorem 3.3; Murtagh and Vadhan (2016), Theorem 1.5, for several epsilons.

    >>> round(optimal_pure_delta([0.5], [10], epsilon=1.0), 6)
    0.331678
    """
    return _excess(*_responses(epsilons, counts), nonnegative_epsilon(epsilon))


def optimal_pure_epsilon(epsilons: Sequence[float], counts: Sequence[int], *, delta: float) -> float:
    """Return the smallest epsilon such that all adaptive compositions of these pure mechanisms are (epsilon, delta)-DP.

    The inverse of :func:`optimal_pure_delta`, with the same references and limits.

    >>> round(optimal_pure_epsilon([0.1], [100], delta=1e-6), 3)
    4.775
    """
    outcomes = _responses(epsilons, counts)
    most = math.fsum(epsilon * count for epsilon, count in _mechanisms(epsilons, counts))
    return _smallest(lambda at: _excess(*outcomes, at), checks.concrete_fraction("delta", delta), most)


def bounded_range_delta(bounded_range: float, *, count: int, epsilon: float, queries: Queries) -> float:
    """Return a delta such that ``count`` mechanisms of that range are together (epsilon, delta)-DP.

    Fixed queries: max over l of sum_i C(k, i) p^(k-i) (1-p)^i (e^(k t - i r) - e^epsilon)_+, where p = (e^-t - e^-r)/(1 - e^-r) at
    t = clip((epsilon + (l+1) r)/(k+1), 0, r), which is the smallest one. Adaptive queries can choose their t by what they have
    seen, and cost more: the recursion d_k(g) = max over t of q d_{k-1}(g - t) + (1-q) d_{k-1}(g + r - t) with
    q = (1 - e^(t-r))/(1 - e^-r), on a grid. Its functions are convex in e^g, and are interpolated so that the result is an upper
    bound; never above that of pure epsilon-DP, which the range implies. It is larger than the supremum by about 1e-4 of it for few
    mechanisms, by some percent for hundreds, and by more where epsilon is nearly the sum.

    Args:
        bounded_range: r.
        count: k.
        epsilon: of the whole.
        queries: ``"fixed"`` if no query, and nothing of how it is answered, depends on an answer to another one; ``"adaptive"``
            otherwise. There is no default: with the formula for fixed queries an adaptive pipeline promises too much.

    Raises:
        ValueError: also for more than 2000 adaptive mechanisms.

    References:
        Dong, Durfee and Rogers (2020), Theorems 2 and 3.

    >>> at = {"count": 5, "epsilon": 0.5}
    >>> round(bounded_range_delta(0.5, **at, queries="fixed"), 4), round(bounded_range_delta(0.5, **at, queries="adaptive"), 4)
    (0.078, 0.0805)
    """
    ((r, count),) = _mechanisms([bounded_range], [count])
    checks.one_of("queries", queries, ("fixed", "adaptive"))
    at = nonnegative_epsilon(epsilon)
    if at >= count * r:
        return 0.0
    if queries == "fixed":
        return _fixed(r, count, at)
    pure = optimal_pure_delta([r], [count], epsilon=at)
    if r > _WIDEST:
        return pure
    g, found = _adaptive(r, count, at)
    return min(float(found[np.argmin(np.abs(g - at))]), pure)


def bounded_range_epsilon(bounded_range: float, *, count: int, delta: float, queries: Queries) -> float:
    """Return an epsilon such that ``count`` mechanisms of that range are together (epsilon, delta)-DP.

    The inverse of :func:`bounded_range_delta`, with the same references, limits and ``queries``.

    >>> round(bounded_range_epsilon(0.1, count=100, delta=1e-6, queries="fixed"), 3)
    2.246
    """
    ((r, count),) = _mechanisms([bounded_range], [count])
    checks.one_of("queries", queries, ("fixed", "adaptive"))
    target = checks.concrete_fraction("delta", delta)
    if target == 0:
        return r * count
    if queries == "fixed":
        return _smallest(lambda at: _fixed(r, count, at), target, r * count)
    pure = optimal_pure_epsilon([r], [count], delta=target)
    if r > _WIDEST:
        return pure
    g, found = _adaptive(r, count, 0.0)
    reached = np.flatnonzero((found <= target) & (g > 0))
    if not reached.size:
        return pure
    last = int(reached[0])
    before, after = found[last - 1], found[last]
    share = (before - target) / (before - after) if before > target else 0.0  # of the chord in e^g, which lies above the function
    return min(float(g[last - 1] + np.log1p(share * np.expm1(g[last] - g[last - 1]))), pure)


def nonnegative_epsilon(epsilon: float) -> float:
    """Return the epsilon of a whole pipeline as a Python float; it may be 0."""
    if not 0 <= float(epsilon) < math.inf:
        raise ValueError(f"epsilon must be finite and not negative, got {epsilon}.")
    return float(epsilon)


def _mechanisms(epsilons: Sequence[float], counts: Sequence[int]) -> list[tuple[float, int]]:
    """Pairs of Python numbers: arithmetic of NumPy's narrow types would overflow."""
    if len(epsilons) != len(counts) or not len(epsilons):
        raise ValueError(f"give one count for each epsilon, got {len(epsilons)} and {len(counts)}.")
    integers = [checks.static_integer("counts", count, 1, must="integers from 1 on") for count in counts]
    return [(checks.concrete_epsilon(epsilon), count) for epsilon, count in zip(epsilons, integers, strict=True)]


def _binomial(count: int, p: float, q: float) -> np.ndarray:
    """The probabilities of 0..count successes, where q = 1 - p at full precision: ratios of neighbours from the mode outwards."""
    mode = min(int((count + 1) * p), count)
    weights, k = np.ones(count + 1), np.arange(count)
    with np.errstate(under="ignore"):
        if mode < count:
            weights[mode + 1 :] = np.cumprod((count - k[mode:]) / (k[mode:] + 1) * (p / q))
        if mode > 0:
            weights[:mode] = np.cumprod(((k[:mode] + 1) / (count - k[:mode]) * (q / p))[::-1])[::-1]
        return weights / weights.sum()


def _responses(epsilons: Sequence[float], counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Privacy loss and probability of the outcomes of independent randomised responses, without those that underflow."""
    together: dict[float, int] = {}
    for epsilon, count in _mechanisms(epsilons, counts):
        together[epsilon] = together.get(epsilon, 0) + count
    if math.prod(count + 1 for count in together.values()) > MOST_OUTCOMES:
        raise ValueError(f"more than {MOST_OUTCOMES} outcomes of {sum(together.values())} mechanisms: use zCDP or Renyi DP.")
    loss, probability = np.zeros(1), np.ones(1)
    for epsilon, count in together.items():
        lie = math.exp(-epsilon)
        loss = np.add.outer(loss, (count - 2 * np.arange(count + 1)) * epsilon).ravel()
        probability = np.multiply.outer(probability, _binomial(count, lie / (1 + lie), 1 / (1 + lie))).ravel()
        loss, probability = loss[probability > 0], probability[probability > 0]
    return loss, probability


def _excess(loss: np.ndarray, probability: np.ndarray, epsilon: float) -> float:
    """E_P[(1 - e^(epsilon - loss))_+]."""
    above = loss > epsilon
    return float(np.sum(probability[above] * -np.expm1(epsilon - loss[above])))


def _fixed(r: float, count: int, epsilon: float) -> float:
    wrong, best = np.arange(count + 1), 0.0
    for t in np.unique(np.clip((epsilon + (wrong + 1) * r) / (count + 1), 0, r)).tolist():
        # P is e^loss Q: its probabilities of the losses t and t - r.
        up, down = math.expm1(t - r) / math.expm1(-r), math.exp(t - r) * math.expm1(-t) / math.expm1(-r)
        best = max(best, _excess(count * t - wrong * r, _binomial(count, down, up), epsilon))
    return best


def _adaptive(r: float, count: int, through: float) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds of d_k on a grid of g that goes through one point, from -k r to k r."""
    if count > 2000:
        raise ValueError(f"the recursion for {count} adaptive mechanisms is too long: use zCDP, bounded_range^2/8 each.")
    cells = max(24, min(128, 6000 // count))  # of t in [0, r]
    step = r / cells
    below, above = math.ceil((through + count * r) / step), math.ceil((count * r - through) / step)
    g = through + np.arange(-below, above + 1) * step
    no_noise = -np.expm1(np.minimum(g, 0.0))  # nothing is gained beyond the total variation
    low = -np.expm1(g[0] - np.arange(cells, 0, -1) * step)
    half = np.expm1((np.clip(g, -r, r) - r) / 2)
    found = np.where(np.abs(g) < r, half / np.expm1(-r) * -half, no_noise)  # d_1, at the best t = (g + r) / 2
    t = np.arange(cells + 1) * step
    up = np.expm1(t - r) / np.expm1(-r)  # q, the probability of the loss t
    down = 1 - up
    # In a cell of t both functions are replaced by their chords in e^(g - t), so the sum is alpha + beta s + gamma / s in s = e^t.
    # It passes the larger of its ends by at most |gamma| (width of the cell)^2 / (4 s^3), where gamma sums what the chords rise by.
    curvature = np.expm1(step) * (np.expm1(step) / -np.expm1(-step)) / 4
    share = 1 / -np.expm1(-r)
    for _ in range(count - 1):
        padded = np.concatenate([low, found, np.zeros(cells)])  # g - r, ..., g + r
        rises = np.concatenate([[0.0], padded[:-1] - padded[1:]])  # from g - t to g - t - step
        found, before = no_noise.copy(), np.zeros(g.size)
        for i in range(cells + 1):
            near, far = slice(cells - i, cells - i + g.size), slice(2 * cells - i, 2 * cells - i + g.size)
            beyond = curvature * (share * rises[near] + (1 - share) * rises[far]).clip(0.0) if i < cells else before
            end = up[i] * padded[near] + down[i] * padded[far] + np.maximum(before, beyond)  # of the cells on both sides
            np.maximum(found, end, out=found)
            before = beyond
        np.minimum(found, 1.0, out=found)
    return g, found


def _smallest(delta: Callable[[float], float], target: float, most: float) -> float:
    """The smallest epsilon in [0, most] with delta(epsilon) <= target, from above."""
    if target == 0:
        return most
    if delta(0.0) <= target:
        return 0.0
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta(middle) <= target else (middle, high)
    return high
