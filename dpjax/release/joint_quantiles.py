"""The release of several quantiles in one draw: the distribution of ``dpjax.joint_quantiles``, drawn exactly on the host.

Its proof is at the head of ``dpjax/mechanisms/joint_quantiles.py``. On a grid, records only matter by the ranks of its numbers:
slot 2 i has the numbers between record i and the next one, slot 2 i - 1 the number of record i, or a part of it where records are
equal. A draw chooses the term N (or the flat one, a multiset of m numbers of the grid), the slot of
the last quantile, how many share it, the slot of the one before them, and so on. All multisets of c of the w numbers of a slot are
equally likely: Polya's urn. Weights are float64 with proven bounds (``rank_chains.py``), which decide all but about one draw in
10^9 for a thousand records; the others are drawn in integers (``exact_chains.py``), by the same words and as many more as it takes.
Of many records only those near the quantiles are weighed: the others are worth less than what the bounds leave open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil, log, prod
from typing import Any

import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.release.grid import Floats, grid_of
from dpjax.release.quantile_sampler import Sampler, slots_of
from dpjax.release.rank_chains import Parameters
from dpjax.release.records import Records
from dpjax.release.result import Release, cost_of, release_of
from dpjax.release.sampler import Draw
from dpjax.release.tables import exact_epsilon
from dpjax.release.words import draw_lanes
from dpjax.several_quantiles.asked import SLACK, Aims, aims_of, level_parts, levels_of

# For each quantile, the best tuple may have a part of about 2^-(bits of the grid + bits of n_max) of all weight. Beyond these many
# bits, with up to a million records, it is lost in floats where many are equal, and draws in integers take minutes.
_BITS_OF_PARTS, _BITS = 21, 960


def joint_quantiles(
    x: Any,
    qs: Iterable[float | Fraction | str],
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    n_max: int | None = None,
    mask: Any = None,
    n: Any = None,
    reach: int | None = None,
    terms: int = 32,
    draws: int = 1,
) -> Release:
    """Release several quantiles of every row under one epsilon, drawn exactly on a public grid.

    It is what ``dpjax.joint_quantiles(dpjax.quantiles(x, qs, resolution=...), epsilon)`` simulates. Time grows with ``terms``, m^2
    and the capacity of a row, up to some thousands of records: deciles of 1000 groups of 1000 records take a second with ``n``,
    and 15 to 20 without it.

    Args:
        x: numbers ``(..., n)``; this and the rest as for :func:`median`.
        qs: levels between 0 and 1, ascending.
        epsilon: from 2^-28 to 64 for all quantiles together, for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: public, that of the data.
        grid: instead of these three, :class:`Floats`.
        counts: how many records each entry of ``x`` stands for.
        n_max: the public capacity of a row, by which the time grows.
        mask: which records are present.
        draws: how many from each row; each costs epsilon.
        n: under add/remove: how many records there are, integers that broadcast against ``(...)``, if it is public; or what is
            known of it. Then there is one term, and the error is 5 to 20 % smaller. Privacy does not need it to be right.
        reach: how far from the number of records the terms go, public; by default as :func:`dpjax.joint_quantiles` says, for rows
            of ``n_max`` records.
        terms: how many terms there are otherwise, at least 2.

    Returns:
        A :class:`Release` whose ``values`` are ``(draws, ..., m)``, ascending.

    Raises:
        ValueError: too many quantiles for so fine a grid, from 24 on a million numbers.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation, for each draw of all quantiles together. What is not covered: see
        :func:`median`. The width of ``x`` is public: where it comes from a private number of records, give ``reach`` and no ``n``.
        A draw that floats do not decide takes as long as a thousand others; it is one in 10^9.

    References:
        Gillenwater, Joseph and Kulesza (2021), under swap. The cost under add/remove is in no paper.

    >>> options = {"lower": 0, "upper": 2000, "resolution": 1, "neighbors": "add_remove"}
    >>> found = joint_quantiles(range(1001), [0.25, 0.5, 0.75], epsilon=50.0, **options)
    >>> found.values.tolist()
    [[250.0, 500.0, 750.0]]
    >>> print(found.guarantee)
    50-DP and 50-bounded-range under add_remove neighbors
    """
    levels, values = levels_of(qs), grid_of(lower, upper, resolution, grid)
    records = Records(x, values, neighbors, mask, n_max, counts=counts)
    if n is not None and neighbors == "swap":
        raise ValueError("n is for add_remove neighbors: under swap the number of records is public.")
    public = None if n is None else _public_sizes(n, records)
    exact, size = exact_epsilon(epsilon), values.size
    if len(levels) * (size.bit_length() + _BITS_OF_PARTS) > _BITS:
        most = _BITS // (size.bit_length() + _BITS_OF_PARTS)
        raise ValueError(
            f"{len(levels)} quantiles on a grid of {size} numbers are too many for one draw, at most {most}: "
            "take dpjax.release.recursive_quantiles, or a coarser resolution."
        )
    far = default_reach(levels, exact, size, records.size) if reach is None else checks.static_integer("reach", reach, 0)
    parameters = parameters_of(levels, exact, neighbors, size, public is not None, far, terms, records.size)
    return draw_quantiles(parameters, records, public, epsilon, draws)


def _public_sizes(n: Any, records: Records) -> np.ndarray:
    """A public number of records for each row, int64."""
    sizes = np.asarray(n)
    if sizes.dtype.kind not in "iu" or np.any(sizes < 0):
        raise ValueError(f"n must be integers that are not negative, got {n}.")
    return np.broadcast_to(np.minimum(sizes, records.size), records.batch).reshape(-1).astype(np.int64)


def reach_for(
    qs: Iterable[float | Fraction | str],
    n_max: int,
    *,
    epsilon: float,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    **rest: Any,
) -> int:
    """The ``reach`` of :func:`joint_quantiles` for up to ``n_max`` records, where rows are padded to sizes that are private.

    It takes all options of the release, and reads those that matter.
    """
    del rest
    size = grid_of(lower, upper, resolution, grid).size
    return default_reach(levels_of(qs), exact_epsilon(epsilon), size, checks.static_integer("n_max", n_max, 1))


def default_reach(levels: Sequence[Fraction], epsilon: Fraction, size: int, n_max: int) -> int:
    """R of :func:`dpjax.joint_quantiles` on a grid of so many numbers."""
    m = len(levels)
    return ceil(Fraction((m + 1) * log(size) + m * log(n_max + 1) + SLACK) / (epsilon / 2))


def parameters_of(
    levels: Sequence[Fraction],
    epsilon: Fraction,
    neighbors: Neighbors,
    size: int,
    size_is_public: bool,
    reach: int,
    terms: int,
    n_max: int,
    aims: Aims | None = None,
) -> Parameters:
    """The public part of the distribution on a grid of so many numbers, for rows of up to ``n_max`` records."""
    terms = checks.static_integer("terms", terms, 2)
    whole, m, rate = level_parts(tuple(levels))[1], len(levels), epsilon / 2
    spacing = (2 * reach + terms) // terms
    one_term = neighbors == "swap" or size_is_public or m == 1
    if neighbors == "swap":
        rate /= 2
    elif m == 1 and not size_is_public:  # |d_1 - p_1 N| + |d_2 - p_2 N| is 2 |r(y) - h|
        rate /= 2 * max(levels[0], 1 - levels[0])
    aims, cut = aims or aims_of(neighbors, m, size_is_public, True), 1 << max(n_max - 1, 0).bit_length()
    return Parameters(rate / (2 * whole), tuple(levels), whole, aims, size, cut, None if one_term else reach, spacing)


def draw_quantiles(parameters: Parameters, records: Records, public: np.ndarray | None, epsilon: float, draws: int) -> Release:
    """Draw all quantiles of all rows; ``public`` are numbers of records, int64 ``(rows,)``."""
    number, rows, m = checks.static_integer("draws", draws, 1), prod(records.batch), parameters.quantiles
    slots = 2 * records.size + 1
    if parameters.whole >= 2**27:  # whatever the number of records, which may be private: places are 64-bit integers
        raise ValueError(
            f"qs have the common denominator {parameters.whole}, too large for exact ranks: give short decimals or Fractions "
            "such as Fraction(1, 3)."
        )

    def sampler(start: int, stop: int) -> Sampler:
        found = slots_of(*records.read(slice(start, stop)), parameters)
        sizes = found.records if public is None else public[start:stop]
        return Sampler(parameters, found, sizes - 1)

    def on_device(here: Sampler, words: Any) -> Draw:
        return here.draw(np.asarray(words))

    found = draw_lanes(rows, number, slots, 6 * m + 2, sampler, on_device, Sampler.exactly, (m,))
    found = found.reshape(number, *records.batch, m)
    return release_of(found, records.grid, cost_of(exact_epsilon(epsilon), number, records.neighbors))
