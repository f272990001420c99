"""Retries of any mechanism, a fixed number of times, until it succeeds (Steinke 2025).

    for each of m attempts: outcome = draw(fresh key);  the first with succeeded(outcome), or else
    the fallback

The post repeats as long as necessary, which takes a time that depends on the data. Here all m
attempts are always made, which leaves a probability of failure^m to the fallback. Privacy: the
argument and its conditions are in ``dpjax.accounting.failures``: ``succeeded`` depends on the data
only through the outcome, and ``failure`` bounds the probability of a failed attempt on EVERY
dataset. A bound that holds for most datasets only is not enough: where it fails, so does delta.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.failures import Bound, Fallback, number_of_attempts, retry_until_success
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.distributions.finite import Finite
from dpjax.numerics.arrays import broadcast_rows, concatenate
from dpjax.random import check_key

Outcome = TypeVar("Outcome")


def guarantee(
    attempt: Guarantee, *, failure: float, attempts: int, fallback: Fallback, bound: Bound = "sharp"
) -> Guarantee:
    """Return the guarantee of one draw of :func:`never_fail`.

    ``failure`` bounds the probability that an attempt fails, on every dataset. See
    :func:`dpjax.accounting.failures.retry_until_success` for it, ``fallback`` and ``bound``.

    >>> attempt = Guarantee(1.0, 1.0, "swap")
    >>> print(never_fail.guarantee(attempt, failure=0.5, attempts=40, fallback="public"))
    (1, 9.09495e-13)-DP under swap neighbors
    """
    return retry_until_success(attempt, failure, attempts=attempts, fallback=fallback, bound=bound)


@with_guarantee(guarantee)
def never_fail(
    key: jax.Array,
    draw: Callable[[jax.Array], Outcome],
    *,
    succeeded: Callable[[Outcome], jax.Array],
    fallback: Outcome,
    attempts: int,
) -> Outcome:
    """Return the first success of a fixed number of attempts, or the fallback, per element.

    Args:
        key: a scalar typed threefry key.
        draw: one attempt, a function from a key to a float or integer array or a pytree of them,
            such as ``distribution.sample``.
        succeeded: a function from the outcome of ``draw`` to bool ``(...)``, whose shape must be
            the leading axes of all arrays of the outcome. Each element succeeds or fails
            separately.
        fallback: the result where no attempt succeeds: a pytree like the outcome, each array
            broadcasting against it.
        attempts: static, at least 1, chosen without the data; see
            :func:`dpjax.accounting.failures.attempts_for`.

    Returns:
        A pytree like the outcome. An attempt with NaN succeeds if ``succeeded`` says so.

    Raises:
        TypeError: ``succeeded`` does not return booleans.
        ValueError: the structure of ``fallback`` or the shape of ``succeeded`` does not fit the
            outcome.

    Privacy:
        That of :func:`dpjax.accounting.failures.retry_until_success` for the guarantee of one
        attempt and its failure probability on the worst dataset. ``succeeded`` must be a fixed
        function of the outcome: a threshold that depends on the data breaks the guarantee
        (:func:`dpjax.mechanisms.bounded_loss` tests a loss privately). The fallback is public, or
        depends on the data, for which the guarantee needs ``fallback="private"``. Float draws are
        simulations.

    References:
        Steinke, "Differentially private algorithms that never fail", differentialprivacy.org
        (2025), Theorem 1.

    >>> import jax
    >>> draw = lambda key: 3 + jax.random.exponential(key, (1000,))
    >>> y = never_fail(
    ...     jax.random.key(0), draw, succeeded=lambda y: y < 4, fallback=3.5, attempts=20
    ... )
    >>> bool((y < 4).all())
    True
    """
    keys = jax.random.split(check_key(key), number_of_attempts(attempts))
    outcome = jax.eval_shape(draw, keys[0])
    success = jax.eval_shape(succeeded, outcome)
    if success.dtype != jnp.bool_:
        raise TypeError(f"succeeded must return booleans, got {success.dtype}.")
    expected, found = str(jax.tree.structure(outcome)), str(jax.tree.structure(fallback))
    if expected != found:
        raise ValueError(
            f"fallback must have the pytree structure of the outcome, {expected}, got {found}."
        )
    begins_with("succeeded", success.shape, outcome)

    def attempt(
        state: tuple[Outcome, jax.Array], key: jax.Array
    ) -> tuple[tuple[Outcome, jax.Array], None]:
        held, done = state
        found = draw(key)
        success = succeeded(found)
        return (where(success & ~done, found, held), done | success), None

    start = jax.tree.map(
        lambda value, leaf: jnp.broadcast_to(jnp.asarray(value, leaf.dtype), leaf.shape),
        fallback,
        outcome,
    )
    return jax.lax.scan(attempt, (start, jnp.zeros(success.shape, jnp.bool_)), keys)[0][0]


def begins_with(reader: str, shape: tuple[int, ...], outcome: Any) -> None:
    """Raise if the arrays of an outcome do not have ``shape`` as their leading axes."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(outcome)]
    if any(leaf_shape[: len(shape)] != shape for leaf_shape in shapes):
        raise ValueError(
            f"every array of the outcome must begin with the axes of {reader}, {shape}, got shapes "
            f"{shapes}."
        )


def where(condition: jax.Array, new: Outcome, old: Outcome) -> Outcome:
    """Select ``new`` where the condition holds, else ``old``, in pytrees with its leading axes."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(
            jnp.expand_dims(condition, tuple(range(condition.ndim, new.ndim))), new, old
        )

    return jax.tree.map(choose, new, old)


def never_fail_distribution(
    distribution: Finite, acceptance: ArrayLike, *, fallback: ArrayLike, attempts: int
) -> Finite:
    """Return the distribution of :func:`never_fail` over candidates.

    It is P(y) a(y) (1 - q^m)/(1 - q), plus q^m for the fallback. a(y) is the probability that y is
    accepted, 0 or 1 for a set of successes, and q = sum over y of P(y) (1 - a(y)).

    Args:
        distribution: the distribution of one attempt, of batch shape ``(...)``.
        acceptance: float ``(k,)`` or ``(..., k)``, clipped to [0, 1], and 0 where it is NaN.
        fallback: float ``(...)``.
        attempts: the number m of attempts, as for :func:`never_fail`.

    Returns:
        A :class:`Finite` of k+1 values, the last being the fallback (also if it equals a candidate:
        the probabilities of equal values add up), with minus log-probabilities as costs, at rate 1.
        A draw from it takes the same time for all data.

    >>> import jax.numpy as jnp
    >>> one = Finite(jnp.array([1.0, 2.0, 3.0]), jnp.zeros(3), jnp.ones(()))
    >>> found = never_fail_distribution(one, [1, 0, 0], fallback=9.0, attempts=2)
    >>> [round(float(p), 4) for p in found.probabilities()]
    [0.5556, 0.0, 0.0, 0.4444]
    """
    checks.instance(
        "never_fail_distribution", distribution, Finite, "such as dpjax.exponential(...)"
    )
    accepted = checks.float_array("acceptance", acceptance).astype(distribution.dtype)
    if accepted.shape[-1:] != distribution.values.shape[-1:]:
        k = distribution.values.shape[-1]
        raise ValueError(
            f"acceptance must have one element for each of the {k} candidates on the last axis, "
            f"got shape {accepted.shape}."
        )
    last = checks.float_array("fallback", fallback).astype(distribution.dtype)
    batch = jnp.broadcast_shapes(distribution.batch_shape, accepted.shape[:-1], last.shape)
    values = concatenate(distribution.values, jnp.broadcast_to(last, batch)[..., None])
    return Finite(
        values,
        _cost(distribution, accepted, batch, number_of_attempts(attempts)),
        jnp.ones((), distribution.dtype),
    )


@partial(jax.jit, static_argnames=("batch", "attempts"))
def _cost(one: Finite, acceptance: jax.Array, batch: tuple[int, ...], attempts: int) -> jax.Array:
    """Return minus the log-probability of every candidate, and of the fallback."""
    accepted = jnp.where(jnp.isnan(acceptance), 0.0, jnp.clip(acceptance, 0.0, 1.0))
    log_chance = broadcast_rows(one.log_probabilities(), batch)
    success, failure = (
        jnp.sum(jnp.exp(log_chance) * part, axis=-1, keepdims=True)
        for part in (accepted, 1 - accepted)
    )
    # log q from the smaller of q and 1 - q; the masks keep the derivatives finite.
    likely, sure, hopeless = success > failure, failure == 0, success == 0
    small = jnp.log1p(-jnp.where(likely, 0.0, success))
    log_failure = jnp.where(
        likely, jnp.where(sure, -jnp.inf, jnp.log(jnp.where(sure, 1.0, failure))), small
    )
    some = -jnp.expm1(attempts * log_failure)  # 1 - q^m
    log_repeats = jnp.log(jnp.where(hopeless, 1.0, some / jnp.where(hopeless, 1.0, success)))
    kept = (log_chance > -jnp.inf) & (accepted > 0)
    log_kept = jnp.where(kept, log_chance, 0.0) + jnp.log(jnp.where(kept, accepted, 1.0))
    cost = jnp.where(kept | jnp.isnan(log_repeats), -log_kept - log_repeats, jnp.inf)
    return jnp.concatenate([cost, -attempts * log_failure], axis=-1)
