"""Error bounds for k candidates, from the posts on inverse and on down sensitivity (Steinke 2023).

The exponential mechanism on a loss whose minimum is 0 has a loss below (2/epsilon) log(k/beta),
except with probability beta. The shifts of the shifted mechanisms are ``dpjax.shift_for`` (down
sensitivity, Theorem 4) and ``dpjax.search_shift_for`` (Theorem 5).

Errors in the posts. Inverse Sensitivity, Equation 8: the logarithm should be log(1/beta). Down
Sensitivity, the last display in the proof of Lemma 2: the final term should be l(x', y) + dist(x,
x'). Theorem 5 fails where f(x) is the smallest candidate, which the search cannot return.
"""

from __future__ import annotations

from math import floor, log
from typing import Any

import numpy as np

from dpjax.bounds.theorem import Count, Positive, Probability, data, reach, theorem
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
    k = floor(loss_bound(epsilon, num_candidates=num_candidates, failure=failure))
    distance, changes = reach(profile)
    return np.max(np.where(changes <= k, abs(distance), 0.0), axis=-1)


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
    return data("down", down.at(floor(2 * tau))), data("down", down.value)
