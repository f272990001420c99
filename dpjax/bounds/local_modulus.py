"""Lower bounds on the error of every private mechanism, from the local modulus of continuity.

omega(k) is the largest distance that k changes of the dataset x can move the statistic f: the
distance to the farther of the two values of an exact profile at level k. Let x' be a dataset that
attains it, and e, e' the expected absolute errors of a mechanism M on x and on x'. Then

    max(e, e') >= (e + e') / 2 >= omega(k) s_k,
    s_k = exp(-k epsilon/2) / 2                       for even k,
    s_k = exp(-(k-1) epsilon/2) / (1 + exp(epsilon))  for odd k

if M is epsilon-DP, and s_k = 1 / (1 + exp(k epsilon/2)) if it has epsilon-bounded range, as all
exponential mechanisms have.

**Proof.** Let f(x) < f(x') (else reflect). For t between them let p = P[M(x) > t] and q =
P[M(x') <= t]. Then e is at least the integral of p over t, and e' that of q, on an interval of
length omega(k), so it suffices to show p + q >= 2 s_k. Let x = x_0, x_1, ..., x_k = x' differ by
single changes, and let p_i = P[M(x_i) > t], so that p_0 = p and p_k = 1 - q. With k = 2m, p_m <=
exp(m epsilon) p and 1 - p_m <= exp(m epsilon) q; their sum is 1 <= exp(m epsilon) (p + q). With k =
2m + 1 the two in the middle have p_m + (1 - p_{m+1}) >= 2 / (1 + exp(epsilon)), from the sum of
p_m >= exp(-epsilon) p_{m+1} and 1 - p_{m+1} >= exp(-epsilon) (1 - p_m), and p_m <= exp(m epsilon) p
and 1 - p_{m+1} <= exp(m epsilon) q as before. With delta, p_m <= exp(m epsilon) p + delta (exp(m
epsilon) - 1) / (exp(epsilon) - 1), and so on. With a bounded range one change multiplies the odds
of {M > t} by at most exp(epsilon), so (1-p) (1-q) <= exp(k epsilon) p q, and p + q is smallest
where both are 1 / (1 + exp(k epsilon/2)).

**The constants are optimal** for the two datasets: M may answer f(x') with probabilities that
attain these inequalities, and f(x) otherwise. The bound of plain group privacy, 1 / (1 + exp(k
epsilon)), is smaller for every k > 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from dpjax.bounds.theorem import NotNegative, Positive, reach, theorem
from dpjax.sensitivity.down import DownSensitivity
from dpjax.sensitivity.profile import SensitivityProfile


@theorem
def lower_bound(
    profile: SensitivityProfile | DownSensitivity, epsilon: Positive, *, delta: NotNegative = 0.0
) -> Any:
    """Return max over k of omega(k) s_k.

    It is a lower bound on the error of (epsilon, delta)-DP mechanisms. Every such mechanism has a
    mean absolute error of at least this on x, or on a dataset that attains omega(k) by k changes.
    (On x alone a constant has no error.) With delta, s_k is

        exp(-m epsilon) c - delta (1 - exp(-m epsilon)) / (exp(epsilon) - 1),   m = floor(k/2),
        c = 1/2 for even k and (1 - delta) / (1 + exp(epsilon)) for odd k.

    Args:
        profile: the *exact* profile of the statistic, of batch shape ``(...)``, with integer
            levels, whose values that many changes reach (``profile.reached``), such as those of
            medians, order statistics, quantiles, means and variances. For an interpolated quantile
            other than the median, the bound does not hold under add/remove where the best k would
            empty the dataset. Or a down sensitivity, where omega(k) is the largest decrease when k
            people leave.
        epsilon: positive, broadcasts against the batch shape.
        delta: at least 0, broadcasts against the batch shape.

    Returns:
        Float array of the broadcast shape, in units of the statistic.

    Raises:
        ValueError: the values of the profile only bound what changes reach, as those of radii and
            truncated profiles do.

    Privacy:
        Not private: the result is a function of the data, for analysis only.

    References:
        Asi and Duchi (2020), "Near instance-optimality in differential privacy", for the local
        modulus; Dong, Roth and Su (2022), "Gaussian differential privacy", Theorem 2.14, for tight
        group privacy, which gives the constants.

    >>> import jax.numpy as jnp
    >>> from dpjax import median, piecewise_laplace
    >>> profile = median(jnp.arange(1.0, 100.0), lower=0, upper=100, neighbors="swap")
    >>> bound = lower_bound(profile, 1.0)  # two changes, exp(-1)/2 each
    >>> error = piecewise_laplace(profile, 1.0).mean_abs_error(50.0)
    >>> round(float(bound), 4), round(float(error / bound), 4)
    (0.3679, 5.4366)
    """
    distance, changes = _modulus(profile)
    rate = np.expand_dims(epsilon, -1)
    lost = np.expand_dims(delta, -1)
    one, many = np.exp(-rate), -(changes // 2) * rate
    middle = np.where(changes % 2 == 0, 0.5, (1 - lost) * expit(-rate))
    share = np.exp(many) * middle - lost * one * np.expm1(many) / np.expm1(-rate)
    return np.max(distance * np.maximum(share, 0.0), axis=-1)


@theorem
def bounded_range_lower_bound(
    profile: SensitivityProfile | DownSensitivity, epsilon: Positive
) -> Any:
    """Return max over k of omega(k) / (1 + exp(k epsilon/2)).

    It holds for mechanisms of epsilon-bounded range. It is up to twice :func:`lower_bound`, and
    applies to piecewise Laplace, inverse sensitivity, Duff and every exponential mechanism.
    Arguments, result and privacy are those of :func:`lower_bound`.

    References:
        As for :func:`lower_bound`; Durfee and Rogers (2019), for the bounded range.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> profile = median(jnp.arange(1.0, 100.0), lower=0, upper=100, neighbors="swap")
    >>> round(float(bounded_range_lower_bound(profile, 1.0)), 4)
    0.5473
    """
    distance, changes = _modulus(profile)
    return np.max(distance * expit(-changes * np.expand_dims(epsilon, -1) / 2), axis=-1)


def _modulus(profile: SensitivityProfile | DownSensitivity) -> tuple[Any, Any]:
    """Return how far changes move the statistic, and by how many changes."""
    if isinstance(profile, DownSensitivity):
        values = np.asarray(profile.values, float)
        return values[..., :1] - values, np.arange(values.shape[-1])
    distance, changes = reach(profile)
    if profile.reached == "bounds":
        raise ValueError(
            "profile must have values that datasets reach, but radii and truncated profiles only "
            "bound them: use the whole profile of a statistic, or set reached='extremes' in your "
            "own."
        )
    return abs(distance), changes
