"""From a sensitivity profile and epsilon to an output distribution: one mechanism per file, each with its ``guarantee``.

Draws in floating point are simulations: their low-order bits depend on the data (Mironov 2012). ``dpjax.release`` is exact.

Public parameters broadcast against the batch shape ``(...)`` of the data, so ``epsilon[:, None]`` is a sweep over a batch of rows.
A bad one raises ``ValueError``; as an element of a JAX array it makes its own row NaN instead. They are chosen without the data.
Arguments that mechanisms share:

* ``epsilon``: positive. ``delta``: in (0, 1). ``zcdp``: positive, the rho of zero-concentrated DP.
* ``scores``: :class:`CandidateScores`, or float ``(..., k)``, higher is better. A score of ``-inf`` excludes a candidate; that must
  be public, the same for every dataset. Where a score is NaN or ``+inf``, or all are ``-inf``, the distribution's row is NaN.
* ``candidates``: float ``(k,)`` or ``(..., k)``, public, what an array of scores belongs to; without it, the indices 0..k-1.
* ``sensitivity``: positive ``(...)``, the most by which any score (or the statistic) changes between neighbours; required with an
  array of scores, where :class:`CandidateScores` carry theirs.
* ``asked``: the :class:`SortedRecords` of :func:`dpjax.quantiles`: records and the m levels that are asked of them.
* ``key``: a scalar typed threefry key. ``shape``: that of the draws from each row, an integer or several. What is drawn from a row
  does not change, under jit, when rows are added to the batch.

``guarantee`` takes first what the mechanism takes first, or the name of the neighbour relation where that does not say it.
"""

from dpjax.mechanisms import (
    above_threshold,
    best_of,
    bounded_loss,
    bounded_noise_laplace,
    confidence_interval,
    decomposable_exponential,
    duff,
    exponential,
    gaussian,
    independent_quantiles,
    inverse_sensitivity,
    joint_quantiles,
    k_norm,
    laplace,
    nested_quantiles,
    never_fail,
    noisy_binary_search,
    noisy_tree,
    permute_and_flip,
    piecewise_laplace,
    private_cdf,
    private_quantiles,
    propose_test_release,
    recursive_quantiles,
    shifted_inverse,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
    stand_out,
    subsampled_laplace,
    unbounded_quantile,
)

__all__ = [
    "above_threshold",
    "best_of",
    "bounded_loss",
    "bounded_noise_laplace",
    "confidence_interval",
    "decomposable_exponential",
    "duff",
    "exponential",
    "gaussian",
    "independent_quantiles",
    "inverse_sensitivity",
    "joint_quantiles",
    "k_norm",
    "laplace",
    "nested_quantiles",
    "never_fail",
    "noisy_binary_search",
    "noisy_tree",
    "permute_and_flip",
    "piecewise_laplace",
    "private_cdf",
    "private_quantiles",
    "propose_test_release",
    "recursive_quantiles",
    "shifted_inverse",
    "smooth_cauchy",
    "smooth_laplace",
    "smooth_laplace_log_normal",
    "stand_out",
    "subsampled_laplace",
    "unbounded_quantile",
]


def __dir__() -> list[str]:
    return __all__
