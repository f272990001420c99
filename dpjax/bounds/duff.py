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

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.bounds.tail import TailBound
from dpjax.sensitivity.profile import SensitivityProfile


def level_measure(profile: SensitivityProfile, t: ArrayLike) -> jax.Array:
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
    >>> level_measure(even, jnp.array([1.0, 2.0, 7.0])).tolist()
    [1.0, 2.0, 7.0]
    """
    if not profile.integer_levels or profile.step is not None:
        raise ValueError("profile must have integer levels and no steps, and end at its bounds.")
    level = checks.nonnegative("t", t, profile.dtype)[..., None]

    def reach(values: jax.Array, levels: jax.Array) -> jax.Array:
        return jnp.max(jnp.where(levels <= level, jnp.abs(values - values[..., :1]), 0.0), axis=-1)

    total = reach(profile.upper, profile.upper_levels) + reach(profile.lower, profile.lower_levels)
    return jnp.where(jnp.isnan(level[..., 0]), jnp.nan, total)


def proposition_4(
    t: ArrayLike,
    epsilon: ArrayLike,
    *,
    support: ArrayLike,
    level_measure: ArrayLike,
    sensitivity: ArrayLike = 1.0,
) -> jax.Array:
    """Bound P(u(Y) <= OPT - t) of the exponential mechanism.

    The bound is support / lambda(H_{t/2}) * exp(-epsilon t / (4 sensitivity)), where H_{t/2} are
    the outputs of utility at least OPT - t/2, and ``sensitivity`` is that of the utility (also
    McSherry and Talwar 2007).

    >>> round(float(proposition_4(20.0, 1.0, support=100.0, level_measure=10.0)), 4)
    0.0674
    """
    t, epsilon, support, level_measure, sensitivity = _checked(
        t=t, epsilon=epsilon, support=support, level_measure=level_measure, sensitivity=sensitivity
    )
    return _probability(support, level_measure, epsilon * t / (4 * sensitivity))


def theorem_1(
    beta: ArrayLike,
    epsilon: ArrayLike,
    *,
    smooth_sensitivity: ArrayLike,
    support: ArrayLike,
    level_measure: ArrayLike,
) -> TailBound:
    """Bound the error of Duff by smooth sensitivity.

    P(error > t) <= 2 exp(-epsilon gamma/2) (b-a) / lambda(H_gamma), with t = (e-1) SS_beta / beta
    and gamma = 1 / (2 beta). Each beta > 0 gives one point of the bound. (The paper starts from t.)

    >>> bound = theorem_1(0.02, 1.0, smooth_sensitivity=1.0, support=100.0, level_measure=25.0)
    >>> round(float(bound.threshold), 2), round(float(bound.probability), 6)
    (85.91, 3e-05)
    """
    beta, epsilon, smooth_sensitivity, support, level_measure = _checked(
        beta=beta,
        epsilon=epsilon,
        smooth_sensitivity=smooth_sensitivity,
        support=support,
        level_measure=level_measure,
    )
    threshold = (math.e - 1) * smooth_sensitivity / beta
    return TailBound(threshold, _probability(2 * support, level_measure, epsilon / (4 * beta)))


def corollary_1_beta(
    eta: ArrayLike, epsilon: ArrayLike, *, support: ArrayLike, growth: ArrayLike
) -> jax.Array:
    """Return beta_exp, the beta at which :func:`corollary_1` takes the smooth sensitivity.

    It is epsilon / (4 W(epsilon (b-a) / (C eta))); the gamma of the proof is 1 / (2 beta_exp).

    >>> round(float(corollary_1_beta(0.01, 1.0, support=100.0, growth=1.0)), 4)
    0.0346
    """
    eta, epsilon, support, growth = _checked(
        eta=eta, epsilon=epsilon, support=support, growth=growth
    )
    return epsilon / (4 * lambert_w(epsilon * support / (growth * eta)))


def corollary_1(
    eta: ArrayLike,
    epsilon: ArrayLike,
    *,
    smooth_sensitivity: ArrayLike,
    support: ArrayLike,
    growth: ArrayLike,
    level_measure: ArrayLike,
) -> TailBound:
    """Bound the error of Duff with probability 1 - eta.

    The bound is 4 (e-1) SS_beta / epsilon * W(epsilon (b-a) / (C eta)). The paper assumes
    lambda(H_t) >= C t for all t, which no C > 0 satisfies, but its proof uses only t = gamma = 1 /
    (2 beta_exp). Where ``level_measure``, at this t, is below C gamma, the threshold is infinite.
    For the median of evenly spaced data C is one gap if gamma is an integer, and floor(gamma)/gamma
    gaps otherwise; the paper's two gaps do not satisfy the condition.

    >>> common = dict(smooth_sensitivity=1.0, support=100.0, level_measure=14.0)
    >>> round(float(corollary_1(0.01, 1.0, growth=0.9, **common).threshold), 2)
    50.34
    >>> float(corollary_1(0.01, 1.0, growth=2.0, **common).threshold)  # 14 < 2 gamma
    inf
    """
    public = {"eta": eta, "epsilon": epsilon, "support": support, "growth": growth}
    eta, epsilon, support, growth, smooth_sensitivity, level_measure = _checked(
        **public, smooth_sensitivity=smooth_sensitivity, level_measure=level_measure
    )
    beta = corollary_1_beta(eta, epsilon, support=support, growth=growth)
    threshold = (math.e - 1) * smooth_sensitivity / beta
    # Equality must satisfy the condition despite rounding.
    slack = 1 - 16 * float(jnp.finfo(beta.dtype).eps)
    holds = (level_measure >= slack * growth / (2 * beta)) | jnp.isnan(threshold + level_measure)
    return TailBound(jnp.where(holds, threshold, jnp.inf), jnp.broadcast_to(eta, holds.shape))


@jax.custom_jvp
@jax.jit
def lambert_w(z: ArrayLike) -> jax.Array:
    """Return W(z), the principal branch of Lambert's function for z >= 0: w exp(w) = z.

    NaN below 0. By Halley's iteration on w - z exp(-w), which does not overflow (Corless et al.
    1996). The relative error is below 2 units in the last place. It is differentiable.

    >>> import jax.numpy as jnp
    >>> round(float(lambert_w(jnp.exp(1.0))), 6)
    1.0
    """
    z = checks.float_array("z", z)
    finite = jnp.where((z >= 0) & (z < jnp.inf), z, 1.0)
    # Starting at log(z), exp(-w) would underflow for the largest z.
    large = jnp.log(jnp.maximum(finite, math.e))
    w = jnp.where(finite > math.e, large - jnp.log(large), jnp.log1p(finite))
    for _ in range(4):
        y = finite * jnp.exp(-w)
        value, slope = w - y, 1 + y
        w = w - 2 * value * slope / (2 * jnp.square(slope) + value * y)
    return jnp.where(z >= 0, jnp.where(z < jnp.inf, w, jnp.inf), jnp.nan)


@lambert_w.defjvp
def _lambert_w_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    w = lambert_w(primals[0])
    return w, tangents[0] * jnp.exp(-w) / (1 + w)  # 1 / (z + exp(w)), without its overflow


def _checked(**arguments: ArrayLike) -> list[jax.Array]:
    """Validate parameters and convert them to one dtype.

    They must be positive, or at least 0 if they depend on data.
    """
    dtype = checks.float_dtype(*arguments.values())
    may_be_0 = ("level_measure", "smooth_sensitivity")
    check = {
        name: checks.nonnegative if name in may_be_0 else checks.positive for name in arguments
    }
    return [check[name](name, value, dtype) for name, value in arguments.items()]


def _probability(support: jax.Array, measure: jax.Array, nats: jax.Array) -> jax.Array:
    """Return support / measure * exp(-nats), at most 1; 1 where the measure is 0."""
    ratio = jnp.where(measure == 0, jnp.inf, support / jnp.where(measure == 0, 1.0, measure))
    return jnp.minimum(ratio * jnp.exp(-nats), 1.0)
