"""Counts of records: whatever a table looks like, the same entries, so the same probabilities."""

from bisect import bisect_left
from collections import Counter
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, floor

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts, Floats
from dpjax.release.api import counts_of
from dpjax.release.counts import running_sums, sums_of

GRID = {"lower": 0, "upper": 20, "resolution": 1}
MOST = int(Counts.of_rows([0], [0], [2**62], groups=1).counts[0])  # as many as are counted
STATISTICS = {
    "median": release.Median(**GRID),
    "midpoint median": release.Median(**GRID, definition="linear"),
    "quantile": release.Quantile("0.9", **GRID),
    "interpolated quantile": release.Quantile(Fraction(1, 3), **GRID, definition="linear"),
    "order statistic": release.OrderStatistic(4, **GRID),
    "maximum": release.Maximum(2, **GRID),
    "total": release.NonnegativeSum(2, 60, 1),
    "distinct": release.DistinctCount(1, 12),
    "floats": release.Median(grid=Floats(digits=1, smallest=-1, largest=2)),
    "sum": release.Sum(**GRID),
    "mean": release.Mean(**GRID),
    "mode": release.Mode((1, 4, 5)),
    "count": release.Count(),
    "histogram": release.Histogram((0, 3, 9, 20)),
    "candidates": release.Histogram(candidates=(1, 4, 5)),
}
COUNTED = ("mode", "count", "histogram", "candidates")
CASES = [
    (name, neighbors) for name, statistic in STATISTICS.items() for neighbors in statistic.relations
]


def entries(counts):
    """The entries of each group as a dict, which must be sorted and positive."""
    found = []
    for group in range(counts.groups):
        some = slice(counts.starts[group], counts.starts[group + 1])
        values, numbers = counts.values[some].tolist(), counts.counts[some].tolist()
        assert values == sorted(set(values))
        assert all(number > 0 for number in numbers)
        found.append(dict(zip(values, numbers, strict=True)))
    assert counts.starts[0] == 0
    assert counts.starts[-1] == len(counts.values) == len(counts.counts)
    return found


def test_counts_of_tables_of_any_kind():
    rng = np.random.default_rng(0)
    for _ in range(60):
        rows, n, top = (
            int(rng.integers(0, 6)),
            int(rng.integers(0, 9)),
            int(rng.choice([2, 9, 2**31, 2**62])),
        )
        positions = rng.integers(0, top, (rows, n))
        present = rng.random((rows, n)) < rng.choice([0.3, 0.9, 1.0])
        expected = [
            dict(Counter(row[own].tolist())) for row, own in zip(positions, present, strict=True)
        ]
        group = np.broadcast_to(np.arange(rows)[:, None], positions.shape)
        assert entries(Counts.of_records(positions, present)) == expected
        outside = np.where(present, group, rng.choice([-1, rows, 10**6], group.shape))
        assert entries(Counts.of_groups(outside.ravel(), positions.ravel(), rows)) == expected
        order = rng.permutation(positions.size)
        columns = [column.ravel()[order] for column in (group, positions, present.astype(int))]
        assert entries(Counts.of_rows(*columns, groups=rows)) == expected
        assert (
            entries(
                Counts.of_rows(
                    outside.ravel(), positions.ravel(), np.ones(positions.size), groups=rows
                )
            )
            == expected
        )
        found = Counts.of_records(positions, present)
        assert found.totals.tolist() == present.sum(axis=1).tolist()
        assert [found.groups, found.group.tolist()] == [
            rows,
            [g for g in range(rows) for _ in expected[g]],
        ]
        for first in range(rows + 1):
            assert entries(found.some(first, rows)) == expected[first:]


def test_rows_in_order_are_taken_as_they_are_and_numbers_are_kept_within_64_bits():
    found = Counts.of_rows([0, 0, 1, 3], [1, 5, 0, 2], [2, 2**62, 3, 1], groups=5)
    assert entries(found) == [{1: 2, 5: MOST}, {0: 3}, {}, {2: 1}, {}]
    assert entries(Counts.of_rows([0, 0, 0], [1, 1, 1], [MOST, MOST, -5], groups=1)) == [{1: MOST}]
    assert entries(Counts.of_rows([0, 0], [1, 2], [0, -3], groups=1)) == [{}]
    assert MOST * 2**22 < 2**63  # so many values of one group add up


def test_sums_of_segments_are_exact_whatever_overflows():
    rng = np.random.default_rng(1)
    for _ in range(30):
        lengths = rng.integers(0, 4, 7)
        starts = np.append(0, np.cumsum(lengths))
        numbers = rng.integers(-(2**40), 2**40, starts[-1])
        # Something before that makes the running sum overflow again and again
        whole = np.append(2**62, numbers)
        found = running_sums(
            np.append(whole, whole), np.concatenate([[0], 1 + starts, [2 * len(whole)]])
        )
        parts = [numbers[a:b] for a, b in pairwise(starts)]
        assert found[1 : 1 + len(numbers)].tolist() == [
            value for part in parts for value in np.cumsum(part).tolist()
        ]
        assert sums_of(numbers, starts).tolist() == [int(part.sum()) for part in parts]
        np.testing.assert_allclose(
            sums_of(numbers / 8, starts), [part.sum() / 8 for part in parts], rtol=1e-12, atol=1e-9
        )
    assert sums_of(np.array([True, True, False]), np.array([0, 3])).tolist() == [2]
    assert sums_of(np.zeros(0, int), np.array([0, 0])).tolist() == [0]


def tables(rng, neighbors):
    """Random records of several groups with ties, most of them within the range, and which are
    present.
    """
    rows, n = int(rng.integers(1, 5)), int(rng.integers(4, 14))
    x = rng.integers(-2, 24, (rows, n)) // rng.choice([1, 3]) + rng.choice([0.0, 0.25], (rows, n))
    x = np.where(rng.random((rows, n)) < 0.1, 5.0, x)
    return x, rng.random((rows, n)) < 0.8 if neighbors == "add_remove" else np.ones((rows, n), bool)


def probabilities(distribution):
    """All that a distribution draws from."""
    if not isinstance(distribution, release.GridDistribution):
        return distribution.value, float(distribution.rate)
    return distribution.values, distribution.log_pmf(
        distribution.values.reshape(-1, *[1] * len(distribution.batch_shape))
    )


@pytest.mark.parametrize(("name", "neighbors"), CASES)
def test_records_counts_and_rows_have_the_same_probabilities(name, neighbors):
    statistic, rng = STATISTICS[name], np.random.default_rng(2)
    for _ in range(5):
        x, present = tables(rng, neighbors)
        x = np.floor(x).astype(int) if name == "distinct" else x
        options = {"epsilon": float(rng.choice([0.3, 2.0])), "neighbors": neighbors}
        mask = {"mask": present} if neighbors == "add_remove" else {}
        expected = probabilities(release.exact_distribution(statistic, x, **mask, **options))
        same = [
            release.exact_distribution(
                statistic, x[:, ::-1], **{name: m[:, ::-1] for name, m in mask.items()}, **options
            )
        ]
        positions, there = statistic.read(x)
        there = there & present
        group = np.broadcast_to(np.arange(len(x))[:, None], x.shape)
        found = Counts.of_rows(group.ravel(), positions.ravel(), there.ravel(), groups=len(x))
        same.append(statistic.distribution(found, options["epsilon"], neighbors))
        same.append(
            statistic.distribution(
                Counts.of_groups(group[there], positions[there], len(x)),
                options["epsilon"],
                neighbors,
            )
        )
        if neighbors == "add_remove":
            if name != "distinct":
                same.append(
                    release.exact_distribution(statistic, np.where(present, x, np.nan), **options)
                )
                padded = np.concatenate(
                    [
                        np.full((len(x), 2), np.nan),
                        np.where(present, x, np.nan),
                        np.full((len(x), 1), np.nan),
                    ],
                    1,
                )
                same.append(release.exact_distribution(statistic, padded, **options))
                same.append(
                    release.exact_distribution(
                        statistic, np.where(present, x, None).tolist(), **options
                    )
                )
            values = np.unique(x)
            numbers = np.sum((x[:, :, None] == values) & present[:, :, None], axis=1)
            same.append(release.exact_distribution(statistic, values, counts=numbers, **options))
            same.append(
                release.exact_distribution(
                    statistic, x, counts=present.astype(int) - 2 * ~present, **options
                )
            )
            twice, halves = np.repeat(x, 2, axis=1), np.repeat(present.astype(int), 2, axis=1)
            halves[:, ::2] = 0
            same.append(release.exact_distribution(statistic, twice, counts=halves, **options))
        for one in same:
            for a, b in zip(probabilities(one), expected, strict=True):
                np.testing.assert_array_equal(a, b)
        other = x + 3 if name != "distinct" else np.where(x > 4, 4, x)  # the control
        if name != "count":
            changed = probabilities(release.exact_distribution(statistic, other, **mask, **options))
            assert not all(np.array_equal(a, b) for a, b in zip(changed, expected, strict=True))


@pytest.mark.parametrize(
    "mechanism", ["piecewise_laplace", "inverse_sensitivity", "permute_and_flip"]
)
@pytest.mark.parametrize(
    ("name", "neighbors"),
    [case for case in CASES if case[0] not in ("mode", "count", "histogram", "candidates")],
)
def test_records_that_do_not_matter_change_no_probability(name, neighbors, mechanism):
    """With an epsilon, only the ranks that a draw can meet are counted as they are: few of a
    hundred where epsilon is large.
    """
    statistic, rng, fewer = STATISTICS[name], np.random.default_rng(3), 0
    for n, epsilon in ((100, 64.0), (30, 40.0), (2, 64.0), (0, 30.0), (150, 4.0)):
        if n == 0 and name in ("sum", "mean"):
            continue
        x = rng.integers(0, 21, (4, n))
        x[:1] = 7
        merged, batch = counts_of(statistic, x, neighbors, epsilon=epsilon)
        full, _ = counts_of(statistic, x, neighbors)
        assert batch == (4,)
        assert merged.totals.tolist() == full.totals.tolist()
        fewer += len(merged.values) < len(full.values)
        for mechanism in statistic.mechanisms[: 3 if n == 30 else 1]:
            one, other = (
                statistic.distribution(c, epsilon, neighbors, mechanism=mechanism)
                for c in (merged, full)
            )
            for a, b in zip(probabilities(one), probabilities(other), strict=True):
                np.testing.assert_array_equal(a, b)
    assert (fewer > 0) == (statistic.near(100, 64.0, neighbors) is not None)
    ranked = (
        "median",
        "midpoint median",
        "quantile",
        "interpolated quantile",
        "order statistic",
        "maximum",
        "floats",
    )
    assert (fewer > 0) == (name in ranked)


def test_control_fewer_ranks_than_matter_change_probabilities():
    statistic, x = (
        release.Median(lower=0, upper=999, resolution=1),
        np.random.default_rng(4).permuted(np.tile(np.arange(100), (4, 1))),
    )
    low, high = statistic.near(100, 64.0, "add_remove")
    assert high - low < 12
    positions, _ = statistic.read(x)
    for near, same in (((low, high), True), ((low + 3, high - 3), False)):
        one = statistic.distribution(Counts.of_records(positions, None, near), 64.0, "add_remove")
        other = statistic.distribution(Counts.of_records(positions), 64.0, "add_remove")
        assert (
            np.array_equal(one.log_pmf(one.values[:, None]), other.log_pmf(other.values[:, None]))
            == same
        )


def test_many_records_are_sorted_in_parts():
    """More than fit the cache at once, also of narrow dtypes."""
    rng = np.random.default_rng(5)
    for dtype in (np.int16, np.int32, np.int64):
        positions = rng.integers(0, 50, (60, 5000)).astype(dtype)
        found = entries(Counts.of_records(positions))
        assert found == [dict(sorted(Counter(row.tolist()).items())) for row in positions]


def test_more_records_than_a_padded_row_held():
    """2^24 + 1 of them for a mean, 2^23 + 1 for a mode; from records of one byte as from counts."""
    x = np.full(2**18 + 1, 5, np.int8)
    assert entries(counts_of(release.Mean(0, 9, 1), x, "swap")[0]) == [{5: 2**18 + 1}]
    found = Counts.of_rows([0], [5], [2**24 + 1], groups=1)
    mean = release.Mean(0, 9, 1).release(found, 1.0, "swap")
    assert abs(float(mean) - 5) < 1e-4
    assert mean.resolution == Fraction(1, 2**24 + 1)
    votes = release.mode(
        [3], counts=[8_388_609], candidates=(1, 3), epsilon=1.0, neighbors="add_remove"
    )
    assert float(votes) == 3.0


def truth_of(values, numbers, ranks, level, high):
    """The value of a quantile after some changes, by Python's integers, in parts of a cell."""
    n, parts = sum(numbers), ranks.refinement
    ends = [0, *accumulate(numbers)]

    def record(rank):
        return 0 if rank < 1 else high if rank > n else values[bisect_left(ends, rank) - 1]

    exact = Fraction(ranks.per_record * n + ranks.constant + ranks.step * level, ranks.denominator)
    if ranks.definition == "lower":
        return record(ceil(exact))
    below = floor(exact)
    return parts * record(below) + (exact - below) * parts * (record(below + 1) - record(below))


@pytest.mark.parametrize("definition", ["lower", "linear"])
@pytest.mark.parametrize(
    "q", ["0.5", "0.123457", Fraction(2**21 + 1, 2**22 - 1), Fraction(1, 2**22 - 3)]
)
def test_ranks_of_huge_counts_in_many_cells_are_those_of_integers_of_any_size(definition, q):
    """The denominator of q times the number of records passes 64 bits: at one record more,
    everything would change.
    """
    rng, passed = np.random.default_rng(6), 0
    statistic = release.Quantile(q, **(GRID | {"upper": 9000}), definition=definition)
    for neighbors in ("add_remove", "swap"):
        ranks = statistic.ranks(neighbors)
        for size in (3, 40, 3000):
            values = np.sort(rng.choice(9001, size, replace=False)).tolist()
            numbers = rng.choice([1, 2, 3, MOST], size, p=[0.3, 0.2, 0.2, 0.3]).tolist()
            where = bisect_left(
                [0, *accumulate(numbers)], ranks.per_record * sum(numbers) // ranks.denominator
            )
            numbers[max(where - 2, 0) : where + 2] = [1] * len(
                numbers[max(where - 2, 0) : where + 2]
            )
            found = statistic.profile(
                Counts.of_rows([0] * size, values, numbers, groups=1), neighbors, most=8
            )
            high = statistic.records_grid.size - 1
            passed += ranks.denominator * sum(numbers) >= 2**63
            assert found.value.tolist() == [truth_of(values, numbers, ranks, 0, high)]
            for level in range(-8, 9):
                reached = found.near + found.sign * found.length
                some = (found.sign == np.sign(level)) & (found.level + found.rise <= abs(level))
                ends = reached[some] if some.any() else found.value
                assert (ends.max() if level > 0 else ends.min()) == truth_of(
                    values, numbers, ranks, level, high
                )
    assert (passed > 0) == (statistic.ranks("swap").denominator > 2)
