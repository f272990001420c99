"""Checks that budgets are a metric, with a report of the violations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax.metric_privacy.budgets import square_array
from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.shortest_paths import detours
from dpjax.pytrees import pytree

_MOST = 2**31 - 1


@pytree
class Report:
    """The report of :func:`validate` for every batch element; ``print`` it for one matrix.

    Attributes:
        asymmetry: float ``(...)``, the largest difference of d(i, j) and d(j, i).
        diagonal: float ``(...)``, the largest abs(d(i, i)).
        least: float ``(...)``, the smallest d(i, j) with i != j. At 0, two elements must be
            indistinguishable.
        coincident: int32 ``(...)``, the number of pairs i < j with d(i, j) = 0.
        unprotected: int32 ``(...)``, the number of pairs i < j with d(i, j) = inf.
        triple: int32 ``(..., 3)``, the i, j, k of the worst violation of d(i, j) <= d(i, k) + d(k,
            j); -1 where there is none.
        direct: float ``(...)``, its d(i, j); NaN where there is none.
        detour: float ``(...)``, its d(i, k) + d(k, j); NaN where there is none.
        violations: int32 ``(...)``, the number of triples i < j, k that violate it; 2^31 - 1 means
            that number or more.
        missing: bool ``(...)``, whether any budget is NaN. The other fields are then meaningless.

    >>> report = validate([[0, 1, 5], [1, 0, 2], [5, 2, 0]])
    >>> bool(report.is_metric), int(report.violations), float(report.excess)
    (False, 1, 2.0)
    """

    asymmetry: jax.Array
    diagonal: jax.Array
    least: jax.Array
    coincident: jax.Array
    unprotected: jax.Array
    triple: jax.Array
    direct: jax.Array
    detour: jax.Array
    violations: jax.Array
    missing: jax.Array

    @property
    def excess(self) -> jax.Array:
        """The excess of the worst violation of the triangle inequality, ``(...)``; 0 if none."""
        return jnp.where(self.violations > 0, self.direct - self.detour, 0.0)

    @property
    def is_symmetric(self) -> jax.Array:
        """True where budgets are symmetric, nonnegative and 0 on the diagonal. Bool ``(...)``.

        Every mechanism needs this.
        """
        return (self.asymmetry == 0) & (self.diagonal == 0) & (self.least >= 0) & ~self.missing

    @property
    def is_metric(self) -> jax.Array:
        """True where the triangle inequality holds too, up to the tolerance. Bool ``(...)``.

        Distances may be 0.
        """
        return self.is_symmetric & (self.violations == 0)

    def __str__(self) -> str:
        if self.missing.ndim:
            metrics = int(jnp.sum(self.is_metric))
            return f"reports on a batch of shape {self.missing.shape}: {metrics} are metrics"
        report = jax.device_get(self)
        if report.missing:
            return "no metric: NaN among the budgets"
        wrong = []
        if report.asymmetry != 0:
            wrong.append(f"d(i, j) and d(j, i) differ by up to {report.asymmetry:g}")
        if report.diagonal != 0:
            wrong.append(f"d(i, i) is up to {report.diagonal:g}")
        if report.least < 0:
            wrong.append(f"the smallest budget is {report.least:g}")
        if report.violations:
            i, j, k = report.triple
            number = f"{report.violations}{' or more' if report.violations == _MOST else ''}"
            wrong.append(
                f"d({i}, {j}) = {report.direct:g} > d({i}, {k}) + d({k}, {j}) = {report.detour:g}, "
                f"the worst of {number} triangles (closure() repairs them)"
            )
        verdict = "no metric: " + "; ".join(wrong) if wrong else "a metric"
        verdict += f"; {report.coincident} pairs are at distance 0" if report.coincident else ""
        return verdict + (
            f"; {report.unprotected} pairs are unprotected (inf)" if report.unprotected else ""
        )


def validate(metric: Metric | ArrayLike, *, tolerance: float | None = None) -> Report:
    """Check symmetry, the diagonal, signs, and the triangle inequality over all triples.

    It takes N steps of N x N work on the device.

    A violated triangle inequality is legitimate (a Blowfish policy has it): every mechanism within
    the budgets is also within their ``closure()``. Only pairs i < j are checked.

    Args:
        metric: a :class:`Metric`, or budgets of any kind, ``(..., N, N)``.
        tolerance: a nonnegative Python float; a triangle counts if d(i, j) is above the detour by
            more than this fraction of it; by default 16 units in the last place.

    >>> print(validate([[0, 1, 5], [1, 0, 2], [5, 2, 0]]))  # doctest: +NORMALIZE_WHITESPACE
    no metric: d(0, 2) = 5 > d(0, 1) + d(1, 2) = 3,
    the worst of 1 triangles (closure() repairs them)
    """
    budgets = (
        metric.dense().budgets if isinstance(metric, Metric) else square_array("metric", metric)
    )
    slack = 16 * float(np.finfo(budgets.dtype).eps) if tolerance is None else float(tolerance)
    if not slack >= 0:
        raise ValueError(f"tolerance must be nonnegative, got {tolerance}.")
    return _validate(budgets, jnp.asarray(slack, budgets.dtype))


@jax.jit
def _validate(budgets: jax.Array, tolerance: jax.Array) -> Report:
    size, batch = budgets.shape[-1], budgets.shape[:-2]
    itself = jnp.eye(size, dtype=bool)
    above = jnp.triu(jnp.ones((size, size), bool), 1)
    mirrored = jnp.swapaxes(budgets, -1, -2)

    def exceeds(path: jax.Array) -> jax.Array:
        return above & (budgets > path + tolerance * jnp.abs(path))

    def step(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        shortest, count = carry
        path = detours(budgets, k)
        # No overflow: at most 2^31 - 1 so far, and N (N - 1) / 2 more, which is less than 2^31 for
        # a matrix that fits in memory.
        count = count + jnp.sum(exceeds(path), axis=(-2, -1), dtype=jnp.uint32)
        return jnp.minimum(shortest, path), jnp.minimum(count, jnp.uint32(_MOST))

    start = jnp.full(budgets.shape, jnp.inf, budgets.dtype), jnp.zeros(batch, jnp.uint32)
    shortest, count = jax.lax.fori_loop(0, size, step, start)

    wrong = exceeds(shortest)
    excess = jnp.where(wrong, budgets - jnp.where(wrong, shortest, 0.0), -jnp.inf)
    endless = excess == jnp.inf  # of these, the one with the shortest detour is the worst
    some_endless = jnp.any(endless, axis=(-2, -1), keepdims=True)
    badness = jnp.where(some_endless, jnp.where(endless, -shortest, -jnp.inf), excess)
    pair = jnp.argmax(badness.reshape(*batch, size * size), axis=-1).astype(jnp.int32)
    i, j = pair // size, pair % size
    from_i = jnp.take_along_axis(budgets, i[..., None, None], axis=-2)[..., 0, :]
    to_j = jnp.take_along_axis(budgets, j[..., None, None], axis=-1)[..., 0]
    paths = from_i + to_j
    found = count > 0
    direct = jnp.take_along_axis(from_i, j[..., None], axis=-1)[..., 0]

    different = jnp.where(itself, jnp.inf, budgets)
    gap = jnp.where(budgets == mirrored, 0.0, jnp.abs(budgets - mirrored))
    return Report(
        asymmetry=jnp.max(gap, axis=(-2, -1)),
        diagonal=jnp.max(jnp.where(itself, jnp.abs(budgets), 0.0), axis=(-2, -1)),
        least=jnp.min(different, axis=(-2, -1)),
        coincident=jnp.sum(above & (budgets == 0), axis=(-2, -1), dtype=jnp.int32),
        unprotected=jnp.sum(above & (budgets == jnp.inf), axis=(-2, -1), dtype=jnp.int32),
        triple=jnp.where(
            found[..., None],
            jnp.stack([i, j, jnp.argmin(paths, axis=-1).astype(jnp.int32)], axis=-1),
            -1,
        ),
        direct=jnp.where(found, direct, jnp.nan),
        detour=jnp.where(found, jnp.min(paths, axis=-1), jnp.nan),
        violations=count.astype(jnp.int32),
        missing=jnp.any(jnp.isnan(budgets), axis=(-2, -1)),
    )
