"""Any mechanism, tried a fixed number of times until it succeeds (Steinke 2025).

    for each of m attempts: outcome = draw(fresh key);  the first with succeeded(outcome), or else the fallback

The post repeats as long as necessary, and the time that takes depends on the data. Here all m attempts are always made, which
leaves a probability of failure^m to the fallback. Privacy: the argument is in ``dpjax.accounting.failures``, with its conditions:
``succeeded`` reads the outcome and nothing else of the data, and ``failure`` bounds the probability of a failed attempt on EVERY
dataset. A bound that holds for most datasets is none: where it fails, so does delta.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.failures import Bound, Fallback, number_of_attempts, retry_until_success
from dpjax.accounting.guarantee import Guarantee
from dpjax.distributions.finite import Finite, above_least
from dpjax.numerics.batching import align, broadcast_batch, broadcast_rows
from dpjax.numerics.sums import pad, pair_sums
from dpjax.random.keys import check_key

Outcome = TypeVar("Outcome")
_LANES = 32  # log and exp differ in their last bits between the lanes of a row that is not a multiple of this


def never_fail(
    key: jax.Array,
    draw: Callable[[jax.Array], Outcome],
    *,
    succeeded: Callable[[Outcome], jax.Array],
    fallback: Outcome,
    attempts: int,
) -> Outcome:
    """Return the first success of a fixed number of attempts, for each row of a batch, or the fallback.

    Args:
        key: a scalar typed threefry key.
        draw: one attempt: a function of a key, to a float or integer array or a pytree of them, such as ``law.sample``. It is
            traced once.
        succeeded: from the outcome of ``draw`` to bool ``(...)``: the axes that all arrays of the outcome begin with. Each of its
            elements succeeds or fails on its own.
        fallback: what is returned where no attempt succeeds: a pytree like the outcome, each array broadcasting against it.
        attempts: static, at least 1, chosen without the data; see :func:`dpjax.accounting.failures.attempts_for`.

    Returns:
        A pytree like the outcome. Attempts of NaN, too, are what ``succeeded`` says they are.

    Raises:
        TypeError: ``key`` is not a typed key; ``succeeded`` returns no booleans.
        ValueError: another kind of key, ``attempts`` that are no positive integer, shapes or a structure that do not fit.

    Privacy:
        That of :func:`dpjax.accounting.failures.retry_until_success` for the guarantee of one attempt and its failure probability
        on the worst dataset. ``succeeded`` must be a fixed function of the outcome: a threshold that depends on the data breaks
        the guarantee (:func:`dpjax.mechanisms.bounded_loss.bounded_loss` tests a loss privately). The fallback is public, or read
        from the data where the guarantee is asked for with ``fallback="private"``. The number of attempts made is always the
        same. Float draws are simulations.

    References:
        Steinke, "Differentially private algorithms that never fail", differentialprivacy.org (2025), Theorem 1.

    >>> import jax
    >>> from dpjax.random import exponential
    >>> draw = lambda key: 3 + exponential(key, (1000,))
    >>> y = never_fail(jax.random.key(0), draw, succeeded=lambda y: y < 4, fallback=3.5, attempts=20)
    >>> bool((y < 4).all())
    True
    """
    keys = jax.random.split(check_key(key), number_of_attempts(attempts))
    like = jax.eval_shape(draw, keys[0])
    told = jax.eval_shape(succeeded, like)
    if told.dtype != jnp.bool_:
        raise TypeError(f"succeeded must return booleans, got {told.dtype}.")
    wanted, given = str(jax.tree.structure(like)), str(jax.tree.structure(fallback))
    if wanted != given:
        raise ValueError(f"fallback must be built like the outcome, {wanted}, got {given}.")
    if any(leaf.shape[: told.ndim] != told.shape for leaf in jax.tree.leaves(like)):
        shapes = [leaf.shape for leaf in jax.tree.leaves(like)]
        raise ValueError(f"every array of the outcome must begin with the axes of succeeded, {told.shape}, got {shapes}.")

    def attempt(state: tuple[Outcome, jax.Array], key: jax.Array) -> tuple[tuple[Outcome, jax.Array], None]:
        held, done = state
        outcome = draw(key)
        success = succeeded(outcome)
        first = success & ~done

        def choose(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(first.reshape(first.shape + (1,) * (new.ndim - first.ndim)), new, old)

        return (jax.tree.map(choose, outcome, held), done | success), None

    def spread(value: ArrayLike, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        array = jnp.asarray(value).astype(leaf.dtype)
        return broadcast_batch(array, leaf.shape)

    start = jax.tree.map(spread, fallback, like), jnp.zeros(told.shape, jnp.bool_)
    return jax.lax.scan(attempt, start, keys)[0][0]


def never_fail_law(law: Finite, acceptance: ArrayLike, *, fallback: ArrayLike, attempts: int) -> Finite:
    """Return the exact law of :func:`never_fail` over candidates: P(y) a(y) (1 - q^m)/(1 - q), and q^m more for the fallback.

    a(y) is the probability that y is accepted, 0 or 1 for a set of successes, and q = sum over y of P(y) (1 - a(y)).

    Args:
        law: of one attempt, of batch shape ``(...)``.
        acceptance: float ``(k,)`` or ``(..., k)`` in [0, 1]; clipped to it, and 0 where it is NaN.
        fallback: float ``(...)``.
        attempts: m, static, at least 1, chosen without the data.

    Returns:
        A :class:`Finite` of k+1 values, the last the fallback (also if it is one of the candidates: equal values add up), with
        minus log-probabilities as costs, at rate 1.

    Raises:
        TypeError: what is no :class:`Finite`.
        ValueError: ``attempts`` that are no positive integer, shapes that do not fit.

    Privacy:
        As :func:`never_fail`. A draw from this law takes the same time whatever the data.

    References:
        Steinke, "Differentially private algorithms that never fail", differentialprivacy.org (2025), Theorem 1.

    >>> import jax.numpy as jnp
    >>> law = Finite(jnp.array([1.0, 2.0, 3.0]), jnp.zeros(3), jnp.ones(()))
    >>> [round(float(p), 4) for p in never_fail_law(law, [1, 0, 0], fallback=9.0, attempts=2).probabilities()]
    [0.5556, 0.0, 0.0, 0.4444]
    """
    checks.instance("never_fail_law", law, Finite, "such as dpjax.exponential(...)")
    count = number_of_attempts(attempts)
    accepted = checks.float_array("acceptance", acceptance).astype(law.dtype)
    if accepted.ndim == 0 or accepted.shape[-1] != law.values.shape[-1]:
        raise ValueError(f"{law.values.shape[-1]} candidates need as many acceptance probabilities, got shape {accepted.shape}.")
    last = checks.float_array("fallback", fallback).astype(law.dtype)
    return _never_fail_law(law, accepted, last, count)


@partial(jax.jit, static_argnames=("attempts",))
def _never_fail_law(law: Finite, acceptance: jax.Array, fallback: jax.Array, attempts: int) -> Finite:
    batch = jnp.broadcast_shapes(law.batch_shape, acceptance.shape[:-1], fallback.shape)
    rank, size = len(batch) + 1, law.values.shape[-1]
    # Rows of a multiple of 32 candidates, products that no sum absorbs, and sums of neighbours: no further row changes a bit.
    accepted = jnp.where(jnp.isnan(acceptance), 0.0, jnp.clip(acceptance, 0.0, 1.0))
    accepted = align(jnp.pad(accepted, [(0, 0)] * (accepted.ndim - 1) + [(0, -size % _LANES)]), rank)
    cost = jnp.pad(law.cost, [(0, 0)] * (law.cost.ndim - 1) + [(0, -size % _LANES)], constant_values=jnp.inf)
    above = align(above_least(cost), rank)
    reachable = above != jnp.inf
    log_weight = -jnp.abs(jnp.where(reachable, above, 0.0) * align(law.rate, rank - 1)[..., None])
    weight = jnp.where(reachable, jnp.exp(log_weight), 0.0)
    sums = (_sum(weight), _sum(jnp.abs(weight * accepted)), _sum(jnp.abs(weight * (1 - accepted))))
    total, success, failure = (pad(broadcast_rows(part, batch).reshape(-1), _LANES) for part in sums)
    log_total, log_leftover, log_repeats = (
        column[: prod(batch)].reshape(*batch, 1) for column in _of_all_attempts(total, success, failure, attempts)
    )
    kept = reachable & (accepted > 0)
    log_kept = (jnp.where(kept, log_weight, 0.0) + jnp.log(jnp.where(kept, accepted, 1.0))) + (log_repeats - log_total)
    own = jnp.where(kept | jnp.isnan(log_repeats), -log_kept, jnp.inf)[..., :size]
    cost = jnp.concatenate([own, -log_leftover], axis=-1)
    ends = broadcast_batch(fallback, batch)[..., None]
    values = jnp.concatenate([broadcast_rows(law.values, batch), ends], axis=-1)
    return Finite(values, cost, jnp.ones((), law.dtype))


def _of_all_attempts(
    total: jax.Array, accepted: jax.Array, rejected: jax.Array, attempts: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """From sums of weights, ``(rows,)``: the logarithms of the total, of P(no success), and of the expected number of attempts."""
    success, failure = accepted / total, rejected / total
    # The logarithm of q from whichever of q and 1 - q is the smaller; the masks keep the derivatives finite.
    likely = success > failure
    log_failure = jnp.where(
        likely,
        jnp.where(failure > 0, jnp.log(jnp.where(likely & (failure > 0), failure, 0.5)), -jnp.inf),
        jnp.log1p(-jnp.where(likely, 0.0, success)),
    )
    certain = log_failure == -jnp.inf
    log_leftover = jnp.where(certain, -jnp.inf, attempts * jnp.where(certain, 0.0, log_failure))
    made = jnp.where(certain, 1.0, -jnp.expm1(attempts * jnp.where(certain, -1.0, log_failure)))
    positive = success > 0
    log_repeats = jnp.log(jnp.where(positive, made / jnp.where(positive, success, 1.0), 1.0))
    return jnp.log(total), log_leftover, log_repeats


def _sum(weights: jax.Array) -> jax.Array:
    """The sum over the last axis, ``(..., 1)``, by adds of neighbours: no row and no zero at the end changes it."""
    while weights.shape[-1] > 1:
        weights = pair_sums(weights if weights.shape[-1] % 2 == 0 else pad(weights, 2))
    return weights


def guarantee(attempt: Guarantee, *, failure: float, attempts: int, fallback: Fallback, bound: Bound = "sharp") -> Guarantee:
    """Return what one draw of :func:`never_fail` costs.

    Args:
        attempt: the guarantee of one attempt.
        failure: in [0, 1), a bound on the probability that an attempt fails, on every dataset.
        attempts: as for the draw.
        fallback: ``"public"`` or ``"private"``; see :func:`dpjax.accounting.failures.retry_until_success`.
        bound: see there.

    >>> print(guarantee(Guarantee(1.0, 1.0, "swap"), failure=0.5, attempts=40, fallback="public"))
    (1, 9.09495e-13)-DP under swap neighbors
    """
    return retry_until_success(attempt, failure, attempts=attempts, fallback=fallback, bound=bound)
