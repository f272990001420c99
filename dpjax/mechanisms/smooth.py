"""Noise scaled by the local sensitivity: by a smooth bound of it, or one that is tested.

**Smooth sensitivity** (Nissim, Raskhodnikova and Smith 2007). The output is value + bound/alpha *
Z, where bound is beta-smooth: between neighbors the density of Z is shifted by at most alpha of its
scales and stretched by up to e^beta, and both are paid for.

**Cauchy noise** is pure DP: the density of Z is proportional to h(z) = 1 / (1 + |z|^gamma). A shift
by s changes log h by at most s * sup|h'/h|, and sup gamma z^(gamma-1) / (1 + z^gamma) =
(gamma-1)^((gamma-1)/gamma), at z^gamma = gamma - 1. A stretch by e^t changes log(e^t h(e^t z)) by
at most |t| * sup|1 - gamma |z|^gamma / (1 + |z|^gamma)| = |t| * max(1, gamma-1). So
(gamma-1)^((gamma-1)/gamma) * alpha + max(1, gamma-1) * beta <= epsilon suffices: for gamma = 2,
alpha + beta <= epsilon.

**Laplace noise** (also Bun and Steinke 2019) is (epsilon, delta)-DP: Z is standard Laplace, and
with L = log(1/delta)

    alpha + max((e^beta - 1) L - beta, beta) <= epsilon.

Privacy: with scales N and N e^-t, |t| <= beta, and values alpha N e^-t apart, the log-ratio at
value + N z is at most alpha - t + |z| (e^t - 1). This is convex in t: at t = beta and |z| <= L it
is alpha - beta + L (e^beta - 1), at t = -beta it is at most alpha + beta. And |z| > L has
probability delta. The published condition lacks the second case; for delta <= e^-2 the first is the
larger and the two agree.

**Laplace-log-normal noise** (Bun and Steinke 2019) is concentrated DP: the output is value +
bound/s * X e^(sigma Y), X standard Laplace, Y standard normal,

    sqrt(2 rho) = beta/sigma + e^(3 sigma^2 / 2) s    for rho-zCDP.

Privacy: Theorem 4 of the paper, by Renyi divergences; a shift costs e^(3 sigma^2 / 2) s, a stretch
beta/sigma. The paper writes "epsilon^2/2-concentrated" for rho = epsilon^2/2. Numerical divergences
are 0.1 to 0.9 of the bound, the most for a small sigma: it is valid, and loose where sigma is not
small.

**Beta** is chosen without the data. On dense data, where A_k = (k + 1) A_0, the smooth sensitivity
is close to A_0 e^(beta - 1) / beta, and the scale of the noise is this divided by alpha: its
minimum depends on public numbers only. It is capped at log 2, above which dense data do not gain.

**Propose-test-release** (Dwork and Lei 2009) has noise scaled to a proposed local sensitivity.
There is an answer only if a noisy test finds the data far from violating the proposal. With d(x)
the number of changes until the local sensitivity exceeds the proposal, epsilon = e1 + e2:

    test:    d(x) + Laplace(1/e1) > log(1 / (2 delta)) / e1, otherwise no answer
    release: value + Laplace(proposal/e2)

Privacy: d changes by at most 1 between neighbors, so the test is e1-DP. If d(x) = 0, the test
passes with probability delta. If d(x) >= 1, the values of x and all its neighbors are within the
proposal, so the release is e2-DP. Neighbors farther apart than the proposal both have d = 0.
Together: (e1 + e2, delta)-DP.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import exp, log
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.conversions import zcdp_of
from dpjax.batch import Batch
from dpjax.checks.numbers import ABOVE_ONE, POSITIVE, PROBABILITY, Interval
from dpjax.distributions.base import Shape
from dpjax.distributions.cauchy import Cauchy
from dpjax.distributions.laplace_log_normal import LaplaceLogNormal
from dpjax.distributions.piecewise import PiecewiseExponential, laplace_noise
from dpjax.mechanisms.mechanism import Half, Positive, Probability, mechanism
from dpjax.numerics.search import bisect
from dpjax.pytrees import pytree
from dpjax.random import check_key
from dpjax.sensitivity.local import LocalSensitivity, SmoothSensitivity, representable


class _Kept(Interval):
    """An interval whose Python and NumPy numbers stay such: what is left of them may then raise."""

    def array(self, name: str, value: ArrayLike, dtype: Any) -> Any:
        """Return an array for an array, and else the number, checked."""
        found = super().array(name, value, dtype)
        return found if isinstance(value, jax.Array) else value


Calibration = Literal["tight", "published"]
Noise = Literal["cauchy", "laplace", "laplace_log_normal"]
Budget = Annotated[ArrayLike, _Kept(*POSITIVE)]
Delta = Annotated[ArrayLike, _Kept(*PROBABILITY)]
Local = Annotated[LocalSensitivity, "such as dpjax.local_sensitivity(x, ...)"]
Smooth = Annotated[
    SmoothSensitivity | LocalSensitivity,
    "or a LocalSensitivity, such as dpjax.local_sensitivity(x, ...)",
]


@mechanism(ranges=2)
def smooth_cauchy(
    smooth: Smooth,
    epsilon: Budget,
    *,
    gamma: float = 2.0,
    calibration: Calibration = "tight",
) -> Cauchy:
    """Return the distribution of ``value + bound/alpha * Z``.

    The density of Z is proportional to ``1 / (1 + |z|^gamma)``.

    Args:
        smooth: the statistic and its smooth sensitivity, of batch shape ``(...)``, whose beta uses
            a part of epsilon. Or its local sensitivity, which is smoothed at the beta of
            :func:`optimal_beta`; for ``"published"``, at the largest beta.
        epsilon: positive.
        gamma: static, above 1; 2 is the Cauchy distribution.
        calibration: ``"tight"``: alpha = (epsilon - max(1, gamma-1) beta) /
            (gamma-1)^((gamma-1)/gamma); ``"published"``, of the papers: alpha = epsilon / (2
            (gamma+1)), for beta at most as large. At gamma = 2 and beta = alpha, the published
            noise is three times larger, and its true loss on medians is 0.23 epsilon; the ends of
            its ``interval(1 - failure)`` are the error bound of Equation 4.

    Returns:
        A :class:`Cauchy`. Its mean does not exist for gamma <= 2, and its mean absolute error is
        infinite: clamp its draws to the bounds, which costs nothing (:class:`Clamped`).

    Raises:
        ValueError: beta exhausts epsilon. Where epsilon or beta is a JAX array, that row is NaN
            instead.

    Privacy:
        epsilon-DP under the relation of ``smooth``. Public: epsilon, gamma, beta, and what
        ``smooth`` documents as public; a beta that depends on the data breaks the guarantee. Float
        draws are simulations.

    References:
        Nissim, Raskhodnikova and Smith (2007), Lemmas 2.6 and 2.7; Gillenwater and Munoz Medina,
        Propositions 3 and 7, Equation 4.

    >>> import jax.numpy as jnp
    >>> from dpjax import Clamped, smooth_sensitivity
    >>> smooth = smooth_sensitivity(
    ...     jnp.arange(101.0), 0.5, lower=0, upper=100, neighbors="add_remove"
    ... )
    >>> noisy = smooth_cauchy(smooth, 1.0)
    >>> noisy.scale.item() == smooth.bound.item() / 0.5
    True
    >>> clamped = Clamped.of(noisy, lower=0, upper=100)
    >>> float(noisy.mean_abs_error(50.0)), round(float(clamped.mean_abs_error(50.0)), 2)
    (inf, 3.64)
    """
    checks.one_of("calibration", calibration, ("tight", "published"))
    shift, stretch = constants(gamma)

    def beta() -> jax.Array:
        if calibration == "published":
            return jnp.asarray(epsilon, smooth.dtype) / (2 * (gamma + 1))
        return optimal_beta(epsilon, noise="cauchy", gamma=gamma)

    def alpha(xp: Any, epsilon: Any, beta: Any) -> Any:
        if calibration == "tight":
            return (epsilon - stretch * beta) / shift
        published = epsilon / (2 * (gamma + 1))
        # Tolerates the rounding of beta in float32.
        return xp.where(beta <= published * (1 + 1e-6), published, -beta)

    found, rate = _smoothed(smooth, beta, alpha, epsilon)
    return Cauchy(found.value, found.bound / rate, gamma=float(gamma))


@mechanism()
def smooth_laplace(smooth: Smooth, epsilon: Budget, *, delta: Delta) -> PiecewiseExponential:
    """Return the distribution of ``value + bound/alpha * Z`` with Z standard Laplace.

    Args:
        smooth: the statistic and its smooth sensitivity, of batch shape ``(...)``, whose beta uses
            a part of epsilon. Or its local sensitivity, which is smoothed at the beta of
            :func:`optimal_beta`.
        epsilon: positive.
        delta: in (0, 1).

    Returns:
        A :class:`PiecewiseExponential` of two tails. Use :class:`Clamped` to restrict the range
        (post-processing).

    Raises:
        ValueError: beta exhausts epsilon.

    Privacy:
        (epsilon, delta)-DP under the relation of ``smooth``; not tight: at delta = 1e-3 an exact
        analysis would allow an alpha 1.4 to 1.9 times larger. Public: epsilon, delta, beta, and
        what ``smooth`` documents as public; a beta that depends on the data breaks the guarantee.
        Float draws are simulations.

    References:
        Bun and Steinke (2019), Theorem 34; Gillenwater and Munoz Medina, Proposition 2 (its "-
        beta" is correct).

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import smooth_sensitivity
    >>> smooth = smooth_sensitivity(
    ...     jnp.arange(101.0), 0.1, lower=0, upper=100, neighbors="add_remove"
    ... )
    >>> distribution = smooth_laplace(smooth, 1.0, delta=1e-3)
    >>> round(float(smooth.bound / distribution.mean_abs_error(50.0)), 4)
    0.3735
    """
    found, rate = _smoothed(
        smooth,
        lambda: optimal_beta(epsilon, noise="laplace", delta=delta),
        _alpha_of_laplace,
        epsilon,
        delta,
    )
    return laplace_noise(found.value, rate, found.bound)


def _alpha_of_laplace(xp: Any, epsilon: Any, beta: Any, delta: Any) -> Any:
    return epsilon - xp.maximum(-xp.expm1(beta) * xp.log(delta) - beta, beta)


@mechanism()
def smooth_laplace_log_normal(smooth: Smooth, zcdp: Budget, *, sigma: Budget) -> LaplaceLogNormal:
    """Return the distribution of ``value + bound/s * X e^(sigma Y)``.

    Args:
        smooth: the statistic and its smooth sensitivity, of batch shape ``(...)``, whose beta uses
            a part of the budget. Or its local sensitivity, which is smoothed at the optimal beta
            for dense data at this sigma.
        zcdp: positive, rho. For an epsilon and a delta, use :func:`dpjax.accounting.zcdp_of`.
        sigma: positive, above beta / sqrt(2 rho), chosen without the data (see
            :func:`optimal_sigma`).

    Returns:
        A :class:`LaplaceLogNormal`. Use :class:`Clamped` to restrict the range (post-processing).

    Raises:
        ValueError: beta exhausts the budget. Where a parameter is a JAX array, that row is NaN
            instead.

    Privacy:
        rho-zCDP under the relation of ``smooth``. Public: rho, sigma, beta, and what ``smooth``
        documents as public; a beta or sigma that depends on the data breaks the guarantee. Float
        draws are simulations.

    References:
        Bun and Steinke (2019), Section 3; Gillenwater and Munoz Medina, Section 6 (where sigma is
        counted twice).

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import smooth_sensitivity
    >>> smooth = smooth_sensitivity(
    ...     jnp.arange(101.0), 0.1, lower=0, upper=100, neighbors="add_remove"
    ... )
    >>> distribution = smooth_laplace_log_normal(smooth, 0.5, sigma=0.3)
    >>> round(float(distribution.scale * (1 - 0.1 / 0.3) / jnp.exp(1.5 * 0.3**2) / smooth.bound), 5)
    1.0
    """

    def beta() -> jax.Array:
        budget, spread = (jnp.asarray(public, smooth.dtype) for public in (zcdp, sigma))
        return _best_for_dense_data(jnp.sqrt(2 * budget), 1 / spread)

    def s(xp: Any, zcdp: Any, beta: Any, sigma: Any) -> Any:
        return (xp.sqrt(2 * zcdp) - beta / sigma) * xp.exp(-1.5 * xp.square(sigma))

    found, rate = _smoothed(smooth, beta, s, zcdp, sigma)
    return LaplaceLogNormal(
        found.value, found.bound / rate, checks.positive("sigma", sigma, found.dtype)
    )


def _smoothed(
    smooth: SmoothSensitivity | LocalSensitivity,
    beta: Callable[[], jax.Array],
    rest: Callable[..., Any],
    budget: ArrayLike,
    *public: ArrayLike,
) -> tuple[SmoothSensitivity, jax.Array]:
    """Return a smooth sensitivity, and the rate that its beta leaves of the budget.

    A local sensitivity is smoothed at a public beta. Of Python and NumPy numbers, a rate that is
    not finite and positive raises ``ValueError``; rows of JAX arrays are NaN instead, also where
    what is public is infinite, as an infinite budget would remove all noise.
    """
    found = smooth.smooth(beta()) if isinstance(smooth, LocalSensitivity) else smooth
    public = budget, found.beta, *public
    of_jax = any(isinstance(number, jax.Array) for number in public)
    xp, dtype = (jnp, found.dtype) if of_jax else (np, np.float64)
    with np.errstate(all="ignore"):
        numbers = [xp.asarray(number).astype(dtype) for number in public]
        rate = rest(xp, *numbers)
        good = reduce(xp.logical_and, map(xp.isfinite, (rate, *numbers)), rate > 0)
    if xp is np and not np.all(good):
        raise ValueError(
            f"beta = {found.beta} exhausts the budget of {budget}: choose a smaller beta (see "
            "optimal_beta)."
        )
    return found, representable(found, jnp.where(good, rate, jnp.nan).astype(found.dtype))


def optimal_sigma(zcdp: ArrayLike, *, beta: ArrayLike) -> jax.Array:
    """Return the sigma with the smallest mean absolute error.

    It is the root of 4 c sigma^3 = beta (4 sigma^2 + 1), c = sqrt(2 rho).

    Args:
        zcdp: positive ``(...)``, rho.
        beta: positive.

    Returns:
        Float of the broadcast shape, above beta/c, so that some of the budget remains for the
        noise.

    Privacy:
        No privacy is spent: it is a function of public numbers.

    References:
        Bun and Steinke (2019), Section 3.2, with 5 in place of 4, as they minimize the variance.

    >>> round(float(optimal_sigma(0.5, beta=0.1)), 4)
    0.3298
    """
    dtype = checks.float_dtype(zcdp)
    least = checks.positive("beta", beta, dtype) / jnp.sqrt(
        2 * checks.positive("zcdp", zcdp, dtype)
    )
    return _root(
        lambda sigma: least - 4 * jnp.square(sigma) * (sigma - least), least + jnp.cbrt(least / 4)
    )


def optimal_beta(
    epsilon: ArrayLike, *, noise: Noise, delta: ArrayLike | None = None, gamma: float = 2.0
) -> jax.Array:
    """Return the optimal beta for dense data.

    Args:
        epsilon: positive ``(...)``.
        noise: ``"cauchy"``, ``"laplace"`` or ``"laplace_log_normal"`` (with the tight conversion to
            zCDP, of concrete numbers, and :func:`optimal_sigma`).
        delta: in (0, 1); None for ``"cauchy"``.
        gamma: static, above 1; used for ``"cauchy"``.

    Returns:
        Float of the broadcast shape.

    Privacy:
        A function of public numbers only. The published baselines minimize bound/alpha on the
        private data instead, and their guarantee then does not hold.

    References:
        Gillenwater and Munoz Medina, Section 6, for the choice that is avoided here.

    >>> round(float(optimal_beta(1.0, noise="cauchy")), 4)
    0.382
    >>> round(float(optimal_beta(1.0, noise="laplace", delta=1e-3)), 4)
    0.076
    """
    checks.one_of("noise", noise, ("cauchy", "laplace", "laplace_log_normal"))
    if (delta is None) != (noise == "cauchy"):
        raise ValueError(
            "delta must be given for laplace and laplace_log_normal noise, and not for cauchy, "
            f"got delta={delta} for {noise!r}."
        )
    dtype = checks.float_dtype(epsilon)
    budget = checks.positive("epsilon", epsilon, dtype)
    if delta is None:
        return _best_for_dense_data(budget, jnp.asarray(constants(gamma)[1], dtype))
    if noise == "laplace":
        beta = _laplace(budget, PROBABILITY.array("delta", delta, dtype))
    else:
        rho = jnp.asarray(zcdp_of(epsilon, delta=delta), dtype)
        beta = _laplace_log_normal(jnp.sqrt(2 * rho))
    return jnp.minimum(beta, log(2))


@jax.jit
def _best_for_dense_data(budget: jax.Array, stretch: jax.Array) -> jax.Array:
    """Return the beta, at most log 2, that minimizes e^beta / (beta (budget - stretch beta)).

    It is a root of a quadratic equation.
    """
    return jnp.minimum(2 * budget / (budget + 2 * stretch + jnp.hypot(budget, 2 * stretch)), log(2))


def constants(gamma: float) -> tuple[float, float]:
    """Return sup|h'/h| and sup|1 + z h'/h|, the costs of alpha and beta.

    >>> constants(2.0)
    (1.0, 1.0)
    """
    above = ABOVE_ONE.single("gamma", gamma) - 1
    return above ** (above / gamma), max(1.0, above)


@jax.jit
def _laplace(epsilon: jax.Array, delta: jax.Array) -> jax.Array:
    """Minimize e^beta / (beta alpha), whose logarithm is convex."""
    epsilon, delta = jnp.broadcast_arrays(epsilon, delta)

    def gain(beta: jax.Array) -> jax.Array:
        """Return minus the derivative of the logarithm."""
        alpha, slope = jax.jvp(
            lambda at: _alpha_of_laplace(jnp, epsilon, at, delta), (beta,), (jnp.ones_like(beta),)
        )
        return jnp.where(alpha <= 0, -jnp.inf, 1 / beta - 1 + slope / alpha)

    # For delta above e^-2, alpha has a kink, where the minimum can be.
    return _root(gain, jnp.minimum(epsilon, log(2)), smooth=delta <= exp(-2))


@jax.jit
def _laplace_log_normal(c: jax.Array) -> jax.Array:
    """Minimize e^(beta + 2 sigma^2) / (beta (c - beta/sigma)) over both: beta = 1 - 4 sigma^2.

    c decreases in sigma, which is found as a root.
    """

    def excess(sigma: jax.Array) -> jax.Array:
        square = 4 * jnp.square(sigma)
        return jnp.log1p(-square) + jnp.log1p(1 / square) - jnp.log(sigma * c)

    sigma = _root(excess, jnp.full_like(c, 0.5))
    # 1 - 4 sigma^2 from its equation: the difference cancels near sigma = 1/2, where epsilon is
    # small.
    return c * 4 * sigma * jnp.square(sigma) / (4 * jnp.square(sigma) + 1)


def _root(
    falling: Callable[[jax.Array], jax.Array], high: jax.Array, smooth: jax.Array | bool = True
) -> jax.Array:
    """Return the zero of a decreasing function between 0 and ``high``.

    A last step of Newton's method gives it the derivatives of the root.
    """
    root = jax.lax.stop_gradient(bisect(lambda x: falling(x) > 0, jnp.zeros_like(high), high)[0])
    value, slope = jax.jvp(falling, (root,), (jnp.ones_like(root),))
    return root - jnp.where(smooth, value / jax.lax.stop_gradient(slope), 0 * value)


@pytree
class ProposeTestRelease(Batch):
    """The distribution of an answer that may be withheld; a pytree.

    Attributes:
        answer: the distribution of the answer, given that there is one.
        test: the distribution of the noisy distance, independent of the answer, of the same batch
            shape.
        threshold: float ``(...)``; there is an answer where the noisy distance exceeds it.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import local_sensitivity
    >>> public = {"lower": 0, "upper": 1, "neighbors": "add_remove", "definition": "lower"}
    >>> local = local_sensitivity(jnp.linspace(0, 1, 101), **public)
    >>> ptr = propose_test_release(local, 2.0, delta=1e-6, proposal=0.205)
    >>> round(float(ptr.answer_probability()), 5)
    0.99948
    """

    answer: PiecewiseExponential
    test: PiecewiseExponential
    threshold: jax.Array

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw: ``()``, a scalar."""
        return ()

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The bounds of all answers, each of shape ``batch_shape``."""
        return self.answer.support

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw answers: float of shape ``shape + batch_shape``.

        **NaN means no answer** (or invalid parameters).
        """
        key_test, key_answer = jax.random.split(check_key(key))
        return jnp.where(
            self.test.sample(key_test, shape) > self.threshold,
            self.answer.sample(key_answer, shape),
            jnp.nan,
        )

    def answer_probability(self) -> jax.Array:
        """Return the exact probability of an answer, of shape ``batch_shape``.

        It depends on the private data.
        """
        return self.test.survival(self.threshold)

    def no_answer_probability(self) -> jax.Array:
        """Return the exact probability of no answer, of shape ``batch_shape``.

        It depends on the private data.
        """
        return self.test.cdf(self.threshold)

    def mean_abs_error(self, center: ArrayLike) -> jax.Array:
        """Return E|Y - center| given an answer; ``center`` broadcasts against ``batch_shape``."""
        return self.answer.mean_abs_error(center)


@mechanism()
def propose_test_release(
    local: Local,
    epsilon: Positive,
    *,
    delta: Half,
    proposal: Positive,
    test_share: Probability = 0.5,
) -> ProposeTestRelease:
    """Return the distribution of propose-test-release.

    Args:
        local: the statistic and its local sensitivity at every distance, of batch shape ``(...)``.
        epsilon: positive.
        delta: in (0, 1/2).
        proposal: positive, the local sensitivity that the noise is scaled to, chosen without the
            data.
        test_share: in (0, 1), the fraction of epsilon that the test spends.

    Returns:
        A :class:`ProposeTestRelease`: draws are NaN where there is no answer. An answer is likely
        only if the proposal holds for more than 2 log(1/(2 delta)) / epsilon changes (with an even
        split).

    Privacy:
        (epsilon, delta)-DP under the relation of ``local``, with test_share * epsilon for the test
        and the rest for the answer. Whether there is an answer is part of the output. Public: all
        parameters and what ``local`` documents as public. Float draws are simulations.

    References:
        Dwork and Lei (2009); Gillenwater and Munoz Medina, Section 3.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import local_sensitivity
    >>> local = local_sensitivity(
    ...     jnp.linspace(0, 1, 101), lower=0, upper=1, neighbors="add_remove", definition="lower"
    ... )
    >>> distribution = propose_test_release(local, 2.0, delta=1e-6, proposal=0.205)
    >>> refused, error = distribution.no_answer_probability(), distribution.mean_abs_error(0.5)
    >>> round(float(refused), 5), round(float(error), 3)
    (0.00052, 0.205)
    """
    scale = jnp.asarray(proposal)
    tested = jnp.multiply(epsilon, test_share)
    # Rows are drawn independently even where they differ only in delta, which neither distribution
    # reads.
    public = (epsilon, delta, scale, test_share)
    batch = jnp.broadcast_shapes(local.batch_shape, *map(jnp.shape, public))
    distance, value = (
        jnp.broadcast_to(center, batch)
        for center in (_distance(local.at_distance, scale), local.value)
    )
    test = laplace_noise(distance, tested, jnp.ones((), distance.dtype))
    answer = laplace_noise(value, jnp.multiply(epsilon, jnp.subtract(1, test_share)), scale)
    return ProposeTestRelease(answer, test, -jnp.log(jnp.multiply(2, delta)) / tested)


def _distance(at_distance: jax.Array, proposal: jax.Array) -> jax.Array:
    """Return the first k with A_k > proposal, or K; NaN in a row with a NaN.

    The minimum with a constant preserves the sensitivity of 1.
    """
    bound = proposal[..., None]
    distance = jnp.sum(at_distance <= bound, axis=-1).astype(at_distance.dtype)
    return jnp.where(jnp.any(jnp.isnan(at_distance) | jnp.isnan(bound), axis=-1), jnp.nan, distance)
