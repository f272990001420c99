"""Simulations of statistics of a frame's columns, by groups, with exact error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjax import checks
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee
from dpjax.checks import Neighbors
from dpjax.frames.column_options import Columns, asked_of
from dpjax.frames.drawn import drawn_from_counts
from dpjax.frames.frame_result import ORDER, FrameResult, result_of
from dpjax.frames.memory import Tally
from dpjax.frames.notes import (
    BOUND_SHARE,
    TIED_SHARE,
    words_of_bounds,
    words_of_crowded,
    words_of_lacking,
    words_of_ties,
)
from dpjax.frames.persons import PerUnit, costs_of, persons_of, protecting
from dpjax.frames.private_groups import PrivateGroups
from dpjax.frames.tables import check_names, read_table
from dpjax.frames.times import durations, in_kind
from dpjax.release import Statistic

if TYPE_CHECKING:
    import jax

_BARS = ("mean_abs_error", "lower95", "upper95")


def simulate(
    key: int | jax.Array,
    frame: Any,
    columns: Columns,
    *,
    statistic: Callable[..., Any] | Statistic | None = None,
    by: str | Sequence[str] | None = None,
    groups: Iterable[Any] | PrivateGroups | None = None,
    unit: Any = None,
    per_unit: PerUnit | None = None,
    max_groups: int = 1,
    neighbors: Neighbors,
    **options: Any,
) -> FrameResult:
    """Draw a statistic of columns of a frame for every group, to plan a release.

    The error bars are exact.

    Args:
        key: the seed, an integer or a typed JAX key.
        frame: as for :func:`dpjax.frames.release`.
        columns: a name, a list of names, or a mapping from names to options, such as bounds, or to
            statistic objects.
        statistic: by default the median; as for :func:`dpjax.frames.release`. In a simulation,
            functions of ``dpjax`` need no resolution, ``dpjax.sum`` and ``dpjax.mean`` are not
            limited to swap, and ``dpjax.quantiles`` does not need ``max_records``; a user's
            function with the same arguments is accepted, too. These are compiled by JAX and drawn
            from continuous distributions.
        by: the column of group labels, or several.
        groups: the labels (tuples for several columns); :class:`PrivateGroups` or None for all
            groups in the data.
        unit: the column that identifies the person, as for a release; it needs a resolution.
        per_unit: how all rows of a person in a group are combined, as for a release.
        max_groups: the maximal number of groups that a person counts in, as for a release.
        neighbors: ``"add_remove"``, or without ``by`` also ``"swap"``.
        options: ``epsilon``, one or several; ``lower`` and ``upper``; ``draws``, the number of
            draws; ``mechanism``, a name; and the options of the statistic, such as ``resolution``.
            Arguments of :func:`dpjax.frames.release` have the same meaning here: for a release,
            change the function's name, drop the key, and give a resolution and public ``groups``.
            The mechanism is ``"piecewise_laplace"``, ``"inverse_sensitivity"``,
            ``"permute_and_flip"`` (with a resolution) or, only in a simulation of a median or
            quantile, ``"laplace"`` with the worst-case sensitivity ``upper - lower``; for a mode
            ``"exponential"`` or ``"permute_and_flip"``. Several quantiles, and counts, have no
            choice of mechanism.

    Returns:
        A :class:`FrameResult`. Its frame has the columns ``by``, ``probability_kept`` (for private
        groups), ``column``, ``quantile`` (for several quantiles), ``draw`` (for ``draws`` above 1),
        ``records`` and ``missing`` (numbers of records), ``value`` (the statistic), ``simulated``,
        ``mean_abs_error``, ``lower95`` and ``upper95`` (the central interval of 95 % of the draws),
        ``tied_share`` (for medians and quantiles, the share of the records that equal the
        statistic), and ``epsilon``, of one draw. Error bars are exact; those of several quantiles
        are estimated from 1000 draws, except for joint quantiles without a resolution. ``note``
        says where ties make the draws inaccurate, where many records are at or beyond a bound, how
        many persons have rows in more groups than they count in, and which arguments a release
        would need in addition.

    Raises:
        ImportError: narwhals is not installed.
        TypeError: ``frame`` is not a frame, a column does not hold numbers, ``groups`` is a string,
            or ``statistic`` does not have an option.
        ValueError: a column does not exist, ``groups`` is given without ``by``, ``by`` is given
            under swap, or a public parameter is out of range.

    Privacy:
        Not private: this is a simulation. The results are functions of the data, and draws come
        from a seed.

    >>> import pytest  # narwhals and pandas may not be installed
    >>> _ = pytest.importorskip("narwhals")
    >>> pandas = pytest.importorskip("pandas")
    >>> people = pandas.DataFrame({"region": ["north"] * 40 + ["south"] * 30, "age": [34, 51] * 35})
    >>> grid = {"lower": 0, "upper": 120, "resolution": 1}
    >>> ages = {**grid, "epsilon": 1.0, "neighbors": "add_remove"}
    >>> found = simulate(0, people, "age", by="region", **ages).frame
    >>> found[["region", "records", "value"]].to_numpy().tolist()
    [['north', 40, 34.0], ['south', 30, 34.0]]
    """
    seed, settings = _seed_of(key), asked_of(columns, statistic, options, neighbors, simulated=True)
    check_names(by, ("column", "probability_kept", "epsilon", *ORDER))
    persons = persons_of(unit, per_unit, max_groups)
    table = read_table(frame, settings, by, groups, neighbors, persons)
    shown_groups, numbers = (
        (table.named, None) if table.named is not None else table.groups(bounded=groups is not None)
    )
    size, found = len(shown_groups.names), {}
    costs: dict[tuple[Any, float], Guarantee | Composition] = {}
    tied: list[float] = []
    bound: list[float] = []
    lacking = dict.fromkeys(each for setting in settings.values() for each in setting.lacking)
    for index, (column, setting) in enumerate(settings.items()):
        if setting.statistic is None:
            from dpjax.frames.draws import drawn_by_jax

            records, codes = table.rows.records(column, shown_groups)
            tally = Tally(codes, np.where(np.isnan(records), -1, 0), None)
            drawn = drawn_by_jax(key, index, records, codes, size, setting, neighbors)
            low, high = setting.bounds
            if low is not None and high is not None:
                with np.errstate(invalid="ignore"):
                    at_bound = tally.numbers(size, (records <= low) | (records >= high))
            each = zip(setting.epsilons, drawn.costs, strict=True)
            costs |= {(column, float(epsilon)): protecting(cost, None) for epsilon, cost in each}
        else:
            tally = table.rows.tally(column, setting.statistic, shown_groups, neighbors)
            counts = tally.counts(setting.statistic, size, neighbors)
            drawn = drawn_from_counts(
                setting, counts, neighbors, np.random.default_rng([*seed, index])
            )
            grid: Any = getattr(setting.statistic, "records_grid", None)
            high = grid.size - 1 if setting.bounds[0] is not None else 0
            at_bound = tally.numbers(size, (tally.position == 0) | (tally.position == high))
            costs |= costs_of({column: setting}, neighbors, persons)
        sizes = tally.numbers(size)
        missing = tally.numbers(size, tally.position < 0)
        present = sizes - missing
        if setting.bounds[0] is not None:
            share = at_bound / np.maximum(present, 1)
            bound += share[(share >= BOUND_SHARE) & (at_bound > 1)].tolist()
        if drawn.tied is not None and setting.statistic is None and setting.mechanism != "laplace":
            several = drawn.tied * present[:, None] > 1.5
            tied += drawn.tied[(drawn.tied >= TIED_SHARE) & several].tolist()
        values = {"value": drawn.value[:, None, None], "simulated": drawn.draws}
        values |= {name: bar[:, :, None] for name, bar in zip(_BARS, drawn.bars, strict=True)}
        values = {name: np.asarray(value, np.float64) for name, value in values.items()}
        if setting.kind is not None:
            kind, lower = table.kinds[column], getattr(setting.statistic, "lower", None)
            values = {
                name: durations(v) if name == _BARS[0] else in_kind(v, kind, lower)
                for name, v in values.items()
            }
        found[column] = {
            **({"quantile": np.array(drawn.levels)} if drawn.levels else {}),
            **({"draw": np.arange(1, setting.draws + 1)[:, None]} if setting.draws > 1 else {}),
            "records": sizes[:, None, None, None],
            "missing": missing[:, None, None, None],
            **values,
            **({} if drawn.tied is None else {"tied_share": drawn.tied[:, None, None]}),
            "epsilon": np.array(setting.epsilons, np.float64)[:, None, None],
        }
    if by is not None and groups is None:
        lacking["groups="] = None
    crowded = table.rows.crowded(shown_groups) if persons is not None and by is not None else (0, 0)
    said: Any = (
        (words_of_ties, tied),
        (words_of_bounds, bound),
        (partial(words_of_crowded, max_groups=max_groups), crowded if crowded[0] else ()),
        (words_of_lacking, list(lacking)),
    )
    notes = [words(of_what) for words, of_what in said if of_what]
    group_columns, others = {}, []
    if isinstance(groups, PrivateGroups):
        groups = replace(groups, max_groups=max_groups)
        group_columns, others = (
            {"probability_kept": groups.probability_kept(numbers)},
            [protecting(groups.guarantee, persons)],
        )
    return result_of(table, shown_groups, found, group_columns, costs, others, " ".join(notes))


def _seed_of(key: Any) -> list[int]:
    """Return the seed of an integer or a typed key; only the latter needs JAX."""
    if isinstance(key, Integral) and not isinstance(key, bool):
        return [checks.static_integer("key", key, 0)]
    if not checks.is_jax_array(key):
        raise TypeError(
            "key must be an integer, the seed, or a typed key such as jax.random.key(0), got "
            f"{type(key).__name__}."
        )
    import jax

    from dpjax.random.keys import check_key

    return [int(word) for word in np.asarray(jax.random.key_data(check_key(key))).ravel()]
