"""From a sensitivity profile and epsilon to an output distribution: one mechanism per file, each with its ``guarantee``.

Draws in floating point are simulations: their low-order bits depend on the data (Mironov 2012). ``dpjax.release`` is exact.

**Which mechanism.** For a statistic with a profile, :func:`piecewise_laplace` or :func:`inverse_sensitivity`: at epsilon up to 1
they differ by some percent on a dense median, from epsilon 2 on, on ties and on other statistics by more. For a single draw among
candidates or on a grid, :func:`permute_and_flip` has up to half the error at the same epsilon, and twice the bounded range. For a
vector, radii pay where they are many or epsilon is large: volumes grow with the power d of a radius, and the share of what is far
away grows with them. With few radii and a small epsilon :func:`k_norm` is closer.

**Several quantiles.** :func:`joint_quantiles` draws up to 32 of them under one epsilon. A public number of records, ``n=``, makes
that 5 to 20 % more accurate and many times faster. Whatever is computed from the draws, such as an interquartile range, costs
nothing more, and :func:`private_cdf` joins one draw by straight lines to a cdf, a histogram, a mean and synthetic records.

**Extreme quantiles.** At n (1-q) epsilon below about 20, no mechanism that draws from a range up to a bound finds the q-quantile:
piecewise Laplace on [0, 10^9] is off by 2000 times the 0.99-quantile of 1000 incomes at epsilon = 1. :func:`unbounded_quantile`
is off by 3 to 4 %.

**Selection.** :func:`exponential` and :func:`permute_and_flip` choose among candidates with scores, and
:func:`decomposable_exponential` chooses part by part where scores are sums. :func:`stand_out` finds a candidate far ahead of the
rest at no cost in the number of candidates, :func:`above_threshold` the first large one of many queries for one epsilon, and
:func:`best_of` the best of many private runs for little more than the cost of one. Runs of bounded range, such as a random
candidate with a private median for its score, cost together what one of them costs, if their number has a logarithmic
distribution:

>>> from dpjax.mechanisms.best_of import guarantee, negative_binomial
>>> from dpjax.mechanisms.piecewise_laplace import guarantee as cost_of_one
>>> runs = negative_binomial(1000)  # up to 1000 runs, 134 in the mean
>>> round(guarantee(cost_of_one("swap", 0.5), attempts=runs).epsilon, 3)
0.5

**Counts.** :func:`laplace` of :func:`dpjax.count` or :func:`dpjax.histogram` is the geometric mechanism, whose draws are integers.
They may be negative: ``dpjax.Clamped.of(noisy, lower=0, upper=1000)`` clamps them at no cost.

**Public numbers** that mechanisms need come from public numbers: beta from :func:`optimal_beta`, a shift from :func:`shift_for`.
:func:`shifted_inverse` of :func:`dpjax.user_sum` needs no bound on what one person spends.

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
