"""Propose-test-release (Dwork and Lei 2009): noise for a proposed local sensitivity, if the data are far from breaking it.

With d(x) the number of changes until the local sensitivity exceeds the proposal, epsilon = e1 + e2:

    test:    d(x) + Laplace(1/e1) > log(1 / (2 delta)) / e1, otherwise no answer
    release: value + Laplace(proposal/e2)

Privacy: d changes by at most 1 between neighbours, so the test is e1-DP. If d(x) = 0 the test passes with probability delta. If
d(x) >= 1, the values of x and all its neighbours are within the proposal, so the release is e2-DP. Neighbours farther apart than
the proposal both have d = 0: (e1 + e2, delta)-DP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.mechanisms.laplace import laplace
from dpjax.numerics.batching import align, broadcast_batch
from dpjax.random.keys import check_key
from dpjax.sensitivity.local import LocalSensitivity


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ProposeTestRelease:
    """The law of an answer that may be withheld.

    Attributes:
        answer: the law of the answer, given that there is one.
        test: the law of the noisy distance, independent of it.
        threshold: float ``(...)``; there is an answer where the noisy distance is above it.
    """

    answer: PiecewiseExponential
    test: PiecewiseExponential
    threshold: jax.Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The broadcast shape of all fields."""
        return jnp.broadcast_shapes(self.answer.batch_shape, self.test.batch_shape, self.threshold.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of every result."""
        return self.answer.dtype

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw answers; **NaN stands for no answer** (and for a row whose parameters are bad).

        Args:
            key: a scalar typed threefry key.
            shape: the shape of the draws from each row.

        Returns:
            Float of shape ``shape + batch_shape``.

        Raises:
            TypeError: ``key`` is not a typed key.
            ValueError: another kind of key.
        """
        key_test, key_answer = jax.random.split(check_key(key))
        size = tuple(shape) + self.batch_shape
        rank = len(size)

        def draws(law: PiecewiseExponential, key: jax.Array) -> jax.Array:
            own = law.batch_shape
            points = law.sample(key, shape)
            return jnp.broadcast_to(points.reshape(*shape, *(1,) * (len(self.batch_shape) - len(own)), *own), size)

        distance, answer = draws(self.test, key_test), draws(self.answer, key_answer)
        return jnp.where(distance > align(self.threshold, rank), answer, jnp.nan)

    def answer_probability(self) -> jax.Array:
        """The exact probability of an answer, of shape ``batch_shape``. A function of the private data."""
        return jnp.broadcast_to(self.test.survival(self.threshold), self.batch_shape)

    def no_answer_probability(self) -> jax.Array:
        """The exact probability of no answer, of shape ``batch_shape``. A function of the private data."""
        return jnp.broadcast_to(self.test.cdf(self.threshold), self.batch_shape)

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """E|Y - center| given an answer, for a ``center`` that broadcasts against ``batch_shape``."""
        at = checks.float_array("center", center).astype(self.dtype)
        rank = max(at.ndim, len(self.batch_shape))
        error = self.answer.mean_abs_error(align(at, rank))
        return jnp.broadcast_to(error, jnp.broadcast_shapes(error.shape, self.batch_shape))


def propose_test_release(
    local: LocalSensitivity, epsilon: ArrayLike, *, delta: ArrayLike, proposal: ArrayLike, test_share: ArrayLike = 0.5
) -> ProposeTestRelease:
    """Return the law of propose-test-release.

    Args:
        local: the statistic and its local sensitivity at every distance, of batch shape ``(...)``.
        epsilon: positive; broadcasts against the batch shape.
        delta: in (0, 1/2); broadcasts likewise.
        proposal: positive, the local sensitivity that noise is made for, chosen without the data; broadcasts likewise.
        test_share: in (0, 1), the part of epsilon that the test takes.

    Returns:
        A :class:`ProposeTestRelease`: draws are NaN where there is no answer. Withholding is likely unless the proposal holds
        for more than 2 log(1/(2 delta)) / epsilon changes (with an even split).

    Raises:
        TypeError: what is no :class:`LocalSensitivity`.
        ValueError: a bad public parameter.

    Privacy:
        (epsilon, delta)-DP under the relation of ``local``, with test_share * epsilon for the test and the rest for the answer.
        Whether there is an answer is a part of the output. Public: all parameters and what ``local`` says is public. Float draws
        are simulations: their low-order bits depend on the data.

    References:
        Dwork and Lei (2009); Gillenwater and Munoz Medina, Section 3.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.local_sensitivity import local_sensitivity
    >>> local = local_sensitivity(jnp.linspace(0, 1, 101), lower=0, upper=1, neighbors="add_remove", definition="lower")
    >>> law = propose_test_release(local, 2.0, delta=1e-6, proposal=0.205)
    >>> round(float(law.no_answer_probability()), 5), round(float(law.mean_abs_error(0.5)), 3)
    (0.00052, 0.205)
    """
    checks.instance("propose_test_release", local, LocalSensitivity, "see dpjax.local_sensitivity")
    dtype = local.dtype
    budget = checks.positive("epsilon", epsilon, dtype)
    failure = checks.probability("delta", delta, dtype, below=0.5)
    size = checks.positive("proposal", proposal, dtype)
    share = checks.probability("test_share", test_share, dtype, below=1.0)
    rank = max(array.ndim for array in (budget, failure, size, share))
    budget, failure, share = (align(array, rank) for array in (budget, failure, share))
    test_epsilon = budget * share
    # Every row has draws of its own, also where rows differ in delta only, which neither law reads.
    batch = jnp.broadcast_shapes(local.batch_shape, budget.shape, failure.shape, size.shape, share.shape)
    test_epsilon, answer_epsilon = (broadcast_batch(rate, batch) for rate in (test_epsilon, budget * (1 - share)))
    test = laplace(broadcast_batch(_distance(local.at_distance, size), batch), test_epsilon, sensitivity=1.0)
    answer = laplace(broadcast_batch(local.value, batch), answer_epsilon, sensitivity=size)
    return ProposeTestRelease(answer, test, -jnp.log(2 * failure) / test_epsilon)


@jax.jit
def _distance(at_distance: jax.Array, proposal: jax.Array) -> jax.Array:
    """The first k with A_k > proposal, or K: a count that the shape of the data gives.

    A NaN row stays NaN. The minimum with a constant keeps the sensitivity of 1.
    """
    rank = max(at_distance.ndim - 1, proposal.ndim)
    lengths, bound = align(at_distance, rank + 1), align(proposal, rank)[..., None]
    distance = jnp.sum(lengths <= bound, axis=-1).astype(at_distance.dtype)
    return jnp.where(jnp.any(jnp.isnan(lengths) | jnp.isnan(bound), axis=-1), jnp.nan, distance)


def guarantee(local: LocalSensitivity, epsilon: float, *, delta: float) -> Guarantee:
    """Return what one draw of :func:`propose_test_release` costs.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.local_sensitivity import local_sensitivity
    >>> print(guarantee(local_sensitivity(jnp.arange(9.0), lower=0, upper=9, neighbors="swap"), 1.0, delta=1e-6))
    (1, 1e-06)-DP under swap neighbors
    """
    return Guarantee(checks.concrete_epsilon(epsilon), float("inf"), local.neighbors, delta=checks.concrete_delta(delta))
