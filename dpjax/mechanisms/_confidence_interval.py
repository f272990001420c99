"""Private confidence intervals for a quantile of the population: two joint quantiles.

Their coverage is computed; the bound on it and its proof are in ``interval.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import jax
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee
from dpjax.accounting.mechanism import with_guarantee
from dpjax.batch import Batch
from dpjax.checks import Neighbors, Resolution
from dpjax.distributions.base import Shape
from dpjax.mechanisms._joint_quantiles import joint_quantiles
from dpjax.mechanisms.relations import pure
from dpjax.several_quantiles.interval import miss_of, plan_of, planned_levels
from dpjax.several_quantiles.joint import JointQuantiles
from dpjax.several_quantiles.ranks import level_of
from dpjax.statistics.several_quantiles import quantiles


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class ConfidenceInterval(Batch):
    """The distribution of the private confidence interval of each row; a pytree.

    Attributes:
        quantiles: the joint distribution of the two ends; ``quantiles.marginals()`` has their exact
            means and errors.
        coverage: static, the computed lower bound on the probability that an interval contains the
            quantile of the population.

    >>> import jax.numpy as jnp
    >>> public = {"lower": 0, "upper": 100, "resolution": 1, "neighbors": "swap"}
    >>> confidence_interval(jnp.arange(100.0), 0.5, 2.0, **public).event_shape
    (2,)
    """

    quantiles: JointQuantiles
    coverage: float = field(metadata={"static": True})

    @property
    def levels(self) -> tuple[Fraction, ...]:
        """The levels of the two ends."""
        return self.quantiles.levels

    @property
    def event_shape(self) -> tuple[int]:
        """The shape of one draw, ``(2,)``."""
        return self.quantiles.event_shape

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and the largest possible value of an end, of shape ``batch_shape`` each."""
        return self.quantiles.support

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw intervals, lower and upper ends: float of shape ``shape + batch_shape + (2,)``."""
        return self.quantiles.sample(key, shape)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return self.quantiles._sample(key, shape, first)


def guarantee(relation: str, epsilon: float) -> Guarantee:
    """Return the guarantee of one draw of :func:`confidence_interval`.

    >>> print(confidence_interval.guarantee("swap", 1.0))
    1-DP and 1-bounded-range under swap neighbors
    """
    return pure(relation, epsilon, known=checks.NEIGHBORS)


@with_guarantee(guarantee)
def confidence_interval(
    x: ArrayLike,
    q: float | Fraction | str,
    epsilon: float,
    *,
    lower: float,
    upper: float,
    resolution: Resolution,
    neighbors: Neighbors,
    coverage: float = 0.95,
    ties: int | None = None,
    public_n: int | None = None,
    terms: int = 32,
    num_records: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> ConfidenceInterval:
    """Return the distribution of a private confidence interval for the population's q-quantile.

    **Coverage.** If the ``public_n`` records of a row are independent draws from one population,
    the interval contains its q-quantile with probability at least the attribute ``coverage``, over
    records and draws together; with ``ties``, less the probability that more records share one
    multiple of the resolution near the quantile. This holds for every population and every n, large
    or small; it is computed, not simulated. The quantile is that of the population rounded to
    multiples and clamped to the bounds; widening by half a resolution on either side covers the
    unrounded quantile. The privacy guarantee does not depend on these assumptions.

    **Width.** The bound holds for the worst population of that kind, so most populations are
    covered with higher probability. Median widths of 95 % intervals for the median of 1000 incomes
    distributed as exp(10.5 + 0.8 N(0, 1)), as multiples of the width of the non-private interval
    between two order statistics; lower=0, upper=10^6, resolution=100, and with ties=10:

        epsilon     0.5  1    2    with ties=10: 0.5  1    2
        swap        4.6  2.9  2.0                3.6  2.4  1.7
        add/remove  3.4  2.2  1.6                2.7  1.9  1.5

    Args:
        x: float ``(..., n)``. See :mod:`dpjax.statistics` for it and for the arguments not listed
            here; ``lower`` and ``upper`` are static here.
        q: static, strictly between 0 and 1, read by its decimal value: 0.1 is 1/10.
        epsilon: a positive number, the same for all rows.
        resolution: a finer one increases the width only slightly.
        coverage: the least coverage.
        ties: public, at least 1: the largest number of records that share one multiple, between the
            levels 2 q_1 - q and 2 q_2 - q, for the two ``levels`` of the result; by default n,
            which always holds for n records. The expected number is n times the resolution times
            the density: 1.4 in the table, where the largest is 8 or less in 99 % of samples.
        public_n: the number of records of a row, used for the coverage only; by default all columns
            of ``x``. Required under add/remove, and with ``num_records`` or ``mask``. More records
            are usually covered too, see :func:`interval_coverage`. For more than 10^5, levels are
            rounded outwards to n / 2^27, because ranks are int32.
        terms: static, that of :func:`dpjax.joint_quantiles`, under add/remove. With 8, draws take a
            quarter of the time, and the interval is up to a tenth wider.

    Returns:
        A :class:`ConfidenceInterval` of the batch shape ``(...)``; its draws ``(..., 2)`` are
        multiples of the resolution.

    Raises:
        TypeError: ``q``, a bound or the resolution is a JAX array, or ``epsilon`` is not a single
            number.
        ValueError: a public parameter is outside its range, or the coverage cannot be reached with
            this number of records at this epsilon.

    Privacy:
        epsilon-DP and epsilon-bounded-range under ``neighbors``, for both ends together; see
        :func:`dpjax.joint_quantiles`. Public: all arguments except the records, and under swap also
        the number of records. Float draws are simulations.

    References:
        The quantiles: see :func:`dpjax.joint_quantiles`. Drechsler, Globus-Harris, McMillan,
        Sarathy and Smith (2022), "Nonparametric differentially private confidence intervals for the
        median", has other mechanisms with the same coverage guarantee. The bound is not published
        elsewhere; its proof is in the docstring of ``interval.py``.

    >>> import jax, jax.numpy as jnp
    >>> x = 50 + 10 * jax.random.normal(jax.random.key(0), (1000,))
    >>> public = {"lower": 0, "upper": 100, "resolution": "0.01", "neighbors": "swap"}
    >>> interval = confidence_interval(x, 0.5, 1.0, **public)
    >>> interval.sample(jax.random.key(1), (3,)).shape, interval.coverage >= 0.95
    ((3, 2), True)
    """
    columns = np.shape(x)[-1] if np.ndim(x) else 1
    if public_n is None:
        if neighbors == "add_remove" or num_records is not None or mask is not None:
            raise ValueError(
                "public_n must be given under add_remove and with num_records or mask: the public "
                "number of records to plan for."
            )
        public_n = columns
    public_n = checks.static_integer("public_n", public_n, 1, columns)
    plan = plan_of(
        epsilon, lower, upper, resolution, neighbors, public_n if ties is None else ties, terms
    )
    levels, found = planned_levels(
        plan, level_of(q), public_n, columns, checks.concrete_fraction("coverage", coverage)
    )
    requested = quantiles(
        x,
        levels,
        lower=lower,
        upper=upper,
        neighbors=neighbors,
        resolution=resolution,
        num_records=num_records,
        mask=mask,
    )
    reach = plan.reach if plan.terms > 1 else None
    joint = joint_quantiles(requested, epsilon, reach=reach, terms=max(plan.terms, 2))
    return ConfidenceInterval(replace(joint, aims="ranks"), coverage=found)


def interval_levels(
    q: float | Fraction | str,
    epsilon: float,
    *,
    public_n: int,
    lower: float,
    upper: float,
    resolution: Resolution,
    neighbors: Neighbors,
    coverage: float = 0.95,
    ties: int | None = None,
    terms: int = 32,
) -> tuple[Fraction, Fraction]:
    """Return the levels of the two ends of :func:`confidence_interval`, without data, for planning.

    Args:
        q: as in :func:`confidence_interval`, like all other arguments.
        public_n: the number of records.

    Returns:
        Two fractions, q - a and q + a with the least a, so that the interval contains about 2 a n
        records.

    Privacy:
        No privacy is spent, because only public numbers are read.

    References:
        See :func:`confidence_interval`.

    >>> grid = {"lower": 0, "upper": 10**6, "resolution": 100}
    >>> public = {"public_n": 1000, **grid, "neighbors": "swap"}
    >>> [
    ...     [round(float(level), 2) for level in interval_levels(0.5, epsilon, **public)]
    ...     for epsilon in (0.5, 2)
    ... ]
    [[0.35, 0.65], [0.44, 0.56]]
    """
    public_n = checks.static_integer("public_n", public_n, 1)
    plan = plan_of(
        epsilon, lower, upper, resolution, neighbors, public_n if ties is None else ties, terms
    )
    return planned_levels(
        plan, level_of(q), public_n, public_n, checks.concrete_fraction("coverage", coverage)
    )[0]


def interval_coverage(
    levels: Sequence[float | Fraction | str],
    q: float | Fraction | str,
    epsilon: float,
    *,
    public_n: int,
    lower: float,
    upper: float,
    resolution: Resolution,
    neighbors: Neighbors,
    ties: int | None = None,
    terms: int = 32,
) -> float:
    """Return the lower bound on the coverage of an interval between two levels, for any n.

    If n is private or rows have different numbers of records, levels are planned for one n, and
    this is the bound for another one. More records are covered with higher probability, except for
    the steps of the binomial distribution and, with ``ties`` = n, of powers of two: at 1025 instead
    of 1024 records the bound is up to .05 lower.

    Args:
        levels: the levels of the two ends, one below and one above ``q``.
        q: as in :func:`confidence_interval`, like all other arguments.
        public_n: the number of records.

    Returns:
        A float between 0 and 1.

    Privacy:
        No privacy is spent, because only public numbers are read.

    References:
        See :func:`confidence_interval`.

    >>> public = {"lower": 0, "upper": 10**6, "resolution": 100, "neighbors": "swap"}
    >>> levels = interval_levels(0.5, 1.0, public_n=1000, **public)
    >>> [
    ...     round(interval_coverage(levels, 0.5, 1.0, public_n=n, **public), 2)
    ...     for n in (900, 1000, 1100)
    ... ]
    [0.86, 0.95, 0.98]
    """
    low, high = (level_of(level) for level in levels)
    middle = level_of(q)
    if not low < middle < high:
        raise ValueError(
            f"levels must be two levels, one below and one above q, got {low} and {high} for q = "
            f"{middle}."
        )
    public_n = checks.static_integer("public_n", public_n, 1)
    plan = plan_of(
        epsilon, lower, upper, resolution, neighbors, public_n if ties is None else ties, terms
    )
    return max(0.0, 1 - miss_of(plan, middle, low, high, public_n))
