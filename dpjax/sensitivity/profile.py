"""The sensitivity profile: the values that a statistic can reach after 1, 2, ... changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Relation
from dpjax.display import Picture
from dpjax.numerics.arrays import concatenate, integers
from dpjax.numerics.multiples import from_multiples, most_multiples, to_multiples
from dpjax.pytrees import pytree

Reached = Literal["bounds", "extremes", "intervals"]


@pytree
class SensitivityProfile(Batch):
    """The extreme values of a statistic f after l individuals change, on either side of f(x).

    They are stored as one ascending row around f(x), with two views that extend outwards from it:
    ``upper[..., i]`` is the largest value of f within ``upper_levels[..., i]`` changes of the
    dataset, ``lower`` the smallest (Durfee's overline-f and underline-f). The privacy of every
    mechanism requires one property, Corollary 3.1: for neighbors x and x', the value at level l of
    x is never further out than the value at level l+1 of x'. The profiles of statistics have it;
    for other profiles (``from_radii``, or this class) the caller must ensure it.

    Leading axes are a batch. Padding repeats the last value and level: an interval of width 0 has
    no mass. The two sides may have different lengths. It is a pytree and differentiable in the
    data.

    Attributes:
        values: float ``(..., D+U+1)``, nondecreasing.
        levels: float ``(D+U+1,)`` or ``(..., D+U+1)``, the number of changes that reach each value;
            it falls to 0 at f(x) and then rises.
        center: static, the index D of f(x).
        step: float ``(...)`` or None: the length in y of every further level after the last entry
            of a side (a global sensitivity). None: there are no further levels, and the last entry
            is the bound.
        bounds: two floats ``(...)`` where the steps are cut, or None: the last entry of each side
            is the bound.
        neighbors: static, the relation that the profile is valid for.
        interpolable: static, whether the entries interleave between neighbors from level 0 on
            (Corollary 3.1). Otherwise flat pieces may still be private, but neither slopes
            (piecewise Laplace) nor a rho around the value are.
        integer_levels: static, whether levels are 0, 1, 2, ... (as inverse sensitivity requires).
        resolution: static, a public number of which all values are multiples, as are draws. None:
            there is no resolution, and the profile is for data without ties.
        reached: static, which values are known to be reached with that many changes; no guarantee
            depends on it. ``"bounds"``: none (radii, truncated and other profiles); ``"extremes"``:
            the values at each level; ``"intervals"``: also all values between the two sides, so
            that levels are the distances of :func:`dpjax.duff`.

    References:
        Durfee (2025), Section 3.1 and Corollary 3.1.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> profile = median(jnp.array([1.0, 2.0, 5.0]), lower=0, upper=10, neighbors="swap")
    >>> profile.upper.tolist(), profile.lower.tolist()
    ([2.0, 5.0, 10.0], [2.0, 1.0, 0.0])
    """

    values: jax.Array
    levels: jax.Array
    center: int = field(metadata={"static": True})
    step: jax.Array | None = None
    bounds: tuple[jax.Array, jax.Array] | None = None
    neighbors: Relation = field(default="add_remove", metadata={"static": True})
    interpolable: bool = field(default=True, metadata={"static": True})
    integer_levels: bool = field(default=True, metadata={"static": True})
    resolution: Fraction | None = field(default=None, metadata={"static": True})
    reached: Reached = field(default="bounds", metadata={"static": True})

    _event_axes = ("values", "levels")

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return the reachable values against the number of changes, which are not private."""
        few = self._first(rows)
        shape = (*few.batch_shape, few.values.shape[-1])
        x, y = (
            np.broadcast_to(array, shape).reshape(-1, shape[-1])
            for array in (few.values, few.levels)
        )
        table = {"value": x[:, few.center], "depth": few.depth, "least": x[:, 0], "most": x[:, -1]}
        return table, Picture(x, y, "value", "individuals who change")

    @property
    def upper(self) -> jax.Array:
        """The largest values of f, ``(..., U+1)``, nondecreasing from f(x)."""
        return self.values[..., self.center :]

    @property
    def lower(self) -> jax.Array:
        """The smallest values of f, ``(..., D+1)``, nonincreasing from f(x)."""
        return self.values[..., self.center :: -1]

    @property
    def upper_levels(self) -> jax.Array:
        """The level of each of the ``upper`` values, from 0."""
        return self.levels[..., self.center :]

    @property
    def lower_levels(self) -> jax.Array:
        """The level of each of the ``lower`` values, from 0."""
        return self.levels[..., self.center :: -1]

    @property
    def value(self) -> jax.Array:
        """The statistic itself, f(x), of shape ``batch_shape``; not private."""
        return self.values[..., self.center]

    @property
    @partial(jax.jit, inline=True)
    def depth(self) -> jax.Array:
        """The number of individuals who must change to move f(x), float ``(...)``; not private.

        It is the least l >= 1 with U(l) > f(x) or L(l) < f(x), and 1 without ties. Between
        neighbors with the same value it changes by at most 1, and where the values differ it is 1
        in both: so a mechanism may subtract depth - 1 from the cost of the value itself.
        """

        def unmoved(side: slice, end: int) -> jax.Array:
            """Return the last level at which a side still has the value, inf if on all levels."""
            there = self.values[..., side] == self.value[..., None]
            last = jnp.max(jnp.where(there, self.levels[..., side], 0.0), axis=-1)
            return last if self.step is not None else jnp.where(there[..., end], jnp.inf, last)

        most = jnp.maximum(self.levels[..., 0], self.levels[..., -1])
        level = jnp.minimum(
            unmoved(slice(None, self.center + 1), 0), unmoved(slice(self.center, None), -1)
        )
        return jnp.floor(jnp.minimum(level, most)) + 1

    @property
    def support(self) -> tuple[jax.Array, jax.Array] | None:
        """The range of the output, the same for neighbors, or None if it is the whole real line."""
        if self.bounds is not None:
            return self.bounds
        return (self.values[..., 0], self.values[..., -1]) if self.step is None else None

    def in_units(self, resolution: Fraction, refinement: int = 1) -> SensitivityProfile:
        """Convert the profile of records counted in multiples of ``resolution`` to data units.

        Its values, which are multiples of ``1 / refinement`` up to rounding, become multiples of
        ``resolution / refinement``.
        """
        step = resolution / refinement
        largest = jnp.maximum(abs(self.values[..., :1]), abs(self.values[..., -1:]))
        fits = largest * refinement <= most_multiples(self.dtype)
        scaled = from_multiples(jnp.round(self.values * refinement), step)
        return replace(self, values=jnp.where(fits, scaled, jnp.nan), resolution=step)

    def truncate(
        self, k: int, *, step: ArrayLike | None = None, num_steps: int | None = None
    ) -> SensitivityProfile:
        """Keep the first ``k`` pieces of each side and replace the rest by a coarser one.

        Fewer records then need to be read. Without ``step``, piece k+1 extends to the bound. With
        ``step``, every level beyond k adds that length until the bound: as one linear piece
        (piecewise Laplace only), or, if ``num_steps`` is given, as that many separate pieces
        clamped to the bound and one more that extends to it (for inverse sensitivity too).

        Fractional levels are cut at level k exactly, wherever the knots are, and the rest up to the
        bound stays at level k: the level min(level, k) changes by at most 1 between neighbors, for
        any profile. A slope from level k at the cut to k+1 at the bound, as with integer levels, is
        not private there: neighbors have other knots, and the range is 1.5 epsilon.

        Args:
            k: static and chosen without the data: a k that depends on it has been found to leak
                3.48 epsilon.
            step: positive, at least the global sensitivity of the statistic; broadcasts against
                ``batch_shape``. Shorter steps leak 2.75 epsilon.
            num_steps: static, at least 1.

        Returns:
            A profile with the same relation and range of the output.

        Raises:
            ValueError: ``num_steps`` is given without a step; there are neither bounds nor a step;
                or a step is given with fractional levels (a value can move by more than a fraction
                of the step in that fraction of a level).

        Privacy:
            Preserves Corollary 3.1 if k and step are public and step is at least the global
            sensitivity. Entries further out than the steps allow (radii may be upper bounds) move
            inwards: V(l) becomes the smallest V(j) + (l-j) step over j <= l. The minimum of
            interleaving sequences interleaves: for j >= 1 V(j) <= V'(j+1), and V(0) <= V'(0) +
            step.

        References:
            Durfee (2025), Section 5.2. Its k = O(1/epsilon) hides log(range/gap): a piece that
            extends to the bound must have negligible weight. On 1001 normal records the error is 1
            % larger at k = 4 log(range/gap)/epsilon, or a few levels more: 38 levels at epsilon 1
            and a range of 20, 84 at 2 million, under swap. At k = 10/epsilon it is 800 times as
            large
            (``benchmarks/experiments/optimality.py``).

        >>> import jax.numpy as jnp
        >>> from dpjax import median
        >>> profile = median(jnp.arange(1.0, 10.0), lower=0, upper=100, neighbors="swap")
        >>> profile.truncate(1).upper.tolist()
        [5.0, 6.0, 100.0]
        """
        k = checks.static_integer("k", k, 0, must="an integer, k >= 0")
        if num_steps is not None:
            num_steps = checks.static_integer(
                "num_steps", num_steps, 1, must="an integer, num_steps >= 1"
            )
            if step is None:
                raise ValueError(
                    "step must be given with num_steps, the number of steps that truncate adds, "
                    f"got num_steps={num_steps}."
                )
        support = self.support
        if not self.integer_levels:
            if step is not None or self.step is not None or support is None:
                raise ValueError(
                    "step must not be given for a profile with fractional levels, which truncate "
                    "only extends to its bounds."
                )
            return self._with_sides(partial(_cap, k))
        size = None if step is None else checks.positive("step", step, self.dtype)
        if size is not None and self.resolution is not None:
            # The next multiple, up to rounding, as a longer step is also valid
            number, rounding = to_multiples(size, self.resolution), 8 * jnp.finfo(self.dtype).eps
            below = from_multiples(number, self.resolution) < size * (1 - rounding)
            size = from_multiples(jnp.where(below, number + 1, number), self.resolution)
        if size is None and support is None:
            raise ValueError("step must be given, because this profile has no bounds.")
        ends_in_a_jump = support is not None and (size is None or num_steps is not None)

        def cut(values: jax.Array, levels: jax.Array, sign: int) -> tuple[jax.Array, jax.Array]:
            if ends_in_a_jump and self.step is None and values.shape[-1] - 1 <= k:
                return values, levels  # the bound is within the first k levels
            values, levels = values[..., : k + 1], levels[..., : k + 1]
            if size is not None:
                values = _no_faster_than(values, levels, sign * size)
            if size is not None and num_steps is not None:
                values = _go_on(values, num_steps, sign * size[..., None])
                levels = _go_on(levels, num_steps)
            if ends_in_a_jump and support is not None:
                values, levels = jump(values, support, sign), _go_on(levels, 1)
            return values, levels

        return self._with_sides(
            cut, step=None if ends_in_a_jump else size, bounds=None if ends_in_a_jump else support
        )

    def _with_sides(
        self,
        change: Callable[[jax.Array, jax.Array, int], tuple[jax.Array, jax.Array]],
        **fields: Any,
    ) -> SensitivityProfile:
        """Return the profile with new fields and sides; ``change`` maps values, levels and sign."""
        lower, upper = self.lower, self.upper
        below = change(lower, self.lower_levels, -1)
        above = change(upper, self.upper_levels, 1)
        unchanged = below[0] is lower and above[0] is upper
        return replace(
            self,
            values=outwards(below[0], above[0]),
            levels=outwards(below[1], above[1]),
            center=below[0].shape[-1] - 1,
            reached=self.reached if unchanged else "bounds",
            **fields,
        )


@partial(jax.jit, inline=True)
def outwards(lower: jax.Array, upper: jax.Array) -> jax.Array:
    """Join two sides that extend outwards from the same first entry in ascending order."""
    return concatenate(jnp.flip(lower, -1), upper[..., 1:])


@partial(jax.jit, inline=True, static_argnames=("neighbors", "interpolable", "reached"))
def from_sides(
    upper: jax.Array,
    lower: jax.Array,
    *,
    neighbors: Relation,
    step: jax.Array | None = None,
    interpolable: bool = True,
    reached: Reached = "bounds",
) -> SensitivityProfile:
    """Return a profile with the levels 0, 1, 2, ... on both sides, which extend outwards."""
    center = lower.shape[-1] - 1
    return SensitivityProfile(
        outwards(lower, upper),
        counted(center, upper.shape[-1] - 1, upper.dtype),
        center,
        step,
        neighbors=neighbors,
        interpolable=interpolable,
        reached=reached,
    )


def counted(down: int, up: int, dtype: Any) -> jax.Array:
    """Return the levels down, ..., 1, 0, 1, ..., up."""
    return jnp.abs(integers(-down, up + 1)).astype(dtype)


@partial(jax.jit, inline=True, static_argnames="sign")
def jump(values: jax.Array, bounds: tuple[jax.Array, jax.Array], sign: int) -> jax.Array:
    """Append a level at the bound of a side, and clamp values beyond the bounds.

    Clamping (min and max with a constant) preserves Corollary 3.1. Cutting the line between two
    values there would not: a neighbor may jump to the bound where this dataset's values pass it,
    and its cost at the bound is then more than 1 higher.
    """
    low, high = (bound[..., None] for bound in bounds)
    return concatenate(jnp.clip(values, low, high), high if sign > 0 else low)


@partial(jax.jit, inline=True)
def _no_faster_than(values: jax.Array, levels: jax.Array, step: jax.Array) -> jax.Array:
    """Move values inwards so that none exceeds an inner value plus the signed steps in between."""
    path, outwards = step[..., None] * levels, jnp.sign(step[..., None])
    ahead = outwards * (values - path)
    least = jax.lax.cummin(ahead, axis=ahead.ndim - 1)
    # Values that are not too far out are kept, without the rounding of the sum.
    return jnp.where(ahead > least, outwards * least + path, values)


@partial(jax.jit, inline=True, static_argnames=("k", "sign"))
def _cap(k: int, values: jax.Array, levels: jax.Array, sign: int) -> tuple[jax.Array, jax.Array]:
    """Replace every level of a side by min(level, k)."""
    near, rise = levels[..., :-1], jnp.diff(levels)
    share = jnp.clip((k - near) / jnp.where(rise > 0, rise, 1.0), 0.0, 1.0)
    ends = values[..., :-1] + share * jnp.diff(values)
    # The end of level k is the outermost of the ends before it.
    cut = sign * jnp.max(
        jnp.where(near < k, sign * ends, sign * values[..., :1]), axis=-1, keepdims=True
    )
    far = jnp.where(near < k, ends, cut)
    return concatenate(values[..., :1], far, values[..., -1:]), jnp.minimum(
        concatenate(levels, levels[..., -1:]), k
    )


@partial(jax.jit, static_argnames="count")
def _go_on(side: jax.Array, count: int, step: jax.Array | int = 1) -> jax.Array:
    """Append ``count`` entries to a side, each ``step`` beyond the one before it."""
    return concatenate(side, side[..., -1:] + step * jnp.arange(1, count + 1, dtype=side.dtype))
