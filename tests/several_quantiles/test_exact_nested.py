"""The release of nested quantiles: its law audited over all small datasets and that of the
simulation, and draws from it.
"""

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts
from dpjax.release.exact_chain import Parameters
from dpjax.release.exact_joint import Sampler
from dpjax.release.exact_nested import Nested
from tests.several_quantiles.test_exact_joint import drawn_probabilities
from tests.several_quantiles.test_nested import (
    GRID,
    NINTHS,
    SIXTHS,
    by_definition,
    simulated,
    tuples_of,
)
from tests.support import oracle, statistics
from tests.support.exact_draws import more
from tests.support.joint_quantiles import parts, tuples

OPTIONS = {"lower": 0, "upper": GRID[-1], "resolution": 1}


@functools.cache
def of_part(records, law, number, size):
    return drawn_probabilities(list(records), law, number - 1, size=size).astype(float)


@functools.cache
def with_ranks(records, law, number):
    """The probabilities of all tuples and ranks of their places."""
    found = drawn_probabilities(list(records), law, number - 1, ranked=True)
    return {tuple(zip(*pairs, strict=True)): float(p) for pairs, p in found.items()}


def rows_of(counts):
    return [
        tuple(np.repeat(values, number).tolist())
        for values, number in zip(
            np.split(counts.values, counts.starts[1:-1]),
            np.split(counts.counts, counts.starts[1:-1]),
            strict=True,
        )
    ]


class Captured(Nested):
    """Nested quantiles whose first draws are given: it keeps the laws that it would draw by.

    Attributes:
        given: the first draws, and how many records are up to their places.
        spent: what parts spend of epsilon, as a multiple of what they should.
        first: for each row, the probabilities of the first draws.
        laws: those of all parts, in the order in which they are asked for.
    """

    def jointly(self, law, counts, draws, public, sizes, words, more, ranked=False):
        known, rows = (counts.totals if public is None else public).tolist(), rows_of(counts)
        if ranked:
            self.first = [with_ranks(row, law, n) for row, n in zip(rows, known, strict=True)]
            return np.tile(self.given[:, None], (1, len(rows), 1))
        law = Parameters(law.unit * self.spent, *law[1:])
        found = [len(self.laws) + i for i in range(counts.groups)]
        for row, n, size in zip(rows, known, sizes.tolist(), strict=True):
            chances = of_part(row, law, n, size)
            self.laws.append(dict(zip(tuples(law.quantiles, size), chances, strict=True)))
        return np.tile(np.array(found)[:, None], law.quantiles)[None]


class Law:
    """Of nested quantiles for all datasets, by all draws that the release asks for.

    Attributes:
        first: for each dataset, the probabilities of the first quantiles and of how many records
            are up to their places.
        parts: for each of these pairs and each dataset, the probabilities of the quantiles of all
    parts.
    """

    def __init__(self, datasets, levels, neighbors, epsilon, number, spent=1):
        nested = Captured(levels, len(GRID), Fraction(epsilon), neighbors, neighbors != "swap")
        sizes = None if neighbors == "swap" else np.full(len(datasets), number)
        group, value = (
            np.repeat(np.arange(len(datasets)), [len(data) for data in datasets]),
            np.concatenate(datasets),
        )
        counts = Counts.of_rows(group, value, np.ones(len(value)), groups=len(datasets))
        k, most = len(nested.nesting.first), max(len(data) for data in datasets)
        pairs = list(itertools.product(tuples(k, len(GRID)), tuples(k, most + 1)))
        nested.given = np.array([(*y, *cuts) for y, cuts in pairs])
        nested.spent, nested.laws = spent, []
        numbers = nested.draw(counts, len(pairs), sizes, None, None)
        self.first, laws = nested.first, nested.laws
        self.levels, self.datasets, self.parts = levels, datasets, {}
        for draw, (y, cuts) in enumerate(pairs):
            for row in range(len(datasets)):
                found = self.parts[y, cuts, row] = []
                for part, low, high in zip(
                    nested.nesting.parts, (0, *y), (*y, len(GRID) - 1), strict=True
                ):
                    m = len(part.levels)
                    own = (
                        laws[numbers[draw, row, part.first] - low]
                        if m and low < high
                        else {(0,) * m: 1.0}
                    )
                    found.append({tuple(low + v for v in some): p for some, p in own.items()})

    def of_tuples(self):
        """The probabilities of all tuples, ``(datasets, tuples)``."""
        index = {y: i for i, y in enumerate(tuples_of(self.levels))}
        found = np.zeros((len(self.datasets), len(index)))
        for row, first in enumerate(self.first):
            for (y, cuts), chance in first.items():
                for inner in itertools.product(*(law.items() for law in self.parts[y, cuts, row])):
                    values = [
                        (*some, *last)
                        for (some, _), last in zip(inner, [*((v,) for v in y), ()], strict=True)
                    ]
                    found[row, index[tuple(itertools.chain(*values))]] += chance * np.prod(
                        [p for _, p in inner]
                    )
        return found

    def largest_loss(self, neighbors, fault=None):
        """Of what the release draws, places in eighths of a value and the quantiles of parts, among
        all neighbors; ``fault`` is a mistake of the numbers of records of parts.
        """
        index = {data: row for row, data in enumerate(self.datasets)}
        k = len(next(iter(self.first[0]))[0])
        places = list(itertools.combinations_with_replacement(itertools.product(GRID, range(8)), k))
        at = [[self.at(row, some, fault) for row in range(len(self.datasets))] for some in places]
        worst = 0.0
        for data, row in index.items():
            for other in oracle.neighbors_of(data, neighbors, GRID):
                if other in index:
                    worst = max(worst, max(_loss(some[row], some[index[other]]) for some in at))
        return worst

    def at(self, row, place, fault):
        """The probability of places of the first quantiles, and the laws of the parts then."""
        slots = [self.slot(row, *one) for one in place]
        y, cuts = tuple(v for v, _ in place), tuple(int(rank // 1) for rank, _ in slots)
        chance = self.first[row][y, cuts]
        for slot in {(v, *slot) for v, slot in zip(y, slots, strict=True)}:
            inside = [
                eighth for (v, eighth), own in zip(place, slots, strict=True) if (v, *own) == slot
            ]
            repeated = [inside[:i].count(eighth) for i, eighth in enumerate(inside)]
            volume = np.prod([(1 / 8 + r) / (r + 1) for r in repeated])
            chance *= volume / np.prod([(slot[2] + i) / (i + 1) for i in range(len(inside))])
        if fault is None:
            return np.log(chance), self.parts[y, cuts, row]
        moved = [fault(cuts, part, len(self.datasets[row])) for part in range(len(cuts) + 1)]
        return np.log(chance), [self.parts[y, some, row][part] for part, some in enumerate(moved)]

    def slot(self, row, value, eighth):
        end = 0.0
        for rank, size in parts(self.datasets[row], value):
            end += size
            if eighth / 8 < end:
                return rank, size
        raise AssertionError


def _loss(one, other):
    """Of places, and the most of the quantiles of each part given these."""
    inside = sum(
        max(abs(np.log(a[y] / b[y])) for y in a) for a, b in zip(one[1], other[1], strict=True)
    )
    return abs(one[0] - other[0]) + inside


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_it_is_what_the_simulation_draws(neighbors, x64):
    datasets, logs = simulated(SIXTHS, neighbors, 4)
    found = Law(datasets, SIXTHS, neighbors, 4, 3).of_tuples()
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found, np.exp(logs), rtol=1e-9)
    other = np.exp(simulated(SIXTHS, neighbors, 5)[1])
    assert np.max(np.abs(found / other - 1)) > 1e-3  # the control


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_it_is_what_is_defined(neighbors):
    """With two levels in each part."""
    datasets = oracle.all_datasets((4,), GRID)[::3]
    found = Law(datasets, NINTHS, neighbors, 1, 3).of_tuples()
    number = 3 if neighbors == "add_remove" else 4
    some = [by_definition(data, NINTHS, Fraction(1), neighbors, number) for data in datasets]
    np.testing.assert_allclose(found, some, rtol=1e-9)


def in_two_parts(cuts, part, number):
    """The last two records up to a place go to both sides."""
    return tuple(max(cut - 2, 0) if i < part else cut for i, cut in enumerate(cuts))


def by_all_records(cuts, part, number):
    """The record after a place goes to the left if the number of all records is odd."""
    return tuple(min(cut + number % 2, number) for cut in cuts)


@pytest.fixture(scope="module")
def law_of_five():
    """All datasets of up to 5 records."""
    return Law(oracle.all_datasets(range(6), GRID), NINTHS, "add_remove", 16, 8)


@pytest.mark.parametrize(
    ("fault", "least", "most"), [(None, 0.9, 1), (in_two_parts, 1.15, 2), (by_all_records, 1.4, 2)]
)
def test_no_record_costs_more_than_epsilon(fault, least, most, law_of_five):
    """A number of records that is off makes losses large."""
    assert least < law_of_five.largest_loss("add_remove", fault) / 16 <= most * (1 + 1e-12)


@pytest.mark.parametrize(("spent", "least", "most"), [(1, 0.6, 1), (2, 1.2, 2)])
def test_no_swap_costs_more_than_epsilon(spent, least, most):
    """A record may leave one part and another one enter a second part: each has half of what is
    spent on the second draw.
    """
    law = Law(oracle.all_datasets((6,), GRID), NINTHS, "swap", 16, None, spent)
    assert least < law.largest_loss("swap") / 16 <= most * (1 + 1e-12)


def test_draws_are_a_mixture_over_the_noisy_numbers():
    x, epsilon = [0, 1, 1, 2], 4.0
    found = release.nested_quantiles(
        x, SIXTHS, epsilon=epsilon, neighbors="add_remove", draws=4000, **OPTIONS
    )
    index = {y: i for i, y in enumerate(tuples_of(SIXTHS))}
    counts = np.bincount([index[tuple(y)] for y in found.multiples.tolist()], minlength=len(index))
    rate, numbers = epsilon / 24, np.arange(-40, 49)
    noise = np.tanh(rate / 2) * np.exp(-rate * np.abs(numbers - 4))
    kept = Fraction(23, 24) * 4  # with a public number all of epsilon is for the two draws
    laws = np.concatenate(
        [Law([x], SIXTHS, "add_remove", kept, max(int(k), 0)).of_tuples() for k in numbers]
    )
    statistics.assert_counts_follow(counts, noise @ laws / noise.sum())
    statistics.assert_counts_rejected(counts, laws[numbers == 4][0])


def test_certain_draws_on_grids_of_their_own_are_those_in_decimals():
    rng = np.random.default_rng(0)
    sizes, number = np.array([2, 7, 60, 31]), np.array([5, 9, 8, 9])
    counts = Counts.of_rows(
        np.repeat(np.arange(4), 9), rng.integers(0, sizes, (9, 4)).T.ravel(), np.ones(36), groups=4
    )
    law = Parameters.of(SIXTHS, Fraction(4), "add_remove", 60, True, 0, 2, 9)
    sampler = Sampler(law, counts, number, sizes)
    words = rng.integers(0, 2**64, (16, 30, 4), dtype=np.uint64)
    found, sure = sampler.draw(words)
    assert sure.all()
    assert np.all((found >= 0) & (found < sizes[:, None]))
    assert np.all(found.max(axis=(0, 2)) >= sizes - 3)
    for draw, row in itertools.product(range(6), range(4)):
        assert sampler.exactly(row, words[:, draw, row].tolist(), more) == found[draw, row].tolist()


def test_records_and_counts_of_them_are_drawn_from_alike():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 30, (3, 400))
    percent = [Fraction(k, 20) for k in range(1, 20)]
    statistic = release.Quantiles(percent, lower=0, upper=29, resolution=1, method="nested")
    of_records = Counts.of_records(x)
    order = rng.permutation(x.size)
    group, value = np.repeat(np.arange(3), 400)[order], x.ravel()[order]
    of_rows = Counts.of_rows(group, value, np.ones(x.size), groups=3)
    of_matrix = Counts.of_matrix(
        np.arange(30), np.array([np.bincount(row, minlength=30) for row in x])
    )
    asked = {"epsilon": 2, "neighbors": "add_remove"}
    draws = [statistic.sample(5, 2, counts, **asked) for counts in (of_records, of_rows, of_matrix)]
    assert np.array_equal(draws[0], draws[1])
    assert np.array_equal(draws[0], draws[2])
    assert not np.array_equal(draws[0], statistic.sample(6, 2, of_rows, **asked))
    assert draws[0].shape == (2, 3, 19)
    assert np.all(np.diff(draws[0]) >= 0)


def test_draws_are_near_the_quantiles_of_their_row():
    rng = np.random.default_rng(2)
    x = np.stack([rng.integers(0, 1000, 5000), rng.integers(0, 200, 5000) + 700])
    levels = [Fraction(k, 64) for k in range(1, 64)]
    options = {"lower": 0, "upper": 999, "resolution": 1, "epsilon": 8.0}
    for neighbors, more_options in (
        ("add_remove", {}),
        ("add_remove", {"public_n": [5000, 5000]}),
        ("swap", {}),
    ):
        found = release.nested_quantiles(
            x, levels, neighbors=neighbors, draws=3, **options, **more_options
        )
        assert found.values.shape == (3, 2, 63)
        assert found.guarantee.epsilon == 24.0
        for row in range(2):
            ordered, aim = np.sort(x[row]), np.array([float(q) * 5000 for q in levels])
            below, through = (
                np.searchsorted(ordered, found.values[:, row], side) for side in ("left", "right")
            )
            assert np.mean(np.maximum(np.maximum(below - aim, aim - through), 0)) < 8


def test_data_never_raise_and_what_depends_on_their_number_does():
    wild = [[float("nan"), float("inf"), -float("inf"), 1e300], [float("nan")] * 4]
    for neighbors in ("add_remove", "swap"):
        found = release.nested_quantiles(
            wild, NINTHS, epsilon=1.0, neighbors=neighbors, draws=9, **OPTIONS
        )
        assert found.values.shape == (9, 2, 8)
        assert np.all((found.values >= 0) & (found.values <= 2))
        assert np.all(np.diff(found.values) >= 0)
    for number in (0, 1, 2**30, 2**40, 2**63 - 1, 10**5000):
        public = {
            "lower": 0,
            "upper": 2**31 - 4,
            "resolution": 1,
            "epsilon": 64.0,
            "neighbors": "add_remove",
        }
        found = release.nested_quantiles([5, 2**30], SIXTHS, counts=[number, number], **public)
        assert found.values.shape == (1, 5)
        assert release.nested_quantiles(
            [5, 2**30], SIXTHS, counts=[number, 1], public_n=7, **public
        ).values.shape == (1, 5)
    empty = release.nested_quantiles(
        [[], []], SIXTHS, epsilon=1.0, neighbors="add_remove", **OPTIONS
    )
    assert empty.values.shape == (1, 2, 5)
    floats = release.nested_quantiles(
        wild,
        SIXTHS,
        epsilon=1.0,
        neighbors="swap",
        grid=release.Floats(digits=1, smallest=-1, largest=1),
    )
    assert floats.resolution is None
    options = {"qs": SIXTHS, "epsilon": 1.0, "neighbors": "swap"} | OPTIONS
    for word, bad in (
        ("public_n is for", {"public_n": [3]}),
        ("qs", {"qs": ["0.1234567", "0.3", "0.4"]}),
    ):
        with pytest.raises(ValueError, match=word):
            release.nested_quantiles([1, 2], **options | bad)


def test_an_epsilon_with_which_large_groups_would_not_fit_into_memory_is_refused():
    """Whatever the group: that a large one fails and a small one does not would say which it is."""
    percents, grid = (
        [f"{k}/100" for k in range(1, 100)],
        {"lower": 0, "upper": 9, "resolution": 1, "neighbors": "add_remove"},
    )
    for counts in ([1] * 10, [10**18] * 10):
        with pytest.raises(
            ValueError, match=r"epsilon is too small for 99 nested quantiles: use at least 0\.0014"
        ):
            release.nested_quantiles(range(10), percents, counts=counts, epsilon=1e-3, **grid)
        assert release.nested_quantiles(
            range(10), percents, counts=counts, epsilon=1.0, **grid
        ).values.shape == (1, 99)
    # This is drawn by the recursion.
    assert release.private_quantiles(range(10), percents, epsilon=1e-3, **grid).values.shape == (
        1,
        99,
    )


def test_no_groups():
    for x in (np.zeros((0, 3)), np.zeros((2, 0, 3))):
        for draws in (1, 2):
            found = release.nested_quantiles(
                x, SIXTHS, epsilon=1.0, neighbors="add_remove", draws=draws, **OPTIONS
            )
            assert found.values.shape == (draws, *x.shape[:-1], len(SIXTHS))


@pytest.mark.parametrize("size", [np.uint64(2**63), np.uint64(2**64 - 100), 2**62])
def test_no_public_number_is_too_large(size):
    for x in ([], [1.0, 2.0]):
        options = {"epsilon": 1.0, "neighbors": "add_remove", "public_n": size} | OPTIONS
        assert release.nested_quantiles(x, SIXTHS, **options).values.shape == (1, len(SIXTHS))


def test_the_method_that_suits_what_is_public():
    def drawn_by(m, neighbors, upper=2, **options):
        levels = [Fraction(k, m + 1) for k in range(1, m + 1)]
        return release.Quantiles(
            levels, lower=0, upper=upper, resolution=1, method="auto", **options
        ).drawn_by(neighbors, Fraction(1))

    assert [drawn_by(m, "swap") for m in (1, 2, 32, 33)] == ["joint", "joint", "joint", "nested"]
    assert [drawn_by(m, "add_remove") for m in (1, 2, 8, 9, 99)] == [
        "joint",
        "recursive",
        "recursive",
        "nested",
        "nested",
    ]
    assert drawn_by(32, "add_remove", max_records=9) == "joint"
    assert drawn_by(32, "swap", upper=10**6) == "nested"  # too many for so fine a grid
    assert drawn_by(999, "swap", upper=2**31 - 4) == "recursive"
    with pytest.raises(ValueError, match="39 are drawn together, at most 18 are supported"):
        release.Quantiles(
            np.arange(1, 1000) / 1000, lower=0, upper=2**31 - 4, resolution=1, method="nested"
        )
    found = release.private_quantiles(
        [0, 1, 2], SIXTHS, epsilon=2.0, neighbors="add_remove", method="nested", **OPTIONS
    )
    assert found.guarantee.bounded_range == 4.0
    with pytest.raises(ValueError, match="too large for exact ranks"):
        release.private_quantiles(
            [0, 1, 2], np.linspace(0, 1, 8)[1:-1], epsilon=2.0, neighbors="swap", **OPTIONS
        )
