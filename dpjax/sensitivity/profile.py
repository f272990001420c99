"""The sensitivity profile: the values that a statistic can reach after 1, 2, ... individuals change, and its algebra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Neighbors
from dpjax.display import Picture
from dpjax.numerics.batching import concatenate
from dpjax.numerics.multiples import from_multiples, most_multiples, multiple_from


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class SensitivityProfile(Batch):
    """Around f(x), going outwards on each side, the values that f can reach after l individuals change.

    ``upper[..., i]`` is the largest value of f within ``upper_levels[..., i]`` changes of the dataset, ``lower`` the smallest
    (Durfee's overline-f and underline-f). The privacy of every mechanism rests on one property, Corollary 3.1: for neighbouring
    x and x', the value at level l of x is never further out than the value at level l+1 of x'. Statistics return profiles that
    have it; for a profile of your own (``from_radii``, or this class) it is your promise.

    Leading axes are a batch. Padding repeats the last value and level: an interval of width 0 has no mass. The two sides may
    have different lengths. It is a pytree and differentiable in the data.

    Attributes:
        upper: float ``(..., U+1)``, nondecreasing from f(x).
        lower: float ``(..., D+1)``, nonincreasing from f(x).
        upper_levels: float ``(U+1,)`` or ``(..., U+1)``, from 0.
        lower_levels: float ``(D+1,)`` or ``(..., D+1)``, from 0.
        step: float ``(...)`` or None: the length in y of every further level after the last entry of a side (a global
            sensitivity). None: nothing follows, the last entry is the bound.
        bounds: two floats ``(...)`` that the steps are cut at, or None: the last entry of each side is the bound.
        neighbors: static, the relation that the profile is valid for.
        interpolable: static, whether the entries interleave between neighbours up from level 0 (Corollary 3.1). Without that,
            flat pieces may still be private, but neither slopes (piecewise Laplace) nor a rho around the value are.
        integer_levels: static, whether levels are 0, 1, 2, ... (inverse sensitivity needs it).
        resolution: static, a public number that all values are multiples of, on which mechanisms then draw; None: there is none,
            and the profile is for data without ties.

    References:
        Durfee (2025), Section 3.1 and Corollary 3.1.

    >>> import jax.numpy as jnp
    >>> from dpjax import median
    >>> profile = median(jnp.array([1.0, 2.0, 5.0]), lower=0, upper=10, neighbors="swap")
    >>> profile.upper.tolist(), profile.lower.tolist()
    ([2.0, 5.0, 10.0], [2.0, 1.0, 0.0])
    """

    upper: jax.Array
    lower: jax.Array
    upper_levels: jax.Array
    lower_levels: jax.Array
    step: jax.Array | None = None
    bounds: tuple[jax.Array, jax.Array] | None = None
    neighbors: Neighbors = field(default="add_remove", metadata={"static": True})
    interpolable: bool = field(default=True, metadata={"static": True})
    integer_levels: bool = field(default=True, metadata={"static": True})
    resolution: Fraction | None = field(default=None, metadata={"static": True})

    _event_axes = ("upper", "lower", "upper_levels", "lower_levels")

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """The values that can be reached against the number of changes; not private."""
        few = self._first(rows)
        ends = {name: np.broadcast_to(side[..., -1], few.batch_shape) for name, side in (("least", few.lower), ("most", few.upper))}
        values, levels = (
            concatenate(jnp.flip(below, -1), above)
            for below, above in ((few.lower, few.upper), (few.lower_levels, few.upper_levels))
        )
        shape = (*few.batch_shape, values.shape[-1])
        x, y = (np.broadcast_to(a, shape).reshape(-1, shape[-1]) for a in (values, levels))
        return {"value": few.value, "depth": few.depth, **ends}, Picture(x, y, "value", "individuals who change")

    @property
    def value(self) -> jax.Array:
        """The statistic itself, f(x), of shape ``batch_shape``. It is not private."""
        return self.upper[..., 0]

    @property
    def depth(self) -> jax.Array:
        """How many individuals must change to move f(x): the least l >= 1 with U(l) > f(x) or L(l) < f(x), float ``(...)``.

        It is 1 without ties, and not private. Between neighbours with the same value it changes by at most 1, and where the values
        differ it is 1 in both: so a mechanism may take depth - 1 off the cost of the value itself.
        """

        def unmoved(values: jax.Array, levels: jax.Array) -> jax.Array:
            """Up to which level a side stays at the value; infinite where it never leaves it."""
            there = values == values[..., :1]
            last = jnp.max(jnp.where(there, levels, 0.0), axis=-1)
            return last if self.step is not None else jnp.where(there[..., -1], jnp.inf, last)

        most = jnp.maximum(self.lower_levels[..., -1], self.upper_levels[..., -1])
        level = jnp.minimum(unmoved(self.lower, self.lower_levels), unmoved(self.upper, self.upper_levels))
        return jnp.floor(jnp.minimum(level, most)) + 1

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of both sides."""
        return jnp.broadcast_shapes(self.upper.shape[:-1], self.lower.shape[:-1])

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.upper.dtype

    @property
    def support(self) -> tuple[jax.Array, jax.Array] | None:
        """The range of the output, the same for neighbouring datasets, or None where it is the whole line."""
        if self.bounds is not None:
            return self.bounds
        return (self.lower[..., -1], self.upper[..., -1]) if self.step is None else None

    def in_units(self, resolution: Fraction, refinement: int = 1) -> SensitivityProfile:
        """Return the profile of a statistic whose records are counted in multiples of ``resolution``, with values in data units.

        Its values, up to rounding multiples of ``1 / refinement``, become multiples of ``resolution / refinement``.
        """
        step = resolution / refinement

        def scaled(values: jax.Array) -> jax.Array:
            return from_multiples(jnp.round(values * refinement), step)

        fits = jnp.maximum(abs(self.lower[..., -1:]), abs(self.upper[..., -1:])) * refinement <= most_multiples(self.dtype)
        upper, lower = (jnp.where(fits, scaled(side), jnp.nan) for side in (self.upper, self.lower))
        return replace(self, upper=upper, lower=lower, resolution=step)

    def truncate(self, k: int, *, step: ArrayLike | None = None, num_steps: int | None = None) -> SensitivityProfile:
        """Keep the first ``k`` pieces of each side and replace the rest by something coarser that needs less of the data.

        Without ``step``, piece k+1 reaches to the bound. With ``step``, every level beyond k costs that length until the bound:
        one linear piece (piecewise Laplace only), or, if ``num_steps`` is given, that many separate pieces clamped to the bound
        and one more that reaches it (for inverse sensitivity too).

        Fractional levels are cut at level k exactly, wherever the knots are, and the rest up to the bound stays at level k: the
        level min(level, k) changes by at most 1 between neighbours, whatever the profile. A slope from level k at the cut to k+1 at
        the bound, as with integer levels, is not private there: neighbours have other knots, and the range is 1.5 epsilon.

        Args:
            k: static and chosen without the data: a k that depends on it has been found to leak 3.48 epsilon.
            step: positive, at least the global sensitivity of the statistic; broadcasts against ``batch_shape``. Shorter steps
                leak 2.75 epsilon.
            num_steps: static, at least 1.

        Returns:
            A profile with the same relation and range of the output.

        Raises:
            ValueError: a ``k`` or ``num_steps`` that is not an integer or too small, a ``step`` that is not positive,
                ``num_steps`` without a step, a jump to a bound that does not exist, or a step after fractional levels (a value can
                move by more than a fraction of the step in that fraction of a level).

        Privacy:
            Keeps Corollary 3.1 if k and step are public and step is at least the global sensitivity. Entries that are further
            out than the steps allow (radii may be upper bounds) move inwards: V(l) becomes the smallest V(j) + (l-j) step over
            j <= l. The minimum of interleaving sequences interleaves: for j >= 1 V(j) <= V'(j+1), and V(0) <= V'(0) + step.

        References:
            Durfee (2025), Section 5.2. Its k = O(1/epsilon) hides log(range/gap): a piece that reaches to the bound has to weigh
            nothing. On 1001 normal records the error is 1 % larger at k = 4 log(range/gap)/epsilon, or a few levels more: 38 levels
            at epsilon 1 and a range of 20, 84 at 2 million, under swap. At k = 10/epsilon it is 800 times as large
            (``benchmarks/experiments/approximations.py``).

        >>> import jax.numpy as jnp
        >>> from dpjax import median
        >>> median(jnp.arange(1.0, 10.0), lower=0, upper=100, neighbors="swap").truncate(1).upper.tolist()
        [5.0, 6.0, 100.0]
        """
        k = checks.static_integer("k", k, 0, must="an integer, k >= 0")
        if num_steps is not None:
            num_steps = checks.static_integer("num_steps", num_steps, 1, must="an integer, num_steps >= 1")
            if step is None:
                raise ValueError(f"num_steps says how many steps truncate adds: give a step, too, got num_steps={num_steps}.")
        support = self.support
        if not self.integer_levels:
            return self._cap(k, step)
        size = None if step is None else checks.positive("step", step, self.dtype)
        if size is not None and self.resolution is not None:
            size = multiple_from(size, self.resolution)  # a longer step keeps the promise
        if size is None and support is None:
            raise ValueError("this profile has no bounds to jump to: give truncate a step.")
        ends_in_a_jump = support is not None and (size is None or num_steps is not None)
        sides = []
        for values, levels, sign, end in ((self.lower, self.lower_levels, -1, 0), (self.upper, self.upper_levels, 1, 1)):
            if ends_in_a_jump and self.step is None and values.shape[-1] - 1 <= k:
                sides.append((values, levels))  # the bound comes first
                continue
            values, levels = values[..., : k + 1], levels[..., : k + 1]
            if size is not None:
                values = _no_faster_than(values, levels, sign * size)
            if size is not None and num_steps is not None:
                values, levels = _add_steps(values, levels, sign * size, num_steps)
            if ends_in_a_jump and support is not None:
                values, levels = _jump(values, levels, support, end)
            sides.append((values, levels))
        (lower, lower_levels), (upper, upper_levels) = sides
        return replace(
            self,
            upper=upper,
            lower=lower,
            upper_levels=upper_levels,
            lower_levels=lower_levels,
            step=None if ends_in_a_jump else size,
            bounds=None if ends_in_a_jump else support,
        )

    def _cap(self, k: int, step: ArrayLike | None) -> SensitivityProfile:
        """Replace every level by min(level, k)."""
        if step is not None or self.step is not None or self.support is None:
            raise ValueError("a profile with fractional levels is truncated by a jump to its bounds only: give no step.")
        sides = []
        for values, levels, sign in ((self.lower, self.lower_levels, -1), (self.upper, self.upper_levels, 1)):
            near, rise = levels[..., :-1], jnp.diff(levels)
            share = jnp.clip((k - near) / jnp.where(rise > 0, rise, 1.0), 0.0, 1.0)
            ends = values[..., :-1] + share * jnp.diff(values)
            before = near < k
            # Where level k is passed: the outermost of the ends before it.
            cut = sign * jnp.max(jnp.where(before, sign * ends, sign * values[..., :1]), axis=-1, keepdims=True)
            far = jnp.where(before, ends, cut)
            sides.append(
                (concatenate(values[..., :1], far, values[..., -1:]), jnp.minimum(concatenate(levels, levels[..., -1:]), k))
            )
        (lower, lower_levels), (upper, upper_levels) = sides
        return replace(self, upper=upper, lower=lower, upper_levels=upper_levels, lower_levels=lower_levels)


def from_radii(
    value: ArrayLike,
    radii: ArrayLike,
    *,
    neighbors: Neighbors,
    radii_below: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    step: ArrayLike | None = None,
) -> SensitivityProfile:
    """Return the profile of radius bounding functions: f(x) plus and minus R_1, R_1 + R_2, and so on.

    Every element of ``value`` is the real statistic of a dataset of its own. For a statistic with several components see
    :func:`from_vector_radii`: here each row would spend epsilon, d times epsilon for d components of one dataset. An array of
    values with one list of radii looks like that and is refused; a batch says so by its radii, which have an axis for each axis of
    ``value``.

    Args:
        value: float ``(...)``, the statistic f(x) of each dataset.
        radii: float ``(..., k)``, the increments R_1..R_k of Definition 5.1, not negative (a negative one counts as 0). Above and
            below, unless ``radii_below`` is given. For radii that all datasets of a batch share, write ``radii[None]``.
        neighbors: ``"add_remove"``, ``"swap"`` or ``"edge"`` (a graph with one edge more or less), the relation under which the
            radii hold.
        radii_below: the increments below f(x), for the asymmetric relaxation of Section 5.2.
        lower: float ``(...)``, public lower bound; with ``upper`` or not at all. Values beyond the bounds are clamped to them after
            the radii are added.
        upper: float ``(...)``, public upper bound.
        step: positive ``(...)``, the global sensitivity, used for every level after the last radius; with bounds, the steps are cut
            there. Equal radii above and below are clamped to it. Without it, the level after the last radius
            reaches to the bound, so bounds are then required.

    Returns:
        A profile of the batch shape of ``value`` and the radii.

    Raises:
        ValueError: radii without an axis for each axis of ``value``; only one of ``lower`` and ``upper``, neither bounds nor
            ``step``, or bad public parameters.

    Privacy:
        Rests on the caller's promise that for neighbours x and x': R_l(x) <= R_{l+1}(x') and R_1(x) >= abs(f(x) - f(x'))
        (take x' = x: the radii must not decrease); for one array a side, that Corollary 3.1 holds on each side, the steps
        included. A constant
        R_l = LS(x) breaks it (a cost sensitivity of 3). Corollary 5.1 as printed is loose by one index: R_l may be the largest
        local sensitivity within l-1 changes, so R_1 = LS(x). In floating point f(x) + R is rounded: the radii must be well above
        the spacing of floats at f(x) (0.06 at 10^6 in float32), or whole levels move; subtract a public origin first.

    References:
        Durfee (2025), Definition 5.1, Corollaries 5.1 and 5.2.

    >>> profile = from_radii(5.0, [1.0, 2.0], neighbors="swap", lower=0, upper=10)
    >>> profile.upper.tolist(), profile.lower.tolist()
    ([5.0, 6.0, 8.0, 10.0], [5.0, 4.0, 2.0, 0.0])
    """
    checks.one_of("neighbors", neighbors, checks.RELATIONS)
    if (lower is None) != (upper is None):
        raise ValueError("from_radii takes both lower and upper, or neither.")
    if lower is None and step is None:
        raise ValueError("from_radii needs to know what follows the last radius: give lower and upper, or step, or all three.")
    center = checks.float_array("value", value)
    above = checks.float_array("radii", radii).astype(center.dtype)
    below = above if radii_below is None else checks.float_array("radii_below", radii_below).astype(center.dtype)
    if above.ndim == 0 or below.ndim == 0:
        raise ValueError("radii need an axis of levels (the last one); for one radius write [radius].")
    if min(above.ndim, below.ndim) <= center.ndim:
        raise ValueError(
            f"value of shape {center.shape} and radii of shape {above.shape}: for a statistic with several components "
            "take from_vector_radii. For a batch of datasets give radii (..., k) with an axis for each axis of value: radii[None] "
            "are shared by all."
        )
    bounds = None if lower is None or upper is None else checks.bounds(lower, upper, center.dtype)
    size = None if step is None else checks.positive("step", step, center.dtype)
    shapes = [center.shape, above.shape[:-1], below.shape[:-1], () if size is None else size.shape]
    batch = jnp.broadcast_shapes(*shapes, *([] if bounds is None else [bounds[0].shape, bounds[1].shape]))
    center = jnp.broadcast_to(center, batch)
    if bounds is not None:
        bounds = jnp.broadcast_to(bounds[0], batch), jnp.broadcast_to(bounds[1], batch)
    if size is not None and radii_below is None:  # R_K <= R_{K+1} = step; min with a constant keeps Definition 5.1
        above = below = jnp.minimum(above, size[..., None])
    sides = []
    for increments, sign, end in ((below, -1, 0), (above, 1, 1)):
        distance = jnp.cumsum(jnp.maximum(increments, 0.0), axis=-1)
        values = concatenate(center[..., None], center[..., None] + sign * distance)
        levels = jnp.arange(values.shape[-1], dtype=center.dtype)
        if size is None and bounds is not None:
            values, levels = _jump(values, levels, bounds, end)  # clamps f(x) itself too, and only after the radii are added
        sides.append((values, levels))
    (low, low_levels), (high, high_levels) = sides
    limits = None if size is None else bounds
    return SensitivityProfile(high, low, high_levels, low_levels, step=size, bounds=limits, neighbors=neighbors)


def from_local_sensitivity(
    value: ArrayLike,
    local_sensitivity_at: Callable[[int], ArrayLike] | ArrayLike,
    *,
    neighbors: Neighbors,
    num_levels: int | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    step: ArrayLike | None = None,
) -> SensitivityProfile:
    """Return the profile whose l-th increment is the largest local sensitivity within l-1 changes, R_1 = LS(x).

    Args:
        value: float ``(...)``, the statistic f(x) of each dataset.
        local_sensitivity_at: the local sensitivity at distance 0, 1, 2, ...: the largest change that one individual can make to
            f at any dataset within that many changes of x, or an upper bound A_k of it that keeps A_k(x) <= A_{k+1}(x') for
            neighbours. Either a function from the distance, a Python integer, to an array ``(...)``, or an array ``(..., k)``,
            with an axis for each axis of ``value`` as in :func:`from_radii`. Made nondecreasing by a running maximum.
        neighbors: ``"add_remove"``, ``"swap"`` or ``"edge"``.
        num_levels: static, how many distances to use; by default all of an array, required for a function.
        lower: public bound, as in :func:`from_radii`.
        upper: public bound.
        step: the global sensitivity, as in :func:`from_radii`.

    Returns:
        A profile of the batch shape of ``value`` and the local sensitivities.

    Raises:
        ValueError: a ``num_levels`` that is missing, below 1 or beyond the array; and as :func:`from_radii`.

    Privacy:
        Keeps Definition 5.1 if the local sensitivities are what they are said to be: a dataset within l-1 changes of x is within
        l of any neighbour x', so R_l(x) <= R_{l+1}(x'), and R_1(x) = LS(x) >= abs(f(x) - f(x')). Corollary 5.1 as printed takes the
        distance l where l-1 does: private too, but with more noise. LS(x) at every distance is not private: cost sensitivity 3.

    References:
        Durfee (2025), Corollary 5.1; Nissim, Raskhodnikova and Smith (2007), for the local sensitivity at distance k. Easier to
        compute, and not for free: on the median of 1001 normal records the error is that of the exact profile times 12, 6 and 3
        at epsilon 0.5, 1 and 2 under swap, times 24, 12 and 5 under add/remove (``benchmarks/experiments/approximations.py``).

    >>> profile = from_local_sensitivity(5.0, lambda k: 1.0 + k, neighbors="swap", num_levels=2, lower=0, upper=10)
    >>> profile.upper.tolist()
    [5.0, 6.0, 8.0, 10.0]
    """
    if num_levels is not None:
        num_levels = checks.static_integer("num_levels", num_levels, 1, must="a positive integer")
    center = checks.float_array("value", value)
    if callable(local_sensitivity_at):
        if num_levels is None:
            raise ValueError("local_sensitivity_at is a function: give num_levels, how many distances to use.")
        each = [checks.float_array("local_sensitivity_at", local_sensitivity_at(k)) for k in range(num_levels)]
        at = concatenate(*(one.astype(center.dtype)[..., None] for one in each))
    else:
        at = checks.float_array("local_sensitivity_at", local_sensitivity_at).astype(center.dtype)
        if at.ndim == 0 or at.shape[-1] < (num_levels or 1):
            raise ValueError(f"local_sensitivity_at needs {num_levels or 'some'} distances on its last axis, got shape {at.shape}.")
        at = at[..., :num_levels]
    radii = jax.lax.cummax(at, axis=at.ndim - 1)
    return from_radii(center, radii, neighbors=neighbors, lower=lower, upper=upper, step=step)


def from_sides(
    upper: jax.Array,
    lower: jax.Array,
    *,
    neighbors: Neighbors,
    step: jax.Array | None = None,
    interpolable: bool = True,
) -> SensitivityProfile:
    """Return a profile with the levels 0, 1, 2, ... on both sides."""
    upper_levels, lower_levels = (jnp.arange(side.shape[-1], dtype=side.dtype) for side in (upper, lower))
    return SensitivityProfile(upper, lower, upper_levels, lower_levels, step=step, neighbors=neighbors, interpolable=interpolable)


def _no_faster_than(values: jax.Array, levels: jax.Array, step: jax.Array) -> jax.Array:
    """Move values inwards so that no level is further out than an inner one and the signed steps in between."""
    path, outwards = step[..., None] * levels, jnp.sign(step[..., None])
    ahead = outwards * (values - path)
    least = jax.lax.cummin(ahead, axis=ahead.ndim - 1)
    # Not the sum for all: what is not too far out keeps its last digit.
    return jnp.where(ahead > least, outwards * least + path, values)


def _jump(values: jax.Array, levels: jax.Array, bounds: tuple[jax.Array, jax.Array], end: int) -> tuple[jax.Array, jax.Array]:
    """Let the next level reach one of the bounds, and clamp values beyond them.

    Clamping (min and max with a constant) keeps Corollary 3.1. Cutting the line between two values there would not: a neighbour
    may jump to the bound where this dataset's values pass it, and its cost at the bound is then more than 1 higher.
    """
    low, high = (bound[..., None] for bound in bounds)
    return concatenate(jnp.clip(values, low, high), (low, high)[end]), _add_levels(levels, 1)


def _add_steps(values: jax.Array, levels: jax.Array, size: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Add ``count`` levels of one (signed) length."""
    steps = size[..., None] * jnp.arange(1, count + 1, dtype=values.dtype)
    return concatenate(values, values[..., -1:] + steps), _add_levels(levels, count)


def _add_levels(levels: jax.Array, count: int) -> jax.Array:
    return concatenate(levels, levels[..., -1:] + jnp.arange(1, count + 1, dtype=levels.dtype))


def extend(side: jax.Array, size: int) -> jax.Array:
    """Repeat the last value up to ``size`` entries."""
    missing = max(size - side.shape[-1], 0)
    return jnp.pad(side, [(0, 0)] * (side.ndim - 1) + [(0, missing)], mode="edge")[..., :size]
