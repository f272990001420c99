"""Tail bounds of the error of Duff.

They are Proposition 4, Theorem 1 and Corollary 1 of Gillenwater and Munoz Medina (2020). They use
private numbers of one dataset (the sizes of its level sets, its smooth sensitivity), so that they
are for analysis, not for release. Common arguments:

    epsilon               positive
    support               the measure of all outputs: upper - lower on the real line, or the number
                          of candidates
    level_measure         lambda(H_t) at the t that the bound states, see :func:`level_measure`
    smooth_sensitivity    the beta-smooth sensitivity of the dataset, at the beta that the bound
                          states
    eta                   the probability of a larger error
    growth                C, the length of outputs that each further change adds, at gamma

Level sets are {u_d >= -t} (Proposition 4 is printed with a strict inequality, Theorem 1 without;
the proof holds for both). The factor 2 of Theorem 1 is kept, but is not needed: at its choice of
beta the two events of the last step are the same. The paper's constant C = 2(b-a)/n for the median
of evenly spaced data is too large by a factor of 2: it takes two changes, not one, to move the
median by one gap, so that lambda(H_t) is t gaps for every integer t.
"""

from __future__ import annotations

from math import e, inf
from typing import Any

import numpy as np
from scipy.special import lambertw

from dpjax.bounds.theorem import Data, NotNegative, Positive, reach, theorem
from dpjax.sensitivity.profile import SensitivityProfile


@theorem
def level_measure(profile: SensitivityProfile, t: NotNegative) -> Any:
    """Return lambda(H_t), the length of the outputs that at most ``t`` changes reach.

    These are {y: u_d(y) >= -t}.

    Args:
        profile: a profile with integer levels and without steps. (Other profiles exceed ``t``
            between two of their values.)
        t: at least 0; broadcasts against the batch shape of the profile.

    Returns:
        Float array of the broadcast shape.

    Raises:
        ValueError: ``profile`` has fractional levels or steps.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> even = median(
    ...     jnp.arange(1.0, 100.0), lower=0, upper=100, neighbors="add_remove", definition="lower"
    ... )
    >>> level_measure(even, [1.0, 2.0, 7.0]).tolist()
    [1.0, 2.0, 7.0]
    """
    distance, changes = reach(profile)
    return np.ptp(np.where(changes <= np.expand_dims(t, -1), distance, 0.0), axis=-1)


@theorem
def proposition_4(
    t: Positive,
    epsilon: Positive,
    *,
    support: Positive,
    level_measure: Data,
    sensitivity: Positive = 1.0,
) -> Any:
    """Bound P(u(Y) <= OPT - t) of the exponential mechanism.

    The bound is support / lambda(H_{t/2}) * exp(-epsilon t / (4 sensitivity)), where H_{t/2} are
    the outputs of utility at least OPT - t/2, and ``sensitivity`` is that of the utility (also
    McSherry and Talwar 2007).

    >>> round(float(proposition_4(20.0, 1.0, support=100.0, level_measure=10.0)), 4)
    0.0674
    """
    with np.errstate(divide="ignore"):
        shares = np.log(np.divide(support, level_measure))
    return np.exp(np.minimum(shares - epsilon * t / 4 / sensitivity, 0.0))


@theorem
def theorem_1(
    beta: Positive,
    epsilon: Positive,
    *,
    smooth_sensitivity: Data,
    support: Positive,
    level_measure: Data,
) -> tuple[Any, Any]:
    """Return a threshold t, and a bound on the probability that Duff's error is larger.

    P(error > t) <= 2 exp(-epsilon gamma/2) (b-a) / lambda(H_gamma), with t = (e-1) SS_beta / beta
    and gamma = 1 / (2 beta). Each beta > 0 gives one point of the bound. (The paper starts from t.)

    >>> bound = theorem_1(0.02, 1.0, smooth_sensitivity=1.0, support=100.0, level_measure=25.0)
    >>> round(float(bound[0]), 2), round(float(bound[1]), 6)
    (85.91, 3e-05)
    """
    return (e - 1) * smooth_sensitivity / beta, proposition_4(
        1 / beta, epsilon, support=2 * support, level_measure=level_measure
    )


@theorem
def corollary_1_beta(
    eta: Positive, epsilon: Positive, *, support: Positive, growth: Positive
) -> Any:
    """Return beta_exp, the beta at which :func:`corollary_1` takes the smooth sensitivity.

    It is epsilon / (4 W(epsilon (b-a) / (C eta))), with Lambert's W; the gamma of the proof is
    1 / (2 beta_exp).

    >>> round(float(corollary_1_beta(0.01, 1.0, support=100.0, growth=1.0)), 4)
    0.0346
    """
    return epsilon / 4 / lambertw(epsilon * support / growth / eta).real


@theorem
def corollary_1(
    eta: Positive,
    epsilon: Positive,
    *,
    smooth_sensitivity: Data,
    support: Positive,
    growth: Positive,
    level_measure: Data,
) -> Any:
    """Return a bound on the error of Duff with probability 1 - eta.

    It is 4 (e-1) SS_beta / epsilon * W(epsilon (b-a) / (C eta)). The paper assumes
    lambda(H_t) >= C t for all t, which no C > 0 satisfies, but its proof uses only t = gamma = 1 /
    (2 beta_exp). Where ``level_measure``, at this t, is below C gamma, the bound is infinite.
    For the median of evenly spaced data C is one gap if gamma is an integer, and floor(gamma)/gamma
    gaps otherwise; the paper's two gaps do not satisfy the condition.

    >>> common = dict(smooth_sensitivity=1.0, support=100.0, level_measure=14.0)
    >>> round(float(corollary_1(0.01, 1.0, growth=0.9, **common)), 2)
    50.34
    >>> float(corollary_1(0.01, 1.0, growth=2.0, **common))  # 14 < 2 gamma
    inf
    """
    beta = corollary_1_beta(eta, epsilon, support=support, growth=growth)
    # Equality must satisfy the condition despite rounding.
    holds = level_measure * (1 + 1e-12) >= growth / beta / 2
    return np.where(holds, (e - 1) * smooth_sensitivity / beta, inf)
