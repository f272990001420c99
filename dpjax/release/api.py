"""Release functions, which take records, or counts of values, and return draws and their cost.

Each of them creates a statistic of :mod:`dpjax.release.statistics`, counts the records, and draws
from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any, Literal, cast, get_args

import numpy as np

from dpjax import checks
from dpjax.accounting.ledger import Budget, charge
from dpjax.checks import Neighbors, Relation, Resolution
from dpjax.release import rows
from dpjax.release.counts import MOST, Counts, sums_of
from dpjax.release.distribution import GridDistribution, Mechanism
from dpjax.release.exponentials import exact_epsilon
from dpjax.release.grid import Candidates, Floats
from dpjax.release.records import (
    as_array,
    as_integers,
    clip_integers,
    codes_of,
    refuse_text,
    refuse_traces,
    shape_of,
)
from dpjax.release.result import Release, cost_of, release_of
from dpjax.release.statistics import (
    ByRank,
    ChoiceMechanism,
    Count,
    Definition,
    DistinctCount,
    Histogram,
    Maximum,
    Mean,
    Median,
    Mode,
    NonnegativeSum,
    OrderStatistic,
    Quantile,
    Statistic,
    Sum,
    choice_of,
)


def median(
    x: Any,
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    definition: Definition = "lower",
    counts: Any = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the median of every row, drawn exactly on the multiples of a public resolution.

    It has the distribution that
    ``dpjax.piecewise_laplace(dpjax.median(x, resolution=...), epsilon)`` simulates. The draws have
    exactly this distribution if the operating system's entropy is uniform and the relative errors
    of NumPy's exponentials are below 2^-45: floats decide a draw only where no rounding can change
    it, and exact arithmetic decides the others. There is no key and no seed; every call draws new
    values. After 128 / epsilon changes the profile is assumed to be at the bounds, as with
    ``truncate=`` in :func:`dpjax.median`: the outputs for which this makes a difference have a
    probability below e^-64 times the number of multiples. :func:`exact_distribution` returns the
    probabilities.

    Args:
        x: numbers ``(..., n)``, individuals on the last axis, in memory (not traced), in any
            container. Each number is rounded to the nearest multiple, and clamped to the bounds.
            NaN is absent under add/remove and counts as the lower bound under swap.
        epsilon: from 2^-30 to 64 for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data: 1 for integers, 0.01 for cents; 0.1 is 1/10.
        grid: a :class:`Floats`, numbers with a few significant digits, in place of ``lower``,
            ``upper`` and ``resolution`` if no bounds are known.
        definition: ``"lower"``, the record x[ceil(n/2)], or ``"linear"``, the midpoint median, a
            multiple of half the resolution.
        counts: the number of records that each entry of ``x`` stands for, integers that broadcast
            against ``x`` (add/remove only); negative numbers count as 0, and those above 2^40 as
            2^40. For data that are already grouped, with the distinct values as ``x``: the time
            depends on the number of distinct values, not of records.
        mask: bool that broadcasts against ``x``, which records are present (add/remove only).
        mechanism: ``"piecewise_laplace"``; ``"inverse_sensitivity"``; or ``"permute_and_flip"`` for
            a single release: at the same epsilon its error is smaller by a factor of up to 2, but
            drawing takes longer. It is :func:`dpjax.permute_and_flip` with minus the number of
            changes to reach a multiple as its score, and ``depth - 1`` for the value itself.
        draws: the number of draws from each row; each costs epsilon.
        budget: a :class:`dpjax.accounting.PrivacyFilter` or :class:`dpjax.accounting.Ledger`. After
            all arguments are validated and before anything is drawn, it is charged the
            ``guarantee`` of the result, or refuses. This is the cost of all draws from one row: if
            a person may be in several rows of a batch, charge the sum over these rows yourself.

    Returns:
        A :class:`Release`; ``float(found)`` is the value of a single draw from a single row.

    Raises:
        TypeError: the call is traced; ``x`` is not numeric, or a masked array; ``resolution`` is a
            JAX array.
        ValueError: a public parameter is out of range. Records never raise.
        BudgetExceeded: the cost exceeds the remaining budget; nothing was charged or drawn.

    Privacy:
        epsilon-DP for each draw, under the relation, and epsilon-bounded-range; permute and flip 2
        epsilon-bounded-range. Public: all parameters, the shape and the dtype of ``x`` (under
        add/remove the number of records is private, apart from the shape). Not covered: timing (the
        time grows with the number of distinct values; a draw that floats do not decide takes
        longer, with a probability of about 2^-31 for a thousand pieces and 2^-42 for each number in
        a piece, and more in permute and flip), caches, power, memory that is not wiped, parameters
        chosen from the data, and a call inside a ``vmap`` that closes over the data, which cannot
        be detected.

    References:
        Durfee (2025), Algorithm 1; McKenna and Sheldon (2020); Mironov (2012), for what
        floating-point draws reveal.

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38]
    >>> found = median(ages, lower=0, upper=120, resolution=1, epsilon=1.0, neighbors="add_remove")
    >>> found.values.shape, 0 <= float(found) <= 120, found.resolution
    ((1,), True, Fraction(1, 1))
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors
    """
    statistic = Median(lower, upper, resolution, grid, definition)
    return _released(statistic, x, epsilon, neighbors, mechanism, draws, budget, counts, mask)


def quantile(
    x: Any,
    q: float | Fraction | str,
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    definition: Definition = "lower",
    counts: Any = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the q-quantile of every row, drawn exactly.

    Args:
        x: numbers ``(..., n)``; this and the arguments not listed are as for :func:`median`.
        q: in (0, 1), a short decimal or a Fraction.
        epsilon: from 2^-30 to 64 for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: the public resolution of the data.
        grid: as for :func:`median`.
        definition: ``"lower"``, the record x[ceil(q n)], or ``"linear"``, NumPy's interpolation,
            whose values are multiples of the resolution over the denominator of q.
        counts: as for :func:`median`.
        mask: as for :func:`median`.
        mechanism: as for :func:`median`.
        draws: the number of draws from each row; each costs epsilon.
        budget: as for :func:`median`.

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38] * 20
    >>> float(quantile(ages, 0.9, lower=0, upper=127, resolution=1, epsilon=64.0, neighbors="swap"))
    52.0
    """
    statistic = Quantile(q, lower, upper, resolution, grid, definition)
    return _released(statistic, x, epsilon, neighbors, mechanism, draws, budget, counts, mask)


def order_statistic(
    x: Any,
    rank: int,
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the record of a fixed rank, from 1 on, of every row.

    All else is as for :func:`median`.

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38] * 20
    >>> grid = {"lower": 0, "upper": 127, "resolution": 1}
    >>> float(order_statistic(ages, 90, **grid, epsilon=64.0, neighbors="swap"))
    35.0
    """
    statistic = OrderStatistic(rank, lower, upper, resolution, grid)
    shape = shape_of(x)
    if counts is None and shape:
        must = f"an integer from 1 to the {shape[-1]} records on the last axis of x"
        checks.static_integer("rank", rank, 1, shape[-1], must=must)
    return _released(statistic, x, epsilon, neighbors, mechanism, draws, budget, counts, mask)


def maximum(
    x: Any,
    *,
    tau: int,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the largest record by shifted inverse sensitivity, close to the (tau+1)-th largest.

    ``tau`` is at least 1, and chosen without the data, for example by :func:`dpjax.shift_for`; all
    else is as for :func:`median`.

    References:
        Steinke (2023), Theorem 4; Fang, Dong and Yi (2022).

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38] * 20
    >>> grid = {"lower": 0, "upper": 127, "resolution": 1}
    >>> float(maximum(ages, tau=5, **grid, epsilon=64.0, neighbors="add_remove"))
    52.0
    """
    statistic = Maximum(tau, lower, upper, resolution, grid)
    return _released(statistic, x, epsilon, neighbors, mechanism, draws, budget, counts, mask)


def nonnegative_sum(
    x: Any,
    *,
    tau: int,
    upper: float,
    resolution: Resolution,
    epsilon: float,
    neighbors: Neighbors,
    counts: Any = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the sum of nonnegative records by shifted inverse sensitivity.

    There is no bound on each record. The result is close to the sum without the ``tau`` largest
    records. ``upper`` is the public upper bound of the sum, a multiple of the resolution; larger
    sums and larger records are clamped to it. All else is as for :func:`maximum`.

    >>> found = nonnegative_sum(
    ...     [3] * 100, tau=1, upper=999, resolution=1, epsilon=64.0, neighbors="swap"
    ... )
    >>> abs(float(found) - 297) <= 3
    True
    """
    return _released(
        NonnegativeSum(tau, upper, resolution),
        x,
        epsilon,
        neighbors,
        mechanism,
        draws,
        budget,
        counts,
        mask,
    )


def user_sum(
    x: Any,
    person_ids: Any,
    *,
    tau: int,
    upper: float,
    resolution: Resolution,
    epsilon: float,
    neighbors: Literal["add_remove"],
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the sum of nonnegative amounts, where a person may have several records.

    All records of a person count as one individual. The result is close to the sum without the
    ``tau`` largest persons. ``person_ids`` are integers or text that broadcast against ``x``; a
    record without an id (None, NaN) is absent. All else is as for :func:`nonnegative_sum`, under
    adding or removing one person.

    >>> public = {"tau": 1, "upper": 999, "resolution": 1}
    >>> options = {**public, "epsilon": 64.0, "neighbors": "add_remove"}
    >>> abs(float(user_sum([1, 2] * 100, np.arange(200) // 2, **options)) - 297) <= 3
    True
    """
    checks.one_of("neighbors", neighbors, ("add_remove",))
    statistic = NonnegativeSum(tau, upper, resolution)
    positions, present, batch = _read(statistic, x, neighbors, mask)
    ids, known = codes_of(_like(as_array(person_ids), "person_ids", positions.shape, batch))
    totals = _totals_of_persons(positions, present & known, ids, statistic.records_grid.size - 1)
    found = Counts.of_groups(*totals, len(positions))
    return statistic.release(
        found,
        epsilon,
        neighbors,
        mechanism=mechanism,
        draws=draws,
        batch_shape=batch,
        budget=budget,
    )


def _totals_of_persons(
    positions: np.ndarray, present: np.ndarray, ids: np.ndarray, high: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the total, clamped to ``high``, of each person in each row."""
    row = np.repeat(np.arange(len(positions)), positions.shape[-1])[present.ravel()]
    person, amount = ids[present], positions[present].astype(np.int64)
    order = np.lexsort((person, row))
    row, person, amount = row[order], person[order], amount[order]
    first = np.flatnonzero(np.append(True, (row[1:] != row[:-1]) | (person[1:] != person[:-1])))[
        : len(row)
    ]
    totals = sums_of(amount, np.append(first, len(row)))
    return row[first], np.minimum(totals, high)


def distinct_count(
    ids: Any,
    *,
    tau: int,
    upper: int,
    epsilon: float,
    neighbors: Neighbors,
    counts: Any = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the number of distinct ids, one id per person, by shifted inverse sensitivity.

    The result is close to the number that remains when ``tau`` people leave, those with the rarest
    ids first. ``ids`` are integers or text ``(..., n)``, and anything else in a list is absent;
    ``upper`` is the largest possible count, public, to which larger ones are clamped. All else is
    as for :func:`maximum`.

    >>> values = ["a", "b", "c"] * 100
    >>> float(distinct_count(values, tau=1, upper=19, epsilon=64.0, neighbors="add_remove"))
    3.0
    """
    return _released(
        DistinctCount(tau, upper), ids, epsilon, neighbors, mechanism, draws, budget, counts, mask
    )


def sum(
    x: Any,
    *,
    lower: float,
    upper: float,
    resolution: Resolution,
    epsilon: float,
    neighbors: Literal["swap"],
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the sum of every row, where the number of records is public.

    All else is as for :func:`median`.

    >>> found = sum(
    ...     [31, 40, 28] * 100, lower=0, upper=120, resolution=1, epsilon=64.0, neighbors="swap"
    ... )
    >>> abs(float(found) - 9900) <= 120
    True
    """
    return _released(Sum(lower, upper, resolution), x, epsilon, neighbors, mechanism, draws, budget)


def mean(
    x: Any,
    *,
    lower: float,
    upper: float,
    resolution: Resolution,
    epsilon: float,
    neighbors: Literal["swap"],
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the mean of every row, where the number of records is public.

    It is the :func:`sum` over this number.

    >>> found = mean(
    ...     [31, 40, 28] * 100, lower=0, upper=120, resolution=1, epsilon=64.0, neighbors="swap"
    ... )
    >>> abs(float(found) - 33) <= 0.4
    True
    """
    return _released(
        Mean(lower, upper, resolution), x, epsilon, neighbors, mechanism, draws, budget
    )


def count(
    x: Any,
    *,
    epsilon: float,
    neighbors: Neighbors = "add_remove",
    mask: Any = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the number of records of every row, drawn exactly.

    It is the number that ``dpjax.laplace(dpjax.count(x), epsilon)`` simulates.

    Args:
        x: numbers ``(..., n)``, as for :func:`median`; NaN is absent.
        epsilon: from 2^-30 to 64 for each draw.
        neighbors: only ``"add_remove"``, since under swap the number of records is public.
        mask: which records are counted.
        draws: the number of draws from each row.
        budget: as for :func:`median`.

    Returns:
        A :class:`Release` of integers ``(draws, ...)``, which may be negative; clamping them costs
        no privacy.

    Privacy:
        Under add/remove, epsilon-DP for each draw, exactly. Public: the shape of ``x``. Not
        covered: as for :func:`median`.

    References:
        Ghosh, Roughgarden and Sundararajan (2009).

    >>> found = count([31, 70, 28, 81], epsilon=32.0)
    >>> float(found), print(found.guarantee)
    32-DP and 64-bounded-range under add_remove neighbors
    (4.0, None)
    """
    checks.counted_neighbors(neighbors)
    return _released(Count(), x, epsilon, neighbors, None, draws, budget, mask=mask)


def histogram(
    x: Any,
    *,
    epsilon: float,
    edges: Any = None,
    candidates: Any = None,
    neighbors: Neighbors = "add_remove",
    mask: Any = None,
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the number of records in each bin, or equal to each candidate, drawn exactly.

    Args:
        x: numbers ``(..., n)``, as for :func:`count`.
        epsilon: from 2^-30 to 64 for each draw of all bins.
        edges: ``(bins + 1,)``, public, increasing. Each bin includes its lower edge, and the last
            one also its upper edge.
        candidates: ``(bins,)``, public, finite and increasing, in place of ``edges``.
        neighbors: as for :func:`count`.
        mask: which records are counted.
        draws: the number of draws of all bins.
        budget: as for :func:`median`.

    Returns:
        A :class:`Release` of integers ``(draws, ..., bins)``.

    Raises:
        ValueError: both or neither of ``edges`` and ``candidates`` are given, or they are not
            increasing.

    Privacy:
        As for :func:`count`, for all bins together, since a record is in at most one bin. Public:
        the bins and the shape of ``x``.

    References:
        Ghosh, Roughgarden and Sundararajan (2009); McSherry (2009), Theorem 4.

    >>> histogram([31, 70, 28, 81], edges=[0, 30, 60, 90], epsilon=32.0).values.tolist()
    [[1.0, 1.0, 2.0]]
    """
    checks.counted_neighbors(neighbors)
    return _released(
        Histogram(edges, candidates), x, epsilon, neighbors, None, draws, budget, mask=mask
    )


def mode(
    x: Any,
    *,
    candidates: Sequence[float],
    epsilon: float,
    neighbors: Neighbors,
    resolution: Resolution | None = None,
    counts: Any = None,
    mask: Any = None,
    mechanism: ChoiceMechanism = "exponential",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release the most frequent of public candidates.

    This is :func:`release_choice` with their counts as scores. ``candidates`` are finite float64
    numbers, increasing, chosen without the data. Integers are compared with them exactly, however
    large they are, and a record that equals none of them is not counted. With a ``resolution``, the
    candidates are multiples of it, and records are rounded to its multiples. Under add/remove,
    epsilon is at most 32. All else is as for :func:`median`.

    >>> ratings = [3, 3, 5, 9, 3, 5, 7, 3, 3, 3]
    >>> float(mode(ratings, candidates=(3, 5, 9), epsilon=30.0, neighbors="add_remove"))
    3.0
    """
    return _released(
        Mode(candidates, resolution), x, epsilon, neighbors, mechanism, draws, budget, counts, mask
    )


def release_choice(
    scores: Any,
    *,
    epsilon: float,
    sensitivity: int | Fraction,
    lower: int,
    upper: int,
    neighbors: Relation,
    mechanism: ChoiceMechanism = "exponential",
    draws: int = 1,
    budget: Budget | None = None,
) -> Release:
    """Release one candidate of every row by integer scores, drawn exactly.

    The distributions are those of :func:`dpjax.exponential` and :func:`dpjax.permute_and_flip`.

    Args:
        scores: integers ``(..., k)``, higher is better, candidates on the last axis, in memory (not
            traced). Each score is clamped to the public range.
        epsilon: for each draw; it and ``epsilon / sensitivity`` must be from 2^-30 to 64.
        sensitivity: a positive integer or Fraction, the largest change of any score between
            neighbors. If all scores change in the same direction, as counts do under add/remove,
            half of it is enough.
        lower: the public lower end of the scores, chosen without the data.
        upper: the public upper end, at most ``lower + 2**62``.
        neighbors: the relation that the sensitivity holds for.
        mechanism: ``"exponential"``, or ``"permute_and_flip"`` for a single release, whose error is
            smaller by a factor of up to 2.
        draws: the number of draws from each row.
        budget: as for :func:`median`.

    Returns:
        A :class:`Release` whose values are indices of candidates, 0, ..., k - 1; it has no
        resolution.

    Raises:
        TypeError: ``scores`` are not integers, or ``sensitivity`` is a float. Integer scores never
            raise.

    Privacy:
        epsilon-DP for each draw, and epsilon-bounded-range; permute and flip 2
        epsilon-bounded-range. Clamping a score keeps its change between 0 and the original change,
        so that both kinds of sensitivity still hold. Public: all parameters, the shape and the
        dtype of ``scores``. Not covered: as for :func:`median`.

    References:
        McSherry and Talwar (2007); McKenna and Sheldon (2020); Dong, Durfee and Rogers (2020), for
        the half where all change in the same direction.

    >>> found = release_choice(
    ...     [[3, 41, 7]], epsilon=2.0, sensitivity=1, lower=0, upper=100, neighbors="swap"
    ... )
    >>> found.multiples.tolist(), print(found.guarantee)
    2-DP and 2-bounded-range under swap neighbors
    ([[1]], None)
    """
    relation, number = (
        checks.one_of("neighbors", neighbors, checks.RELATIONS),
        checks.static_integer("draws", draws, 1),
    )
    found = choice_between(scores, epsilon, sensitivity, lower, upper, mechanism)
    guarantee = cost_of(
        exact_epsilon(epsilon), number, relation, 2 if mechanism == "permute_and_flip" else 1
    )
    asked = {
        "statistic": "release_choice",
        "candidates": found.size,
        "sensitivity": sensitivity,
        "lower": lower,
        "upper": upper,
    }
    charge(budget, guarantee, {"statistic": asked, "draws": number})
    return release_of(
        found.positions(number).reshape(number, *found.batch_shape), found.grid, guarantee
    )


def choice_between(
    scores: Any,
    epsilon: float | Fraction,
    sensitivity: int | Fraction,
    lower: int,
    upper: int,
    mechanism: str,
) -> GridDistribution:
    """Return the distributions that :func:`release_choice` draws from.

    The scores are integers ``(..., k)``.
    """
    checks.one_of("mechanism", mechanism, get_args(ChoiceMechanism))
    least = checks.static_integer("lower", lower, -(2**999), must="an integer")
    most = checks.static_integer(
        "upper", upper, least, least + 2**62, must="from lower to 2^62 above it"
    )
    if isinstance(sensitivity, bool) or not isinstance(sensitivity, (int, np.integer, Fraction)):
        raise TypeError(f"sensitivity must be an integer or a Fraction, got {sensitivity!r}.")
    if sensitivity <= 0:
        raise ValueError(f"sensitivity must be positive, got {sensitivity}.")
    refuse_traces(scores)
    inside = clamped_scores(scores, least, most)
    *batch, k = inside.shape
    grid = Candidates(np.arange(k, dtype=np.float64))
    return choice_of(
        inside.reshape(prod(batch), k), epsilon, Fraction(sensitivity), mechanism, grid, batch
    )


def clamped_scores(scores: Any, lower: int, upper: int) -> np.ndarray:
    """Return scores as int64 ``(..., k)`` from 0 to upper - lower."""
    array = as_integers("scores", scores)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"scores must have a last axis with at least one candidate, got shape {array.shape}."
        )
    # As Python integers where the difference of two scores could exceed 64 bits.
    wide = clip_integers(array, lower, upper).astype(
        object if max(abs(lower), abs(upper)) >= 2**62 else np.int64
    )
    return np.clip(wide - lower, 0, upper - lower).astype(np.int64)


def exact_distribution(
    statistic: Statistic,
    x: Any,
    *,
    epsilon: float,
    neighbors: Neighbors,
    mechanism: str | None = None,
    counts: Any = None,
    mask: Any = None,
) -> GridDistribution:
    """Return the distributions that a release draws from, to know its errors in advance.

    There is one for every row.

    Args:
        statistic: a statistic object, such as
            ``dpjax.release.Median(lower=0, upper=120, resolution=1)``.
        x: numbers ``(..., n)``, simulated or public data, since the distributions are functions of
            them.
        epsilon: of one draw.
        neighbors: as for the release.
        mechanism: by default that of the release.
        counts: as for :func:`median`.
        mask: as for :func:`median`.

    Returns:
        A :class:`GridDistribution` with ``value``, ``pmf``, ``cdf``, ``quantile``, ``interval``,
        ``mean_abs_error`` and ``sample``; for counts and histograms an object with ``value``,
        ``interval``, ``mean_abs_error`` and ``sample``.

    Raises:
        TypeError: as for the release.
        ValueError: as for the release, or for several quantiles, which have no distribution in
            closed form.

    Privacy:
        Not private: the result is a function of the data.

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38]
    >>> found = exact_distribution(
    ...     Median(lower=0, upper=127, resolution=1), ages, epsilon=4.0, neighbors="swap"
    ... )
    >>> round(float(found.pmf(35)), 3), round(float(found.mean_abs_error(35)), 2)
    (0.38, 1.38)
    """
    checks.instance(
        "exact_distribution",
        statistic,
        Statistic,
        "such as dpjax.release.Median(lower=0, upper=120, resolution=1)",
    )
    found, batch = counts_of(statistic, x, neighbors, counts, mask)
    made: Any = statistic.distribution(
        found, epsilon, neighbors, mechanism=mechanism, batch_shape=batch
    )
    return made


def _released(
    statistic: Statistic,
    x: Any,
    epsilon: float,
    neighbors: str,
    mechanism: str | None,
    draws: int,
    budget: Budget | None,
    counts: Any = None,
    mask: Any = None,
) -> Release:
    """Count the records of every row, charge the budget if there is one, and draw."""
    statistic.checked(neighbors, mechanism)
    options: dict[str, Any] = {"mechanism": mechanism, "draws": draws, "budget": budget}
    if counts is not None:
        found, batch = _of_given(statistic, x, neighbors, counts, mask)
        return statistic.release(found, epsilon, neighbors, batch_shape=batch, **options)
    positions, present, batch = _read(statistic, x, neighbors, mask)
    if (
        draws == 1
        and mechanism == "piecewise_laplace"
        and rows.apply_to(statistic, neighbors, positions, present)
    ):
        known, cost = cast(ByRank, statistic), exact_epsilon(epsilon)
        guarantee = known.charge(budget, cost, 1, neighbors)
        drawn = rows.positions(known, positions, cost, neighbors).reshape(1, *batch)
        return release_of(drawn, known.records_grid, guarantee)
    near = statistic.near(positions.shape[-1], epsilon, neighbors)
    found = Counts.of_records(positions, present, near)
    return statistic.release(found, epsilon, neighbors, batch_shape=batch, **options)


def counts_of(
    statistic: Statistic,
    x: Any,
    neighbors: str,
    counts: Any = None,
    mask: Any = None,
    epsilon: float | None = None,
) -> tuple[Counts, tuple[int, ...]]:
    """Return the counts of every row, and the batch shape.

    The rows are records ``(..., n)``, or values with ``counts``. With an epsilon, records that
    cannot matter in a release with it may be replaced by other values.
    """
    if counts is not None:
        return _of_given(statistic, x, neighbors, counts, mask)
    positions, present, batch = _read(statistic, x, neighbors, mask)
    near = None if epsilon is None else statistic.near(positions.shape[-1], epsilon, neighbors)
    return Counts.of_records(positions, present, near), batch


def _of_given(
    statistic: Statistic, x: Any, neighbors: str, counts: Any, mask: Any
) -> tuple[Counts, tuple[int, ...]]:
    """Return the counts of distinct values with given numbers of records."""
    if neighbors == "swap":
        raise ValueError(
            "counts are for add_remove neighbors: under swap the number of records is public."
        )
    given = as_integers("counts", counts)
    if given.dtype.kind == "O":
        given = clip_integers(given, 0, MOST).astype(np.int64)
    positions, present, _ = _read(statistic, x, neighbors, None)
    own = np.shape(x)
    batch = np.broadcast_shapes(own, given.shape)
    shape = (prod(batch[:-1]), batch[-1])
    number = np.broadcast_to(given, batch).reshape(shape)
    if len(own) > 1:
        positions, present = (
            np.broadcast_to(each.reshape(own), batch).reshape(shape)
            for each in (positions, present)
        )
    else:
        positions, present = positions[0], present[0]
    if not present.all():
        number = np.where(present, number, 0)
    if mask is not None:
        number = np.where(_mask(mask, shape, batch[:-1]), number, 0)
    return Counts.of_matrix(positions, number), batch[:-1]


def _read(
    statistic: Statistic, x: Any, neighbors: str, mask: Any
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return records as positions ``(rows, n)``, a mask of those present, and the batch shape."""
    checks.one_of("neighbors", neighbors, checks.NEIGHBORS)
    if neighbors == "swap" and mask is not None:
        raise ValueError(
            "mask is for add_remove neighbors: under swap the number of records is public."
        )
    refuse_traces(x)
    if not isinstance(statistic, DistinctCount):
        refuse_text(x)
    array = as_array(x)
    if array.ndim == 0:
        raise ValueError("x must have an axis of individuals, the last one; got a scalar.")
    positions, present = statistic.read(array)
    # These have no lower bound for missing records
    if neighbors == "swap" and not isinstance(statistic, Mode | DistinctCount):
        present = np.ones_like(present)  # the position of a NaN is 0
    *leading, n = positions.shape
    batch = tuple(leading)
    positions, present = (each.reshape(prod(batch), n) for each in (positions, present))
    if mask is not None:
        present = present & _mask(mask, positions.shape, batch)
    return positions, present, batch


def _mask(mask: Any, rows: tuple[int, ...], batch: tuple[int, ...]) -> np.ndarray:
    """Return a mask of the records of a batch, as ``(rows, n)``."""
    given = as_array(mask)
    if given.dtype == object:
        given = np.array(given.tolist())
    if given.dtype != np.bool_:
        raise ValueError(f"mask must be bool, got dtype {given.dtype}.")
    return _like(given, "mask", rows, batch)


def _like(
    given: np.ndarray, name: str, rows: tuple[int, ...], batch: tuple[int, ...]
) -> np.ndarray:
    """Broadcast an array against the records of a batch, as ``(rows, n)``."""
    try:
        return np.broadcast_to(given, (*batch, rows[-1])).reshape(rows)
    except ValueError as error:
        raise ValueError(
            f"{name} of shape {given.shape} does not broadcast to x of shape {(*batch, rows[-1])}."
        ) from error
