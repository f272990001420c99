"""Profiles of quantiles: sorted rows read at ranks, fractions with the denominator of q.

Ranks are computed in integers: 0.1 * n in floating point is sometimes off by a rank, and a rank off
by one on one side leaks 1.44 epsilon.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors
from dpjax.numerics.arrays import integers
from dpjax.sensitivity.profile import counted
from dpjax.statistics.sorting import SortedRows

Definition = Literal["linear", "lower", "continuous"]
DEFINITIONS = ("linear", "lower", "continuous")


class Ranks(NamedTuple):
    """Ranks of a profile, ``(per_record * n + constant +- step * level) / denominator``."""

    per_record: int
    constant: int
    step: int
    denominator: int
    definition: Definition

    @property
    def refinement(self) -> int:
        """The number of parts between two records for interpolation; 1 without it."""
        return 1 if self.definition == "lower" else self.denominator

    def base(self, n: Any) -> Any:
        """Return the numerator of the rank at level 0."""
        return n * np.int32(self.per_record) + np.int32(self.constant)

    def read(self, x: SortedRows, numerator: Any) -> jax.Array:
        """Return x, or its interpolation, at ``numerator / denominator``."""
        v = np.int32(self.denominator)

        def at(rank: Any) -> jax.Array:
            # Unsigned, an index needs no check for counting from the end.
            return x.at(jnp.clip(rank, 0, x.n_max + 1).astype(jnp.uint32))

        whole_row = v * integers(x.n_max + 2)
        if isinstance(numerator, np.ndarray) and np.array_equal(numerator.ravel(), whole_row):
            return x.values
        if self.definition == "lower":
            return at(-((-numerator) // v))
        integer = numerator // v
        part = jnp.asarray(numerator - integer * v).astype(x.values.dtype) / float(v)
        below, above = at(integer), at(integer + np.int32(1))
        return jnp.minimum(below + part * (above - below), above)

    def at_levels(self, x: SortedRows) -> tuple[jax.Array, jax.Array, int]:
        """Return the values at levels ..., 1, 0, 1, ... in ascending order, levels and center.

        The last level of each side reaches the bound for a full row.
        """
        base = self.per_record * x.n_max + self.constant
        # The rank n + 1; of ranks beyond n, a ceil makes it.
        end = self.denominator * x.n_max + (1 if self.definition == "lower" else self.denominator)
        down, up = (-(-far // self.step) for far in (base, end - base))
        level = integers(-down, up + 1)
        values = self.read(x, self.base(x.n) + np.int32(self.step) * level)
        return values, counted(down, up, values.dtype), down

    def at_records(self, x: SortedRows) -> tuple[jax.Array, jax.Array, int]:
        """Return the values with a knot at every integer rank, their levels, and the center."""
        v, base = np.int32(self.denominator), self.base(x.n)
        # For a full row, which has the most knots on either side.
        top = self.per_record * x.n_max + self.constant
        down, up = -(-top // self.denominator), x.n_max + 1 - top // self.denominator
        below = jnp.maximum(-(-base // v) - integers(down, 0, -1), 0)
        above = jnp.minimum(base // v + integers(1, up + 1), x.n + np.int32(1))
        numerator = jnp.concatenate([below * v, base, above * v], axis=-1)
        values = self.read(x, numerator)
        levels = abs(numerator - base).astype(values.dtype) / np.asarray(self.step, values.dtype)
        return values, levels.reshape(-1) if isinstance(x.n, np.ndarray) else levels, down


def check_denominator(name: str, denominator: int, n: int, most: int) -> None:
    """Raise if ranks of n records, up to ``most``, have numerators beyond 32-bit integers."""
    if denominator * most >= 2**31:
        raise ValueError(
            f"{name} must have a smaller denominator for exact ranks of {n} records, got "
            f"{denominator}: use a short decimal or a Fraction such as Fraction(1, 3)."
        )


def ranks_of_quantile(q: Any, *, definition: Definition, neighbors: Neighbors) -> Ranks:
    """Return the ranks of the profile of a quantile, or raise if ``q`` is invalid."""
    fraction = checks.level(q)
    u, v = fraction.numerator, fraction.denominator
    step = v if neighbors == "swap" else max(u, v - u)
    constant = 0 if definition == "lower" else v - u
    return Ranks(per_record=u, constant=constant, step=step, denominator=v, definition=definition)


def ranks_of_order_statistic(rank: int, n: int) -> Ranks:
    """Return the ranks of the profile of the record of a fixed rank, or raise outside 1..n."""
    rank = checks.static_integer(
        "rank", rank, 1, n, must=f"an integer from 1 to the {n} records on the last axis of x"
    )
    return Ranks(per_record=0, constant=rank, step=1, denominator=1, definition="lower")
