"""The subsampled Laplace mechanism (Steinke 2025): a count of a Poisson subsample with Laplace noise, over the probability.

Privacy: with epsilon_p = log(1 + (e^epsilon - 1)/p) for the noise on the subsample the whole is epsilon-DP under add/remove
neighbours (``dpjax.accounting.subsampling``), and no better: the loss between the counts 1 and 0 is epsilon far out.
"""

from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.amplified_epsilon import epsilon_before_sampling
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions import SubsampledLaplace
from dpjax.mechanisms.relations import pure


def guarantee(relation: str, epsilon: float) -> Guarantee:
    """Return what one draw of :func:`subsampled_laplace` costs, under ``"add_remove"``, where it is amplified.

    >>> print(subsampled_laplace.guarantee("add_remove", 1.0))
    1-DP and 2-bounded-range under add_remove neighbors
    """
    return pure(relation, epsilon, ranges=2, known=("add_remove",))


@with_guarantee(guarantee)
def subsampled_laplace(count: ArrayLike, epsilon: ArrayLike, *, probability: ArrayLike, most: int) -> SubsampledLaplace:
    """Return the distribution of ``(K + noise) / p``, K the count in a Poisson subsample, an unbiased estimate of ``count``.

    The noise on K has the scale 1 / epsilon_p. Without sampling it is at most as large: see
    :func:`dpjax.accounting.sampling_efficiency`.

    Args:
        count: ``(...)``, how many records have a property; clamped to integers from 0 to ``most``.
        epsilon: positive, of the whole.
        probability: p in (0, 1], public, with which each record is taken.
        most: static and public, the largest count.

    Returns:
        A :class:`SubsampledLaplace`.

    Privacy:
        epsilon-DP under add/remove neighbours; who was taken stays secret. Float draws are simulations.

    References:
        Steinke, "Privacy Amplification by Subsampling" (2025), Equations 5 to 8.

    >>> noisy = subsampled_laplace(300, 1.0, probability=0.5, most=1000)
    >>> round(float(noisy.stddev()), 3), round(float(noisy.mean_abs_error(300.0)), 3)
    (17.424, 13.906)
    """
    most = checks.static_integer("most", most, 1)
    value = checks.float_array("count", count)
    share = checks.proportion("probability", probability, value.dtype)
    scale = 1 / (share * epsilon_before_sampling(checks.positive("epsilon", epsilon, value.dtype), probability=share))
    return SubsampledLaplace(value.round().clip(0, most), scale, share, most)
