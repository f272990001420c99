"""How far from the truth Duff can be: Proposition 4, Theorem 1 and Corollary 1 of its paper, as functions of numbers.

They compare a mechanism with what is known of one dataset (sizes of its level sets, its smooth sensitivity). Those numbers are
private: the bounds are for analysis, not for release; none of these functions draws anything.

Where the paper can be read in two ways or is loose: level sets are {u_d >= -t} here (Proposition 4 is printed with a strict
inequality, Theorem 1 without; its proof holds for both). The factor 2 of Theorem 1 is not needed: at its choice of beta the two
events of its last step are the same event. It is kept. The constant C = 2(b-a)/n for the median of evenly spaced data is twice
too large: it takes two changes, not one, to move the median by one gap, so that lambda(H_t) is t gaps for every whole t.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.numerics.batching import align
from dpjax.sensitivity.profile import SensitivityProfile


class TailBound(NamedTuple):
    """A bound of the error: P(abs(Y - f(x)) > threshold) <= probability.

    Attributes:
        threshold: float ``(...)``.
        probability: float ``(...)``.
    """

    threshold: jax.Array
    probability: jax.Array


def level_measure(profile: SensitivityProfile, t: ArrayLike) -> jax.Array:
    """Return lambda(H_t), the length of the outputs that at most ``t`` changes reach: {y: u_d(y) >= -t}.

    Args:
        profile: a sensitivity profile of batch shape ``(...)``, with integer levels and without steps.
        t: not negative, broadcasts against the batch shape.

    Returns:
        Float of the broadcast shape. It is not private.

    Raises:
        ValueError: a profile with steps or with fractional levels, which pass ``t`` between two of its values; a negative ``t`` (as
            a Python or NumPy value).

    Privacy:
        None: a number for analysis.

    References:
        Gillenwater and Munoz Medina (2020), Theorem 1.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> even = median(jnp.arange(1.0, 100.0), lower=0, upper=100, neighbors="add_remove", definition="lower")
    >>> level_measure(even, jnp.array([1.0, 2.0, 7.0])).tolist()
    [1.0, 2.0, 7.0]
    """
    if not profile.integer_levels or profile.step is not None:
        raise ValueError("level_measure needs a profile with integer levels that ends at its bounds, without steps.")
    return _level_measure(profile, checks.nonnegative("t", t, profile.dtype))


@jax.jit
def _level_measure(profile: SensitivityProfile, level: jax.Array) -> jax.Array:
    rank = max(len(profile.batch_shape), level.ndim) + 1
    level = align(level, rank - 1)[..., None]

    def reach(values: jax.Array, levels: jax.Array) -> jax.Array:
        far = jnp.where(align(levels, rank) <= level, align(jnp.abs(values - values[..., :1]), rank), 0.0)
        return jnp.max(far, axis=-1)

    total = reach(profile.upper, profile.upper_levels) + reach(profile.lower, profile.lower_levels)
    return jnp.where(jnp.isnan(level[..., 0]), jnp.nan, total)


def proposition_4(
    t: ArrayLike, epsilon: ArrayLike, *, support: ArrayLike, level_measure: ArrayLike, sensitivity: ArrayLike = 1.0
) -> jax.Array:
    """Bound P(u(Y) <= OPT - t) of the exponential mechanism by support / lambda(H_{t/2}) * exp(-epsilon t / (4 sensitivity)).

    Args:
        t: positive ``(...)``, how far below the best utility.
        epsilon: positive ``(...)``; all arguments broadcast against each other.
        support: positive ``(...)``, the measure of all outputs: upper - lower on the line, the number of candidates of a finite
            law.
        level_measure: not negative ``(...)``, lambda(H_{t/2}), the measure of the outputs of utility at least OPT - t/2.
        sensitivity: positive ``(...)``, of the utility.

    Returns:
        Float of the broadcast shape, at most 1.

    Raises:
        ValueError: an argument that is not positive, as a Python or NumPy value (as a JAX array: NaN there).

    Privacy:
        None: a number for analysis.

    References:
        Gillenwater and Munoz Medina (2020), Proposition 4; McSherry and Talwar (2007).

    >>> round(float(proposition_4(20.0, 1.0, support=100.0, level_measure=10.0)), 4)
    0.0674
    """
    t, epsilon, support, level_measure, sensitivity = _aligned(
        t=t, epsilon=epsilon, support=support, level_measure=level_measure, sensitivity=sensitivity
    )
    return jnp.minimum(_ratio(support, level_measure) * jnp.exp(-epsilon * t / (4 * sensitivity)), 1.0)


def theorem_1(
    beta: ArrayLike, epsilon: ArrayLike, *, smooth_sensitivity: ArrayLike, support: ArrayLike, level_measure: ArrayLike
) -> TailBound:
    """Bound the error of Duff by smooth sensitivity: P(error > t) <= 2 exp(-epsilon gamma/2) (b-a) / lambda(H_gamma).

    The paper starts from t, and takes the beta with t = (e-1) SS_beta / beta. Here beta comes first: any beta > 0 gives one point
    of the bound, with that t and gamma = 1 / (2 beta).

    Args:
        beta: positive ``(...)``.
        epsilon: positive ``(...)``; all arguments broadcast against each other.
        smooth_sensitivity: not negative ``(...)``, the beta-smooth sensitivity of the dataset at this beta.
        support: positive ``(...)``, upper - lower.
        level_measure: not negative ``(...)``, lambda(H_gamma) at gamma = 1/(2 beta): see :func:`level_measure`.

    Returns:
        :class:`TailBound` with ``threshold`` t and a ``probability`` of at most 1.

    Raises:
        ValueError: as :func:`proposition_4`.

    Privacy:
        None: a number for analysis.

    References:
        Gillenwater and Munoz Medina (2020), Theorem 1.

    >>> bound = theorem_1(0.02, 1.0, smooth_sensitivity=1.0, support=100.0, level_measure=25.0)
    >>> round(float(bound.threshold), 2), round(float(bound.probability), 6)
    (85.91, 3e-05)
    """
    beta, epsilon, smooth_sensitivity, support, level_measure = _aligned(
        beta=beta, epsilon=epsilon, smooth_sensitivity=smooth_sensitivity, support=support, level_measure=level_measure
    )
    probability = 2 * jnp.exp(-epsilon / (4 * beta)) * _ratio(support, level_measure)
    return TailBound((np.e - 1) * smooth_sensitivity / beta, jnp.minimum(probability, 1.0))


def corollary_1_beta(eta: ArrayLike, epsilon: ArrayLike, *, support: ArrayLike, growth: ArrayLike) -> jax.Array:
    """Return beta_exp = epsilon / (4 W(epsilon (b-a) / (C eta))), at which :func:`corollary_1` needs the smooth sensitivity.

    Args:
        eta: positive ``(...)``, the probability of a larger error.
        epsilon: positive ``(...)``; all arguments broadcast against each other.
        support: positive ``(...)``, upper - lower.
        growth: positive ``(...)``, C; see :func:`corollary_1`.

    Returns:
        Float of the broadcast shape. The gamma of the proof is 1 / (2 beta_exp).

    Raises:
        ValueError: as :func:`proposition_4`.

    Privacy:
        None: a number for analysis.

    References:
        Gillenwater and Munoz Medina (2020), Corollary 1.

    >>> round(float(corollary_1_beta(0.01, 1.0, support=100.0, growth=1.0)), 4)
    0.0346
    """
    eta, epsilon, support, growth = _aligned(eta=eta, epsilon=epsilon, support=support, growth=growth)
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
    """Bound the error of Duff with probability 1 - eta: 4 (e-1) SS_beta / epsilon * W(epsilon (b-a) / (C eta)).

    The paper assumes lambda(H_t) >= C t for all t, which no C > 0 fulfils (the median has lambda(H_t) = 0 for t < 1, and
    lambda(H_t) <= b-a); its proof uses the one t = gamma = 1 / (2 beta_exp). There the condition is checked: where
    ``level_measure`` is below C gamma, the threshold is infinite. For the median of evenly spaced data C is one gap if gamma is
    whole, and floor(gamma)/gamma gaps otherwise; the paper's C = 2(b-a)/n is two gaps, and fails the check.

    Args:
        eta: positive ``(...)``, the probability of a larger error.
        epsilon: positive ``(...)``; all arguments broadcast against each other.
        smooth_sensitivity: not negative ``(...)``, at the beta that :func:`corollary_1_beta` gives.
        support: positive ``(...)``, upper - lower.
        growth: positive ``(...)``, C: the length of output that each further change adds, at gamma.
        level_measure: not negative ``(...)``, lambda(H_gamma).

    Returns:
        :class:`TailBound` with the ``probability`` eta.

    Raises:
        ValueError: as :func:`proposition_4`.

    Privacy:
        None: a number for analysis.

    References:
        Gillenwater and Munoz Medina (2020), Corollary 1 and the remark after it.

    >>> common = dict(smooth_sensitivity=1.0, support=100.0, level_measure=14.0)
    >>> round(float(corollary_1(0.01, 1.0, growth=0.9, **common).threshold), 2)
    50.34
    >>> float(corollary_1(0.01, 1.0, growth=2.0, **common).threshold)  # 14 < 2 gamma
    inf
    """
    eta, epsilon, smooth_sensitivity, support, growth, level_measure = _aligned(
        eta=eta,
        epsilon=epsilon,
        smooth_sensitivity=smooth_sensitivity,
        support=support,
        growth=growth,
        level_measure=level_measure,
    )
    w = lambert_w(epsilon * support / (growth * eta))
    gamma = 2 * w / epsilon
    threshold = 4 * (np.e - 1) * smooth_sensitivity / epsilon * w
    # A condition that holds with equality must not fail by rounding.
    slack = 1 - 16 * float(jnp.finfo(w.dtype).eps)
    threshold = jnp.where(level_measure >= slack * growth * gamma, threshold, jnp.where(jnp.isnan(threshold), jnp.nan, jnp.inf))
    return TailBound(threshold, jnp.broadcast_to(eta, threshold.shape))


@jax.custom_jvp
@jax.jit
def lambert_w(z: ArrayLike) -> jax.Array:
    """Return W(z), the main branch of Lambert's function for z >= 0: w exp(w) = z; NaN below 0.

    Halley's iteration on w - z exp(-w), which never overflows. Relative error below 2 units in the last place.

    Args:
        z: float ``(...)``.

    Returns:
        Float of the same shape; differentiable.

    References:
        Corless, Gonnet, Hare, Jeffrey and Knuth (1996).

    >>> import jax.numpy as jnp
    >>> round(float(lambert_w(jnp.exp(1.0))), 6)
    1.0
    """
    z = checks.float_array("z", z)
    finite = jnp.where((z >= 0) & (z < jnp.inf), z, 1.0)
    # From log(z) itself, exp(-w) would underflow at the largest z.
    large = jnp.log(jnp.maximum(finite, np.e))
    start = jnp.where(finite > np.e, large - jnp.log(large), jnp.log1p(finite))

    def step(_: Any, w: jax.Array) -> jax.Array:
        y = finite * jnp.exp(-w)
        value, slope = w - y, 1 + y
        return w - 2 * value * slope / (2 * jnp.square(slope) + value * y)

    w = jax.lax.fori_loop(0, 4, step, start)
    return jnp.where(z >= 0, jnp.where(z < jnp.inf, w, jnp.inf), jnp.nan)


@lambert_w.defjvp
def _lambert_w_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    w = lambert_w(primals[0])
    return w, tangents[0] * jnp.exp(-w) / (1 + w)  # 1 / (z + exp(w)), without its overflow


_MAY_BE_ZERO = ("level_measure", "smooth_sensitivity")


def _aligned(**arguments: ArrayLike) -> list[jax.Array]:
    """Check public numbers and give them one rank and dtype."""
    dtype = checks.float_dtype(*arguments.values())
    checked = [
        (checks.nonnegative if name in _MAY_BE_ZERO else checks.positive)(name, value, dtype) for name, value in arguments.items()
    ]
    rank = max(value.ndim for value in checked)
    return [align(value, rank) for value in checked]


def _ratio(support: jax.Array, measure: jax.Array) -> jax.Array:
    """Support / measure, infinite where there is no measure."""
    return jnp.where(measure == 0, jnp.inf, support / jnp.where(measure == 0, 1.0, measure))
