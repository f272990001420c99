"""The release of statistics of a frame's columns, by groups: exact draws, and nothing else of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpjax import release as exact
from dpjax.checks import Neighbors
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.statistics import RELEASED, check_options, released_as
from dpjax.frames.tables import FrameResult, asked_columns, read_frame, total_of
from dpjax.release.joint_quantiles import reach_for
from dpjax.release.tables import exact_epsilon
from dpjax.several_quantiles.ranks import level_of


def release(
    frame: Any,
    columns: str | Iterable[str] | Mapping[str, Mapping[str, Any]],
    *,
    statistic: Callable[..., Any] = exact.median,
    by: str | Sequence[str] | None = None,
    groups: Iterable[Any] | PrivateGroups | None = None,
    neighbors: Neighbors,
    **options: Any,
) -> FrameResult:
    """Release a statistic of columns of a frame, of every group, drawn exactly.

    Args:
        frame: of pandas, Polars or PyArrow, or a relation of DuckDB; a row is a record of one person.
        columns: a name, or several; or a mapping from names to options of their own, such as bounds. Each costs its epsilon.
        statistic: a function of :mod:`dpjax.release`: ``median``, ``quantile`` with ``q=0.9``, ``joint_quantiles`` or
            ``recursive_quantiles`` with ``qs=[0.1, 0.5, 0.9]``, ``mode``, ``maximum``, ``nonnegative_sum``, ``count`` (of the
            values that are not missing; under add/remove) or, under swap, ``sum`` and ``mean``. The function that simulates it,
            such as ``dpjax.median``, or for several quantiles ``dpjax.quantiles`` (joint ones), ``dpjax.joint_quantiles`` or
            ``dpjax.recursive_quantiles``, is taken for it.
        by: the column of the group, or several.
        groups: with ``by``: the public labels, of several columns tuples, whether the frame has them or not; or
            :class:`PrivateGroups`.
        neighbors: ``"add_remove"``, or without ``by`` also ``"swap"``.
        options: those of the statistic: ``epsilon``, ``lower``, ``upper``, ``resolution`` and so on, all public. With
            ``joint_quantiles`` under add/remove also ``n_max``, a guess of the most records of a group.

    Returns:
        A :class:`FrameResult`. The frame has the columns ``by``, of private groups ``noisy_size``, ``column``, of several
        quantiles ``quantile``, with ``draws=`` above 1 ``draw``, and then ``released`` and ``epsilon``, that of a draw (of several
        quantiles, of all of them together).

    Raises:
        ImportError: narwhals is not installed.
        TypeError: no frame, a column that does not hold numbers, a string as ``groups``, or a statistic that is none of
            :mod:`dpjax.release`.
        ValueError: columns that are not there, ``groups`` without ``by`` or the other way round, ``by`` under swap, or a bad
            public parameter. Records never raise.

    Privacy:
        What ``guarantee`` says, for one row more or less, or replaced. Public: names and dtypes of columns, the groups, and all
        options; of private groups those that are kept are released. See :func:`dpjax.release.median` for what is not covered.

    References:
        McSherry (2009), Theorem 4: groups share no record, so all of them cost what one costs.

    >>> import pytest  # narwhals and pandas may not be there
    >>> _ = pytest.importorskip("narwhals")
    >>> pandas = pytest.importorskip("pandas")
    >>> people = pandas.DataFrame({"region": ["north"] * 40 + ["south"] * 30, "age": [34, 51] * 35})
    >>> ages = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 1.0, "neighbors": "add_remove"}
    >>> found = release(people, "age", by="region", groups=["north", "south", "west"], **ages)
    >>> found.frame[["region", "released"]].shape
    (3, 2)
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors
    """
    released = released_as(statistic)
    if released is None:
        there = ", ".join(known.__name__ for known in RELEASED)
        raise TypeError(
            f"statistic must be one of these functions of dpjax.release: {there}; got {statistic!r}. Histograms and other results "
            "that are arrays are made by the functions themselves, of a column as an array: dpjax.release.histogram(column, ...)."
        )
    relation = {} if released is exact.count else {"neighbors": neighbors}
    if (by is None) != (groups is None):
        raise ValueError("by and groups go together: groups are public labels, or PrivateGroups(epsilon=..., delta=...).")
    asked = {name: _without_sizes(released, own, neighbors) for name, own in asked_columns(columns, options).items()}
    private = groups if isinstance(groups, PrivateGroups) else None
    table = read_frame(frame, asked, by, groups, neighbors)
    grouping, costs, sizes = table.grouping, [], {}
    if private:
        kept, noisy = private.release(grouping.sizes)
        grouping, sizes = grouping.only(kept), {"noisy_size": noisy.tolist()}
        costs.append(private.guarantee)
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    spent: dict[tuple[str, float], Any] = {}  # Guarantee, as no statistic here has a metric
    for batch in grouping.batches() if neighbors == "add_remove" else [grouping.whole()]:
        for column, own in asked.items():
            found = released(batch.padded(table.columns[column]), **relation, **own)
            rate = float(exact_epsilon(own["epsilon"]))
            spent[column, rate] = found.guarantee
            for row, group in enumerate(batch.groups.tolist()):
                entries = rows[column, group] = []
                for entry, value in np.ndenumerate(found.values[:, row]):
                    level = {"quantile": float(level_of(own["qs"][entry[1]]))} if entry[1:] else {}
                    number = {"draw": entry[0] + 1} if found.draws > 1 else {}
                    entries.append(level | number | {"released": float(value), "epsilon": rate})
    made = table.frame_of(rows, grouping, asked, sizes, ["released", "epsilon"])
    return FrameResult(made, total_of([*costs, *spent.values()]), spent)


def _without_sizes(released: Callable[..., exact.Release], own: dict[str, Any], neighbors: Neighbors) -> dict[str, Any]:
    """Options with which nothing depends on what a group is padded to: that says how large it is, which is private."""
    check_options(released, own, neighbors)
    if np.ndim(own.get("epsilon", 0.0)):
        raise ValueError("a release has one epsilon, or one for each column: several are for simulate.")
    if released is not exact.joint_quantiles or neighbors == "swap":
        return own
    if "n_max" not in own:
        raise ValueError(
            "joint_quantiles needs n_max=, a public guess of the most records of a group: sizes are private. "
            "recursive_quantiles does not."
        )
    rest = {name: value for name, value in own.items() if name != "n_max"}
    return {"reach": reach_for(n_max=own["n_max"], **rest)} | rest
