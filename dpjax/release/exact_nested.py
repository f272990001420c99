"""Hundreds of quantiles, exactly: some jointly, then those in between from the records in between.

The distribution and its proof are in the docstring of ``dpjax/several_quantiles/nesting.py``; each
of the two draws is that of ``exact_joint.py``, with one term. The grid of an inner part extends
from one outer draw to the next.

Where the number of records is drawn or passed in, the count of each value is capped at twice that
number plus 64: one record more or less still changes one count by at most one, and a number that is
far off cannot make a draw process all records.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np

from dpjax.release.counts import Counts, cap_of
from dpjax.release.entropy import More
from dpjax.release.exact_chain import Parameters
from dpjax.release.exact_joint import draw_quantiles
from dpjax.release.exponentials import exact_epsilon
from dpjax.release.integer_noise import check_rates, draw_discrete_laplace
from dpjax.release.slices import Slices
from dpjax.several_quantiles.nesting import Nesting, Shares, ends_of, records_of

_ENTRIES = 2**22  # entries of counts processed together
_LARGEST = 2**62  # the cap on a noisy number of records
# Ranks within _RANKS / epsilon of a quantile have a weight; at most _MATTERING may have one
_RANKS, _MATTERING = 128, 2**24


def least_epsilon(levels: tuple[Fraction, ...], neighbors: str, size_is_public: bool) -> Fraction:
    """Return the least epsilon for which the ranks that have a weight fit in memory.

    Only large groups would need it, but it is the same for all.
    """
    second = Shares.of(Nesting.of(levels), neighbors, size_is_public).second
    return Fraction(len(levels) * _RANKS, _MATTERING) / second


class Nested:
    """The public parameters of nested quantiles, and their draws.

    Args:
        levels: the levels of the quantiles, 3 or more.
        size: the number of positions on the grid.
        epsilon: the cost of all draws together.
        neighbors: ``"add_remove"`` or ``"swap"``.
        size_is_public: whether the number of records is public under add/remove.
    """

    def __init__(
        self,
        levels: tuple[Fraction, ...],
        size: int,
        epsilon: Fraction,
        neighbors: str,
        size_is_public: bool,
    ) -> None:
        self.levels, self.size, self.neighbors = levels, size, neighbors
        self.nesting = Nesting.of(levels)
        shares = Shares.of(self.nesting, neighbors, size_is_public)
        self._number, self._first, self._second = (epsilon * share for share in shares)
        exact_epsilon(self._first), exact_epsilon(self._second)
        if epsilon < (least := least_epsilon(levels, neighbors, size_is_public)):
            raise ValueError(
                f"epsilon is too small for {len(levels)} nested quantiles: use at least "
                f"{float(least):.2g}."
            )
        check_rates([self._number] if self._number else [])
        # Parts with the same levels are drawn together, whatever their shares.
        parts = sorted(
            (part for part in self.nesting.parts if part.levels), key=lambda part: part.levels
        )
        self._alike = [list(some) for _, some in groupby(parts, key=lambda part: part.levels)]
        for alike in self._alike:
            self._joint(alike[0].levels, "add_remove", 1, self._second)

    def draw(
        self, counts: Counts, draws: int, sizes: np.ndarray | None, words: Any, more: More
    ) -> np.ndarray:
        """Draw positions, int64 ``(draws, groups, m)``; ``sizes``, public, are ``(groups,)``."""
        found = np.zeros((draws, counts.groups, len(self.levels)), np.int64)
        step = max(_ENTRIES // max(len(counts.values), 1), 1)
        for start in range(0, draws, step):
            chunk = found[start : start + step]
            chunk[:] = self._some(counts, len(chunk), sizes, words, more).reshape(chunk.shape)
        return found

    def _some(
        self, counts: Counts, draws: int, sizes: np.ndarray | None, words: Any, more: More
    ) -> np.ndarray:
        """Draw ``(draws * groups, m)``."""
        first, levels = (
            np.array(self.nesting.first),
            tuple(self.levels[k] for k in self.nesting.first),
        )
        if self._number:  # each draw has its noisy number of records, so each becomes a group
            counts = _repeated(counts, draws)
            noise = draw_discrete_laplace([self._number], counts.groups, 1, words, more)[0, :, 0]
            sizes, draws = np.clip(counts.totals + noise, 0, _LARGEST), 1
        if sizes is not None:
            counts = counts.at_most(cap_of(sizes)[counts.group])
        law = self._joint(levels, self.neighbors, _most(counts), self._first)
        drawn = self.jointly(law, counts, draws, sizes, None, words, more, ranked=True).reshape(
            draws * counts.groups, 2 * len(first)
        )
        group, totals = np.tile(np.arange(counts.groups), draws), counts.totals
        number = (totals if sizes is None else sizes)[group]
        drawn, cuts = np.split(drawn, 2, axis=-1)
        found = np.zeros((len(group), len(self.levels)), np.int64)
        found[:, first] = drawn
        slices, ends = Slices(counts, self.size, group), np.zeros((len(group), 1), np.int64)
        begin, end = ends_of(cuts, totals[group][:, None], np)
        low, high = np.append(ends, drawn, axis=-1), np.append(drawn, ends + self.size - 1, axis=-1)
        for alike in self._alike:
            part_index = np.array([self.nesting.parts.index(part) for part in alike])
            lane, which = np.nonzero(high[:, part_index] > low[:, part_index])
            at = lane, part_index[which]
            # All quantiles in a part without width are its only value
            for k, part in enumerate(alike):
                found[:, part.first : part.first + len(part.levels)] = low[:, part_index[k], None]
            if not lane.size:
                continue
            part_records = np.stack(
                [np.maximum(records_of(part, number), 1) for part in alike], axis=-1
            )[lane, which]
            records = slices.between(
                lane, begin[at], np.maximum(end[at], begin[at]), low[at], high[at]
            )
            law = self._joint(alike[0].levels, "add_remove", _most(records), self._second)
            inside = (
                self.jointly(law, records, 1, part_records, high[at] - low[at] + 1, words, more)[0]
                + low[at][:, None]
            )
            start = np.array([part.first for part in alike])[which]
            found[lane[:, None], start[:, None] + np.arange(len(alike[0].levels))] = inside
        return found

    def jointly(
        self,
        law: Parameters,
        counts: Counts,
        draws: int,
        number: np.ndarray | None,
        sizes: np.ndarray | None,
        words: Any,
        more: More,
        ranked: bool = False,
    ) -> np.ndarray:
        """Draw as :func:`draw_quantiles`, with rows of equal numbers of records side by side."""
        order = np.argsort(counts.totals if number is None else number, kind="stable")
        known, grids = (None if a is None else a[order] for a in (number, sizes))
        drawn = draw_quantiles(law, _taken(counts, order), draws, known, words, more, grids, ranked)
        found = np.zeros_like(drawn)
        found[:, order] = drawn
        return found

    def _joint(
        self, levels: tuple[Fraction, ...], neighbors: str, most: int, epsilon: Fraction
    ) -> Parameters:
        return Parameters.of(levels, epsilon, neighbors, self.size, neighbors != "swap", 0, 2, most)


def _most(counts: Counts) -> int:
    return int(np.max(counts.counts, initial=1))


def _repeated(counts: Counts, draws: int) -> Counts:
    """Return the counts repeated for each draw: one lane for each draw and group."""
    if draws == 1:
        return counts
    starts = counts.starts[:-1] + np.arange(draws)[:, None] * counts.starts[-1]
    return Counts(
        np.append(starts, draws * counts.starts[-1]),
        np.tile(counts.values, draws),
        np.tile(counts.counts, draws),
    )


def _taken(counts: Counts, order: np.ndarray) -> Counts:
    """Return the rows in the given order."""
    lengths = np.diff(counts.starts)[order]
    starts = np.append(0, np.cumsum(lengths))
    entry = np.arange(starts[-1]) + np.repeat(counts.starts[:-1][order] - starts[:-1], lengths)
    return Counts(starts, counts.values[entry], counts.counts[entry])
