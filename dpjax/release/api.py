"""The release of a statistic on a public grid: a function for each, from records to multiples of a resolution, and their cost."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.release import integer_profiles
from dpjax.release.distribution import GridDistribution, Mechanism
from dpjax.release.drawing import release_ranks, release_statistic, release_sum
from dpjax.release.grid import Floats, Multiples, grid_of
from dpjax.release.records import Records
from dpjax.release.result import EVALUATE, Release
from dpjax.several_quantiles.ranks import ranks_of_order_statistic, ranks_of_quantile

Definition = Literal["linear", "lower"]


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
    n_max: int | None = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
) -> Release:
    """Release the median of every row, drawn exactly on the multiples of a public resolution.

    It is the distribution that ``dpjax.piecewise_laplace(dpjax.median(x, resolution=...), epsilon)`` simulates. The draws have
    exactly that distribution if the operating system's entropy is uniform and ChaCha20 is: no float, no truncated table and no
    rounding takes part in the choice of a value (in permute and flip, floats rule out what has certainly lost). There is no key and
    no seed; two calls never give the same draws. In rows of more than 4096 records, and more than 512 / epsilon, the profile is
    taken to be at the bounds after as many changes, as with ``truncate=`` in :func:`dpjax.median`: what differs has a probability
    below e^-128 times the number of multiples.
    :func:`exact_distribution` gives the probabilities.

    Args:
        x: numbers ``(..., n)``, individuals on the last axis, in memory (not traced), in any container: the values alone decide.
            Each is rounded to the nearest multiple, and those beyond the bounds are clamped to them. NaN is absent under
            add/remove and the lower bound under swap.
        epsilon: from 2^-30 to 64 for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: public, that of the data: 1 for integers, 0.01 for cents; 0.1 is 1/10.
        grid: instead of these three, where no bounds are known: :class:`Floats`, numbers with a few significant digits.
        definition: ``"lower"``, the record x[ceil(n/2)], or ``"linear"``, the midpoint median, a multiple of half the resolution.
        counts: how many records each entry of ``x`` stands for, integers ``(..., n)``; negative ones count as 0. For tables that
            are grouped already, with ``x`` the distinct values. For add/remove, and with an ``n_max``.
        n_max: the public capacity of a row; shorter ones are padded with absent records (add/remove only). More records than
            that are refused, which discloses that there are more: choose it generously.
        mask: bool that broadcasts against ``x``, which records are present (add/remove only).
        mechanism: ``"piecewise_laplace"``, or ``"permute_and_flip"`` for a single release: at the same epsilon its error is up to
            twice smaller, and its draw takes longer. It is that of :func:`dpjax.permute_and_flip` on minus the number of changes
            that each multiple is away, for the value itself ``depth - 1``.
        draws: how many from each row; each costs epsilon.

    Returns:
        A :class:`Release`.

    Raises:
        TypeError: under a trace; ``x`` is not numeric, or a masked array; a ``resolution`` that is a JAX array.
        ValueError: a bad public parameter. Records never raise.

    Privacy:
        epsilon-DP for each draw, under the relation, and epsilon-bounded-range; permute and flip 2 epsilon-bounded-range. Public:
        all parameters, the shape and the dtype of ``x`` (under add/remove the number of records is private, its capacity is
        not). Not covered: timing (a doubtful lane takes longer, with a probability of about 2^-27 for a thousand records, which
        grows with their number; in permute and flip some percent are), caches, power, memory that is not wiped, parameters chosen
        from the data, and a call inside a ``vmap`` that closes over the data, which cannot be detected.

    References:
        Durfee (2025), Algorithm 1; McKenna and Sheldon (2020); Mironov (2012), for what floats give away; RFC 8439.

    >>> ages = [[31, 40, 28, 35, 52, 33, 47, 29, 38]]
    >>> found = median(ages, lower=0, upper=120, resolution=1, epsilon=1.0, neighbors="add_remove")
    >>> found.values.shape, bool((found.values >= 0).all()), found.resolution
    ((1, 1), True, Fraction(1, 1))
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors
    """
    return quantile(
        *(x, Fraction(1, 2)),
        epsilon=epsilon,
        neighbors=neighbors,
        lower=lower,
        upper=upper,
        resolution=resolution,
        grid=grid,
        definition=definition,
        counts=counts,
        n_max=n_max,
        mask=mask,
        mechanism=mechanism,
        draws=draws,
    )


def quantile(
    x: Any,
    q: float | Fraction,
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    definition: Definition = "lower",
    counts: Any = None,
    n_max: int | None = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
) -> Release:
    """Release the q-quantile of every row; the rest is as for :func:`median`.

    ``q`` is strictly between 0 and 1, a short decimal or a Fraction. ``definition`` is ``"lower"``, the record
    x[ceil(q n)], or ``"linear"``, NumPy's interpolation, whose values are multiples of the resolution over the denominator of q.

    >>> options = {"lower": 0, "upper": 127, "resolution": 1, "epsilon": 4.0, "neighbors": "swap"}
    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38]
    >>> exact_distribution(quantile, ages, 0.9, **options).profile.upper.tolist()
    [52, 127]
    """
    checks.one_of("definition", definition, ("linear", "lower"))
    if grid is not None and definition == "linear":
        raise ValueError("a grid of floats has no values between records: definition must be 'lower'.")
    records = Records(x, grid_of(lower, upper, resolution, grid), neighbors, mask, n_max, counts=counts)
    return release_ranks(records, ranks_of_quantile(q, definition=definition, neighbors=neighbors), epsilon, mechanism, draws)


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
    n_max: int | None = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
) -> Release:
    """Release the record of a fixed rank of every row, from 1 to the size of the last axis; the rest is as for :func:`median`.

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38]
    >>> options = {"lower": 0, "upper": 127, "resolution": 1, "epsilon": 4.0}
    >>> exact_distribution(order_statistic, ages, 5, neighbors="swap", **options).profile.upper.tolist()
    [35, 38, 40, 47, 52, 127]
    """
    records = Records(x, grid_of(lower, upper, resolution, grid), neighbors, mask, n_max, counts=counts)
    return release_ranks(records, ranks_of_order_statistic(rank, records.size), epsilon, mechanism, draws)


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
    n_max: int | None = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
) -> Release:
    """Release the largest record by shifted inverse sensitivity, which is near the (tau+1)-th largest.

    ``tau`` is at least 1, and chosen without the data, for example by :func:`dpjax.shift_for`; the rest is as for :func:`median`.

    References:
        Steinke (2023), Theorem 4; Fang, Dong and Yi (2022).

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38]
    >>> options = {"lower": 0, "upper": 127, "resolution": 1, "epsilon": 4.0}
    >>> exact_distribution(maximum, ages, tau=2, neighbors="add_remove", **options).profile.upper.tolist()
    [40, 47, 52, 127]
    """
    records = Records(x, grid_of(lower, upper, resolution, grid), neighbors, mask, n_max, counts=counts)
    return release_statistic(records, partial(integer_profiles.maximum, tau=checks.shift(tau)), epsilon, mechanism, draws)


def nonnegative_sum(
    x: Any,
    *,
    tau: int,
    upper: float,
    resolution: Resolution,
    epsilon: float,
    neighbors: Neighbors,
    counts: Any = None,
    n_max: int | None = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
) -> Release:
    """Release the sum of nonnegative records, with no bound on one of them but the sum's, by shifted inverse sensitivity.

    It lies near the sum without the ``tau`` largest records. ``upper`` is the public upper bound of the sum, a multiple of the
    resolution: a larger sum counts as that, and so does a larger record. The rest is as for :func:`maximum`.

    >>> options = {"tau": 1, "upper": 199, "resolution": 1, "epsilon": 4.0, "neighbors": "swap"}
    >>> exact_distribution(nonnegative_sum, [3, 1, 4, 1, 5, 9], **options).profile.upper.tolist()
    [14, 23, 199]
    """
    records = Records(x, Multiples.between(0, upper, resolution), neighbors, mask, n_max, counts=counts)
    return release_statistic(records, partial(integer_profiles.nonnegative_sum, tau=checks.shift(tau)), epsilon, mechanism, draws)


def user_sum(
    x: Any,
    person_ids: Any,
    *,
    tau: int,
    upper: float,
    resolution: Resolution,
    epsilon: float,
    neighbors: Literal["add_remove"],
    n_max: int | None = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
) -> Release:
    """Release the sum of nonnegative amounts, where all records of a person count as one individual, however many.

    It lies near the sum without the ``tau`` largest persons. ``person_ids`` are integers or text that broadcast against ``x``; a
    record without one (None, NaN) is absent. The rest is as for :func:`nonnegative_sum`, for one person more or less.

    >>> options = {"tau": 1, "upper": 199, "resolution": 1, "epsilon": 4.0, "neighbors": "add_remove"}
    >>> exact_distribution(user_sum, [3, 1, 4, 1, 5, 9], ["a", "a", "b", "b", "b", "c"], **options).profile.upper.tolist()
    [13, 23, 199]
    """
    checks.one_of("neighbors", neighbors, ("add_remove",))
    records = Records(x, Multiples.between(0, upper, resolution), neighbors, mask, n_max, person_ids)
    return release_statistic(records, partial(integer_profiles.nonnegative_sum, tau=checks.shift(tau)), epsilon, mechanism, draws)


def distinct_count(
    ids: Any,
    *,
    tau: int,
    upper: int,
    epsilon: float,
    neighbors: Neighbors,
    counts: Any = None,
    n_max: int | None = None,
    mask: Any = None,
    mechanism: Mechanism = "piecewise_laplace",
    draws: int = 1,
) -> Release:
    """Release the number of different ids, one id a person, by shifted inverse sensitivity.

    It lies near the number that remains when ``tau`` people leave, those of the rarest ids first. ``ids`` are integers or text
    ``(..., n)``, and anything else in a list is absent; ``upper`` is the largest possible count, public, and a larger one counts
    as that. The rest is as for :func:`maximum`.

    >>> options = {"tau": 1, "upper": 19, "epsilon": 4.0, "neighbors": "add_remove"}
    >>> exact_distribution(distinct_count, ["a", "b", "b", "c", "c", "c"], **options).profile.lower.tolist()
    [2, 2, 1, 1, 1, 0]
    """
    records = Records(ids, Multiples.between(0, upper, 1), neighbors, mask, n_max, counts=counts, read=integer_profiles.codes_of)
    statistic = partial(integer_profiles.distinct_count, tau=checks.shift(tau))
    return release_statistic(records, statistic, epsilon, mechanism, draws)


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
) -> Release:
    """Release the sum of every row, where the number of records is public; the rest is as for :func:`median`.

    >>> options = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 4.0, "neighbors": "swap"}
    >>> exact_distribution(sum, [31, 40, 28], **options).profile.upper.tolist()
    [99, 191, 280, 360]
    """
    return release_sum(x, Multiples.between(lower, upper, resolution), neighbors, epsilon, mechanism, draws, of_mean=False)


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
) -> Release:
    """Release the mean of every row, where the number of records is public: :func:`sum`, whose values are divided by it.

    >>> options = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 4.0, "neighbors": "swap"}
    >>> round(exact_distribution(mean, [31, 40, 28], **options).mean_abs_error(33), 1)
    12.2
    """
    return release_sum(x, Multiples.between(lower, upper, resolution), neighbors, epsilon, mechanism, draws, of_mean=True)


def exact_distribution(statistic: Callable[..., Release], x: Any, *arguments: Any, **options: Any) -> GridDistribution:
    """Return the distribution that a release of one dataset draws from: to know the utility before anything is spent.

    Args:
        statistic: one of the functions for values on a grid, such as :func:`median`; for a mode or scores, ``dpjax.exponential``
            has the distribution.
        x: one dataset, ``(n,)``; simulated or public data, since the distribution is a function of it.
        arguments: further positional arguments of that function, such as q.
        options: its keyword arguments but ``draws``.

    Returns:
        A :class:`GridDistribution`.

    Raises:
        TypeError, ValueError: as that function; more than one dataset.

    Privacy:
        A function of the private data: not a release.

    >>> ages = [31, 40, 28, 35, 52, 33, 47, 29, 38]
    >>> options = {"lower": 0, "upper": 127, "resolution": 1, "epsilon": 4.0}
    >>> found = exact_distribution(median, ages, neighbors="swap", **options)
    >>> round(float(found.pmf(35)), 3), round(found.mean_abs_error(35), 2)
    (0.287, 1.49)
    """
    found: Any = statistic(x, *arguments, **options, draws=EVALUATE)
    return found
