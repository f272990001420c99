"""The release of many quantiles: each drawn from the records between two that are drawn already, in integers."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpjax import checks
from dpjax.checks import Neighbors, Resolution
from dpjax.release.drawing import draw_piecewise_laplace
from dpjax.release.grid import Floats, grid_of
from dpjax.release.integer_profiles import IntegerProfile
from dpjax.release.records import Records
from dpjax.release.result import Release, cost_of, release_of
from dpjax.release.tables import exact_epsilon
from dpjax.several_quantiles.asked import levels_of
from dpjax.several_quantiles.ranks import Ranks, ranks_of_quantile


def recursive_quantiles(
    x: Any,
    qs: Iterable[float | Fraction | str],
    *,
    epsilon: float,
    neighbors: Neighbors,
    lower: float | None = None,
    upper: float | None = None,
    resolution: Resolution | None = None,
    grid: Floats | None = None,
    counts: Any = None,
    n_max: int | None = None,
    mask: Any = None,
    draws: int = 1,
) -> Release:
    """Release many quantiles of every row, drawn exactly on a public grid.

    It is what ``dpjax.recursive_quantiles`` simulates: the middle one of the levels first, by piecewise Laplace, then those below
    it from the records up to that draw, and so on. Of records that equal a draw, the share that its level says goes to the left.

    Args:
        x: numbers ``(..., n)``; this and the rest as for :func:`median`.
        qs: levels between 0 and 1, ascending.
        epsilon: from 2^-24 to 64 for all quantiles together, for each draw.
        neighbors: ``"add_remove"`` or ``"swap"``.
        lower: public, a multiple of the resolution.
        upper: public, a multiple of the resolution.
        resolution: public, that of the data.
        grid: instead of these three, :class:`Floats`.
        counts: how many records each entry of ``x`` stands for.
        n_max: the public capacity of a row.
        mask: which records are present.
        draws: how many from each row; each costs epsilon.

    Returns:
        A :class:`Release` whose ``values`` are ``(draws, ..., m)``, ascending.

    Privacy:
        epsilon-DP under the relation for each draw of all quantiles, by adaptive composition over the ceil(log2(m + 1)) depths; one
        record is in one part of each depth (add/remove), or in two (swap). What is not covered: see :func:`median`.

    References:
        Kaplan, Schnapp and Stemmer (2022), Algorithm 1; Durfee (2025), Algorithm 1.

    >>> ages = [[31, 40, 28, 35, 52, 33, 47, 29, 38] * 50]
    >>> options = {"lower": 0, "upper": 120, "resolution": 1, "neighbors": "add_remove"}
    >>> found = recursive_quantiles(ages, [0.25, 0.5, 0.75], epsilon=40.0, **options)
    >>> found.values.tolist()
    [[[31.0, 35.0, 40.0]]]
    """
    levels = levels_of(qs)
    values = grid_of(lower, upper, resolution, grid)
    records = Records(x, values, neighbors, mask, n_max, counts=counts)
    number = checks.static_integer("draws", draws, 1)
    depths = _depths(levels, neighbors)
    each = exact_epsilon(exact_epsilon(epsilon) / len(depths))
    cells, present = records.read(slice(0, int(np.prod(records.batch))))
    state = _State.of(cells, present, values.size - 1, len(levels), number)
    sizes = [part.ranks.levels(records.size) for parts in depths for part in parts]
    down, up = (max(column) for column in zip(*sizes, strict=True))  # one shape for all, so that one program draws them
    for parts in depths:
        for part in parts:
            state.draw(part, each * part.share, down, up)
    found = state.points[:, 1:-1].reshape(number, *records.batch, len(levels))
    guarantee = cost_of(epsilon, number, neighbors, ranges=1 if len(depths) == 1 else 2)  # that of the losses of a recursion
    return release_of(found, values, guarantee)


class _Part(NamedTuple):
    """A level that is drawn between two others; 0 and m + 1 are the bounds."""

    left: int
    middle: int
    right: int
    ranks: Ranks
    share: Fraction  # of the epsilon of a depth


def _depths(levels: tuple[Fraction, ...], neighbors: Neighbors) -> list[list[_Part]]:
    """The parts that are drawn together."""
    ends, spans, depths = (Fraction(0), *levels, Fraction(1)), [(0, len(levels) + 1)], []
    while spans:
        parts = []
        for left, right in spans:
            middle = (left + right) // 2
            q = (ends[middle] - ends[left]) / (ends[right] - ends[left])
            # The number of records of a part is private, but that of all of them is public under swap.
            whole = right - left == len(levels) + 1
            ranks = ranks_of_quantile(q, definition="lower", neighbors=neighbors if whole else "add_remove")
            share = Fraction(1) if whole or neighbors == "add_remove" else Fraction(1, 2)
            parts.append(_Part(left, middle, right, ranks, share))
        depths.append(parts)
        halves = [half for part in parts for half in ((part.left, part.middle), (part.middle, part.right))]
        spans = [(left, right) for left, right in halves if right - left > 1]
    return depths


class _State(NamedTuple):
    """What is drawn so far, in lanes: all rows for each draw.

    Attributes:
        rows: int64 ``(R, n + 2)``: 0, the records in order and the largest number, which absent ones have, too.
        points: int64 ``(lanes, m + 2)``, the draws between the bounds.
        cuts: int64 ``(lanes, m + 2)``, how many records are on the left of each.
    """

    rows: np.ndarray
    points: np.ndarray
    cuts: np.ndarray

    @staticmethod
    def of(cells: np.ndarray, present: np.ndarray, high: int, m: int, draws: int) -> _State:
        """No draws yet."""
        ordered = np.sort(np.where(present, cells, high).astype(np.int64), axis=-1)
        rows = np.pad(ordered, [(0, 0), (1, 1)], constant_values=[(0, 0), (0, high)])
        points, cuts = np.zeros((2, draws * len(rows), m + 2), np.int64)
        points[:, -1] = high
        cuts[:, -1] = np.tile(np.sum(present, axis=-1), draws)
        return _State(rows, points, cuts)

    def draw(self, part: _Part, epsilon: Fraction, down: int, up: int) -> None:
        """Draw the middle of a part, from profiles of so many levels."""
        lanes = len(self.points)
        found = draw_piecewise_laplace(epsilon, partial(self._profile, part, down, up), max(down, up, 1), lanes, 1)[0]
        point = found + self.points[:, part.left]
        self.points[:, part.middle] = point
        rows = self.rows[np.arange(lanes) % len(self.rows), 1:-1]
        ends = self.cuts[:, part.left], self.cuts[:, part.right]
        below = np.clip(np.sum(rows < point[:, None], axis=-1), *ends)
        through = np.clip(np.sum(rows <= point[:, None], axis=-1), *ends)
        self.cuts[:, part.middle] = below - (-(through - below) * part.ranks.per_record) // part.ranks.denominator

    def _profile(self, part: _Part, down: int, up: int, start: int, stop: int) -> IntegerProfile:
        """The values below and above the quantile of a part in some lanes, counted from its lower bound."""
        lanes = np.arange(start, stop)
        low, high = (self.points[lanes, end, None] for end in (part.left, part.right))
        first, last = (self.cuts[lanes, end, None] for end in (part.left, part.right))
        ranks, rows = part.ranks, self.rows[lanes % len(self.rows)]
        base = ranks.per_record * (last - first) + ranks.constant

        def at(levels: np.ndarray) -> np.ndarray:
            place = first - (-(base + ranks.step * levels) // ranks.denominator)
            # Ranks beyond the part are its bounds: records there lie outside it.
            found = np.take_along_axis(rows, np.clip(place, 0, rows.shape[-1] - 1), axis=-1)
            return (np.clip(found, low, high) - low).astype(np.int32)

        return IntegerProfile(at(-np.arange(down + 1)), at(np.arange(up + 1)))
