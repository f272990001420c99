"""A lower bound on epsilon from draws alone.

An event is chosen on one half of the draws and tested on the other. If P and Q are the output
distributions of a mechanism on two neighboring datasets, (epsilon, delta)-DP implies P(S) <=
exp(epsilon) Q(S) + delta for every event S, so epsilon >= log((P(S) - delta) / Q(S)). The first
half of the draws chooses the event. The second half is independent of this choice, and
Clopper-Pearson limits of its two counts bound the ratio. Choosing and testing on the same draws
would be optimistic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing.segments import Distribution
from dpjax.batch import span
from dpjax.display import Picture, Shown
from dpjax.numerics.solve import Array, lower_limit, upper_limit

# Candidate ends of the event: evenly spaced quantiles, and halving ones towards both ends
_UNIFORM, _TAIL = 32, 12
_CHUNK = 64  # the number of rows whose events are compared at a time, about 50 kB each


@dataclass(frozen=True, repr=False)
class BlackBoxBound(Shown):
    """A lower bound on epsilon with a confidence, and the event that shows it.

    :func:`lower_bound` returns it. The event is ``low <= score <= high`` where ``inside``, and its
    complement elsewhere. Arrays have the batch shape of the draws.

    Attributes:
        epsilon: float64, the lower bound; 0 where nothing is shown.
        confidence: of each row separately, over the draws.
        delta: of the guarantee that is audited.
        low: float64, the lower end of the interval of scores.
        high: float64, its upper end.
        inside: bool, whether the event is the interval or its complement.
        forward: bool, whether the event is more likely under P.
        count_p: integers, the number of tested draws of P in the event.
        count_q: integers, the number of tested draws of Q in the event.
        tested_p: the number of tested draws of P.
        tested_q: the number of tested draws of Q.

    >>> found = lower_bound(np.zeros(400), np.ones(400))
    >>> found.tested_p, found.epsilon.shape, bool(found.epsilon > 3)
    (200, (), True)
    """

    epsilon: Array
    confidence: float
    delta: float
    low: Array
    high: Array
    inside: Array
    forward: Array
    count_p: Array
    count_q: Array
    tested_p: int
    tested_q: int

    def _facts(self) -> dict[str, Any]:
        delta = {"delta": f"{self.delta:g}"} if self.delta else {}
        shown = {
            "batch_shape": self.epsilon.shape,
            "epsilon": span(self.epsilon),
            "confidence": f"{self.confidence:g}",
            **delta,
        }
        return shown | {"tested_p": self.tested_p, "tested_q": self.tested_q}

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        return {
            name: getattr(self, name) for name in ("epsilon", "low", "high", "count_p", "count_q")
        }, None


def lower_bound(
    draws_p: ArrayLike,
    draws_q: ArrayLike,
    *,
    confidence: float = 0.95,
    delta: float = 0.0,
    score: Callable[[Any], Any] | None = None,
) -> BlackBoxBound:
    """Return a lower bound on the epsilon of a mechanism from draws on neighboring datasets.

    It is ``log((lower limit of P(S) - delta) / upper limit of Q(S))``, each limit with half of the
    error. Events are intervals of the score, also one-sided ones, and their complements, between
    quantiles of the pooled first half.

    Args:
        draws_p: float ``(n, ...)``, independent draws along the first axis, as
            ``distribution.sample(key, (n,))`` returns them.
        draws_q: float ``(m, ...)`` of the same batch shape: draws on the neighboring dataset.
        confidence: in (0, 1).
        delta: in [0, 1).
        score: a function, chosen without the draws, of draws ``(n, ...)`` that returns real numbers
            of that shape, by default the draws themselves. The exact log-ratio, :func:`log_ratio`,
            is the sharpest. A score with more digits also detects which low-order bits each
            distribution can produce, and shows that floating-point draws are not private.

    Returns:
        A :class:`BlackBoxBound` of the batch shape. NaN scores count as ``+inf``.

    Privacy:
        If the mechanism is (epsilon, delta)-DP and the draws are independent, each row's bound is
        above epsilon with probability at most ``1 - confidence``. For a statement about all of
        ``rows`` together, pass the confidence ``1 - (1 - confidence) / rows``. The two datasets are
        not protected: audit with data that may be published. A low bound is no evidence of privacy.

    References:
        Clopper and Pearson (1934); Jagielski, Ullman and Oprea (2020), for the bound from one
        event.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import laplace
    >>> noise = laplace(jnp.array([0.0, 1.0]), 1.0, sensitivity=1.0)
    >>> draws = noise.sample(jax.random.key(0), (50_000,))
    >>> found = lower_bound(draws[:, 0], draws[:, 1])
    >>> bool(0.9 < found.epsilon < 1)
    True
    """
    confidence, delta = (
        checks.concrete_probability("confidence", confidence),
        checks.concrete_fraction("delta", delta),
    )
    p, q = _scores("draws_p", draws_p, score), _scores("draws_q", draws_q, score)
    if p.shape[1:] != q.shape[1:]:
        raise ValueError(
            f"draws_p and draws_q must have the same batch shape, got shapes {p.shape} and "
            f"{q.shape}."
        )
    batch = p.shape[1:]
    (first_p, tested_p), (first_q, tested_q) = (
        np.split(of.reshape(len(of), -1), [len(of) // 2]) for of in (p, q)
    )
    low, high, inside, forward = _choose(first_p, first_q, delta)
    count_p, count_q = (
        np.count_nonzero(((tested >= low) & (tested <= high)) == inside, axis=0)
        for tested in (tested_p, tested_q)
    )
    size_p, size_q = len(tested_p), len(tested_q)
    top, base = np.where(forward, count_p, count_q), np.where(forward, count_q, count_p)
    top_of, base_of = np.where(forward, size_p, size_q), np.where(forward, size_q, size_p)
    error = (1 - confidence) / 2
    above = lower_limit(top, trials=top_of, error=error) - delta
    below = upper_limit(base, trials=base_of, error=error)
    epsilon = np.log(np.maximum(above / below, 1.0))
    found = {"epsilon": epsilon, "low": low, "high": high, "inside": inside, "forward": forward}
    found |= {"count_p": count_p, "count_q": count_q}
    arrays: dict[str, Any] = {name: array.reshape(batch) for name, array in found.items()}
    return BlackBoxBound(
        confidence=confidence, delta=delta, tested_p=size_p, tested_q=size_q, **arrays
    )


def log_ratio(
    p: Distribution, q: Distribution, *, resolution: float = 2.0**-10
) -> Callable[[ArrayLike], jax.Array]:
    """Return the score ``log p(y) - log q(y)``, rounded to a resolution.

    Rounding removes the effect of floating point: without it, the last bits of the difference
    reveal on which grid of floats ``y`` lies, which depends on the data. On floating-point Laplace
    draws at epsilon 1 such a score correctly shows an epsilon above 7.

    Args:
        p: a distribution of batch shape ``(...)``.
        q: another distribution of the same batch shape.
        resolution: positive, well above the rounding error of a log-density.

    Returns:
        A function of draws ``(n, ...)`` that returns scores of that shape, for :func:`lower_bound`.

    Privacy:
        Not private: it reads both distributions. Use it for datasets that may be published.

    References:
        Mironov (2012), for the low-order bits.

    >>> from dpjax import laplace
    >>> score = log_ratio(laplace(0.0, 1.0, sensitivity=1.0), laplace(1.0, 1.0, sensitivity=1.0))
    >>> float(score(-3.7)), float(score(0.5))
    (1.0, 0.0)
    """
    resolution = checks.concrete_positive("resolution", resolution)
    return lambda y: jnp.round((p.log_prob(y) - q.log_prob(y)) / resolution) * resolution


def _scores(name: str, draws: ArrayLike, score: Callable[[Any], Any] | None) -> Array:
    shape = np.shape(draws)
    if len(shape) == 0 or shape[0] < 2:
        raise ValueError(f"{name} needs at least two draws on its first axis, got shape {shape}.")
    scores = np.asarray(draws if score is None else score(draws)).astype(np.float64)
    if scores.shape != shape:
        raise ValueError(
            f"score must keep the shape of the draws, {shape}; it returned {scores.shape}."
        )
    return np.where(np.isnan(scores), np.inf, scores)


def _choose(p: Array, q: Array, delta: float) -> tuple[Array, ...]:
    """Return the event of each row with the best ratio of Wilson limits.

    These are closed forms close to Clopper and Pearson's limits; every choice of an event is valid.

    Returns:
        ``low``, ``high``, ``inside`` and ``forward`` of :class:`BlackBoxBound`, ``(rows,)``.
    """
    if p.shape[1] == 0:
        return np.empty(0), np.empty(0), np.empty(0, bool), np.empty(0, bool)
    pooled = np.sort(np.concatenate([p, q]), axis=0)
    share = np.concatenate(
        [
            2.0 ** -np.arange(2, 2 + _TAIL),
            np.linspace(0, 1, _UNIFORM),
            1 - 2.0 ** -np.arange(2, 2 + _TAIL),
        ]
    )
    ends = pooled[np.unique(np.round(share * (len(pooled) - 1)).astype(int))]
    # All intervals between two ends, -inf and +inf, also those of a single end.
    first, last = np.triu_indices(len(ends) + 1, -1)
    first, last = first[first <= last + 1], last[first <= last + 1]
    # Limits that hold for all events at once, as otherwise a small event would be chosen by chance.
    z = NormalDist().inv_cdf(1 - 0.05 / (8 * len(first)))
    below_p, upto_p = _counts(p, ends)
    below_q, upto_q = _counts(q, ends)
    low, high = (
        np.pad(ends, ((1, 0), (0, 0)), constant_values=-np.inf),
        np.pad(ends, ((0, 1), (0, 0)), constant_values=np.inf),
    )
    chosen = []
    for at in range(0, p.shape[1], _CHUNK):
        rows = slice(at, at + _CHUNK)
        p_low, p_high = _wilson(upto_p[last, rows] - below_p[first, rows], len(p), z)
        q_low, q_high = _wilson(upto_q[last, rows] - below_q[first, rows], len(q), z)
        ratios = (
            (p_low - delta) / q_high,
            (q_low - delta) / p_high,
            (1 - p_high - delta) / (1 - q_low),
        )
        # (side and direction, event, row)
        values = np.stack([*ratios, (1 - q_high - delta) / (1 - p_low)])
        flat = values.reshape(-1, values.shape[-1]).argmax(axis=0)
        kind, event = np.divmod(flat, len(first))
        row = np.arange(at, at + flat.size)
        chosen.append((low[first[event], row], high[last[event], row], kind < 2, kind % 2 == 0))
    return tuple(map(np.concatenate, zip(*chosen, strict=True)))


def _counts(scores: Array, ends: Array) -> tuple[Array, Array]:
    """Return the number of scores of each row below each end, and up to it.

    They are 0 below -inf, and all scores up to +inf.
    """
    below = [np.zeros(scores.shape[1], int)]
    upto = []
    for end in ends:
        below.append(np.count_nonzero(scores < end, axis=0))
        upto.append(np.count_nonzero(scores <= end, axis=0))
    return np.stack(below), np.stack([*upto, np.full(scores.shape[1], len(scores))])


def _wilson(count: Array, trials: int, z: float) -> tuple[Array, Array]:
    """Return the Wilson interval, kept above 0 and below 1 so that ratios are finite."""
    share, spread = count / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    least = 0.1 / trials
    return np.maximum(middle - half, 0.0), np.minimum(
        np.maximum(middle + half, least), 1 - least / 2
    )
