"""What is kept of a file: the same records however it is cut, the same profile from the records near a quantile, bounded memory."""

import argparse
import os
import tracemalloc
from collections import Counter
from fractions import Fraction

import jax
import numpy as np
import pytest
from dpjax.frames.grouping import power
from dpjax.release.integer_profiles import order_statistic

import dpjax
from dpjax import release
from dpjax.command_line import estimate, kept
from dpjax.command_line.files import Source
from dpjax.command_line.kept import Counted, Keeper, Listed, Near
from dpjax.command_line.table import read_records
from dpjax.release.grid import Multiples
from dpjax.several_quantiles.ranks import ranks_of_quantile
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


def table_of(keep, columns, codes, size, labels):
    keeper = Keeper(["a", "b", "c"][: len(columns)], keep)
    for start in range(0, codes.size, size):
        keeper.add([values[start : start + size] for values in columns], codes[start : start + size])
    return keeper.table([(str(k),) for k in range(labels)])


@pytest.mark.parametrize("small", [0, 150, 2**20])
@pytest.mark.parametrize("size", [7, 5000, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 999))])
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_the_same_records_however_a_file_is_cut(monkeypatch, size, neighbors, small):
    monkeypatch.setattr(kept, "_SMALL", small)  # of which the second is between numbers of a group
    monkeypatch.setattr(kept, "_LEAST", 100)  # so that numbers are joined often
    columns, codes = some_records(5000 if size > 1 else 400)
    counted = table_of(Counted(GRIDS, neighbors), columns, codes, size, 6)
    listed = table_of(Listed(BOUNDS, neighbors, np.float64), columns, codes, size, 6)
    for table in (counted, listed):
        np.testing.assert_array_equal(table.sizes, [np.sum(codes == group) for group in range(6)])
    for k, (values, grid, (low, high)) in enumerate(zip(columns, GRIDS, BOUNDS, strict=True)):
        for group in range(6):
            mine = values[codes == group]
            there = mine[~np.isnan(mine)]
            for table in (counted, listed):
                found = table.missing[k, group], table.infinite[k, group]
                assert found == (mine.size - there.size, np.sum(np.isinf(mine)))
                assert table.present(k)[group] == (mine.size if neighbors == "swap" else there.size)
            if neighbors == "swap":
                there = np.where(np.isnan(mine), low, mine)
            inside = np.clip(there, low, high)
            np.testing.assert_array_equal(np.sort(listed.kept.records(k, group)), np.sort(inside))
            cells = grid.numbers_of(counted.kept.records(k, group))[0]
            assert Counter(cells.tolist()) == Counter(cell_of(v, grid, low, high) for v in there)
            asked = np.append(inside[:2], 7.0)
            np.testing.assert_array_equal(listed.kept.ties(k, group, asked), [np.sum(inside == v) for v in asked])
            for value in asked:
                same = np.sum(cells == cell_of(value, grid, low, high)) if cell_of(value, grid, low, high) >= 0 else 0
                on_grid = float((cell_of(value, grid, low, high) + grid.start) * grid.resolution)
                assert counted.kept.ties(k, group, np.array([on_grid])) == same


@pytest.mark.parametrize("keep", [Counted(GRIDS[:1], "add_remove"), Listed(BOUNDS[:1], "add_remove", np.float32)])
def test_the_smallest_and_the_largest_are_left_out(keep):
    columns, codes = some_records()
    table = table_of(keep, columns[:1], codes, 1000, 4)
    for group in range(4):
        every = np.sort(keep.records(0, group))
        for low, high in ((0, 0), (3, 0), (0, 5), (100, 200), (every.size - 1, 0), (every.size, 0)):
            np.testing.assert_array_equal(np.sort(keep.records(0, group, (low, high))), every[low : every.size - high])
        assert every.size == table.present(0)[group]


QUANTILES = [Fraction(1, 2), Fraction(9, 10), Fraction(1, 3), Fraction(1, 100)]


@pytest.mark.parametrize("q", QUANTILES)
@pytest.mark.parametrize("definition", ["lower", "linear"])
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
@pytest.mark.parametrize("n", [1000, 1999])
def test_records_that_no_profile_reads_can_go(q, definition, neighbors, n):
    ranks, levels, high = ranks_of_quantile(q, definition=definition, neighbors=neighbors), 5, 10**6
    cells = np.sort(np.random.default_rng(n).choice(high, n, replace=False)).astype(np.int32)

    def profile(some):
        options = {"high": high, "count_is_public": neighbors == "swap", "most": levels}
        return order_statistic(some, np.ones(some.shape, bool), ranks, **options)

    low, top = ranks.unread(n, levels)
    assert (low, top) != (0, 0)
    assert ranks.enough(levels) <= n - low - top < ranks.enough(levels) + q.denominator
    expected, found = profile(cells), profile(cells[low : n - top])
    for side, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(side, other)
    # Controls: one record that goes on the wrong side, and records that are needed.
    assert any(np.any(a != b) for a, b in zip(expected, profile(cells[low + 1 : n - top + 1]), strict=True))
    u, v = q.numerator, q.denominator
    fewer = -(-(n - low - top) // (2 * v))
    shorter = cells[low + u * fewer : n - top - (v - u) * fewer]
    assert any(a.shape != b.shape or np.any(a != b) for a, b in zip(expected, profile(shorter), strict=True))
    assert ranks.unread(ranks.enough(levels), levels) == (0, 0)


@pytest.fixture
def fixed_entropy(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda n: bytes(range(n)))


SIZES = {"a": 30_000, "b": 12_000, "c": 300}


@pytest.fixture
def people(write):
    rng = np.random.default_rng(2)
    group = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    pay = rng.lognormal(5, 1, group.size).round(2)
    text = np.where(rng.random(pay.size) < 0.03, "", pay.astype(str))
    text[rng.random(pay.size) < 0.01] = "inf"
    path = write("g,pay\n" + "".join(f"{g},{x}\n" for g, x in zip(group, text, strict=True)))
    values = np.array([float(x or "nan") for x in text])
    return path, {g: values[group == g] for g in SIZES}


@pytest.mark.parametrize(
    "asked",
    [
        {"q": Fraction(1, 2)},
        {"q": Fraction(9, 10), "epsilon": 0.25},
        {"q": Fraction(1, 3), "definition": "linear"},
        pytest.param({"q": Fraction(1, 2), "mechanism": "permute_and_flip"}, marks=pytest.mark.slow),
    ],
)
def test_a_release_draws_what_it_draws_from_all_records(run, monkeypatch, fixed_entropy, people, asked):
    """With the same entropy; the groups are rows of one shape, as many as a power of two."""
    monkeypatch.setattr("dpjax.command_line.files._BLOCK", 5000)
    path, records = people
    public = {"lower": 0, "upper": 2000, "resolution": 0.1, "neighbors": "add_remove", "epsilon": 1.0} | asked
    rows = np.full((4, power(SIZES["a"])), np.nan)
    for row, values in zip(rows, records.values(), strict=False):
        row[: values.size] = values
    expected = release.quantile(rows, public.pop("q"), draws=50, **public).values[:, :3].T

    def released(groups):
        words = [f"--{name.replace('_', '-')}={value}" for name, value in public.items()]
        by = ("--by", "g", "--groups", *groups, "--draws", "50", "--quantile", str(asked["q"]), "--json")
        return np.array([row["released"] for row in run("release", path, "--column", "pay", *words, *by).json["rows"]])

    np.testing.assert_array_equal(released("abc"), expected)
    assert np.any(released("acb") != expected)  # control


@pytest.mark.slow
@pytest.mark.parametrize("resolution", ["0.1", None])
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_a_simulation_is_that_of_all_records(answer, monkeypatch, people, resolution, neighbors):
    monkeypatch.setattr("dpjax.command_line.files._BLOCK", 5000)
    path, records = people
    step = () if resolution is None else ("--resolution", resolution)
    options = ("--lower", "0", "--upper", "2000", "--neighbors", neighbors, "--by", "g", "--column", "pay", "--quantile", "0.75")
    found = answer("quantile", path, *options, *step, "--seed", "1")["rows"]
    rows = np.full((len(SIZES), power(SIZES["a"])), np.nan)
    for row, values in zip(rows, records.values(), strict=True):
        row[: values.size] = np.clip(values, 0, 2000)
    # In float64 records are rounded, and float32 is what is left of that.
    rows = (rows if resolution is None else np.rint(rows * 10) / 10).astype(np.float32)
    sizes = np.array(list(SIZES.values()))
    public = {"lower": 0, "upper": 2000, "resolution": resolution, "neighbors": neighbors, "count": sizes, "truncate": 4096}

    @jax.jit
    def exact(rows):
        profile = dpjax.quantile(rows, 0.75, **public)
        law = dpjax.piecewise_laplace(profile, 1.0)
        return profile.value, law.mean_abs_error(profile.value), *law.interval(0.95)

    value, *bars = map(np.asarray, exact(rows))
    np.testing.assert_array_equal([row["value"] for row in found], value.astype(str).astype(float))
    np.testing.assert_allclose([[row["mean_abs_error"], *row["interval95"]] for row in found], np.transpose(bars), rtol=1e-5)
    missing = np.array([np.sum(np.isnan(values)) for values in records.values()])
    present = sizes - missing if neighbors == "add_remove" else sizes
    low = rows if neighbors == "add_remove" else np.where(np.isnan(rows) & (np.arange(rows.shape[1]) < sizes[:, None]), 0, rows)
    assert [row["group"] for row in found] == list(SIZES)
    assert [row["missing"] for row in found] == missing.tolist()
    assert [row["present"] for row in found] == (sizes - missing).tolist()
    assert [row["infinite"] for row in found] == [np.sum(np.isinf(values)) for values in records.values()]
    np.testing.assert_array_equal([row["tied_share"] for row in found], np.sum(low == value[:, None], axis=-1) / present)


def bytes_of_a_line(write, keep):
    """How much the peak of what Python allocates grows with each line, reading a file and a four times longer one."""
    peaks, rng = [], np.random.default_rng(0)
    for n in (30_000, 120_000):
        path = write("g,x\n" + "".join(f"{g},{x}\n" for g, x in zip(rng.integers(0, 5, n), rng.integers(0, 3000, n), strict=True)))
        tracemalloc.start()
        try:
            read_records(Source(path), columns=["x"], by=["g"], groups=None, keep=lambda _: keep())
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return (peaks[1] - peaks[0]) / 90_000


@pytest.mark.parametrize("small", [pytest.param(0, marks=pytest.mark.slow), 2**20])
def test_memory_of_counts_does_not_grow_with_the_lines(write, monkeypatch, small):
    monkeypatch.setattr("dpjax.command_line.files._BLOCK", 2**14)
    monkeypatch.setattr(kept, "_SMALL", small)
    monkeypatch.setattr(kept, "_LEAST", 2**10)
    grid = Multiples.between(0, 4000, 10)
    assert bytes_of_a_line(write, lambda: Counted([grid], "add_remove")) < 0.2
    # Controls: records take 4 bytes and one for the group, twice while they are put in order; as they are, 12 and twice.
    assert 5 < bytes_of_a_line(write, lambda: Listed([(0.0, 4000.0)], "add_remove", np.float32)) < 12
    assert bytes_of_a_line(write, Whole) > 20


def test_what_is_drawn_from_does_not_grow_with_the_records():
    ranks = ranks_of_quantile(Fraction(1, 2), definition="lower", neighbors="add_remove")
    for keep in (Counted(GRIDS[:1], "add_remove"), Listed(BOUNDS[:1], "add_remove", np.float32)):
        n = 2**20
        table = table_of(keep, [np.arange(n) % 150.0], np.zeros(n, np.int32), 2**17, 1)
        some = np.zeros(1, np.int64)
        records, count = table.padded(0, some, (1, n), Near(ranks, 4096), np.float32)
        assert records.shape == (1, 8192)
        assert 4096 <= count[0] <= 8192
        assert table.padded(0, some, (1, n), None, np.float32)[0].shape == (1, n)  # control


@pytest.mark.parametrize(("step", "kind"), [("0.01", Counted), ("1e-9", Counted), ("1e-12", Listed)])
def test_a_grid_too_fine_for_counts_keeps_records(x64, step, kind):
    """In float64 a simulation can have more multiples than there are 32-bit integers."""
    asked = argparse.Namespace(lower=[0.0], upper=[1.0], resolution=Fraction(step), definition="lower", neighbors="swap")
    keep = estimate._checked(argparse.Namespace(**vars(asked), epsilon=[1.0], quantile=[Fraction(1, 2)]), ["a"])
    assert type(keep) is kind
    records = np.array([0.25, 0.25 + 2.0**-44, 0.5, 1.5, np.nan])
    table_of(keep, [records], np.zeros(5, np.int32), 2, 1)
    np.testing.assert_array_equal(keep.ties(0, 0, np.array([0.25, 0.5, 1.0, 0.0])), [2, 1, 1, 1])
