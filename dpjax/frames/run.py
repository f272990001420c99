"""Releases and simulations of statistics of a table's columns, by groups.

They are one run, which differs only in how it draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from importlib import import_module
from operator import add
from typing import Any, NamedTuple

import numpy as np

from dpjax import checks
from dpjax.accounting.filters import PrivacyFilter, charge
from dpjax.accounting.guarantee import Composition, Guarantee
from dpjax.checks import Neighbors
from dpjax.frames.options import Options
from dpjax.frames.persons import PerUnit, grid_of_records, rule_of
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.result import FrameResult
from dpjax.release import Counts, Quantile, Statistic
from dpjax.release.grid import kind_of

BOUND_SHARE = 0.25  # the least share of records at a bound that is reported
_NOBODY = Counts.of_rows([], [], [], groups=0)
Columns = Mapping[Any, Statistic | Sequence[Statistic]]


def release(
    frame: Any,
    columns: Columns,
    *,
    epsilon: float | Fraction,
    neighbors: Neighbors,
    by: Any = (),
    groups: Iterable[Any] | PrivateGroups | None = None,
    unit: Any = None,
    per_unit: PerUnit | None = None,
    max_groups: int = 1,
    draws: int = 1,
    mechanism: str | None = None,
    budget: PrivacyFilter | None = None,
) -> FrameResult:
    """Release statistics of columns of a frame for every group, drawn exactly.

    Args:
        frame: a frame of pandas, Polars (eager or lazy), PyArrow or Dask, a DuckDB relation, or a
            table of Ibis (but not of SQLite, whose columns hold values of any type) or PySpark.
            Without ``unit`` each row is the record of one person.
        columns: a mapping of names of columns to statistics of :mod:`dpjax.release`, one or a list
            each. Every statistic costs epsilon.
        epsilon: the privacy loss of one draw of one statistic, from 2^-30 to 64.
        neighbors: ``"add_remove"``, or without ``by`` also ``"swap"``.
        by: the column of group labels, or a list of several.
        groups: with ``by``, the public labels (tuples for several columns), whether they occur in
            the frame or not. They must be known without the data: labels that are read from the
            data are not public. Or :class:`PrivateGroups`.
        unit: the column that identifies the person. All rows of a person in a group are combined
            into one record, and the guarantee is for a person with all rows. Rows without a person
            are left out.
        per_unit: how these rows are combined: the ``"mean"`` (default), ``"sum"``, ``"min"`` or
            ``"max"`` of their values, or their ``"count"``. Rows without a value are left out, and
            others are clipped first: to the bounds, in sums to the larger bound in size. A
            statistic without a resolution takes ``"min"`` or ``"max"``.
        max_groups: the maximal number of groups that a person counts in: those with most of the
            person's rows, ties by the order of ``groups``, or by label. Each costs epsilon, but no
            more than there are public groups.
        draws: the number of draws, at most 2^24, each of which costs epsilon.
        mechanism: for statistics with a choice, one of their ``mechanisms``.
        budget: a :class:`dpjax.accounting.PrivacyFilter` or :class:`dpjax.accounting.Ledger`,
            charged before anything is drawn.

    Returns:
        A :class:`FrameResult`, whose frame has the columns ``by``, ``noisy_size`` (for private
        groups), ``column``, ``statistic`` (where a column has several), ``quantile`` (for
        quantiles), ``draw`` (for ``draws`` above 1), ``released``, and ``epsilon``, of one draw
        (for several quantiles, of all of them together).

    Raises:
        BudgetExceeded: the cost exceeds the remaining budget; nothing was drawn or charged.
        ImportError: the extra ``frames`` is not installed.
        TypeError: an argument is of the wrong kind, or a column has a dtype that its statistic does
            not take.
        ValueError: a column does not exist, only one of ``groups`` and ``by`` is given, ``by`` is
            given under swap, a column cannot hold a label, or a public parameter is out of range.
            Records never raise.
        RuntimeError: an engine cannot compute the frame, such as the scan of a file that is not
            well-formed. The message does not say why, as that may depend on the records.

    Privacy:
        As ``guarantee`` states, for a row that is added or removed, or replaced; with ``unit`` for
        a person with all rows, by the proof in ``persons``: a person changes at most one record in
        each of ``max_groups`` groups. Public: names and dtypes of columns, the groups, and all
        options; private groups that are kept are released. See :mod:`dpjax.release` for what is
        not covered.

    References:
        McSherry (2009), Theorem 4: groups share no record, so all of them cost as much as one.

    >>> import pytest  # Polars may not be installed
    >>> polars = pytest.importorskip("polars")
    >>> from dpjax.release import Median
    >>> people = polars.DataFrame({"region": ["north"] * 40 + ["south"] * 30, "age": [34, 51] * 35})
    >>> regions = {"by": "region", "groups": ["north", "south", "west"]}
    >>> ages = {"age": Median(lower=0, upper=120, resolution=1)}
    >>> found = release(people, ages, **regions, epsilon=1.0, neighbors="add_remove")
    >>> found.frame[["region", "released"]].shape
    (3, 2)
    >>> print(found.guarantee)
    1-DP under add_remove neighbors, for a row
    """
    options = Options(epsilon, neighbors, by, groups, unit, per_unit, max_groups, draws, mechanism)
    return _run(frame, columns, options, budget)


def simulate(seed: int, frame: Any, columns: Columns, **options: Any) -> FrameResult:
    """Draw from a seed what a release draws, with exact error bars, to plan it.

    Args:
        seed: of the draws, an integer.
        frame: as for :func:`release`.
        columns: as for a release.
        options: all other arguments of a release but ``budget``; ``groups`` may be left out, for
            all groups in the data.

    Returns:
        A :class:`FrameResult`, whose frame has the columns ``by``, ``probability_kept`` (for
        private groups), ``column``, ``statistic`` (where a column has several), ``quantile`` (for
        quantiles), ``draw`` (for ``draws`` above 1), ``records`` (with ``unit``, persons) and
        ``missing`` (rows without a value), ``value`` (the statistic; empty where a group without
        records has none), ``simulated``, ``mean_abs_error``, ``lower95`` and ``upper95`` (the
        central interval of 95 % of the draws), and ``epsilon``, of one draw. Error bars are exact;
        those of several quantiles are measured on 1000 draws. ``guarantee`` is what the release
        would cost. ``note`` says where many records are at or beyond a bound, and how many rows do
        not count: those of no group or no person, and those of a person's further groups.

    Raises:
        ImportError: as for a release.
        TypeError: as for a release.
        ValueError: as for a release, but groups may be left out.

    Privacy:
        Not private: this is a simulation. The results are functions of the data, and draws come
        from a seed.

    >>> import pytest  # Polars may not be installed
    >>> polars = pytest.importorskip("polars")
    >>> from dpjax.release import Median
    >>> people = polars.DataFrame({"region": ["north"] * 40 + ["south"] * 30, "age": [34, 51] * 35})
    >>> ages = {"age": Median(lower=0, upper=120, resolution=1)}
    >>> found = simulate(0, people, ages, by="region", epsilon=1.0, neighbors="add_remove").frame
    >>> found[["region", "records", "value"]].rows()
    [('north', 40, 34.0), ('south', 30, 34.0)]
    """
    generator = np.random.default_rng(checks.static_integer("seed", seed, 0))
    return _run(frame, columns, Options(**options), generator=generator)


class _Asked(NamedTuple):
    """A statistic of a column.

    Attributes:
        name: of the column.
        statistic: its statistic.
        how: the keywords of a call of its methods: epsilon, neighbors and its mechanism.
        levels: the levels of quantiles; ``[None]`` for other statistics.
    """

    name: Any
    statistic: Any
    how: dict[str, Any]
    levels: Sequence[Any]


def _asked(columns: Columns, options: Options) -> list[_Asked]:
    """Return the statistics of all columns, whose public parameters are checked."""
    example = "such as {'age': dpjax.release.Median(lower=0, upper=120, resolution=1)}"
    given: list[tuple[Any, Any]] = []
    for name, one in columns.items() if isinstance(columns, Mapping) else ():
        given += [(name, each) for each in (one if isinstance(one, list | tuple) else [one])]
    if not given:
        raise TypeError(
            f"columns must be a mapping of names of columns to statistics, {example}, got "
            f"{type(columns).__name__}; the frame is the argument before it."
        )
    bounds = [getattr(each, "lower", None) for _, each in given]
    if len({(kind_of(lower), getattr(lower, "tzinfo", None) is None) for lower in bounds}) > 1:
        raise ValueError(
            "columns must all be numbers, as counts are, or all dates, durations, or times, with a "
            "zone or without one: use separate calls."
        )
    asked, choice = [], any(getattr(each, "mechanisms", ()) for _, each in given)
    for name, each in given:
        several: Any = getattr(each, "levels", None)
        how = {"epsilon": options.epsilon, "neighbors": options.neighbors}
        how["mechanism"] = options.mechanism if not choice or each.mechanisms else None
        # The distribution checks all public parameters
        if not isinstance(each, Statistic) or (
            each.distribution(_NOBODY, **how).value.shape[1:] != np.shape(several)
        ):
            raise TypeError(
                f"column {name!r} needs statistics with one value, or quantiles, {example}, got "
                f"{each!r}."
            )
        if options.unit is not None:
            rule_of(each, options.per_unit)
        levels = several or ([each.level] if type(each) is Quantile else [None])
        asked.append(_Asked(name, each, how, levels))
    return asked


def _run(
    frame: Any,
    columns: Columns,
    options: Options,
    budget: PrivacyFilter | None = None,
    generator: np.random.Generator | None = None,
) -> FrameResult:
    """Return a release, or with a generator a simulation."""
    by, groups = options.by, options.groups
    if (generator is None or not by) and (groups is None) != (not by):
        raise ValueError(
            "by and groups must be given together: groups are public labels, or private groups."
        )
    asked = _asked(columns, options)
    try:
        tables: Any = import_module("dpjax.frames.tables")
    except ImportError as error:
        raise ImportError(
            "dpjax.frames needs narwhals, Polars and PyArrow: pip install 'dpjax[frames]'."
        ) from error
    table = tables.Table(frame, [each[:2] for each in asked], options)
    said = [f"{each.name}: {each.statistic!r}" for each in asked]
    cost, what = _cost(asked, options), vars(options) | {"columns": said}
    if isinstance(groups, PrivateGroups):
        sizes = table.find(bounded=True)
        charge(budget, cost, what)
        if generator is None:
            kept, noisy = groups.release(sizes)
            table.labels = table.labels[kept].with_columns(noisy_size=noisy)
        else:
            shares = groups.probability_kept(sizes)
            table.labels = table.labels.with_columns(probability_kept=shares)
        budget = None  # It is paid
    elif groups is not None:
        table.name(groups)
    elif by:
        table.find(bounded=False)
    counts = [table.counts(*each[:2]) for each in asked]
    for each, (known, _, _) in zip(asked, counts, strict=True):
        each.statistic.distribution(known.some(0, 1), **each.how)  # A mean needs a record
    charge(budget, cost, what)
    found, notes = [], []
    for each, (known, missing, left) in zip(asked, counts, strict=True):
        if generator is None:
            drawn = each.statistic.release(known, draws=options.draws, **each.how)
            found.append({"released": drawn.values})
            continue
        simulated = _simulated(generator, each, known, options.draws)
        found.append({"records": known.totals, "missing": missing, **simulated})
        notes += [
            f"{number} of {table.size} rows of {each.name} do not count: they are of {why}."
            for why, number in left.items()
            if number
        ]
        notes += _notes(each, known)
    rows = tables.results(table, asked, found)
    shown, note = tables.in_library(rows, frame, by), " ".join(dict.fromkeys(notes))
    return FrameResult(shown, rows, (1 * cost).guarantee(), note)


def _cost(asked: Sequence[_Asked], options: Options) -> Guarantee | Composition:
    """Return the guarantee of all draws from all columns and groups together."""
    groups, draws = options.groups, options.draws * options.max_groups
    costs = [groups.guarantee] if isinstance(groups, PrivateGroups) else []
    costs += [each.statistic.cost(draws=draws, **each.how) for each in asked]
    unit = "row" if options.unit is None else "person"
    return reduce(add, [replace(cost, unit=unit) for cost in costs])


def _simulated(
    generator: np.random.Generator, asked: _Asked, counts: Counts, draws: int
) -> dict[str, np.ndarray]:
    """Return draws ``(draws, groups[, levels])``, and the error and the interval of a draw."""
    parts = []
    for found in asked.statistic.parts(counts, **asked.how):
        known = found.value, found.mean_abs_error(found.value), *found.interval(0.95)
        parts.append((found.sample(generator, draws), *(array[None] for array in known)))
    names = "simulated", "value", "mean_abs_error", "lower95", "upper95"
    arrays = [np.concatenate(blocks, axis=1) for blocks in zip(*parts, strict=True)]
    if not asked.statistic.zero_of_nobody:
        nobody = counts.totals == 0
        for array in arrays[1:3]:
            array[:, nobody] = np.nan
    return dict(zip(names, arrays, strict=True))


def _notes(asked: _Asked, counts: Counts) -> list[str]:
    """Return a sentence on a statistic of bounded records, if many of them are at a bound."""
    grid, adds_up = grid_of_records(asked.statistic), asked.statistic.zero_of_nobody
    if grid is None or (adds_up and grid.size == 2):  # a sum of 0 and 1
        return []
    at_bound = np.isin(counts.values, (0, grid.size - 1)[adds_up:])
    share = counts.counts[at_bound].sum() / max(counts.counts.sum(), 1)
    text = (
        f"{100 * share:.0f} % of the records of {asked.name} are at or beyond a bound, and count "
        "as that bound: are the bounds wide enough?"
    )
    return [text] if share >= BOUND_SHARE else []
