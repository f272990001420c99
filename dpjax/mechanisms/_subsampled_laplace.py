"""The subsampled Laplace mechanism (Steinke 2025): a noisy count of a Poisson subsample, rescaled.

Privacy: with epsilon_p = log(1 + (e^epsilon - 1)/p) for the noise on the subsample, the mechanism
is epsilon-DP under add/remove neighbors (``dpjax.accounting.subsampling``), which is tight: the
loss between the counts 1 and 0 tends to epsilon in the tails.
"""

from __future__ import annotations

from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.amplified_epsilon import epsilon_before_sampling
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import SubsampledLaplace
from dpjax.mechanisms.relations import pure


def guarantee(relation: str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw, amplified by subsampling under ``"add_remove"``.

    >>> print(subsampled_laplace.guarantee("add_remove", 1.0))
    1-DP and 2-bounded-range under add_remove neighbors
    """
    return pure(relation, epsilon, ranges=2, known=("add_remove",))


@with_guarantee(guarantee)
def subsampled_laplace(
    count: ArrayLike, epsilon: ArrayLike, *, probability: ArrayLike, most: int
) -> SubsampledLaplace:
    """Return the distribution of ``(K + noise) / p``, K the count in a Poisson subsample.

    It is an unbiased estimate of ``count``. The noise on K has scale 1 / epsilon_p. Without
    sampling the noise is at most as large: see :func:`dpjax.accounting.sampling_efficiency`.

    Args:
        count: ``(...)``, the number of records with a property, clamped to integers from 0 to
            ``most``.
        epsilon: positive, of the mechanism including subsampling.
        probability: p in (0, 1], public, the probability with which each record is sampled.
        most: static and public, the largest count.

    Returns:
        A :class:`SubsampledLaplace`.

    Privacy:
        epsilon-DP under add/remove neighbors, if the subsample stays secret. Float draws are
        simulations.

    References:
        Steinke, "Privacy Amplification by Subsampling" (2025), Equations 5 to 8.

    >>> noisy = subsampled_laplace(300, 1.0, probability=0.5, most=1000)
    >>> round(float(noisy.stddev()), 3), round(float(noisy.mean_abs_error(300.0)), 3)
    (17.424, 13.906)
    """
    most = checks.static_integer("most", most, 1)
    value = checks.float_array("count", count)
    share = checks.proportion("probability", probability, value.dtype)
    scale = 1 / (
        share
        * epsilon_before_sampling(
            checks.positive("epsilon", epsilon, value.dtype), probability=share
        )
    )
    return SubsampledLaplace(value.round().clip(0, most), scale, share, most)
