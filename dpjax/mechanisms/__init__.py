"""Mechanisms: from a sensitivity profile and epsilon to an output distribution and a guarantee.

Draws in floating point are simulations: their low-order bits depend on the data (Mironov 2012).
``dpjax.release`` draws exactly.

**Choice of a mechanism.** For a statistic with a profile, use :func:`piecewise_laplace` or
:func:`inverse_sensitivity`: at epsilon up to 1 their errors differ by some percent on a dense
median, and by more from epsilon 2 on, with ties, and for other statistics. For a single draw among
candidates or on a grid, :func:`permute_and_flip` has as little as half the error at the same
epsilon, and twice the bounded range. For a vector, radii are worthwhile if there are many or
epsilon is large: volumes grow with the power d of a radius, and with them the probability of
distant points. With few radii and a small epsilon, :func:`k_norm` has a smaller error.

**Several quantiles.** :func:`joint_quantiles` draws any number of them under one epsilon. A public
number of records, ``public_n=``, makes the draws more accurate and many draws a row much faster.
Functions of the draws, such as an interquartile range or an interpolated cdf, cost nothing more.

**Extreme quantiles.** At n (1-q) epsilon below about 20, no mechanism that draws from a range up to
a bound finds the q-quantile: on [0, 10^9] the error of piecewise Laplace is 2000 times the
0.99-quantile of 1000 incomes at epsilon = 1. There, :func:`above_threshold` finds the first value
of an increasing grid that few records exceed.

**Selection.** :func:`exponential` and :func:`permute_and_flip` select among candidates with scores,
and :func:`decomposable_exponential` selects part by part where scores are sums. :func:`stand_out`
finds a candidate far ahead of the rest at no cost in the number of candidates,
:func:`above_threshold` the first large one of many queries for one epsilon, and :func:`best_of` the
best of many private runs for little more than the cost of one. Runs of bounded range, such as a
random candidate with a private median for its score, cost together as much as one of them if their
number has a logarithmic distribution:

>>> runs = negative_binomial(1000)  # up to 1000 runs, 134 in the mean
>>> round(best_of.guarantee(piecewise_laplace.guarantee("swap", 0.5), attempts=runs).epsilon, 3)
0.5

**Counts.** :func:`laplace` of :func:`dpjax.count` or :func:`dpjax.histogram` is the geometric
mechanism, whose draws are integers. They may be negative: ``dpjax.Clamped.of(noisy, lower=0,
upper=1000)`` clamps them at no cost.

**Parameters.** Those that mechanisms need are computed from public numbers: beta by
:func:`optimal_beta`, a shift by :func:`shift_for`. :func:`shifted_inverse` of
:func:`dpjax.user_sum` needs no bound on the contribution of a person.

Public parameters broadcast against the batch shape ``(...)`` of the data, so ``epsilon[:, None]``
is a sweep over a batch of rows. An invalid one raises ``ValueError``; as an element of a JAX array
it makes its row NaN instead. They must be chosen without the data. Arguments that mechanisms share:

* ``epsilon``: positive. ``delta``: in (0, 1). ``zcdp``: positive, the rho of zero-concentrated DP.
* ``scores``: :class:`CandidateScores`, or float ``(..., k)``, higher is better. A score of ``-inf``
  excludes a candidate; this must be public, the same for every dataset. Where a score is NaN or
  ``+inf``, or all are ``-inf``, the row is NaN.
* ``candidates``: float ``(k,)`` or ``(..., k)``, public, the values of the candidates of an array
  of scores; by default the indices 0..k-1.
* ``sensitivity``: positive ``(...)``, the largest change of any score (or of the statistic) between
  neighbors; required with an array of scores, whereas :class:`CandidateScores` carry their own.
* ``asked``: the :class:`SortedRecords` that :func:`dpjax.quantiles` returns: records and the m
  requested levels.
* ``key``: a scalar typed threefry key. ``shape``: the shape of the draws from each row, an integer
  or a sequence of integers. Under jit, the draws of a row do not change when rows are added to the
  batch.

The guarantee of one draw is returned by the attribute ``guarantee`` of every mechanism, as in
``piecewise_laplace.guarantee(profile, 1.0)``. Its first argument is that of the mechanism, or the
name of the neighbor relation if that argument does not determine it.
"""

from __future__ import annotations

from dpjax.mechanisms._joint_quantiles import joint_quantiles
from dpjax.mechanisms.line import (
    duff,
    inverse_sensitivity,
    piecewise_laplace,
    shift_for,
    shifted_inverse,
)
from dpjax.mechanisms.noise import (
    bounded_noise_laplace,
    gaussian,
    k_norm,
    laplace,
    spherical_gaussian,
    subsampled_laplace,
)
from dpjax.mechanisms.repeat import (
    best_of,
    best_of_distribution,
    bounded_loss,
    bounded_loss_distribution,
    loss_margin,
    negative_binomial,
    never_fail,
    never_fail_distribution,
    poisson,
)
from dpjax.mechanisms.selection import (
    decomposable_exponential,
    exponential,
    permute_and_flip,
    stand_out,
)
from dpjax.mechanisms.smooth import (
    ProposeTestRelease,
    optimal_beta,
    optimal_sigma,
    propose_test_release,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
)
from dpjax.mechanisms.threshold import AboveThreshold, above_threshold
from dpjax.mechanisms.tree import (
    noisy_binary_search,
    noisy_tree,
    search_rounds,
    search_shift_for,
    tree_rounds,
)

__all__ = [
    "AboveThreshold",
    "ProposeTestRelease",
    "above_threshold",
    "best_of",
    "best_of_distribution",
    "bounded_loss",
    "bounded_loss_distribution",
    "bounded_noise_laplace",
    "decomposable_exponential",
    "duff",
    "exponential",
    "gaussian",
    "inverse_sensitivity",
    "joint_quantiles",
    "k_norm",
    "laplace",
    "loss_margin",
    "negative_binomial",
    "never_fail",
    "never_fail_distribution",
    "noisy_binary_search",
    "noisy_tree",
    "optimal_beta",
    "optimal_sigma",
    "permute_and_flip",
    "piecewise_laplace",
    "poisson",
    "propose_test_release",
    "search_rounds",
    "search_shift_for",
    "shift_for",
    "shifted_inverse",
    "smooth_cauchy",
    "smooth_laplace",
    "smooth_laplace_log_normal",
    "spherical_gaussian",
    "stand_out",
    "subsampled_laplace",
    "tree_rounds",
]


def __dir__() -> list[str]:
    return __all__
