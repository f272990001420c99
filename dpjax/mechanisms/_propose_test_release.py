"""Propose-test-release (Dwork and Lei 2009): noise for a proposed local sensitivity, if the data are far from breaking it.

With d(x) the number of changes until the local sensitivity exceeds the proposal, epsilon = e1 + e2:

    test:    d(x) + Laplace(1/e1) > log(1 / (2 delta)) / e1, otherwise no answer
    release: value + Laplace(proposal/e2)

Privacy: d changes by at most 1 between neighbors, so the test is e1-DP. If d(x) = 0 the test passes with probability delta. If
d(x) >= 1, the values of x and all its neighbors are within the proposal, so the release is e2-DP. Neighbors farther apart than
the proposal both have d = 0: (e1 + e2, delta)-DP.
"""

from dataclasses import dataclass

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
from dpjax.random.keys import check_key
from dpjax.sensitivity.local import LocalSensitivity


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class ProposeTestRelease(Batch):
    """The distribution of an answer that may be withheld.

    Attributes:
        answer: the distribution of the answer, given that there is one.
        test: the distribution of the noisy distance, independent of it, of the same batch shape.
        threshold: float ``(...)``; there is an answer where the noisy distance is above it.
    """

    answer: PiecewiseExponential
    test: PiecewiseExponential
    threshold: jax.Array

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw: ``()``, a number."""
        return ()

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """Two ends between which all answers lie, of shape ``batch_shape`` each."""
        return self.answer.support

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw answers: float of shape ``shape + batch_shape``; **NaN stands for no answer** (and for bad parameters)."""
        key_test, key_answer = jax.random.split(check_key(key))
        return jnp.where(self.test.sample(key_test, shape) > self.threshold, self.answer.sample(key_answer, shape), jnp.nan)

    def answer_probability(self) -> jax.Array:
        """The exact probability of an answer, of shape ``batch_shape``. A function of the private data."""
        return self.test.survival(self.threshold)

    def no_answer_probability(self) -> jax.Array:
        """The exact probability of no answer, of shape ``batch_shape``. A function of the private data."""
        return self.test.cdf(self.threshold)

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """E|Y - center| given an answer, for a ``center`` that broadcasts against ``batch_shape``."""
        return self.answer.mean_abs_error(center)


def guarantee(local: LocalSensitivity | str, epsilon: float, *, delta: float) -> Guarantee:
    """Return what one draw of :func:`propose_test_release` costs.

    >>> print(propose_test_release.guarantee("swap", 1.0, delta=1e-6))
    (1, 1e-06)-DP under swap neighbors
    """
    return approximate(local, epsilon, delta)


@with_guarantee(guarantee)
def propose_test_release(
    local: LocalSensitivity, epsilon: ArrayLike, *, delta: ArrayLike, proposal: ArrayLike, test_share: ArrayLike = 0.5
) -> ProposeTestRelease:
    """Return the distribution of propose-test-release.

    Args:
        local: the statistic and its local sensitivity at every distance, of batch shape ``(...)``.
        epsilon: positive.
        delta: in (0, 1/2).
        proposal: positive, the local sensitivity that noise is made for, chosen without the data.
        test_share: in (0, 1), the part of epsilon that the test takes.

    Returns:
        A :class:`ProposeTestRelease`: draws are NaN where there is no answer. Withholding is likely unless the proposal holds
        for more than 2 log(1/(2 delta)) / epsilon changes (with an even split).

    Privacy:
        (epsilon, delta)-DP under the relation of ``local``, with test_share * epsilon for the test and the rest for the answer.
        Whether there is an answer is a part of the output. Public: all parameters and what ``local`` says is public. Float draws
        are simulations.

    References:
        Dwork and Lei (2009); Gillenwater and Munoz Medina, Section 3.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import local_sensitivity
    >>> local = local_sensitivity(jnp.linspace(0, 1, 101), lower=0, upper=1, neighbors="add_remove", definition="lower")
    >>> distribution = propose_test_release(local, 2.0, delta=1e-6, proposal=0.205)
    >>> round(float(distribution.no_answer_probability()), 5), round(float(distribution.mean_abs_error(0.5)), 3)
    (0.00052, 0.205)
    """
    checks.instance("propose_test_release", local, LocalSensitivity, "such as dpjax.local_sensitivity(x, ...)")
    budget = checks.positive("epsilon", epsilon, local.dtype)
    failure = checks.probability("delta", delta, local.dtype, below=0.5)
    scale = checks.positive("proposal", proposal, local.dtype)
    share = checks.probability("test_share", test_share, local.dtype, below=1.0)
    # Every row has draws of its own, also where rows differ in delta only, which neither distribution reads.
    batch = jnp.broadcast_shapes(local.batch_shape, *(parameter.shape for parameter in (budget, failure, scale, share)))
    distance, value = (jnp.broadcast_to(center, batch) for center in (_distance(local.at_distance, scale), local.value))
    test = laplace(distance, budget * share, sensitivity=1.0)
    answer = laplace(value, budget * (1 - share), sensitivity=scale)
    return ProposeTestRelease(answer, test, -jnp.log(2 * failure) / (budget * share))


def _distance(at_distance: jax.Array, proposal: jax.Array) -> jax.Array:
    """The first k with A_k > proposal, or K: the minimum with a constant keeps the sensitivity of 1. NaN in a row with a NaN."""
    bound = proposal[..., None]
    distance = jnp.sum(at_distance <= bound, axis=-1).astype(at_distance.dtype)
    return jnp.where(jnp.any(jnp.isnan(at_distance) | jnp.isnan(bound), axis=-1), jnp.nan, distance)
