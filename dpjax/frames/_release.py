"""Exact releases of statistics of a frame's columns, by groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from dpjax import release as exact
from dpjax.accounting.ledger import Budget, charge
from dpjax.checks import Neighbors
from dpjax.frames.column_options import Asked, Columns, asked_of
from dpjax.frames.frame_result import FrameResult, result_of
from dpjax.frames.memory import Groups
from dpjax.frames.persons import Persons, PerUnit, costs_of, persons_of, protecting
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.tables import check_names, read_table
from dpjax.frames.times import in_kind
from dpjax.release.exponentials import exact_epsilon


def release(
    frame: Any,
    columns: Columns,
    *,
    statistic: Callable[..., Any] | exact.Statistic = exact.median,
    by: str | Sequence[str] | None = None,
    groups: Iterable[Any] | PrivateGroups | None = None,
    unit: Any = None,
    per_unit: PerUnit | None = None,
    max_groups: int = 1,
    neighbors: Neighbors,
    budget: Budget | None = None,
    **options: Any,
) -> FrameResult:
    """Release a statistic of columns of a frame for every group, drawn exactly.

    Args:
        frame: a frame of pandas, Polars (eager or lazy), PyArrow, DuckDB, Ibis (but not of SQLite,
            whose columns hold values of any type), PySpark or Dask, or a mapping of names to
            arrays. Engines count the records, and only counts are fetched.
            Without ``unit`` each row is the record of one person.
        columns: a name, a list of names, or a mapping from names to options, such as bounds, or to
            statistic objects. Each column costs its epsilon.
        statistic: an object such as ``dpjax.release.Median(lower=0, upper=120, resolution=1)``, or
            a function of :mod:`dpjax.release`, with its options as ``options``: ``median``,
            ``quantile`` with ``q=0.9``, ``order_statistic``, ``joint_quantiles``,
            ``nested_quantiles`` or ``recursive_quantiles`` with ``qs=[0.1, 0.5, 0.9]``, ``mode``,
            ``maximum``, ``nonnegative_sum``, ``distinct_count`` (of labels of any kind), ``count``
            (of the values that are not missing; under add/remove) or, under swap, ``sum`` and
            ``mean``. The corresponding function of a simulation is accepted, too, such as
            ``dpjax.median``, or for several quantiles ``dpjax.quantiles`` (joint),
            ``dpjax.nested_quantiles`` or ``dpjax.recursive_quantiles``.
        by: the column of group labels, or several.
        groups: with ``by``, the public labels (tuples for several columns), whether they occur in
            the frame or not. They must be known without the data: labels that are read from the
            data are not public. Or :class:`PrivateGroups`.
        unit: the column that identifies the person. All rows of a person in a group are combined
            into one record, and the guarantee is for a person with all rows. Rows without a person
            are left out.
        per_unit: how these rows are combined: the ``"mean"`` (default), ``"sum"``, ``"min"`` or
            ``"max"`` of their values, or their ``"count"``. Rows without a value are left out. A
            statistic without a resolution takes ``"min"`` or ``"max"``.
        max_groups: the maximal number of groups that a person counts in: those with most of the
            person's rows, ties by label. Each costs epsilon.
        neighbors: ``"add_remove"``, or without ``by`` also ``"swap"``.
        budget: a :class:`dpjax.accounting.PrivacyFilter` or :class:`dpjax.accounting.Ledger`,
            charged before anything is drawn.
        options: ``epsilon``, ``draws`` and ``mechanism``; for a function also the options of the
            statistic, such as ``lower``, ``upper`` and ``resolution``, all public. Joint quantiles
            under add/remove need ``max_records``, a guess of the number of records of the largest
            group.

    Returns:
        A :class:`FrameResult`. Its frame is of the kind of ``frame``, but of PyArrow for Spark, and
        of pandas for Dask. It has the columns ``by``, ``noisy_size`` (for private groups),
        ``column``, ``quantile`` (for several quantiles), ``draw`` (for ``draws`` above 1),
        ``released``, and ``epsilon``, of one draw (for several quantiles, of all of them together).

    Raises:
        BudgetExceeded: the cost exceeds the remaining budget; nothing was drawn or charged.
        ImportError: narwhals is not installed.
        TypeError: ``frame`` is not a frame, a column does not hold numbers, ``groups`` is a string,
            ``statistic`` is not one of :mod:`dpjax.release`, or it does not have an option.
        ValueError: a column does not exist, only one of ``groups`` and ``by`` is given, ``by`` is
            given under swap, a column cannot hold a label, or a public parameter is out of range.
            Records never raise.
        RuntimeError: an engine cannot compute the frame, such as the scan of a file that is not
            well-formed. The message does not say why, as that may depend on the records.

    Privacy:
        As ``guarantee`` states, for a row that is added or removed, or replaced; with ``unit`` for
        a person with all rows, by the proof in ``persons``: a person changes at most one record in
        each of ``max_groups`` groups. Public: names and dtypes of columns, the groups, and all
        options; private groups that are kept are released. See :func:`dpjax.release.median` for
        what is not covered.

    References:
        McSherry (2009), Theorem 4: groups share no record, so all of them cost as much as one.

    >>> import pytest  # narwhals and pandas may not be installed
    >>> _ = pytest.importorskip("narwhals")
    >>> pandas = pytest.importorskip("pandas")
    >>> people = pandas.DataFrame({"region": ["north"] * 40 + ["south"] * 30, "age": [34, 51] * 35})
    >>> ages = exact.Median(lower=0, upper=120, resolution=1)
    >>> regions = {"by": "region", "groups": ["north", "south", "west"]}
    >>> found = release(people, {"age": ages}, **regions, epsilon=1.0, neighbors="add_remove")
    >>> found.frame[["region", "released"]].shape
    (3, 2)
    >>> print(found.guarantee)
    1-DP and 1-bounded-range under add_remove neighbors, for a row
    """
    settings = asked_of(columns, statistic, options, neighbors, simulated=False)
    if (by is None) != (groups is None):
        raise ValueError(
            "by and groups must be given together: groups= are public labels, or "
            "PrivateGroups(epsilon=..., delta=...)."
        )
    check_names(by, ("column", "released", "epsilon", "quantile", "draw", "noisy_size"))
    if groups is not None and not isinstance(groups, PrivateGroups | str | bytes):
        groups = list(groups)  # used twice
    persons = persons_of(unit, per_unit, max_groups)
    table = read_table(frame, settings, by, groups, neighbors, persons)
    costs = costs_of(settings, neighbors, persons)
    others, sizes = [], {}

    def tallies(named: Groups) -> dict[Any, exact.Counts]:
        statistics: Any = {column: setting.statistic for column, setting in settings.items()}
        each = {
            column: table.rows.tally(column, known, named, neighbors)
            for column, known in statistics.items()
        }
        if neighbors == "swap" and not all(one.numbers(1).any() for one in each.values()):
            raise ValueError(
                "frame must have records under swap neighbors, where their number is public, but "
                "has none."
            )
        return {
            column: each[column].counts(known, len(named.names), neighbors)
            for column, known in statistics.items()
        }

    # Records are read before the budget is charged, unless the groups have to be drawn first.
    if isinstance(groups, PrivateGroups):
        groups = replace(groups, max_groups=1 if persons is None else persons.max_groups)
        others = [protecting(groups.guarantee, persons)]
        all_groups, numbers = table.groups(bounded=True)
        charge(
            budget, reduce(add, [*others, *costs.values()]), _said(settings, by, groups, persons)
        )
        kept_indices, noisy = groups.release(numbers)
        named, sizes = all_groups.only(kept_indices.tolist(), some=True), {"noisy_size": noisy}
        counts = tallies(named)
    else:
        named = table.named  # type: ignore[assignment]
        counts = tallies(named)
        for column, setting in settings.items():
            known: Any = setting.statistic
            chosen = known.checked(neighbors, setting.mechanism)
            known.check(counts[column], exact_epsilon(setting.epsilons[0]), neighbors, chosen)
        charge(
            budget, reduce(add, [*others, *costs.values()]), _said(settings, by, groups, persons)
        )
    found = {}
    for column, setting in settings.items():
        made: Any = setting.statistic
        (epsilon,) = setting.epsilons
        drawn = made.release(
            counts[column], epsilon, neighbors, mechanism=setting.mechanism, draws=setting.draws
        )
        values = drawn.values.reshape(
            setting.draws, len(named.names), max(len(setting.levels), 1)
        ).swapaxes(0, 1)
        found[column] = {
            **({"quantile": np.array(setting.levels)} if setting.levels else {}),
            **({"draw": np.arange(1, setting.draws + 1)[:, None]} if setting.draws > 1 else {}),
            "released": values[:, None]
            if setting.kind is None
            else in_kind(values[:, None], table.kinds[column], made.lower),
            "epsilon": np.array([float(epsilon)])[:, None, None],
        }
    return result_of(table, named, found, sizes, costs, others)


def _said(asked: dict[Any, Asked], by: Any, groups: Any, persons: Persons | None) -> dict[str, Any]:
    """Return the description of the release that a budget records; all of it is public."""
    statistics: Any = {str(column): own.statistic for column, own in asked.items()}
    private = isinstance(groups, PrivateGroups)
    return {
        "columns": {column: statistic.to_dict() for column, statistic in statistics.items()},
        "draws": {str(column): own.draws for column, own in asked.items()},
        **({} if by is None else {"by": by, "groups": vars(groups) if private else list(groups)}),
        **({} if persons is None else vars(persons)),
    }
