"""Hundreds of quantiles: a joint draw of some of them, then joint draws of the levels between them.

    draw, say, every 10th of the requested levels jointly; the draws split the records into parts
    draw the other levels of each part jointly, from its records, between the two draws

Each record is in one part, so all parts together cost as much as one: there are two draws, whatever
the number m of levels, whereas :func:`dpjax.recursive_quantiles` makes log2(m + 1). Both draws
together process about m n slots, a joint draw of all levels m^2 n.

**Number of records of a part.** It is private. The ranks of a part are those of a public guess, the
share of its levels times the number of all records. The latter is public under swap; under
add/remove it is an argument, or drawn with discrete Laplace noise for epsilon / 24. Privacy does
not require the guess to be correct (``_joint_quantiles.py``, one term), only that it does not
depend on private data; its error spreads evenly over the part.

**Privacy.** Under add/remove, conditional on the first draw, one more record is one more record in
one part. So the noisy number, the first draw and the second one compose: epsilons add up. Under
swap a record may leave one part and another one enter a second part, so each part has half of the
second draw's epsilon.

**Ties.** On a grid a joint draw is of places: a multiple with c records is cut into c parts by
public points, the i-th part is that of its i-th record, and the output is the multiple of a place
(``_joint_quantiles.py``). Records are split by the place, which is drawn anyway, at no extra cost:
of the equal records, those of the parts up to that of the place go to the left, and the others to
the right. One more record is one more point: it halves a part to the left of the place, or to the
right of it, or the part of the place itself, whose other half then lies on one of the sides, so
that one more record is one more on one side and none on the other. The epsilon of the first draw is
that of its places, of which the output is a function. So each part has as many records as the ranks
of the places say, however many are equal, and no joint draw of a part is far from its assumed
number of records. (If equal records were split by shares, whatever is drawn on either side of them,
the numbers of parts would be off by the excess of records on one side.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from math import ceil, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.batch import Batch
from dpjax.distributions import DiscreteLaplace
from dpjax.distributions.base import Shape, draws_shape
from dpjax.mechanisms._joint_quantiles import joint_quantiles, public_size
from dpjax.numerics.batching import by_chunks, concatenate, fits, some_rows, take
from dpjax.numerics.bisection import count_leading
from dpjax.random.keys import check_key, row_words
from dpjax.sensitivity.sorted_records import SortedRecords
from dpjax.several_quantiles.joint import JointQuantiles
from dpjax.several_quantiles.nesting import Nesting, Part, Shares, ends_of, records_of

_SLOTS = 2**21  # slots of all parts, in the memory of a chunk of draws


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class NestedQuantiles(Batch):
    """The joint distribution of quantiles, some of which are drawn between others, as a pytree.

    Attributes:
        asked: the records and the requested levels.
        epsilon: float ``(...)``, of all draws together.
        public_n: int32 ``(...)``, the public number of records or a guess of it; None where it is
            public by the relation, or drawn.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(9.0), [0.2, 0.4, 0.6], lower=0, upper=9, neighbors="swap")
    >>> nested_quantiles(asked, 1.0).event_shape
    (3,)
    """

    asked: SortedRecords
    epsilon: jax.Array
    public_n: jax.Array | None = field(default=None)

    _parameters = ("epsilon",)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The number of quantiles, ``(m,)``."""
        return (len(self.asked.levels),)

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The bounds of the records, of shape ``batch_shape`` each."""
        low, high = (
            jnp.broadcast_to(end, self.batch_shape) for end in (self.asked.lower, self.asked.upper)
        )
        return low, high

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw all quantiles, ascending: float of shape ``shape + batch_shape + (m,)``.

        Rows with invalid parameters are NaN.
        """
        return _sample(check_key(key), self, draws_shape(shape))

    def log_prob(self, y: ArrayLike, ranks: ArrayLike | None = None) -> jax.Array:
        """Return the joint log-density at ``y``, or log-probability if records have a resolution.

        It is ``-inf`` where ``y`` is not ascending.

        Args:
            y: float ``(..., m)``, whose leading axes broadcast against ``batch_shape``; the result
                has the broadcast shape.
            ranks: required with a resolution: int32 ``(..., k)``, the number of records up to the
                place of each quantile of the first draw. The probability is then the joint one with
                these ranks.

        Raises:
            ValueError: the number of records is drawn, too, or no ranks are given with a
                resolution: then the distribution of the quantiles is a mixture over them.
        """
        if self.public_n is None and self.asked.neighbors == "add_remove":
            raise ValueError(
                "log_prob needs a fixed number of records: use nested_quantiles(..., "
                "public_n=number)."
            )
        points = checks.float_array("y", y).astype(self.dtype)
        if points.ndim == 0 or points.shape[-1:] != self.event_shape:
            raise ValueError(
                f"y must have a last axis of size {self.event_shape[0]} (quantiles), got shape "
                f"{points.shape}."
            )
        if self.asked.resolution is None:
            return _log_prob(self, points, None)
        k = len(self.nesting.first)
        if ranks is None:
            raise ValueError(
                "log_prob needs ranks= for records with a resolution: the number of records up to "
                f"the place of each of the {k} first draws."
            )
        numbers = jnp.asarray(ranks)
        if numbers.shape[-1:] != (k,) or not jnp.issubdtype(numbers.dtype, jnp.integer):
            raise ValueError(
                f"ranks must be integers with a last axis of size {k}, got shape {numbers.shape}."
            )
        return _log_prob(self, points, numbers.astype(jnp.int32))

    def first(self, number: jax.Array) -> JointQuantiles:
        """Return the distribution of the first draw, for a public ``number`` of records."""
        asked = replace(self.asked, levels=tuple(self.asked.levels[k] for k in self.nesting.first))
        public_n = None if asked.neighbors == "swap" else number
        return joint_quantiles(asked, self.epsilon * float(self.shares.first), public_n=public_n)

    @property
    def nesting(self) -> Nesting:
        """The assignment of levels to the first and the second draw."""
        return Nesting.of(self.asked.levels)

    @property
    def shares(self) -> Shares:
        """The cost of each draw, as a fraction of epsilon."""
        return Shares.of(self.nesting, self.asked.neighbors, self.public_n is not None)


def guarantee(
    asked: SortedRecords, epsilon: float, *, public_n: ArrayLike | None = None
) -> Guarantee:
    """Return the guarantee of one draw of :func:`nested_quantiles`.

    >>> import jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> asked = quantiles(jnp.arange(9.0), [0.2, 0.4, 0.6], lower=0, upper=9, neighbors="swap")
    >>> print(nested_quantiles.guarantee(asked, 1.0))
    1-DP and 1.5625-bounded-range and 0.0634766-zCDP under swap neighbors
    """
    checks.instance(
        "guarantee",
        asked,
        SortedRecords,
        "from dpjax.quantiles: the guarantee depends on the relation",
    )
    shares = Shares.of(Nesting.of(asked.levels), asked.neighbors, public_n is not None)
    count, first = epsilon * float(shares.number), epsilon * float(shares.first)
    second = epsilon - count - first
    # The interval of the losses of a draw depends on earlier draws, so ranges do not add up. Their
    # ends do.
    span = first + 2 * second if not count else 2 * epsilon
    return Guarantee(
        epsilon, span, asked.neighbors, 0.0, count**2 / 2 + first**2 / 8 + second**2 / 8
    )


@with_guarantee(guarantee)
def nested_quantiles(
    asked: SortedRecords, epsilon: ArrayLike, *, public_n: ArrayLike | None = None
) -> NestedQuantiles:
    """Return the distribution of many quantiles, some drawn jointly, the others between them.

    Args:
        asked: the result of :func:`dpjax.quantiles`, batch shape ``(...)``, with at least 3 levels.
        epsilon: positive, of all draws together.
        public_n: under add/remove, the number of records or a public estimate of it, integers that
            broadcast against ``(...)``. Without it, epsilon / 24 is spent on an estimate.

    Returns:
        A :class:`NestedQuantiles` of the broadcast batch shape. A draw processes about 2 m^1.5
        values for each record.

    Raises:
        ValueError: there are fewer than 3 levels; use :func:`dpjax.joint_quantiles`.

    Privacy:
        epsilon-DP under the relation of ``asked``, for all quantiles together (proof in the module
        docstring). Public: epsilon, and what :func:`dpjax.quantiles` documents as public. Float
        draws are simulations.

    References:
        Gillenwater, Joseph and Kulesza (2021), for each joint draw; Kaplan, Schnapp and Stemmer
        (2022), for draws between draws. Their combination is not published elsewhere.

    >>> import jax, jax.numpy as jnp
    >>> from dpjax import quantiles
    >>> percents = [f"{k}/100" for k in range(1, 100)]
    >>> asked = quantiles(
    ...     jnp.arange(4000.0), percents, lower=0, upper=4000, neighbors="swap", resolution=1
    ... )
    >>> found = nested_quantiles(asked, 1.0).sample(jax.random.key(0))
    >>> found.shape, bool(jnp.max(jnp.abs(found - asked.value)) < 100)
    ((99,), True)
    """
    checks.instance("nested_quantiles", asked, SortedRecords, "from dpjax.quantiles")
    if len(asked.levels) < 3:
        raise ValueError(
            f"nested_quantiles needs at least 3 levels, got {len(asked.levels)}: use "
            "dpjax.joint_quantiles."
        )
    each = checks.positive("epsilon", epsilon, asked.dtype)
    fits(asked.batch_shape, epsilon=each.shape)
    if public_n is None:
        return NestedQuantiles(asked, each)
    if asked.neighbors == "swap":
        raise ValueError(
            "public_n is only for add_remove neighbors: under swap the number of records is public."
        )
    number = public_size(public_n)
    fits(asked.batch_shape, public_n=number.shape)
    return NestedQuantiles(asked, each, number)


# Maps the records of parts with the same levels in some rows, ``(rows, parts)``, their assumed
# numbers of records, and arrays of these rows, to an array of all levels, ``(rows, parts,
# levels)``.
_Choice = Callable[[SortedRecords, jax.Array, Any, list[Part]], jax.Array]


def _between(
    nested: NestedQuantiles,
    draws: jax.Array,
    cuts: jax.Array | None,
    number: jax.Array,
    extra: Any,
    choose: _Choice,
) -> jax.Array:
    """Join the results of ``choose`` for all parts, ``(rows, m)``; 0 at the first draw's levels.

    Args:
        nested: the distribution, whose fields broadcast to the batch.
        draws: the first draw, ``(*batch, k)``.
        cuts: int32 of that shape, the number of records up to the place of each draw; None for the
            number below it.
        number: int32 ``(*batch)``, the assumed number of all records.
        extra: arrays that broadcast to ``(*batch, j)``, for ``choose``.
        choose: see ``_Choice``.
    """
    asked, nesting, batch = nested.asked, nested.nesting, draws.shape[:-1]
    n, m = asked.values.shape[-1], len(asked.levels)
    row = (
        asked.values,
        asked.num_records[..., None],
        asked.lower[..., None],
        asked.upper[..., None],
        number[..., None],
    )
    size = min(prod(batch), max(1, _SLOTS // (2 * (n + 1) * len(nesting.parts))))

    def some(start: Any, size: int) -> jax.Array:
        (values, count, low, high, number), drawn, cut, row_extra = some_rows(
            (row, draws, cuts, extra), batch, start, size
        )
        values, count, low, high = (
            jnp.broadcast_to(a, (size, a.shape[-1])) for a in (values, count, low, high)
        )
        cut = (
            count_leading(lambda i: take(values, i) < drawn, n, drawn.shape) if cut is None else cut
        )
        first, last = ends_of(jnp.clip(cut, 0, count), count, jnp)
        bounds = concatenate(low, drawn), concatenate(drawn, high)
        found = jnp.zeros((size, m), nested.dtype)
        alike = sorted(range(len(nesting.parts)), key=lambda k: nesting.parts[k].levels)
        for shared, group in groupby(alike, key=lambda k: nesting.parts[k].levels):
            index = np.array(list(group), np.int32)
            parts = [nesting.parts[k] for k in index]
            if not shared:
                continue
            lower, upper, begin = (a[:, index] for a in (*bounds, first))
            held = jnp.maximum(last[:, index] - begin, 0)
            # The usual capacity of a part, twice its number of records if n were all. The assumed
            # number is at most that, whichever capacity is used, because which one is used depends
            # on the data.
            room = min(ceil(2 * n * max(each.share for each in parts)) + 64, n)
            taken = jnp.clip(
                jnp.concatenate([records_of(each, number) for each in parts], axis=-1),
                1,
                max(room, 1),
            )

            def of_parts(
                room: int,
                shared: Any = shared,
                parts: Any = parts,
                held: Any = held,
                begin: Any = begin,
                low: Any = lower,
                high: Any = upper,
                taken: Any = taken,
            ) -> jax.Array:
                """Return the result of ``choose`` for parts with this capacity."""
                offset = jnp.arange(room, dtype=jnp.int32)
                values_part = take(
                    values,
                    jnp.minimum(begin[..., None] + offset, np.int32(max(n - 1, 0))).reshape(
                        size, -1
                    ),
                )
                values_part = jnp.clip(
                    values_part.reshape(*held.shape, room), low[..., None], high[..., None]
                )
                records = jnp.where(offset < held[..., None], values_part, high[..., None])
                part = SortedRecords(
                    records,
                    held,
                    low,
                    high,
                    levels=shared,
                    neighbors="add_remove",
                    resolution=asked.resolution,
                )
                return choose(part, taken, row_extra, parts).reshape(size, -1)

            at = np.array([each.first + k for each in parts for k in range(len(shared))])
            crowded = jnp.any(held > room)
            chosen = (
                of_parts(n)
                if room == n
                else jax.lax.cond(crowded, partial(of_parts, n), partial(of_parts, room))
            )
            found = found.at[:, at].set(chosen)
        return found

    return by_chunks(some, prod(batch), size)


@partial(jax.jit, static_argnames=("shape",))
def _sample(key: jax.Array, nested: NestedQuantiles, shape: tuple[int, ...]) -> jax.Array:
    asked, shares, dtype = nested.asked, nested.shares, nested.dtype
    batch, draws = (prod(shape), *nested.batch_shape), (prod(shape),)
    event = nested.event_shape
    if prod(batch) == 0:
        return jnp.zeros((*shape, *nested.batch_shape, *event), dtype)
    keys = [jax.random.fold_in(key, stream) for stream in range(3)]
    if nested.public_n is not None:
        number = nested.public_n
    elif asked.neighbors == "swap":
        number = asked.num_records
    else:
        noisy = DiscreteLaplace(
            asked.num_records.astype(dtype),
            jnp.ones((), dtype),
            nested.epsilon * float(shares.number),
        )
        number = jnp.clip(noisy._sample(keys[0], draws), 0, 2.0**30).astype(jnp.int32)
    ahead = nested.first(number)
    drawn = ahead.sample_ranked(keys[1], draws[: len(batch) - len(ahead.batch_shape)])
    first, cuts = (jnp.broadcast_to(a, (*batch, len(nested.nesting.first))) for a in drawn)
    words = tuple(word[..., None] for word in row_words(keys[2], batch))

    def choose(part: SortedRecords, number: jax.Array, own: Any, parts: list[Part]) -> jax.Array:
        high, low, epsilon = (jnp.broadcast_to(a, (number.shape[0], 1))[:, 0] for a in own)
        row_keys = jax.random.wrap_key_data(jnp.stack([high, low], axis=-1), impl="threefry2x32")
        row_keys = jax.vmap(lambda key: jax.random.fold_in(key, parts[0].first))(row_keys)
        return joint_quantiles(part, epsilon[:, None], public_n=number)._sample(row_keys, ())

    each = nested.epsilon[..., None] * float(shares.second)
    found = _between(nested, first, cuts, jnp.broadcast_to(number, batch), (*words, each), choose)
    found = found.at[:, np.array(nested.nesting.first)].set(first.reshape(prod(batch), -1))
    return found.reshape(*shape, *nested.batch_shape, *event)


@jax.jit
def _log_prob(nested: NestedQuantiles, y: jax.Array, ranks: jax.Array | None) -> jax.Array:
    batch = jnp.broadcast_shapes(
        nested.batch_shape, y.shape[:-1], () if ranks is None else ranks.shape[:-1]
    )
    number = nested.asked.num_records if nested.public_n is None else nested.public_n
    first = jnp.broadcast_to(
        y[..., np.array(nested.nesting.first)], (*batch, len(nested.nesting.first))
    )

    def choose(
        part: SortedRecords, number: jax.Array, row_extra: Any, parts: list[Part]
    ) -> jax.Array:
        points, epsilon = row_extra
        at = jnp.stack(
            [points[:, each.first : each.first + len(part.levels)] for each in parts], axis=1
        )
        epsilon = jnp.broadcast_to(epsilon, (number.shape[0], 1))
        found = joint_quantiles(part, epsilon, public_n=number).log_prob(at)
        # A part of width 0 is a single point, without a density.
        point = jnp.all(at == part.lower[..., None], axis=-1)
        found = jnp.where(part.lower == part.upper, jnp.where(point, 0.0, -jnp.inf), found)
        # The result of each part is stored at its first level.
        return jnp.where(np.arange(len(part.levels)) == 0, found[..., None], 0.0)

    each = nested.epsilon[..., None] * float(nested.shares.second)
    cuts = None if ranks is None else jnp.broadcast_to(ranks, first.shape)
    extra = jnp.broadcast_to(y, (*batch, y.shape[-1])), each
    terms = _between(nested, first, cuts, jnp.broadcast_to(number, batch), extra, choose)
    of_first = nested.first(number)
    ahead = of_first.log_prob(first) if cuts is None else of_first.log_prob_ranked(first, cuts)
    found = ahead + jnp.sum(terms, axis=-1).reshape(batch)
    return jnp.where(jnp.isneginf(ahead), -jnp.inf, found)
