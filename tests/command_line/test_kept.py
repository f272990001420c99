"""What is kept of a file: the same records however it is cut, and memory that does not grow with the lines of a grid."""

import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpjax.command_line import kept
from dpjax.command_line.files import Source
from dpjax.command_line.kept import Keeper
from dpjax.command_line.table import read_records
from dpjax.release.grid import Multiples
from tests.command_line.conftest import Whole

GRIDS = [Multiples.between(0, 100, 1), Multiples.between(-3, 30, "0.1"), Multiples.between(0, 2**29, Fraction(1, 2))]
BOUNDS = [(0.0, 100.0), (-3.0, 30.0), (0.0, 2.0**29)]


def some_records(n=5000, groups=4):
    """Three columns, with ties, with halves of a tenth, and with no two alike; missing and infinite ones; groups, some of none."""
    rng = np.random.default_rng(n)
    columns = [rng.integers(-5, 120, n).astype(float), rng.integers(-100, 800, n) / 20, rng.uniform(0, 2**29, n)]
    for values in columns:
        values[rng.random(n) < 0.05] = np.nan
        values[rng.random(n) < 0.02] = np.inf
        values[rng.random(n) < 0.02] = -np.inf
    return columns, rng.integers(-1, groups, n).astype(np.int32)


def cell_of(value, grid, low, high):
    """The multiple nearest to a record, of two the even one, by fractions; a decimal is what it is written as."""
    inside = Fraction(repr(min(max(float(value), low), high)))
    return round(inside / grid.resolution) - grid.start


def table_of(keeper, columns, codes, size, labels):
    for start in range(0, codes.size, size):
        keeper.add([values[start : start + size] for values in columns], codes[start : start + size])
    return keeper.table([(str(k),) for k in range(labels)])


@pytest.mark.parametrize("small", [0, 150, 2**20])
@pytest.mark.parametrize("size", [7, 5000, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 999))])
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_same_records_however_a_file_is_cut(monkeypatch, size, neighbors, small):
    monkeypatch.setattr(kept, "_SMALL", small)  # of which the second is between numbers of a group
    monkeypatch.setattr(kept, "_LEAST", 100)  # so that numbers are joined often
    columns, codes = some_records(2000 if size > 1 else 400)
    swap, order = neighbors == "swap", [3, 0, 5]
    counted, listed = (
        table_of(Keeper("abc", BOUNDS, grids, swap=swap), columns, codes, size, 6).only(np.array(order)) for grids in (GRIDS, None)
    )
    for table in (counted, listed):
        assert table.labels == [("3",), ("0",), ("5",)]
        np.testing.assert_array_equal(table.sizes, [np.sum(codes == group) for group in order])
    for k, (values, grid, (low, high)) in enumerate(zip(columns, GRIDS, BOUNDS, strict=True)):
        for place, group in enumerate(order):
            mine = values[codes == group]
            there = mine[~np.isnan(mine)]
            for table in (counted, listed):
                found = table.missing[k, place], table.infinite[k, place], table.beyond[k, place]
                wanted = mine.size - there.size, np.sum(np.isinf(mine)), np.sum((there <= low) | (there >= high))
                assert found == wanted
            np.testing.assert_array_equal(listed.kept[k][listed.codes == place], mine)
            cells = Counter(cell_of(v, grid, low, high) for v in (np.where(np.isnan(mine), low, mine) if swap else there))
            one = counted.kept[k].some(place, place + 1)
            assert dict(zip(one.values.tolist(), one.counts.tolist(), strict=True)) == cells


def bytes_of_a_line(write, keep, n):
    """How much the peak of what Python allocates grows with each line, reading a file of n lines and a four times longer one."""
    peaks, rng = [], np.random.default_rng(0)
    for lines in (n, n, 4 * n):  # the first one is a warm-up
        path = write(
            "g,x\n" + "".join(f"{g},{x}\n" for g, x in zip(rng.integers(0, 5, lines), rng.integers(0, 3000, lines), strict=True))
        )
        tracemalloc.start()
        try:
            read_records(Source(path), columns=["x"], by=["g"], groups=None, keep=keep)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return (peaks[2] - peaks[1]) / (3 * n)


@pytest.mark.parametrize("small", [pytest.param(0, marks=pytest.mark.slow), 2**20])
def test_memory_of_counts_does_not_grow_with_the_lines(write, monkeypatch, small):
    monkeypatch.setattr("dpjax.command_line.files._BLOCK", 2**14)
    monkeypatch.setattr(kept, "_SMALL", small)
    monkeypatch.setattr(kept, "_LEAST", 2**10)
    grid, bounds, n = Multiples.between(0, 4000, 10), [(0.0, 4000.0)], 20_000 if small else 30_000
    assert bytes_of_a_line(write, lambda names: Keeper(names, bounds, [grid], swap=False), n) < 1  # a record takes 8 bytes or more
    # Controls: what keeps every record.
    assert bytes_of_a_line(write, lambda names: Keeper(names, bounds, None, swap=False), 3000) > 10
    assert bytes_of_a_line(write, Whole, 3000) > 10


def test_a_label_of_later_lines_makes_room(write):
    """Groups that are met late, in blocks of their own, and in any order."""
    keeper = Keeper(["x"], [(0.0, 9.0)], GRIDS[:1], swap=False)
    for code in (0, 700, 3):
        keeper.add([np.array([1.0, np.nan])], np.array([code, code], np.int32))
    table = keeper.table([(str(k),) for k in range(701)])
    assert np.flatnonzero(table.sizes).tolist() == [0, 3, 700]
    assert table.missing[0, [0, 3, 700]].tolist() == [1, 1, 1]
    assert table.kept[0].totals.sum() == 3
