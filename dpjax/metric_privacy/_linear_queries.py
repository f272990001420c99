"""The Laplace mechanism under a metric: linear queries with noise fitted to budgets of pairs.

Z = Q x + (Lap(c_1), ..., Lap(c_K)) for a histogram x. If one record moves from element i to element
j, the answers move by Q_i - Q_j, so no density changes by more than exp(sum_k |Q_ki - Q_kj| / c_k),
which is at most exp(d(i, j)) for scales c within the budgets (``dpjax.metric_privacy.scales``). See
Kamalaruban et al. (2020), Theorem 1.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.mechanism import with_guarantee
from dpjax.batch import Batch
from dpjax.distributions.base import Shape
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.mechanisms import laplace
from dpjax.metric_privacy.guarantees import MetricGuarantee
from dpjax.metric_privacy.histograms import counts_of, linear_answers
from dpjax.metric_privacy.loads import load
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.scales import STRATEGIES, OptimalScales, Strategy, noise_scales
from dpjax.numerics.arrays import fits
from dpjax.pytrees import pytree


@pytree
class LaplaceAnswers(Batch):
    """Independent answers ``values + rest + Lap(scales)``.

    Answers are exact where the scale is 0, and NaN where it is infinite. An exact answer is a point
    mass, of log-density ``inf`` there and ``-inf`` elsewhere. Arguments of all methods are floats
    that broadcast against ``batch_shape``, and results have the broadcast shape.

    Attributes:
        values: float ``(..., K)``.
        scales: float ``(..., K)``, nonnegative, may be ``inf``; broadcasts against ``values``.
        rest: the rounding error of ``values``, of their shape; 0 if None. For large answers it may
            be as large as the noise.

    >>> distribution = LaplaceAnswers(jnp.array([3.0, 5.0]), jnp.array([0.5, 0.0]))
    >>> distribution.variance().tolist(), distribution.quantile(0.5).tolist()
    ([0.5, 0.0], [3.0, 5.0])
    """

    values: jax.Array
    scales: jax.Array
    rest: jax.Array | None = None

    _parameters = ("scales",)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of one draw, queries last."""
        return jnp.broadcast_shapes(self.values.shape, self.scales.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the values and of every result."""
        return self.values.dtype

    def noisy(self) -> PiecewiseExponential:
        """Return the distributions of noisy answers less ``values``; scale 1 replaces 0 and inf."""
        around = jnp.zeros_like(self.values) if self.rest is None else self.rest
        has_noise = (self.scales > 0) & (self.scales < jnp.inf)
        return laplace(around, 1.0, sensitivity=jnp.where(has_noise, self.scales, 1.0))

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw answers, ``shape + batch_shape``; see :meth:`PiecewiseExponential.sample`.

        A draw is NaN where floats of its magnitude are farther apart than the scale, as it would
        look like an answer without noise: in float32, above 8 million scales. This depends on the
        rounded draw only, so it reveals nothing more. Such answers need float64, ``dpjax.release``,
        or queries minus their common value for all records.
        """
        found = self.values + self.noisy().sample(key, shape)
        finest = float(jnp.finfo(found.dtype).eps) * jnp.abs(found)
        return self._choose(jnp.where(finest > self.scales, jnp.nan, found), self.values)

    def log_prob(self, y: ArrayLike) -> jax.Array:
        """Return the log-density of each answer at ``y``; the joint one is the sum over queries."""
        return self._choose(
            self.noisy().log_prob(self._above(y)), jnp.where(self._above(y) == 0, jnp.inf, -jnp.inf)
        )

    def prob(self, y: ArrayLike) -> jax.Array:
        """Return the density of each answer at ``y``; see :meth:`log_prob`."""
        return jnp.exp(self.log_prob(y))

    def cdf(self, y: ArrayLike) -> jax.Array:
        """Return P(Z_k <= y)."""
        return self._choose(
            self.noisy().cdf(self._above(y)), (self._above(y) >= 0).astype(self.dtype)
        )

    def survival(self, y: ArrayLike) -> jax.Array:
        """Return P(Z_k > y)."""
        return self._choose(
            self.noisy().survival(self._above(y)), (self._above(y) < 0).astype(self.dtype)
        )

    def quantile(self, p: ArrayLike) -> jax.Array:
        """Return the inverse of :meth:`cdf`; NaN outside [0, 1]."""
        level = checks.float_array("p", p).astype(self.dtype)
        exact = jnp.where((level >= 0) & (level <= 1), self.values, jnp.nan)
        return self._choose(exact + self.noisy().quantile(level), exact)

    def interval(self, level: ArrayLike) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of probability ``level`` of each answer."""
        low, high = self.noisy().interval(level)
        return self._choose(self.values + low, self.values), self._choose(
            self.values + high, self.values
        )

    def mean(self) -> jax.Array:
        """Return the mean, E[Z], of shape ``batch_shape``."""
        return self._choose(self.values, self.values)

    def variance(self) -> jax.Array:
        """Return the variance, 2 c^2, of shape ``batch_shape``."""
        return 2 * jnp.square(self.scales) + 0 * self.mean()

    def stddev(self) -> jax.Array:
        """Return the standard deviation, of shape ``batch_shape``."""
        return 2**0.5 * self.scales + 0 * self.mean()

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Z - center|; around the exact answers it is ``scales``."""
        return self._choose(
            self.noisy().mean_abs_error(self._above(center)), jnp.abs(self._above(center))
        )

    def mean_squared_error(self, center: ArrayLike) -> jax.Array:
        """Return E[(Z - center)^2]."""
        return self._choose(
            self.noisy().mean_squared_error(self._above(center)), jnp.square(self._above(center))
        )

    def _above(self, y: ArrayLike) -> jax.Array:
        """Return ``y`` minus the values."""
        return checks.float_array("y", y).astype(self.dtype) - self.values

    def _choose(self, noisy: jax.Array, exact: jax.Array) -> jax.Array:
        """Select by the scale: ``exact`` for 0, NaN for infinity, else ``noisy``."""
        without = jnp.where(self.scales == 0, exact, jnp.nan)
        return jnp.where((self.scales > 0) & (self.scales < jnp.inf), noisy, without)


def guarantee(metric: Metric) -> MetricGuarantee:
    """Return the guarantee of one draw of all answers of :func:`metric_laplace`.

    It is d, and twice d in range.

    >>> from dpjax.metric_privacy.points import from_points
    >>> cost = metric_laplace.guarantee(from_points([[0.0], [1.0], [3.0]], epsilon=0.5))
    >>> print(cost)  # doctest: +NORMALIZE_WHITESPACE
    d-privacy on 3 elements with budgets 0.5 to 1.5, n public:
    1.5-DP and 3-bounded-range under swap neighbors
    """
    return MetricGuarantee(metric)


@with_guarantee(guarantee)
def metric_laplace(
    x: ArrayLike,
    queries: ArrayLike,
    metric: Metric,
    *,
    strategy: Strategy = "optimal",
    scales: ArrayLike | OptimalScales | None = None,
) -> LaplaceAnswers:
    """Return the distribution of the noisy answers Q x + Lap(c).

    Args:
        x: see :mod:`dpjax.metric_privacy`.
        queries: see :mod:`dpjax.metric_privacy`.
        metric: see :mod:`dpjax.metric_privacy`.
        strategy: the strategy of :func:`dpjax.metric_privacy.scales.noise_scales`.
        scales: ``(..., K)``, the scales, or the result of :func:`optimal_scales`. If they exceed
            the budgets they raise, or as JAX arrays give NaN for their batch element.

    Returns:
        :class:`LaplaceAnswers` of batch shape ``(..., K)``. A query that distinguishes a pair of
        budget 0 has no answer (NaN); one that distinguishes no protected pair is answered exactly.

    Privacy:
        d-private: moving one record from i to j changes no probability by more than a factor
        exp(d(i, j)). Under swap n is public, and the count of all records is answered exactly; with
        the null record in the universe n is private. Float draws are simulations: their low-order
        bits depend on the answer, and an answer too large for its noise is NaN (see
        :meth:`LaplaceAnswers.sample`).

    References:
        Kamalaruban et al. (2020), Theorem 1 and equation (5) with c * Q' = Q.

    >>> from dpjax.metric_privacy.points import from_points
    >>> metric = from_points([[0.0], [1.0], [3.0]], epsilon=0.5)
    >>> distribution = metric_laplace([40, 25, 35], [[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]], metric)
    >>> distribution.mean().tolist(), [round(float(s), 4) for s in distribution.stddev()]
    ([35.0, 100.0], [1.4142, 0.0])
    """
    if isinstance(scales, OptimalScales):
        scales = scales.scales
    checks.one_of("strategy", strategy, STRATEGIES)
    if scales is None:
        c = noise_scales(queries, metric, strategy=strategy)
    else:
        spent = load(queries, scales, metric)
        c = checks.float_array("scales", scales).astype(spent.dtype)
        if (
            not isinstance(scales, jax.Array)
            and not checks.is_traced(spent)
            and bool(jnp.any(spent > 1))
        ):
            raise ValueError(
                "scales must have a load of at most 1 to be private, got "
                f"{float(jnp.max(spent)):g}: use larger scales."
            )
        c = jnp.where((spent <= 1)[..., None], c, jnp.nan)
    counts = counts_of(x, c.dtype, metric.num_values)
    fits(counts.value.shape[:-1], **{"metric" if scales is None else "scales": c.shape[:-1]})
    # Rounded as for the scales.
    values, rest = linear_answers(
        checks.finite("queries", queries, c.dtype).astype(counts.value.dtype), counts
    )
    return LaplaceAnswers(values, c.astype(values.dtype), rest)
