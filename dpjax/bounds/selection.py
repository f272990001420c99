"""Error bounds of selections from k candidates.

Those of inverse and of down sensitivity are from the posts (Steinke 2023). The exponential
mechanism on a loss whose minimum is 0 has a loss below (2/epsilon) log(k/beta), except with
probability beta. The shifts of the shifted mechanisms are ``dpjax.shift_for`` (down sensitivity,
Theorem 4) and ``dpjax.search_shift_for`` (Theorem 5).

Errors in the posts. Inverse Sensitivity, Equation 8: the logarithm should be log(1/beta). Down
Sensitivity, the last display in the proof of Lemma 2: the final term should be l(x', y) + dist(x,
x'). Theorem 5 fails where f(x) is the smallest candidate, which the search cannot return.

The expected excess loss of a selection is the loss of the drawn candidate minus the smallest loss.
The noisy tree loses 2 |q| if the noise of a query q exceeds it and reverses its sign, at each of R
= ceil(log2 k) nodes, whatever happened at the nodes above; so at most 2 R scale max over v >= 0 of
v P[noise >= v] in total. Losses of 2 v scale times the number of ones in the candidate's binary
index attain this bound. The exponential mechanism loses at most (2 sensitivity/epsilon) log k, by a
bound on its entropy, and permute and flip no more than that.
"""

from __future__ import annotations

from math import e, floor, log, sqrt
from typing import Any

import numpy as np

from dpjax.bounds.theorem import Count, Positive, Probability, reach, theorem
from dpjax.mechanisms import tree_rounds
from dpjax.mechanisms.mechanism import one_budget
from dpjax.sensitivity.down import DownSensitivity
from dpjax.sensitivity.profile import SensitivityProfile


@theorem
def loss_bound(epsilon: Positive, *, num_candidates: Count, failure: Probability) -> float:
    """Return a bound on the loss of inverse sensitivity on candidates, in changes of the dataset.

    P[len(M(x)) >= (2/epsilon) * log(num_candidates / failure)] <= failure, where len(y) is the
    number of changes that take f(x) to y.

    References:
        Steinke (2023), "Beyond Global Sensitivity via Inverse Sensitivity", Lemma 3.

    >>> round(loss_bound(1.0, num_candidates=100, failure=0.05), 2)
    15.2
    """
    return 2 / epsilon * log(num_candidates / failure)


@theorem
def local_sensitivity_error(
    profile: SensitivityProfile, epsilon: Positive, *, num_candidates: Count, failure: Probability
) -> Any:
    """Return LS^k, a bound on the error of inverse sensitivity with probability ``1 - failure``.

    P[abs(M(x) - f(x)) <= LS^k(x)] >= 1 - failure for k = floor(:func:`loss_bound`), where LS^k(x)
    is the largest change of f by k changes of the dataset.

    Args:
        profile: the exact profile of the statistic, with integer levels and without steps.
        epsilon: positive.
        num_candidates: at least 1.
        failure: in (0, 1).

    Privacy:
        Not private: the result depends on the data.

    References:
        Steinke (2023), "Beyond Global Sensitivity via Inverse Sensitivity", Equation 2 and Theorem
        4.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> profile = median(jnp.arange(101.0), lower=0, upper=1000, neighbors="swap")
    >>> float(local_sensitivity_error(profile, 2.0, num_candidates=1001, failure=0.05))
    9.0
    """
    most = loss_bound(epsilon, num_candidates=num_candidates, failure=failure)
    distance, changes = reach(profile)
    return np.max(np.where(changes <= most, abs(distance), 0.0), axis=-1)


@theorem
def shifted_interval(down: DownSensitivity, *, tau: Positive) -> tuple[Any, Any]:
    """Return the interval [f(x) - DS^(2 tau)(x), f(x)].

    It bounds the shifted mechanisms on candidates. With ``tau = shift_for(...)``,
    ``shifted_inverse`` on candidates lies in it with probability at least ``1 - failure``. With
    ``tau = search_shift_for(...)`` so does ``noisy_binary_search``, if all values of the statistic
    are candidates and (for the search only) f(x) is above the first candidate. For a monotone
    statistic f(x) - DS^k(x) = h(k).

    Privacy:
        Not private: the result depends on the data.

    References:
        Steinke (2023), "Beyond Local Sensitivity via Down Sensitivity", Equation 1, Theorems 4 and
        5.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> down = maximum(jnp.arange(100.0), lower=0, upper=999)
    >>> [float(end) for end in shifted_interval(down, tau=10)]
    [79.0, 99.0]
    """
    return np.asarray(down.at(floor(2 * tau)), float), np.asarray(down.value, float)


@theorem
def noisy_tree_excess(
    num_candidates: Count,
    *,
    epsilon: Positive = None,
    zcdp: Positive = None,
    sensitivity: Positive = 1.0,
) -> float:
    """Return a bound on the expected excess loss of the noisy tree.

        Gaussian: 2 R sqrt(R / (2 zcdp)) * 0.16997...   (0.34 R^(3/2) at a variance of R)
        Laplace:  2 R (R / epsilon) / (2 e) = R^2 / (e epsilon),
        both times the sensitivity of the scores

    References:
        Steinke, "Open problem: selection via low-sensitivity queries", differentialprivacy.org
        (2025), Equation 3; the Laplace constant is derived in the same way.

    >>> round(noisy_tree_excess(1024, zcdp=0.5), 2), round(noisy_tree_excess(1024, epsilon=1.0), 2)
    (10.75, 36.79)
    """
    one_budget(epsilon, zcdp)  # Laplace noise, or Gaussian
    rounds = tree_rounds(num_candidates)
    if zcdp is None:  # v e^-v / 2 is largest at v = 1
        worst = rounds / epsilon / (2 * e)
    else:  # v P[N(0, 1) >= v] is largest at v = 0.7518
        worst = sqrt(rounds / (2 * zcdp)) * 0.169971207479904
    return 2 * rounds * sensitivity * worst


@theorem
def exponential_excess(
    num_candidates: Count, epsilon: Positive, *, sensitivity: Positive = 1.0
) -> float:
    """Return a bound on the expected excess loss of a selection.

    It holds for the exponential mechanism and permute and flip. It is (2 sensitivity / epsilon) log
    k, for k candidates.

    References:
        McSherry and Talwar (2007); McKenna and Sheldon (2020), Theorem 2.

    >>> round(exponential_excess(1024, 1.0), 2)
    13.86
    """
    return 2 * sensitivity / epsilon * log(num_candidates)
