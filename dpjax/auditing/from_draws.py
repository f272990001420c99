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
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.auditing._privacy_loss import Distribution
from dpjax.batch import span
from dpjax.numerics.solve import Array, lower_limit, upper_limit

# Candidate ends of the event, as shares of the pooled draws: closer together towards both ends
_SHARES = (1 - np.cos(np.pi * np.arange(1, 48) / 48)) / 2


@dataclass(frozen=True, repr=False)
class BlackBoxBound:
    """A lower bound on epsilon with a confidence, and the event that shows it.

    :func:`lower_bound` returns it. The event is ``low < score <= high``. Arrays have the batch
    shape of the draws.

    Attributes:
        epsilon: float64, the lower bound; 0 where nothing is shown.
        confidence: of each row separately, over the draws.
        delta: of the guarantee that is audited.
        low: float64, the lower end of the interval of scores.
        high: float64, its upper end.
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
    forward: Array
    count_p: Array
    count_q: Array
    tested_p: int
    tested_q: int

    def __repr__(self) -> str:
        return (
            f"BlackBoxBound(batch_shape={self.epsilon.shape}, epsilon={span(self.epsilon)}, "
            f"confidence={self.confidence:g}, delta={self.delta:g})"
        )


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
    error. Events are intervals of the score, also one-sided ones, between 47 quantiles of the
    pooled first half.

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

    Raises:
        ValueError: there are fewer than two draws, batch shapes differ, or ``score`` changes the
            shape.

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
    halves = [np.split(scores, [len(scores) // 2]) for scores in (p, q)]
    chosen_on, tested = zip(*halves, strict=True)
    low, high, forward = _choose(delta, *chosen_on)
    sizes = tuple(map(len, tested))
    counts = np.array([np.sum((low < scores) & (scores <= high), axis=0) for scores in tested])
    error = (1 - confidence) / 2

    def ratio(top: int, base: int) -> Array:
        likely = lower_limit(counts[top], trials=sizes[top], error=error)
        return (likely - delta) / upper_limit(counts[base], trials=sizes[base], error=error)

    epsilon = np.log(np.maximum(np.where(forward, ratio(0, 1), ratio(1, 0)), 1.0))
    return BlackBoxBound(epsilon, confidence, delta, low, high, forward, *counts, *sizes)


def log_ratio(
    p: Distribution, q: Distribution, *, resolution: float = 2.0**-10
) -> Callable[[ArrayLike], Array]:
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

    Raises:
        ValueError: ``resolution`` is not positive.

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
    return lambda y: np.round(np.subtract(p.log_prob(y), q.log_prob(y)) / resolution) * resolution


def _scores(name: str, draws: ArrayLike, score: Callable[[Any], Any] | None) -> Array:
    shape = np.shape(draws)
    if len(shape) == 0 or shape[0] < 2:
        raise ValueError(f"{name} needs at least two draws on its first axis, got shape {shape}.")
    scores = np.asarray(draws if score is None else score(draws), np.float64)
    if scores.shape != shape:
        raise ValueError(
            f"score must keep the shape of the draws, {shape}; it returned {scores.shape}."
        )
    scores = np.where(np.isnan(scores), np.inf, scores)
    return np.maximum(scores, -np.finfo(np.float64).max)  # above the lower end of each event


def _choose(delta: float, p: Array, q: Array) -> tuple[Array, Array, Array]:
    """Return the event of each row that seems to show most; every choice of an event is valid.

    Returns:
        ``low``, ``high`` and ``forward`` of :class:`BlackBoxBound`.
    """
    pooled = np.sort(np.concatenate([p, q]), axis=0)
    inner = pooled[np.round(_SHARES * (len(pooled) - 1)).astype(int)]
    outer = np.full_like(inner[:1], np.inf)
    ends = np.concatenate([-outer, inner, outer])
    first, last = np.triu_indices(len(ends), 1)

    def limits(scores: Array) -> tuple[Array, Array]:
        """Return limits of the share of scores in each interval, at 4 standard deviations.

        Otherwise a small event would be chosen by chance.
        """
        upto = np.array([np.mean(scores <= end, axis=0) for end in ends])
        share = upto[last] - upto[first]
        spread = 4 * np.sqrt(share * (1 - share) / len(scores))
        return share - spread - delta, share + spread + 16 / len(scores)

    (low_p, high_p), (low_q, high_q) = limits(p), limits(q)
    ratios = np.concatenate([low_p / high_q, low_q / high_p])
    backward, event = np.divmod(ratios.argmax(axis=0), len(first))
    low, high = (np.take_along_axis(ends, at[event][None], axis=0)[0] for at in (first, last))
    return low, high, backward == 0
