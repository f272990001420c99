"""Simulated statistics of a frame's columns, by groups, with their exact error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dpjax import checks
from dpjax.accounting import Composition, Guarantee
from dpjax.checks import Neighbors
from dpjax.frames.draws import draw
from dpjax.frames.grouping import Batch
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.statistics import RANKS, check_options, released_as
from dpjax.frames.tables import FrameResult, asked_columns, read_frame, total_of
from dpjax.frames.ties import TIED_SHARE, ties, words_of_ties
from dpjax.random.keys import check_key
from dpjax.statistics import median

_BARS = ("mean_abs_error", "lower95", "upper95")


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
        statistic: of :mod:`dpjax.statistics` or of :mod:`dpjax.release`, which is the same here: ``dpjax.median``,
            ``dpjax.quantile`` with ``q=0.9``, ``dpjax.quantiles`` with ``qs=(0.1, 0.9)``, for joint quantiles, ``dpjax.mean``, and
            all that :func:`dpjax.frames.release` takes. Or a function of your own with the same arguments.
        by: the column of the group, or several.
        groups: their labels, of several columns tuples; :class:`PrivateGroups`, or None, for all that are there.
        neighbors: ``"add_remove"``, or without ``by`` also ``"swap"``.
        options: ``epsilon``, one or several; ``lower`` and ``upper``; ``draws``, how many; ``mechanism``, by its name; and those of
            the statistic, such as ``resolution``. All that :func:`dpjax.frames.release` takes mean the same here, so that a call
            becomes a release by its name, without the key and with public ``groups``. Of a median, quantile, sum or mean the
            mechanism is ``"piecewise_laplace"``, ``"permute_and_flip"`` (with a resolution), or, only here,
            ``"inverse_sensitivity"`` or, of a median or quantile, ``"laplace"`` on the whole range; of a mode ``"exponential"`` or
            ``"permute_and_flip"``; there is no choice for several quantiles and for counts.

    Returns:
        A :class:`FrameResult`. The frame has the columns ``by``, with private groups ``probability_kept``, ``column``, of several
        quantiles ``quantile``, with ``draws=`` above 1 ``draw``, and then ``records`` and ``missing`` (numbers of records),
        ``value`` (the statistic itself), ``simulated``, ``mean_abs_error``, ``lower95`` and ``upper95`` (where 95 % of all draws
        are), of medians and quantiles ``tied_share`` (the share of the records that equal the statistic), and ``epsilon``, that of
        a draw. Error bars are exact; of ``recursive_quantiles`` they are measured on 1000 draws. The ``note`` says where ties
        spoil the draws, and what helps.

    Raises:
        ImportError: narwhals is not installed.
        TypeError: no frame, a column that does not hold numbers, a string as ``groups``, or an option that the statistic does
            not have.
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
    key, asked = check_key(key), asked_columns(columns, options)
    for own in asked.values():
        check_options(released_as(statistic), own, neighbors)
    private = groups if isinstance(groups, PrivateGroups) else None
    table = read_frame(frame, asked, by, groups, neighbors)
    grouping = table.grouping
    costs: dict[tuple[str, float], Guarantee | Composition] = {}
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    tied: list[float] = []
    for number, batch in enumerate(grouping.batches() if neighbors == "add_remove" else [grouping.whole()]):
        for place, (column, own) in enumerate(asked.items()):
            own_key = jax.random.fold_in(jax.random.fold_in(key, place), number)
            parts, each, spoiled = _rows(own_key, table.columns[column], batch, statistic, neighbors, own)
            costs |= {(column, epsilon): cost for epsilon, cost in each.items()}
            found |= {(column, group): part for group, part in zip(batch.groups.tolist(), parts, strict=True)}
            tied += spoiled
    sizes = {"probability_kept": private.probability_kept(grouping.sizes).tolist()} if private else {}
    ranks = ["tied_share"] * (released_as(statistic) in RANKS)
    names = ["records", "missing", "value", "simulated", *_BARS, *ranks, "epsilon"]
    total = total_of([*([private.guarantee] if private else []), *costs.values()])
    made = table.frame_of(found, grouping, asked, sizes, names)
    return FrameResult(made, total, costs, words_of_ties(tied, "resolution=") if tied else "")


def _rows(
    key: jax.Array, values: np.ndarray, batch: Batch, statistic: Callable[..., Any], neighbors: Neighbors, given: Mapping[str, Any]
) -> tuple[list[list[dict[str, Any]]], dict[float, Guarantee | Composition], list[float]]:
    """Of one column: for every group of a batch its rows, what each epsilon costs, and the shares of ties that spoil a draw."""
    own = {name: value for name, value in given.items() if value is not None}
    if "epsilon" not in own:
        raise TypeError("epsilon is missing: give one or several for all columns, or for each in the mapping of columns.")
    epsilons = list(dict.fromkeys(np.atleast_1d(np.asarray(own.pop("epsilon"), np.float64)).tolist()))
    draws = checks.static_integer("draws", own.pop("draws", 1), 1)
    own |= {name: float(own[name]) for name in ("lower", "upper") if name in own}
    low, high = own.get("lower"), own.get("upper")
    records = batch.padded(values)
    missing = batch.sizes - np.sum(~np.isnan(records), axis=-1)
    records = np.clip(records, low, high)  # in float64: none overflows in float32
    options: Any = {"statistic": statistic, "neighbors": neighbors, "draws": draws, "own": own}
    found = draw(key, records, batch.sizes, epsilons, **options)
    costs: dict[float, Guarantee | Composition] = {
        e: cost if draws == 1 else draws * cost for e, cost in zip(epsilons, found.costs, strict=True)
    }
    groups = batch.groups.size
    ranks = released_as(statistic) in RANKS
    spoiled: list[float] = []
    if ranks:
        step = own.get("resolution")
        rounded = None if step is None else checks.resolution(step, (), 0)
        single = found.value.astype(jax.dtypes.canonicalize_dtype(float)).reshape(len(batch.sizes), -1)
        share, number = ties(records, batch.sizes, single, rounded, low if neighbors == "swap" else None)
        if step is None and own.get("grid") is None and own.get("mechanism") != "laplace":
            spoiled = share[:groups][(share[:groups] >= TIED_SHARE) & (number[:groups] > 1)].tolist()
    rows: list[list[dict[str, Any]]] = [[] for _ in range(groups)]
    for group, at, entry, *level in np.ndindex(groups, len(epsilons), draws, *found.value.shape[1:]):
        place = (group, *level)
        row = {"quantile": found.levels[level[0]]} if level else {}
        row |= {"draw": entry + 1} if draws > 1 else {}
        row |= {"records": int(batch.sizes[group]), "missing": int(missing[group]), "value": float(found.value[place])}
        row |= {"simulated": float(found.draws[entry, at, *place])}
        row |= {name: float(bar[at, *place]) for name, bar in zip(_BARS, found.bars, strict=True)}
        row |= {"tied_share": float(share[group, level[0] if level else 0])} if ranks else {}
        rows[group].append(row | {"epsilon": epsilons[at]})
    return rows, costs, spoiled
