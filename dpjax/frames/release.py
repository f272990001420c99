"""The release of statistics of a frame's columns, by groups: exact draws, and nothing else of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dpjax import release as exact
from dpjax.checks import Neighbors
from dpjax.frames.asked import Columns, asked_of
from dpjax.frames.counting import counts_of, table_of
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.result import FrameResult, result_of


def release(
    frame: Any,
    columns: Columns,
    *,
    statistic: Callable[..., Any] | exact.Statistic = exact.median,
    by: str | Sequence[str] | None = None,
    groups: Iterable[Any] | PrivateGroups | None = None,
    neighbors: Neighbors,
    **options: Any,
) -> FrameResult:
    """Release a statistic of columns of a frame, of every group, drawn exactly.

    Args:
        frame: of pandas, Polars or PyArrow, or a relation of DuckDB; a row is a record of one person.
        columns: a name, or several; or a mapping from names to options of their own, such as bounds, or to a statistic object of
            their own. Each costs its epsilon.
        statistic: an object such as ``dpjax.release.Median(lower=0, upper=120, resolution=1)``, or a function of
            :mod:`dpjax.release`, whose options then follow: ``median``, ``quantile`` with ``q=0.9``, ``order_statistic``,
            ``joint_quantiles`` or ``recursive_quantiles`` with ``qs=[0.1, 0.5, 0.9]``, ``mode``, ``maximum``, ``nonnegative_sum``,
            ``distinct_count`` (of labels of any kind), ``count`` (of the values that are not missing; under add/remove) or, under
            swap, ``sum`` and ``mean``. The function that simulates it, such as ``dpjax.median``, or for several quantiles
            ``dpjax.quantiles`` (joint ones), ``dpjax.joint_quantiles`` or ``dpjax.recursive_quantiles``, is taken for it.
        by: the column of the group, or several.
        groups: with ``by``: the public labels, of several columns tuples, whether the frame has them or not. They must be known
            without the data: those that are read from it are not public. Or :class:`PrivateGroups`.
        neighbors: ``"add_remove"``, or without ``by`` also ``"swap"``.
        options: ``epsilon``, ``draws`` and ``mechanism``; beside a function also those of the statistic: ``lower``, ``upper``,
            ``resolution`` and so on, all public. Joint quantiles under add/remove need ``n_max``, a guess of the most records of
            a group.

    Returns:
        A :class:`FrameResult`. The frame has the columns ``by``, of private groups ``noisy_size``, ``column``, of several
        quantiles ``quantile``, with ``draws=`` above 1 ``draw``, and then ``released`` and ``epsilon``, that of a draw (of several
        quantiles, of all of them together).

    Raises:
        ImportError: narwhals is not installed.
        TypeError: no frame, a column that does not hold numbers, a string as ``groups``, a statistic that is none of
            :mod:`dpjax.release`, or an option that it does not have.
        ValueError: columns that are not there, ``groups`` without ``by`` or the other way round, ``by`` under swap, a label that
            its column cannot hold, or a bad public parameter. Records never raise.

    Privacy:
        What ``guarantee`` says, for one row more or less, or replaced. Public: names and dtypes of columns, the groups, and all
        options; of private groups those that are kept are released. See :func:`dpjax.release.median` for what is not covered.

    References:
        McSherry (2009), Theorem 4: groups share no record, so all of them cost what one costs.

    >>> import pytest  # narwhals and pandas may not be there
    >>> _ = pytest.importorskip("narwhals")
    >>> pandas = pytest.importorskip("pandas")
    >>> people = pandas.DataFrame({"region": ["north"] * 40 + ["south"] * 30, "age": [34, 51] * 35})
    >>> ages = exact.Median(lower=0, upper=120, resolution=1)
    >>> regions = {"by": "region", "groups": ["north", "south", "west"]}
    >>> found = release(people, {"age": ages}, **regions, epsilon=1.0, neighbors="add_remove")
    >>> found.frame[["region", "released"]].shape
    (3, 2)
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors
    """
    asked = asked_of(columns, statistic, options, neighbors, simulated=False)
    if (by is None) != (groups is None):
        raise ValueError("by and groups go together: groups are public labels, or PrivateGroups(epsilon=..., delta=...).")
    table = table_of(frame, asked, by, groups, neighbors)
    others, sizes = [], {}
    if isinstance(groups, PrivateGroups):
        kept, noisy = groups.release(table.sizes)
        table, others, sizes = table.only(kept), [groups.guarantee], {"noisy_size": noisy}
    found, costs = {}, {}
    for column, own in asked.items():
        made: Any = own.statistic
        (epsilon,) = own.epsilons
        counts = counts_of(made, table.columns[column], table, neighbors)
        drawn = made.release(counts, epsilon, neighbors, mechanism=own.mechanism, draws=own.draws)
        values = drawn.values.reshape(own.draws, table.groups, max(len(own.levels), 1)).swapaxes(0, 1)
        found[column] = {
            **({"quantile": np.array(own.levels)} if own.levels else {}),
            **({"draw": np.arange(1, own.draws + 1)[:, None]} if own.draws > 1 else {}),
            "released": values[:, None],
            "epsilon": np.array([float(epsilon)])[:, None, None],
        }
        costs[column, float(epsilon)] = drawn.guarantee
    return result_of(table, found, sizes, costs, others)
