"""Budgets as JAX arrays: chosen for a target error, or split over queries.

:func:`epsilon_for_error` and :func:`allocate` read the exact errors of distributions, which are
functions of the data. Use them for simulation and public data, never to choose the epsilon of a
release from the data that is released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.numerics.search import bisect


class _Profile(Protocol):
    @property
    def value(self) -> jax.Array: ...


def epsilon_for_error(
    profile: _Profile,
    mechanism: Callable[[Any, jax.Array], Any],
    target: ArrayLike,
    *,
    lower: float = 1e-4,
    upper: float = 1e4,
) -> jax.Array:
    """Return the epsilon at which the exact mean absolute error meets a target, per row.

    By bisection on log(epsilon): the error at the result is at most ``target``, and just below the
    result it is above it. (If the error is not monotone in epsilon, the result is one of the points
    where it falls below the target.)

    Args:
        profile: a profile with a ``value`` ``(...)``.
        mechanism: a function of the profile and epsilon that returns a distribution with
            ``mean_abs_error``, such as ``dpjax.piecewise_laplace``.
        target: the mean absolute error, positive; broadcasts against the batch.
        lower: the smallest epsilon to try, and the result where it already meets the target.
        upper: the largest epsilon to try.

    Returns:
        Float array of the broadcast shape; NaN where ``upper`` does not meet the target.

    Raises:
        ValueError: ``target`` is not positive, or not 0 < lower < upper.

    Privacy:
        Not private: the result depends on the data. Use it for simulation and public data only.

    >>> import dpjax
    >>> profile = dpjax.median(jnp.arange(101.0), lower=0, upper=100, neighbors="swap")
    >>> epsilon = epsilon_for_error(profile, dpjax.piecewise_laplace, 1.0)
    >>> round(float(dpjax.piecewise_laplace(profile, epsilon).mean_abs_error(profile.value)), 4)
    1.0
    """
    value = profile.value
    aim = checks.positive("target", target, value.dtype)
    batch = jnp.broadcast_shapes(value.shape, aim.shape)
    checks.positive("lower", lower, value.dtype)
    low, high = (
        jnp.broadcast_to(jnp.log(end), batch) for end in checks.bounds(lower, upper, value.dtype)
    )

    def too_large(log_epsilon: jax.Array) -> jax.Array:
        return ~(mechanism(profile, jnp.exp(log_epsilon)).mean_abs_error(value) <= aim)

    found = jnp.where(too_large(low), bisect(too_large, low, high)[1], low)
    return jnp.where(jnp.isnan(aim) | too_large(high), jnp.nan, jnp.exp(found))


def allocate(
    errors: Callable[[jax.Array], jax.Array],
    total: ArrayLike,
    *,
    queries: int,
    budget: Literal["epsilon", "zcdp"] = "epsilon",
    steps: int = 100,
) -> jax.Array:
    """Split a budget over queries so that the sum of their errors is small.

    By multiplicative gradient steps: at the optimum the marginal value of budget, minus the
    derivative of the error, is equal for all queries, so each share is multiplied by a power of its
    marginal value. If errors are proportional to 1/epsilon, the first step is optimal. A step that
    does not reduce the sum is taken back and halved: the result is a local optimum, and never worse
    than an even split.

    Args:
        errors: a differentiable function of epsilons ``(..., queries)`` that returns the error of
            each query, of the same shape; each error depends on the epsilon of its own query only.
        total: positive ``(...)``: the sum of the epsilons, or with ``"zcdp"`` the root of the sum
            of their squares, since rho is proportional to epsilon^2 for mechanisms of one kind.
        queries: the number of queries, at least 1; static, as is ``steps``.
        budget: ``"epsilon"`` (basic composition) or ``"zcdp"``.
        steps: the number of gradient steps.

    Returns:
        Epsilons ``(..., queries)``, the best split of all steps.

    Privacy:
        Not private where the errors are functions of the data: use it for simulation and public
        data only.

    >>> errors = lambda epsilon: jnp.array([1.0, 4.0, 9.0]) / epsilon
    >>> allocate(errors, 6.0, queries=3).round(4).tolist()
    [1.0, 2.0, 3.0]
    """
    checks.one_of("budget", budget, ("epsilon", "zcdp"))
    queries = checks.static_integer("queries", queries, 1)
    dtype = checks.float_dtype(total)
    total_budget = checks.positive("total", total, dtype)[..., None]
    root, power = (1.0, 0.5) if budget == "epsilon" else (0.5, 2 / 3)

    def objective(shares: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = jnp.sum(errors(total_budget * shares**root), axis=-1)
        return jnp.sum(rows), rows

    def step(_: int, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        shares, least, slope, step_size = state
        marginal = jnp.maximum(-slope, jnp.finfo(dtype).tiny)
        marginal = marginal / jnp.max(marginal, axis=-1, keepdims=True)
        moved = shares * jnp.maximum(marginal, 1e-6) ** (step_size * power)[..., None]
        moved = moved / jnp.sum(moved, axis=-1, keepdims=True)
        (_, rows), new_slope = jax.value_and_grad(objective, has_aux=True)(moved)
        better = rows < least
        step_size = jnp.where(
            better, jnp.minimum(2 * step_size, 1.0), step_size / 2
        )  # a step that does not improve is taken back and halved
        row = better[..., None]
        return (
            jnp.where(row, moved, shares),
            jnp.minimum(rows, least),
            jnp.where(row, new_slope, slope),
            step_size,
        )

    even = jnp.full((*total_budget.shape[:-1], queries), 1 / queries, dtype)
    (_, rows), slope = jax.value_and_grad(objective, has_aux=True)(even)
    best = jax.lax.fori_loop(0, steps, step, (even, rows, slope, jnp.ones_like(rows)))[0]
    return jnp.where(jnp.isnan(total_budget), jnp.nan, total_budget * best**root)
