"""From a table and a question to rows: draws, exact error bars and guarantees, one library call for each column and mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import jax
import numpy as np

from dpjax.accounting import Guarantee
from dpjax.checks import Neighbors
from dpjax.command_line.choice import MECHANISMS, guarantee_of, law_of
from dpjax.command_line.errors import UserError
from dpjax.command_line.tables import LARGEST, Table
from dpjax.sensitivity.profile import SensitivityProfile
from dpjax.statistics import quantile
from dpjax.statistics.quantiles import Definition

TIED_SHARE = 0.1  # from this share of the records on, a row says that its statistic is tied


@dataclass(frozen=True)
class Question:
    """What is asked of a table; every part of it is public.

    Attributes:
        statistic: ``"median"`` or ``"quantile"``, as it was asked.
        q: the quantile, 1/2 for the median.
        bounds: lower and upper bound for each column.
        neighbors: the neighbour relation.
        definition: which quantile, ``"linear"`` or ``"lower"``.
        mechanisms: names of ``MECHANISMS``.
        epsilons: positive numbers.
        rho: radius of the flat piece, 0 for none.
        draws: how many draws of each law.
        seed: of the draws, 0 <= seed < 2**32.
    """

    statistic: str
    q: Fraction
    bounds: tuple[tuple[float, float], ...]
    neighbors: Neighbors
    definition: Definition
    mechanisms: tuple[str, ...]
    epsilons: tuple[float, ...]
    rho: float
    draws: int
    seed: int


@dataclass(frozen=True)
class Row:
    """One law: a column, a group, a mechanism and an epsilon.

    Attributes:
        column: its name.
        group: its label, or None without grouping.
        n: records in the group, with or without a value.
        missing: how many of them have none.
        mechanism: its name.
        epsilon: of one draw.
        lower: public bound.
        upper: public bound.
        draws: float ``(draws,)``.
        mean_abs_error: E|draw - statistic|, exact.
        measured_error: the mean of |draw - statistic| over ``draws``.
        interval95: the exact central interval that holds 95 % of the draws.
        tied_share: share of the records that equal the statistic.
        tied: whether that share is large enough to spoil the law.
        guarantee: of one draw.
    """

    column: str
    group: str | None
    n: int
    missing: int
    mechanism: str
    epsilon: float
    lower: float
    upper: float
    draws: np.ndarray
    mean_abs_error: np.floating
    measured_error: float
    interval95: tuple[np.floating, np.floating]
    tied_share: float
    tied: bool
    guarantee: Guarantee


def estimate(table: Table, question: Question) -> list[Row]:
    """Answer a question for every column and group of a table.

    Returns:
        Rows in the order of columns, groups, mechanisms, epsilons.

    Raises:
        UserError: the answer would not fit into memory, or a public parameter that the library refuses.
    """
    groups, sweep = len(table.groups), len(question.epsilons)
    total = len(table.columns) * groups * len(question.mechanisms) * sweep
    if question.draws * total > LARGEST:
        raise UserError(f"{question.draws} draws for each of {total} rows are too many: at most {LARGEST} in all.")
    if groups * table.records.shape[-1] * sweep > LARGEST:
        raise UserError(f"{sweep} epsilons are too many for a table of this size: give fewer at a time.")
    try:
        return [row for column in range(len(table.columns)) for row in _rows_of_column(table, column, question)]
    except ValueError as error:  # the library speaks of public parameters only: data never raises
        raise UserError(str(error)) from error


def _rows_of_column(table: Table, column: int, question: Question) -> Iterator[Row]:
    lower, upper = question.bounds[column]
    # Clamped in float64, so that no record overflows in float32. NaN stays.
    records = np.clip(table.records[column], lower, upper)
    profile = quantile(
        records,
        question.q,
        lower=lower,
        upper=upper,
        neighbors=question.neighbors,
        definition=question.definition,
        count=table.count,
    )
    tied_share, tied_records = _ties(records, table.count, profile, lower)
    key = jax.random.fold_in(jax.random.key(question.seed), column)
    answers = {name: _answer(name, profile, question, lower, upper, key) for name in question.mechanisms}
    missing = table.missing[column]
    for group, label in enumerate(table.groups):
        for mechanism, (draws, exact, measured, low, high) in answers.items():
            spoiled = question.rho == 0 and tied_share[group] >= TIED_SHARE and tied_records[group] > 1
            for i, epsilon in enumerate(question.epsilons):
                yield Row(
                    column=table.columns[column],
                    group=label,
                    n=int(table.count[group]),
                    missing=int(missing[group]),
                    mechanism=mechanism,
                    epsilon=epsilon,
                    lower=lower,
                    upper=upper,
                    draws=draws[:, i, group],
                    mean_abs_error=exact[i, group],
                    measured_error=float(measured[i, group]),
                    interval95=(low[i, group], high[i, group]),
                    tied_share=float(tied_share[group]),
                    tied=bool(spoiled) and mechanism != "laplace",
                    guarantee=guarantee_of(mechanism, profile, epsilon),
                )


def _answer(
    mechanism: str, profile: SensitivityProfile, question: Question, lower: float, upper: float, key: jax.Array
) -> tuple[np.ndarray, ...]:
    """Draws ``(draws, epsilons, groups)``, and ``(epsilons, groups)`` each: exact error, measured error, interval."""
    epsilon = np.array(question.epsilons)[:, None]
    law = law_of(mechanism, profile, epsilon, lower=lower, upper=upper, rho=question.rho)
    # The key goes by the mechanism's own number: its draws are the same whichever others are asked for.
    key = jax.random.fold_in(key, MECHANISMS.index(mechanism))
    draws = np.asarray(law.sample(key, (question.draws,)) if question.draws > 1 else law.sample(key)[None])
    measured = np.asarray(np.mean(np.abs(draws - np.asarray(profile.value)), axis=0, dtype=np.float64))
    low, high = law.interval(0.95)
    return draws, np.asarray(law.mean_abs_error(profile.value)), measured, np.asarray(low), np.asarray(high)


def _ties(records: np.ndarray, count: np.ndarray, profile: SensitivityProfile, lower: float) -> tuple[np.ndarray, np.ndarray]:
    """How many of each group's records equal the statistic, as a share and as a number."""
    present = np.arange(records.shape[-1]) < count[:, None]
    if profile.neighbors == "swap":
        records = np.where(np.isnan(records), lower, records)
    present &= ~np.isnan(records)
    value = np.asarray(profile.value)
    tied = np.sum(present & (records.astype(value.dtype) == value[:, None]), axis=-1)
    return tied / np.maximum(np.sum(present, axis=-1), 1), tied
