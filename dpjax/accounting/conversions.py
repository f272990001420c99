"""Conversions between notions of privacy: jittable, and differentiable in every number.

    rdp_of_*       Renyi DP of an order, of pure DP, bounded range or Laplace noise
    zcdp_of_*      zero-concentrated DP of the same, or the rho that implies an (epsilon, delta)
    epsilon_of_*   the epsilon at a delta, of zCDP or of a curve of Renyi divergences
    delta_of_*     the delta at an epsilon
    pure_of_zcdp, bounded_range_of_zcdp   the largest epsilon that costs at most a rho

Arguments are numbers or arrays ``(...)`` that broadcast against each other; every result is a float
array of the broadcast shape. Unless stated otherwise, ``epsilon`` (or the range) and ``zcdp`` (rho)
are positive, ``order`` (a) is above 1, and ``delta`` is in (0, 1). A Python or NumPy number out of
range raises ``ValueError``; an element of a JAX array that is out of range becomes NaN.

The conversions are exact in the worst case of each notion, up to the search for the best order,
where every order gives a valid bound, and up to rounding by some units in the last place.
``Guarantee`` and ``Composition`` use the same formulas in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting import formulas

Curve = Callable[[jax.Array], jax.Array]


def rdp_of_pure(epsilon: ArrayLike, *, order: ArrayLike) -> jax.Array:
    """Return the smallest r such that epsilon-DP implies (order, r)-Renyi DP.

    Randomized response attains it.
    r = log(cosh((a - 1/2) epsilon) / cosh(epsilon/2)) / (a - 1), which never overflows.

    References:
        Steinke, "Tight RDP & zCDP Bounds from Pure DP" (2024); Bun and Steinke (2016), Proposition
        3.3.

    >>> round(float(rdp_of_pure(1.0, order=2.0)), 5)
    0.73533
    """
    return _at_orders(formulas.rdp_of_pure, epsilon, order)


def rdp_of_bounded_range(epsilon: ArrayLike, *, order: ArrayLike) -> jax.Array:
    """Return the smallest r such that bounded range epsilon implies (order, r)-Renyi DP.

    It is below order * epsilon^2/8. r = (a L(a) - (a-1) L(a-1) - L(1)) / (a-1), where
    L(y) = log(sinh(y epsilon/2) / (y epsilon/2)): the supremum over the pairs with losses
    (t, t - epsilon), whose worst t has a closed form.

    References:
        Dong, Durfee and Rogers (2020), Lemma 3.2, for the worst pairs.

    >>> round(float(rdp_of_bounded_range(1.0, order=2.0)), 5)
    0.24023
    """
    return _at_orders(formulas.rdp_of_bounded_range, epsilon, order)


def rdp_of_laplace(epsilon: ArrayLike, *, order: ArrayLike) -> jax.Array:
    """Return the Renyi divergence of Laplace noise of scale sensitivity/epsilon.

    It is smaller than that of any epsilon-DP.

    References:
        Mironov (2017), Proposition 6.

    >>> round(float(rdp_of_laplace(1.0, order=2.0)), 5)
    0.61912
    """
    return _at_orders(formulas.rdp_of_laplace, epsilon, order)


def zcdp_of_pure(epsilon: ArrayLike) -> jax.Array:
    """Return the smallest rho such that epsilon-DP implies rho-zCDP: epsilon * tanh(epsilon/2).

    It is below epsilon^2/2.

    References:
        Steinke, "Tight RDP & zCDP Bounds from Pure DP" (2024).

    >>> round(float(zcdp_of_pure(1.0)), 5)
    0.46212
    """
    budget = _positive("epsilon", epsilon)
    return budget * jnp.tanh(budget / 2)


def pure_of_zcdp(zcdp: ArrayLike) -> jax.Array:
    """Return the largest epsilon such that epsilon-DP implies zcdp-zCDP.

    This is the inverse of :func:`zcdp_of_pure`.

    >>> round(float(pure_of_zcdp(zcdp_of_pure(3.0))), 5)
    3.0
    """
    return _pure_of_zcdp(_positive("zcdp", zcdp))


@jax.jit
def _pure_of_zcdp(rho: jax.Array) -> jax.Array:
    epsilon = jnp.maximum(jnp.sqrt(2 * rho), rho)
    for _ in range(8):  # Newton steps, from below
        t = jnp.tanh(epsilon / 2)
        epsilon = epsilon - (epsilon * t - rho) / (t + epsilon / 2 * (1 - t * t))
    return epsilon


def zcdp_of_bounded_range(epsilon: ArrayLike) -> jax.Array:
    """Return the rho of zCDP that bounded range epsilon implies: epsilon^2/8.

    It is a quarter of what epsilon-DP gives.

    References:
        Cesar and Rogers (2021), Lemma 3.4; the constant is the limit of
            :func:`rdp_of_bounded_range` for small epsilon.

    >>> float(zcdp_of_bounded_range(2.0))
    0.5
    """
    return jnp.square(_positive("epsilon", epsilon)) / 8


def bounded_range_of_zcdp(zcdp: ArrayLike) -> jax.Array:
    """Return the largest range that implies zcdp-zCDP, sqrt(8 zcdp).

    This is the inverse of :func:`zcdp_of_bounded_range`.

    >>> float(bounded_range_of_zcdp(0.5))
    2.0
    """
    return jnp.sqrt(8 * _positive("zcdp", zcdp))


def epsilon_of_zcdp(zcdp: ArrayLike, *, delta: ArrayLike) -> jax.Array:
    """Return the epsilon such that zcdp-zCDP implies (epsilon, delta)-DP, at the best order.

    epsilon = inf over a > 1 of  a rho + (log(1/delta) + (a-1) log(1 - 1/a) - log a) / (a-1), which
    is smaller than the classical rho + 2 sqrt(rho log(1/delta)). A particular mechanism may have a
    smaller epsilon than its rho implies. Each of k queries may cost
    ``zcdp_of(epsilon, delta=delta) / k``.

    References:
        Canonne, Kamath and Steinke (2020), Corollary 13; Bun and Steinke (2016), Proposition 1.3,
        for the classical form.

    >>> round(float(epsilon_of_zcdp(0.5, delta=1e-6)), 4)
    5.2215
    """
    dtype = checks.float_dtype(zcdp, delta)
    return _epsilon_of_zcdp(
        checks.positive("zcdp", zcdp, dtype), checks.probability("delta", delta, dtype, below=1.0)
    )


@jax.jit
def _epsilon_of_zcdp(zcdp: jax.Array, delta: jax.Array) -> jax.Array:
    return epsilon_of_rdp(lambda order: zcdp[..., None] * order, delta=delta, shape=zcdp.shape)


def delta_of_zcdp(zcdp: ArrayLike, *, epsilon: ArrayLike) -> jax.Array:
    """Return the delta such that zcdp-zCDP implies (epsilon, delta)-DP.

    It is at most 1, for an epsilon of at least 0. The inverse of :func:`epsilon_of_zcdp`, with the
    same references.

    >>> round(float(delta_of_zcdp(0.125, epsilon=1.0)), 6)
    0.017985
    """
    dtype = checks.float_dtype(zcdp, epsilon)
    return _delta_of_zcdp(
        checks.positive("zcdp", zcdp, dtype), checks.nonnegative("epsilon", epsilon, dtype)
    )


@jax.jit
def _delta_of_zcdp(zcdp: jax.Array, epsilon: jax.Array) -> jax.Array:
    return delta_of_rdp(lambda order: zcdp[..., None] * order, epsilon=epsilon, shape=zcdp.shape)


def epsilon_of_rdp(curve: Curve, *, delta: ArrayLike, shape: tuple[int, ...] = ()) -> jax.Array:
    """Return the epsilon, at least 0, of a curve of Renyi divergences at a delta.

    The best order is used.

    Args:
        curve: a function of orders ``(*batch, points)`` that returns r ``(*batch, points)`` such
            that (order, r)-Renyi DP holds, where ``batch`` is the broadcast shape of ``shape`` and
            ``delta``. The curve of a composition is the sum of its curves.
        delta: in (0, 1), ``(...)``.
        shape: the batch shape of the curve.

    References:
        Canonne, Kamath and Steinke (2020), Proposition 12; Mironov (2017), for Renyi DP.

    >>> from dpjax.accounting import rdp_of_bounded_range
    >>> curve = lambda order: 10 * rdp_of_bounded_range(0.5, order=order)
    >>> round(float(epsilon_of_rdp(curve, delta=1e-6)), 3)
    3.632
    """
    failure = checks.probability("delta", delta, checks.float_dtype(delta), below=1.0)
    return jnp.maximum(
        _at_best_order(formulas.epsilon_at_order, curve, shape, -jnp.log(failure)), 0.0
    )


def delta_of_rdp(curve: Curve, *, epsilon: ArrayLike, shape: tuple[int, ...] = ()) -> jax.Array:
    """Return the delta of a curve of Renyi divergences at an epsilon, by the best order.

    The inverse of :func:`epsilon_of_rdp`, with the same references.

    Args:
        curve: as for :func:`epsilon_of_rdp`; ``batch`` is the broadcast shape of ``shape`` and
            ``epsilon``.
        epsilon: at least 0, ``(...)``.
        shape: the batch shape of the curve.

    Returns:
        Float array of the broadcast shape, at most 1, and at least the smallest normal number of
        its dtype, since a delta of 0 would state pure DP.

    >>> from dpjax.accounting import rdp_of_pure
    >>> float(delta_of_rdp(lambda order: 2 * rdp_of_pure(0.5, order=order), epsilon=0.9)) < 0.1
    True
    """
    target = checks.nonnegative("epsilon", epsilon, checks.float_dtype(epsilon))
    found = _at_best_order(formulas.log_delta_at_order, curve, shape, target)
    return jnp.maximum(jnp.exp(jnp.minimum(found, 0.0)), jnp.finfo(target.dtype).tiny)


def zcdp_of(
    epsilon: ArrayLike, *, delta: ArrayLike, conversion: Literal["tight", "classical"] = "tight"
) -> jax.Array:
    """Return a rho such that rho-zCDP implies (epsilon, delta)-DP.

    Args:
        epsilon: positive, ``(...)``.
        delta: in (0, 1), ``(...)``.
        conversion: ``"tight"``: by the best order of the Renyi divergence, delta = e^((a-1)(a rho -
            epsilon)) (1 - 1/a)^a / (a - 1); ``"classical"``: epsilon = rho + 2 sqrt(rho
            log(1/delta)), which the published baseline used.

    References:
        Bun and Steinke (2016), Proposition 1.3; Canonne, Kamath and Steinke (2020), Corollary 13.

    >>> round(float((2 * zcdp_of(1.0, delta=1e-3)) ** 0.5), 4)
    0.3446
    """
    checks.one_of("conversion", conversion, ("tight", "classical"))
    dtype = checks.float_dtype(epsilon, delta)
    budget, failure = (
        checks.positive("epsilon", epsilon, dtype),
        checks.probability("delta", delta, dtype, below=1.0),
    )
    return _zcdp(budget, failure, conversion == "tight")


@partial(jax.jit, static_argnames="tight")
def _zcdp(epsilon: jax.Array, delta: jax.Array, tight: bool) -> jax.Array:
    nats = -jnp.log(delta)
    classical = jnp.square(epsilon / (jnp.sqrt(nats + epsilon) + jnp.sqrt(nats)))
    if not tight:
        return classical
    return jnp.maximum(
        classical, -_at_best_order(formulas.minus_rho_at_order, jnp.zeros_like, (), epsilon, nats)
    )


def _at_best_order(
    formula: Callable[..., jax.Array], curve: Curve, shape: tuple[int, ...], *numbers: jax.Array
) -> jax.Array:
    """Return a formula of a curve at the order that minimizes it.

    The order is held constant under differentiation, as the derivative is 0 at a minimum.
    """

    def objective(order: jax.Array, log_above: jax.Array) -> jax.Array:
        return formula(
            curve(order), order, log_above, *(number[..., None] for number in numbers), jnp
        )

    shape = jnp.broadcast_shapes(shape, *(number.shape for number in numbers))
    order, log_above = jax.lax.stop_gradient(
        formulas.best_order(objective, shape, numbers[0].dtype, jnp)
    )
    return objective(order[..., None], log_above[..., None])[..., 0]


def _at_orders(
    formula: Callable[..., jax.Array], epsilon: ArrayLike, order: ArrayLike
) -> jax.Array:
    dtype = checks.float_dtype(epsilon, order)
    return _compiled(
        formula, checks.positive("epsilon", epsilon, dtype), checks.above_one("order", order, dtype)
    )


@partial(jax.jit, static_argnums=0)
def _compiled(formula: Callable[..., jax.Array], epsilon: jax.Array, order: jax.Array) -> jax.Array:
    return formula(*jnp.broadcast_arrays(epsilon, order), jnp)


def _positive(name: str, value: ArrayLike) -> jax.Array:
    return checks.positive(name, value, checks.float_dtype(value))
