"""What the posts on inverse and on down sensitivity promise about the error (Steinke 2023), for finite ranges of k candidates.

The exponential mechanism on a loss that is 0 somewhere has a loss below (2/epsilon) log(k/beta), except with probability beta. The
shifted mechanisms' shifts are ``dpjax.shift_for`` (down sensitivity, Theorem 4) and ``dpjax.search_shift_for`` (Theorem 5).

Slips in the posts. Inverse Sensitivity, Equation 8: the logarithm should be log(1/beta). Down Sensitivity, the last display in the
proof of Lemma 2: the final term should be l(x', y) + dist(x, x'). Theorem 5 fails where f(x) is the smallest candidate, which the
search cannot return.
"""

from math import floor, log

import jax
import jax.numpy as jnp

from dpjax import checks
from dpjax.mechanisms.candidates import num_candidates_over
from dpjax.sensitivity.down import DownSensitivity
from dpjax.sensitivity.profile import SensitivityProfile


def loss_bound(epsilon: float, *, num_candidates: int, failure: float) -> float:
    """Return the number of changes that inverse sensitivity on candidates stays below with probability ``1 - failure``.

    P[len(M(x)) >= (2/epsilon) * log(num_candidates / failure)] <= failure, where len(y) is how many changes take f(x) to y:
    "Beyond Global Sensitivity via Inverse Sensitivity", Lemma 3.

    >>> round(loss_bound(1.0, num_candidates=100, failure=0.05), 2)
    15.2
    """
    return 2 / checks.concrete_epsilon(epsilon) * log(num_candidates_over(failure, num_candidates))


def local_sensitivity_error(profile: SensitivityProfile, epsilon: float, *, num_candidates: int, failure: float) -> jax.Array:
    """Return LS^k, the error that inverse sensitivity on candidates keeps with probability ``1 - failure``.

    P[abs(M(x) - f(x)) <= LS^k(x)] >= 1 - failure for k = floor(:func:`loss_bound`), where LS^k(x) is how far k changes can move f:
    "Beyond Global Sensitivity via Inverse Sensitivity", Equation 2 and Theorem 4. It depends on the data and is not private. The
    profile is the exact one of the statistic, with integer levels and without steps.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> profile = median(jnp.arange(101.0), lower=0, upper=1000, neighbors="swap")
    >>> float(local_sensitivity_error(profile, 2.0, num_candidates=1001, failure=0.05))
    9.0
    """
    if not profile.integer_levels or profile.step is not None:
        raise ValueError("LS^k is read from a profile with integer levels and bounds: this one has fractional levels or steps.")
    k = floor(loss_bound(epsilon, num_candidates=num_candidates, failure=failure))
    sides = (jnp.abs(side[..., min(k, side.shape[-1] - 1)] - side[..., 0]) for side in (profile.upper, profile.lower))
    return jnp.maximum(*sides)


def shifted_interval(down: DownSensitivity, *, tau: float) -> tuple[jax.Array, jax.Array]:
    """Return the interval [f(x) - DS^(2 tau)(x), f(x)] that the shifted mechanisms on candidates promise.

    With ``tau = shift_for(...)``, ``shifted_inverse`` on candidates lies in it with probability at least ``1 - failure``, and with
    ``tau = search_shift_for(...)`` so does ``noisy_binary_search``, if all values of the statistic are candidates and (the search
    only) f(x) is above the first one. For a monotone statistic f(x) - DS^k(x) = h(k). "Beyond Local Sensitivity via Down
    Sensitivity", Equation 1, Theorems 4 and 5. It depends on the data and is not private.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics.monotone import maximum
    >>> [float(end) for end in shifted_interval(maximum(jnp.arange(100.0), lower=0, upper=999), tau=10)]
    [79.0, 99.0]
    """
    return down.at(floor(2 * checks.concrete_positive("tau", tau))), down.value
