"""A private confidence interval for a quantile of the population: two joint quantiles, with a coverage that is computed.

The bound on the coverage and its proof are in ``interval.py``.
"""

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
    """The distribution of a private confidence interval of each row. It is a pytree.

    Attributes:
        quantiles: the joint distribution of the two ends; ``quantiles.marginals()`` has their exact means and errors.
        coverage: static, the computed lower bound on the probability that an interval holds the quantile of the population.
    """

    quantiles: JointQuantiles
    coverage: float = field(metadata={"static": True})

    @property
    def levels(self) -> tuple[Fraction, ...]:
        """The levels of the two ends."""
        return self.quantiles.levels

    @property
    def event_shape(self) -> tuple[int]:
        """``(2,)``."""
        return self.quantiles.event_shape

    @property
    def support(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and the largest value that an end can have, of shape ``batch_shape`` each."""
        return self.quantiles.support

    def sample(self, key: jax.Array, shape: Shape = ()) -> jax.Array:
        """Draw intervals: float of shape ``shape + batch_shape + (2,)``, the lower and the upper end."""
        return self.quantiles.sample(key, shape)

    def _sample(self, key: jax.Array, shape: tuple[int, ...], first: ArrayLike = 0) -> jax.Array:
        return self.quantiles._sample(key, shape, first)


def guarantee(relation: str, epsilon: float) -> Guarantee:
    """Return what one draw of :func:`confidence_interval` costs.

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

    **What is promised.** If the ``public_n`` records of a row are independent draws from one population, the interval holds its
    q-quantile with probability at least the attribute ``coverage``, over records and draws together; with ``ties``, less the
    probability that more records share one multiple of the resolution near the quantile. This is for every population and every n,
    large or small, by a computation and no simulation. The quantile is that of the population rounded to multiples and clamped to
    the bounds; half a resolution more on either side holds the quantile itself. Privacy depends on none of it.

    **What it costs.** The bound holds for the worst population of that kind, so most are covered more often. Median widths of 95 %
    intervals for the median of 1000 incomes spread like exp(10.5 + 0.8 N(0, 1)), as multiples of the width of the interval by two
    order statistics, which is not private; lower=0, upper=10^6, resolution=100, and with ties=10:

        epsilon     0.5  1    2    with ties=10: 0.5  1    2
        swap        4.6  2.9  2.0                3.6  2.4  1.7
        add/remove  3.4  2.2  1.6                2.7  1.9  1.5

    Args:
        x: float ``(..., n)``. The other arguments: :mod:`dpjax.statistics`; ``lower`` and ``upper`` are static here.
        q: static, strictly between 0 and 1, read by its decimal value: 0.1 is 1/10.
        epsilon: a positive number, one for all rows.
        resolution: a finer one costs little width.
        coverage: what the bound must reach at least.
        ties: public, at least 1: how many records share one multiple at most, between the levels 2 q_1 - q and 2 q_2 - q, for the
            two ``levels`` of the result; by default n, which always holds for n records. The expected number is n times the
            resolution times the density: 1.4 in the table, where the largest is 8 or less in 99 % of samples.
        public_n: how many records a row has, for the promise alone; by default all columns of ``x``. Needed under add/remove, and
            where ``num_records`` or ``mask`` is given. More records are mostly covered as well, see :func:`interval_coverage`. Of
            more than 10^5, levels are rounded outwards to n / 2^27, for ranks are int32.
        terms: static, of :func:`dpjax.joint_quantiles`, under add/remove. With 8, draws take a quarter of the time, and the
            interval is up to a tenth wider.

    Returns:
        A :class:`ConfidenceInterval` of the batch shape ``(...)``; its draws ``(..., 2)`` are multiples of the resolution.

    Raises:
        TypeError: ``q``, a bound or the resolution is a JAX array, or epsilon no single number.
        ValueError: a public parameter outside its range, or a coverage that so few records cannot reach at this epsilon.

    Privacy:
        epsilon-DP and epsilon-bounded-range under the relation given, for both ends together: :func:`dpjax.joint_quantiles`.
        Public: all arguments but the records; under swap also the number of records, under add/remove not. Float draws are
        simulations.

    References:
        The quantiles: see :func:`dpjax.joint_quantiles`. Drechsler, Globus-Harris, McMillan, Sarathy and Smith (2022),
        "Nonparametric differentially private confidence intervals for the median", has other mechanisms for the same promise.
        The bound is in no paper; its proof is at the head of ``interval.py``.

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
                "public_n is needed under add_remove, and with num_records or mask: a public number of records to plan for."
            )
        public_n = columns
    public_n = checks.static_integer("public_n", public_n, 1, columns)
    plan = plan_of(epsilon, lower, upper, resolution, neighbors, public_n if ties is None else ties, terms)
    levels, found = planned_levels(plan, level_of(q), public_n, columns, checks.concrete_fraction("coverage", coverage))
    asked = quantiles(
        x, levels, lower=lower, upper=upper, neighbors=neighbors, resolution=resolution, num_records=num_records, mask=mask
    )
    reach = plan.reach if plan.terms > 1 else None
    joint = joint_quantiles(asked, epsilon, reach=reach, terms=max(plan.terms, 2))
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
    """Return the levels of the two ends of :func:`confidence_interval`, to plan with: no data are needed.

    Args:
        q: as there, and so are all others.
        public_n: how many records.

    Returns:
        Two fractions, q - a and q + a with the least a. So the interval has about 2 a n records in it.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        As :func:`confidence_interval`.

    >>> public = {"public_n": 1000, "lower": 0, "upper": 10**6, "resolution": 100, "neighbors": "swap"}
    >>> [[round(float(level), 2) for level in interval_levels(0.5, epsilon, **public)] for epsilon in (0.5, 2)]
    [[0.35, 0.65], [0.44, 0.56]]
    """
    public_n = checks.static_integer("public_n", public_n, 1)
    plan = plan_of(epsilon, lower, upper, resolution, neighbors, public_n if ties is None else ties, terms)
    return planned_levels(plan, level_of(q), public_n, public_n, checks.concrete_fraction("coverage", coverage))[0]


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
    """Return the lower bound on the coverage of an interval between two levels, for any number of records.

    Where n is private or rows have different numbers, levels are planned for one n: this says what holds for another one. More
    records are covered more often, up to the steps of the binomial distribution, and with ``ties`` = n of powers of two: one more
    than 1024 lowers the bound by up to .05.

    Args:
        levels: of the two ends, below and above ``q``.
        q: as in :func:`confidence_interval`, and so are all others.
        public_n: how many records.

    Returns:
        A float, at least 0.

    Privacy:
        None is spent: it reads public numbers only.

    References:
        As :func:`confidence_interval`.

    >>> public = {"lower": 0, "upper": 10**6, "resolution": 100, "neighbors": "swap"}
    >>> levels = interval_levels(0.5, 1.0, public_n=1000, **public)
    >>> [round(interval_coverage(levels, 0.5, 1.0, public_n=n, **public), 2) for n in (900, 1000, 1100)]
    [0.86, 0.95, 0.98]
    """
    low, high = (level_of(level) for level in levels)
    middle = level_of(q)
    if not low < middle < high:
        raise ValueError(f"levels must be one below q and one above it, got {low} and {high} for q = {middle}.")
    public_n = checks.static_integer("public_n", public_n, 1)
    plan = plan_of(epsilon, lower, upper, resolution, neighbors, public_n if ties is None else ties, terms)
    return max(0.0, 1 - miss_of(plan, middle, low, high, public_n))
