"""Propose-test-release (Dwork and Lei 2009): noise scaled to a proposed local sensitivity.

There is an answer only if a noisy test finds the data far from violating the proposal. With d(x)
the number of changes until the local sensitivity exceeds the proposal, epsilon = e1 + e2:

    test:    d(x) + Laplace(1/e1) > log(1 / (2 delta)) / e1, otherwise no answer
    release: value + Laplace(proposal/e2)

Privacy: d changes by at most 1 between neighbors, so the test is e1-DP. If d(x) = 0, the test
passes with probability delta. If d(x) >= 1, the values of x and all its neighbors are within the
proposal, so the release is e2-DP. Neighbors farther apart than the proposal both have d = 0.
Together: (e1 + e2, delta)-DP.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.batch import Batch
from dpjax.distributions.base import Shape
from dpjax.distributions.piecewise import PiecewiseExponential
from dpjax.mechanisms._laplace import laplace
from dpjax.mechanisms.relations import approximate
from dpjax.pytrees import pytree
from dpjax.random import check_key
from dpjax.sensitivity.local import LocalSensitivity


@pytree
class ProposeTestRelease(Batch):
    """The distribution of an answer that may be withheld; a pytree.

    Attributes:
        answer: the distribution of the answer, given that there is one.
        test: the distribution of the noisy distance, independent of the answer, of the same batch
            shape.
        threshold: float ``(...)``; there is an answer where the noisy distance exceeds it.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import local_sensitivity
    >>> public = {"lower": 0, "upper": 1, "neighbors": "add_remove", "definition": "lower"}
    >>> local = local_sensitivity(jnp.linspace(0, 1, 101), **public)
    >>> ptr = propose_test_release(local, 2.0, delta=1e-6, proposal=0.205)
    >>> round(float(ptr.answer_probability()), 5)
    0.99948
    """

    answer: PiecewiseExponential
    test: PiecewiseExponential
    threshold: jax.Array

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw: ``()``, a scalar."""
        return ()

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The bounds of all answers, each of shape ``batch_shape``."""
        return self.answer.support

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw answers: float of shape ``shape + batch_shape``.

        **NaN means no answer** (or invalid parameters).
        """
        key_test, key_answer = jax.random.split(check_key(key))
        return jnp.where(
            self.test.sample(key_test, shape) > self.threshold,
            self.answer.sample(key_answer, shape),
            jnp.nan,
        )

    def answer_probability(self) -> jax.Array:
        """Return the exact probability of an answer, of shape ``batch_shape``.

        It depends on the private data.
        """
        return self.test.survival(self.threshold)

    def no_answer_probability(self) -> jax.Array:
        """Return the exact probability of no answer, of shape ``batch_shape``.

        It depends on the private data.
        """
        return self.test.cdf(self.threshold)

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center| given an answer; ``center`` broadcasts against ``batch_shape``."""
        return self.answer.mean_abs_error(center)


def guarantee(local: LocalSensitivity | str, epsilon: float, *, delta: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`propose_test_release`.

    >>> print(propose_test_release.guarantee("swap", 1.0, delta=1e-6))
    (1, 1e-06)-DP under swap neighbors
    """
    return approximate(local, epsilon, delta)


@with_guarantee(guarantee)
def propose_test_release(
    local: LocalSensitivity,
    epsilon: ArrayLike,
    *,
    delta: ArrayLike,
    proposal: ArrayLike,
    test_share: ArrayLike = 0.5,
) -> ProposeTestRelease:
    """Return the distribution of propose-test-release.

    Args:
        local: the statistic and its local sensitivity at every distance, of batch shape ``(...)``.
        epsilon: positive.
        delta: in (0, 1/2).
        proposal: positive, the local sensitivity that the noise is scaled to, chosen without the
            data.
        test_share: in (0, 1), the fraction of epsilon that the test spends.

    Returns:
        A :class:`ProposeTestRelease`: draws are NaN where there is no answer. An answer is likely
        only if the proposal holds for more than 2 log(1/(2 delta)) / epsilon changes (with an even
        split).

    Privacy:
        (epsilon, delta)-DP under the relation of ``local``, with test_share * epsilon for the test
        and the rest for the answer. Whether there is an answer is part of the output. Public: all
        parameters and what ``local`` documents as public. Float draws are simulations.

    References:
        Dwork and Lei (2009); Gillenwater and Munoz Medina, Section 3.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import local_sensitivity
    >>> local = local_sensitivity(
    ...     jnp.linspace(0, 1, 101), lower=0, upper=1, neighbors="add_remove", definition="lower"
    ... )
    >>> distribution = propose_test_release(local, 2.0, delta=1e-6, proposal=0.205)
    >>> refused, error = distribution.no_answer_probability(), distribution.mean_abs_error(0.5)
    >>> round(float(refused), 5), round(float(error), 3)
    (0.00052, 0.205)
    """
    checks.instance(
        "propose_test_release", local, LocalSensitivity, "such as dpjax.local_sensitivity(x, ...)"
    )
    budget = checks.positive("epsilon", epsilon, local.dtype)
    failure = checks.probability("delta", delta, local.dtype, below=0.5)
    scale = checks.positive("proposal", proposal, local.dtype)
    share = checks.probability("test_share", test_share, local.dtype, below=1.0)
    # Rows are drawn independently even where they differ only in delta, which neither distribution
    # reads.
    batch = jnp.broadcast_shapes(
        local.batch_shape, *(parameter.shape for parameter in (budget, failure, scale, share))
    )
    distance, value = (
        jnp.broadcast_to(center, batch)
        for center in (_distance(local.at_distance, scale), local.value)
    )
    test = laplace(distance, budget * share, sensitivity=1.0)
    answer = laplace(value, budget * (1 - share), sensitivity=scale)
    return ProposeTestRelease(answer, test, -jnp.log(2 * failure) / (budget * share))


def _distance(at_distance: jax.Array, proposal: jax.Array) -> jax.Array:
    """Return the first k with A_k > proposal, or K; NaN in a row with a NaN.

    The minimum with a constant preserves the sensitivity of 1.
    """
    bound = proposal[..., None]
    distance = jnp.sum(at_distance <= bound, axis=-1).astype(at_distance.dtype)
    return jnp.where(jnp.any(jnp.isnan(at_distance) | jnp.isnan(bound), axis=-1), jnp.nan, distance)
