"""Simulated statistics of a frame's columns, by groups, with their exact error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.checks import Neighbors
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.tables import FrameResult, asked_columns, read_frame, total_of
from dpjax.mechanisms import joint_quantiles, piecewise_laplace
from dpjax.sensitivity import SortedRecords
from dpjax.statistics import median
from dpjax.statistics.grouping import Batch

_BARS = ("simulated", "mean_abs_error", "lower95", "upper95")
_DYNAMIC = ("lower", "upper", "epsilon")  # a program serves all of them


def simulate(
    key: jax.Array,
    frame: Any,
    columns: str | Iterable[str] | Mapping[str, Mapping[str, Any]],
    *,
    statistic: Callable[..., Any] = median,
    by: str | Sequence[str] | None = None,
    groups: Iterable[Any] | PrivateGroups | None = None,
    neighbors: Neighbors,
    **options: Any,
) -> FrameResult:
    """Draw a statistic of columns of a frame, of every group, with the exact error bar of each draw: to plan a release.

    Args:
        key: typed.
        frame: of pandas, Polars or PyArrow, or a relation of DuckDB; a row is a record of one person.
        columns: a name, or several; or a mapping from names to options of their own, such as bounds.
        statistic: of :mod:`dpjax.statistics`, for piecewise Laplace: ``dpjax.median``, ``dpjax.quantile`` with ``q=0.9``,
            ``dpjax.mean``, or a function of your own with the same arguments. Or ``dpjax.quantiles`` with ``qs=(0.1, 0.9)``, for
            joint quantiles.
        by: the column of the group, or several.
        groups: their labels, of several columns tuples; :class:`PrivateGroups`, or None, for all that are there.
        neighbors: ``"add_remove"``, or without ``by`` also ``"swap"``.
        options: ``epsilon``, one or several, ``lower`` and ``upper``; and those of the statistic, such as ``resolution``.

    Returns:
        A :class:`FrameResult`. The frame has the columns ``by``, with private groups ``probability_kept``, ``column``, of several
        quantiles ``quantile``, and then ``records`` and ``missing`` (numbers of records), ``value`` (the statistic itself),
        ``simulated``, ``mean_abs_error``, ``lower95`` and ``upper95`` (where 95 % of all draws are), ``epsilon`` and
        ``guarantee``, what a draw costs.

    Raises:
        ImportError: narwhals is not installed.
        TypeError: no frame, a column that does not hold numbers, or an option that the statistic does not have.
        ValueError: columns that are not there, ``groups`` without ``by``, ``by`` under swap, or a bad public parameter.

    Privacy:
        None: this is a simulation. What is printed are functions of the data, and draws are floats.

    >>> import pytest  # narwhals and pandas may not be there
    >>> _ = pytest.importorskip("narwhals")
    >>> pandas = pytest.importorskip("pandas")
    >>> people = pandas.DataFrame({"region": ["north"] * 40 + ["south"] * 30, "age": [34, 51] * 35})
    >>> ages = {"lower": 0, "upper": 120, "resolution": 1, "epsilon": 1.0, "neighbors": "add_remove"}
    >>> found = simulate(jax.random.key(0), people, "age", by="region", **ages).frame
    >>> found[["region", "records", "value"]].to_numpy().tolist()
    [['north', 40, 34.0], ['south', 30, 34.0]]
    """
    if not callable(statistic):
        raise TypeError(f"statistic must be a function such as dpjax.median, got {statistic!r}.")
    asked = asked_columns(columns, options)
    private, named = (groups, None) if isinstance(groups, PrivateGroups) else (None, groups)
    table = read_frame(frame, asked, by, named, neighbors)
    grouping, costs = table.grouping, []
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    batches = grouping.batches() if neighbors == "add_remove" else [grouping.whole()]
    for number, batch in enumerate(batches):
        costs = [private.guarantee] if private else []
        for place, (column, own) in enumerate(asked.items()):
            own_key = jax.random.fold_in(jax.random.fold_in(key, place), number)
            parts, each = _rows(own_key, table.columns[column], batch, statistic, neighbors, own)
            costs += each
            found |= {(column, group): part for group, part in zip(batch.groups.tolist(), parts, strict=True)}
    kept = None if private is None else private.probability_kept(grouping.sizes)
    rows: list[dict[str, Any]] = []
    for column in asked:
        for group, label in enumerate(grouping.labels):
            start = dict(zip(table.by, label, strict=True)) | ({} if kept is None else {"probability_kept": float(kept[group])})
            rows += [start | {"column": column} | row for row in found[column, group]]
    names = ["records", "missing", "value", *_BARS, "epsilon", "guarantee"]
    names = ["column", *["quantile"] * any("qs" in own for own in asked.values()), *names]
    return FrameResult(table.frame_of(rows, [*table.by, *["probability_kept"] * (private is not None), *names]), total_of(costs))


def _rows(
    key: jax.Array, values: np.ndarray, batch: Batch, statistic: Callable[..., Any], neighbors: Neighbors, own: Mapping[str, Any]
) -> tuple[list[list[dict[str, Any]]], list[Any]]:
    """Of one column: for every group of a batch its rows, and what the draws cost."""
    public = {name: own[name] for name in _DYNAMIC if name in own}
    if "epsilon" not in public:
        raise TypeError("epsilon is missing: give one or several for all columns, or for each in the mapping of columns.")
    epsilons = np.atleast_1d(np.asarray(public.pop("epsilon"), np.float64))
    static = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items() if name not in _DYNAMIC}
    static["neighbors"] = neighbors
    records = batch.padded(values)
    missing = batch.sizes - np.sum(~np.isnan(records), axis=-1)
    records = np.clip(records, public.get("lower"), public.get("upper"))  # in float64: none overflows in float32
    ask = partial(statistic, **static) if neighbors == "swap" else partial(statistic, count=batch.sizes, **static)
    shape = jax.ShapeDtypeStruct(records.shape, jnp.result_type(float))
    profile = jax.eval_shape(lambda records: ask(records, **public), shape)  # public numbers are checked, nothing is computed
    levels = [float(level) for level in profile.levels] if isinstance(profile, SortedRecords) else []
    mechanism = joint_quantiles if levels else piecewise_laplace
    costs = [mechanism.guarantee(profile, epsilon) for epsilon in epsilons.tolist()]
    ends = {name: shape.dtype.type(bound) for name, bound in public.items()}
    found = _draws(key, records, batch.sizes, ends, epsilons[:, None], statistic=statistic, static=tuple(sorted(static.items())))
    value, *drawn = (np.asarray(part, np.float64) for part in found)
    rows: list[list[dict[str, Any]]] = []
    for row in range(batch.groups.size):
        sizes = {"records": int(batch.sizes[row]), "missing": int(missing[row])}
        known = [{"epsilon": cost.epsilon, "guarantee": str(cost)} for cost in costs]
        rows.append([])
        for at in np.ndindex(len(costs), *value.shape[1:]):  # epsilons, and quantiles
            level = {"quantile": levels[at[1]]} if levels else {}
            bars = dict(zip(_BARS, (float(part[at[0], row, *at[1:]]) for part in drawn), strict=True))
            rows[-1].append(level | sizes | {"value": float(value[row, *at[1:]])} | bars | known[at[0]])
    return rows, costs


@partial(jax.jit, static_argnames=("statistic", "static"))
def _draws(
    key: jax.Array,
    records: jax.Array,
    count: jax.Array,
    ends: dict[str, jax.Array],
    epsilon: jax.Array,
    *,
    statistic: Callable[..., Any],
    static: tuple[tuple[str, Any], ...],
) -> tuple[jax.Array, ...]:
    """The statistic of each row, and for each epsilon a draw, its error and where 95 % of the draws are."""
    options = dict(static) | ends | ({"count": count} if dict(static)["neighbors"] == "add_remove" else {})
    profile = statistic(records, **options)
    distribution: Any
    if isinstance(profile, SortedRecords):
        distribution = joint_quantiles.joint_quantiles(profile, epsilon)
        bars = distribution.marginals()
    else:
        bars = distribution = piecewise_laplace.piecewise_laplace(profile, epsilon)
    drawn = distribution.sample(key)
    return profile.value, drawn, bars.mean_abs_error(profile.value), *bars.interval(0.95)
