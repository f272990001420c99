"""Joint quantiles on a grid: their probabilities, their privacy, and that what is drawn is exactly
they.
"""

import decimal
import itertools
from decimal import Decimal
from fractions import Fraction
from math import comb, prod

import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import release
from dpjax.accounting import PrivacyFilter
from dpjax.release import Counts
from dpjax.release._released_quantiles import countable, default_reach
from dpjax.release.exact_chain import Parameters, errors
from dpjax.release.exact_joint import Sampler, Weights
from tests.support import statistics
from tests.support.exact_draws import EXTREME, more, repeat_entropy
from tests.support.joint_quantiles import probabilities, tuples

CELLS = 4
GRID = {"lower": 0, "upper": CELLS - 1, "resolution": 1}
LEVELS = ["0.25", "0.5", "0.7"]


TUPLES = {m: tuples(m, CELLS) for m in (1, 2, 3)}


def drawn_probabilities(x, law, middle, flat=True, size=None, ranked=False):
    """Those of all tuples by the weights of all choices in decimals, every one times the chance of
    the choice before.

    With ``ranked`` those of all tuples of pairs, of a value and how many records are up to its
    place.
    """
    sizes = None if size is None else np.array([size])
    sampler, m = (
        Sampler(law, counts_of([x]), np.array([middle + 1]), sizes, digits=80),
        law.quantiles,
    )
    left, width = (array[0].tolist() for array in (sampler.slots.left, sampler.slots.width))
    found, row = {}, np.zeros(1, np.int64)

    def chances(weights):
        return (weights / sum(weights)).tolist()

    def place(chance, first, width, c, rank, above, then):
        size = max(width // law.cut, 1)
        share = chance / comb(size + c - 1, c)
        for some in itertools.combinations_with_replacement(range(first, first + size), c):
            then(share, tuple((v, rank) for v in some) + above)

    def down(weights, chance, last, above, chosen):
        if last == 0:
            found[chosen] = found.get(chosen, 0) + chance
            return
        k = np.array([last - 1])
        for slot, here in enumerate(chances(weights.of_slots(row, k, np.array([above]))[0])):
            if not here:
                continue
            rank = (int(sampler.index[0, slot]) + 1) // 2
            for first, share in enumerate(chances(weights.of_firsts(row, k, np.array([slot]))[0])):
                if share:

                    def then(p, some, first=first, slot=slot):
                        down(weights, p, first, slot, some)

                    p = chance * here * share
                    place(p, left[slot], width[slot], last - first, rank, chosen, then)

    def of_flat(p, some):
        found[some] = found.get(some, 0) + p

    with decimal.localcontext(sampler.arithmetic.context):
        terms = np.array([Decimal(1)]) if law.reach is None else sampler.terms[0]
        terms = terms if flat or law.reach is None else terms[:-1]
        for number, chance in zip([*sampler.numbers, None], chances(terms), strict=False):
            if number is None:
                place(chance, 0, law.size * law.cut, m, -1, (), of_flat)
            else:
                down(Weights(sampler, number, row), chance, m, len(left), ())
        if ranked:
            return found
        shown = dict.fromkeys(tuples(m, law.size if size is None else size), Decimal(0))
        for pairs, chance in found.items():
            shown[tuple(v for v, _ in pairs)] += chance
        return np.array(list(shown.values()))


def counts_of(rows):
    return Counts.of_records(np.array(rows, np.int64).reshape(len(rows), -1))


def most_of(counts):
    return int(counts.counts.max(initial=1))


FIVE = counts_of([[0] * 5])  # parts of a number for up to five equal records


def a_law(
    levels,
    epsilon,
    neighbors="add_remove",
    *,
    known=False,
    reach=None,
    terms=32,
    size=CELLS,
    max_records=5,
    counts=FIVE,
):
    exact = tuple(Fraction(q) for q in levels)
    reach = default_reach(exact, Fraction(epsilon), size, max_records) if reach is None else reach
    return Parameters.of(
        exact, Fraction(epsilon), neighbors, size, known, reach, terms, most_of(counts)
    )


OPTIONS = [("add_remove", None), ("add_remove", 7), ("swap", None)]


@pytest.mark.parametrize(("neighbors", "n"), OPTIONS)
def test_the_choices_have_the_probabilities_of_the_definition(neighbors, n):
    for levels, row in (
        (LEVELS, [0, 1, 1, 3, 3]),
        (["0.3"], [0, 1, 1, 3, 3]),
        (["0.3"], [2, 2, 2, 2, 2]),
    ):
        law = a_law(levels, Fraction(3, 2), neighbors, known=n is not None, terms=6)
        exact = probabilities(row, law, 4)
        # In more parts than there are records: the same distribution
        finer = a_law(
            levels,
            Fraction(3, 2),
            neighbors,
            known=n is not None,
            terms=6,
            counts=counts_of([[0] * 40]),
        )
        assert finer.cut == 8 * law.cut
        for one in (law, finer):
            assert max(abs(drawn_probabilities(row, one, 4) / exact - 1)) < 1e-40
        # The control
        assert max(abs(drawn_probabilities([0, 1, 1, 3, 2], law, 4) / exact - 1)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("neighbors", "n"), OPTIONS)
def test_the_simulation_has_the_probabilities_of_the_definition(neighbors, n, x64):
    rows = [[0, 1, 1, 3, 3], [2, 2, 2, 2, 2]]
    for levels in (LEVELS, ["0.3"])[: 2 if n is None else 1]:
        law = a_law(levels, Fraction(3, 2), neighbors, known=n is not None)
        asked = dpjax.quantiles(np.array(rows, float), levels, neighbors=neighbors, **GRID)
        simulated = dpjax.joint_quantiles(asked, 1.5, public_n=n).log_prob(
            jnp.array(TUPLES[len(levels)], float)[:, None]
        )
        for i, row in enumerate(rows):
            # A public n beyond the columns is that of the columns
            exact = probabilities(row, law, 4)
            np.testing.assert_allclose(
                exact.astype(float), np.exp(np.asarray(simulated))[:, i], rtol=1e-10
            )
            assert max(abs(drawn_probabilities(row, law, 4) / exact - 1)) < 1e-40


def audit(law, rows, pairs, flat=True, public=None):
    logs = {}
    for row in rows:
        found = drawn_probabilities(row, law, (len(row) if public is None else public) - 1, flat)
        logs[row] = np.log(found.astype(float))
    both = np.array([logs[a] - logs[b] for a, b in pairs])
    return np.abs(both).max(), (both.max(-1) - both.min(-1)).max()


def test_no_neighbor_loses_more_than_epsilon():
    rows = [row for n in range(4) for row in tuples(n, CELLS)]
    pairs = [(row, tuple(sorted((*row, v)))) for row in rows if len(row) < 3 for v in range(CELLS)]
    for epsilon in (0.5, 2):
        law = a_law(LEVELS[:2], epsilon, reach=1, terms=3)
        assert max(audit(law, rows, pairs)) <= epsilon * (1 + 1e-9)
    # Control
    assert max(audit(a_law(LEVELS[:2], 1, reach=1, terms=3), rows, pairs, flat=False)) > 1.1
    known = max(audit(a_law(LEVELS[:2], 2, known=True), rows, pairs, public=2))
    assert 1.5 <= known <= 2 * (1 + 1e-9)
    rows = TUPLES[3]
    pairs = [
        (a, tuple(sorted((*a[:k], v, *a[k + 1 :]))))
        for a in rows
        for k in range(3)
        for v in range(CELLS)
    ]
    swapped = max(audit(a_law(LEVELS[:2], 2, "swap"), rows, pairs))
    assert 1.5 <= swapped <= 2 * (1 + 1e-9)
    assert max(audit(a_law(LEVELS[:2], 4, "swap"), rows, pairs)) > 2.5  # control


@pytest.mark.parametrize(
    "options",
    [
        {"neighbors": "add_remove"},
        {"neighbors": "add_remove", "public_n": 5},
        {"neighbors": "swap"},
    ],
)
def test_draws_follow_the_probabilities(options):
    rows = [[0, 1, 1, 3, 3], [2, 2, 2, 2, 2]]
    options = {"max_records": 5} | options
    law = a_law(LEVELS, 2, options["neighbors"], known="public_n" in options, terms=6)
    found = release.joint_quantiles(
        rows, LEVELS, epsilon=2.0, draws=3000, terms=6, **options, **GRID
    )
    assert found.values.shape == (3000, 2, 3)
    number = {y: i for i, y in enumerate(TUPLES[3])}
    counts = [
        np.bincount(
            [number[tuple(y)] for y in found.multiples[:, i].tolist()], minlength=len(number)
        )
        for i in (0, 1)
    ]
    expected = [probabilities(row, law, 4).astype(float) for row in rows]
    for i in (0, 1):
        statistics.assert_counts_follow(counts[i], expected[i])
    statistics.assert_counts_rejected(counts[0], expected[1])


def a_sampler(rng, rows, n, size, epsilon, known=False, levels=LEVELS):
    """Rows with ties, of different numbers of records, and their counts."""
    cells, present = (
        rng.integers(0, size, (rows, n)) // rng.integers(1, 6, (rows, 1)),
        rng.random((rows, n)) < 0.8,
    )
    counts = Counts.of_records(cells, present)
    law = a_law(levels, epsilon, known=known, size=size, max_records=n, counts=counts)
    return Sampler(law, counts), counts


def words_for(rng, sampler, draws):
    return rng.integers(
        0,
        2**64,
        (3 * sampler.parameters.quantiles + 1, draws, len(sampler.middle)),
        dtype=np.uint64,
    )


def assert_equals_exact(sampler, words, lanes):
    """Lanes that are certain against decimals; returns the share of all that are."""
    cells, sure = sampler.draw(words)
    for draw, row in lanes:
        if sure[draw, row]:
            assert (
                sampler.exactly(row, words[:, draw, row].tolist(), more)
                == cells[draw, row].tolist()
            ), (draw, row)
    return sure.mean()


@pytest.mark.parametrize(
    ("epsilon", "known", "n", "draws"),
    [
        *((epsilon, True, 9, 12) for epsilon in (Fraction(1, 2**20), 20, 64)),
        *((epsilon, False, 9, 3) for epsilon in (Fraction(1, 2**20), 20)),
        pytest.param(64, False, 9, 8, marks=pytest.mark.slow),
        *(
            pytest.param(epsilon, False, 40, 40, marks=pytest.mark.slow)
            for epsilon in (Fraction(1, 10), 4)
        ),
    ],
)
def test_certain_draws_are_those_in_decimals(epsilon, known, n, draws):
    rng = np.random.default_rng(0)
    sampler, _ = a_sampler(rng, 4, n, 60, epsilon, known)
    words = words_for(rng, sampler, max(draws, 12))
    lanes = list(np.ndindex(draws, 4))
    assert assert_equals_exact(sampler, words, lanes) == 1
    words[::2, ::2] = rng.choice(EXTREME, words[::2, ::2].shape)
    words[:, ::3] = rng.choice(EXTREME, words[:, ::3].shape)
    assert 0.02 < assert_equals_exact(sampler, words, lanes) < 0.98  # uniforms at the ends
    for fill in (0, 2**64 - 1):
        words[:] = fill
        exact = sampler.exactly(0, words[:, 0, 0].tolist(), lambda role, i: 2**31 * (i % 2))
        assert exact == sorted(exact)


def test_uniforms_where_the_choice_changes_are_left_to_decimals():
    rng = np.random.default_rng(1)
    sampler, _ = a_sampler(rng, 1, 16, 500, 1)
    words, edges = words_for(rng, sampler, 1), 0
    for role in range(4):  # the term, a slot, a run and a slot

        def at(value, role=role):
            changed = words.copy()
            changed[role, 0, 0] = value
            return changed

        # Where draws differ at these ends, there is an edge between them
        low, high = 2**62, 3 * 2**62
        ends = [sampler.draw(at(value))[0].tolist() for value in (low, high)]
        if ends[0] == ends[1]:
            continue
        edges += 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if sampler.draw(at(middle))[0].tolist() == ends[0] else (low, middle)
            )
        assert not sampler.draw(at(low))[1].any()
        assert not sampler.draw(at(high))[1].any()
        for away in (2**14, 2**24, 2**34):
            for value in (low - away, low + away):
                assert_equals_exact(sampler, at(value), [(0, 0)])
        assert sampler.draw(at(low - 2**34))[1].all()
    assert edges >= 3


def test_weights_are_right_up_to_the_bounds():
    rng = np.random.default_rng(2)
    for epsilon in (Fraction(1, 100), 30):
        sampler, counts = a_sampler(
            rng, 2, 20, 10**6, epsilon, levels=["0.01", "0.3", "0.31", "0.9"]
        )
        weights = sampler.terms
        relative, lost = errors(sampler.parameters, 41, sampler.arithmetic)
        lost = lost * weights.shape[-1] / weights.max(axis=-1)
        finer = Sampler(sampler.parameters, counts, digits=300)
        with decimal.localcontext(finer.arithmetic.context):
            exact = finer.terms
            for row in range(2):
                largest = int(np.argmax(weights[row]))
                share = (exact[row] / exact[row, largest]).astype(float)
                off = np.abs(weights[row] / weights[row, largest] - share)
                assert (off <= 2 * relative * share + 4 * lost[row]).all()
                assert lost[row] < 1e-100


def plain_totals(sampler, row):
    """The weights of all terms of a row: each step added up over all pairs of slots, by one kernel
    and no blocks.
    """
    law, rank = sampler.parameters, 2 * sampler.parameters.whole
    m, unit = law.quantiles, Decimal(law.unit.numerator) / law.unit.denominator
    width = [Decimal(int(w)) / law.scale for w in sampler.slots.width[row]]
    place = [law.whole * j for j in range(len(width))]
    piece, n, found = Decimal(law.cut) / law.scale, int(sampler.slots.records[row]), []

    def decay(distance):
        return (-unit * abs(distance)).exp()

    for number in law.numbers(int(sampler.middle[row])):
        steps = law.steps(number)
        before, after = [[decay(p - law.whole - steps[0]) for p in place]], []
        for k in range(m):
            after.append([Decimal(0)] * len(place))
            for first in range(k + 1):
                stay = decay(sum(abs(step) for step in steps[first + 1 : k + 1]))
                for j, w in enumerate(width):
                    volume = prod(
                        ((w + c * piece) / (c + 1) for c in range(k + 1 - first)), start=Decimal(1)
                    )
                    after[k][j] += before[first][j] * volume * stay
            if k < m - 1:
                kernel = [decay(p - steps[k + 1]) for p in place]
                sums = ((after[k][i] * kernel[j - i] for i in range(j)) for j in range(len(place)))
                before.append([sum(each, start=Decimal(0)) for each in sums])
        last = rank * n - law.whole - steps[-1]
        found.append(
            sum(weight * decay(p - last) for p, weight in zip(place, after[-1], strict=True))
        )
    return found


def test_blocks_and_windows_add_up_to_plain_sums():
    rng = np.random.default_rng(2)
    decimal.getcontext().prec = 60
    for epsilon, n, levels in (
        (Fraction(1, 10), 40, LEVELS),
        (4, 40, LEVELS),
        (1, 30, ["0.01", "0.3", "0.31", "0.9"]),
    ):
        sampler, counts = a_sampler(rng, 2, n, 60, epsilon, levels=levels)
        sampler = Sampler(sampler.parameters, counts, digits=60)
        with decimal.localcontext(sampler.arithmetic.context):
            weights = sampler.terms
        for row in range(2):
            numbers = list(sampler.parameters.numbers(int(sampler.middle[row])))[::7]
            exact = plain_totals(sampler, row)[::7]
            mine = [weights[row, sampler.numbers.index(number)] for number in numbers]
            assert max(abs(a / b - 1) for a, b in zip(mine, exact, strict=True)) < Decimal("1e-50")


def test_a_few_bits_do_with_decimals_and_not_without():
    """The margin is what makes few bits of each uniform enough; without it they draw something
    else.
    """
    rng = np.random.default_rng(3)
    law = a_law(LEVELS[:2], 2, known=True)
    x = [0, 1, 1, 3, 3]
    sampler = Sampler(law, counts_of([x]), bits=7)
    words = words_for(rng, sampler, 1200)
    cells, sure = sampler.draw(words)
    assert 0.05 < sure.mean() < 0.95
    without = Sampler(law, counts_of([x]), bits=3).draw(words)[0][:, 0].tolist()
    both = cells[:, 0].tolist()
    for draw in np.flatnonzero(~sure[:, 0]):
        both[draw] = sampler.exactly(0, words[:, draw, 0].tolist(), more)
    number, expected = (
        {y: i for i, y in enumerate(TUPLES[2])},
        probabilities(x, law, 4).astype(float),
    )
    counts = [
        np.bincount([number[tuple(y)] for y in found], minlength=len(number))
        for found in (both, without)
    ]
    statistics.assert_counts_follow(counts[0], expected)
    statistics.assert_counts_rejected(counts[1], expected)


def test_every_row_its_own_records():
    """Many rows, draws and a large epsilon: each draw is the quantile of its row."""
    x = np.random.default_rng(0).permuted(
        np.arange(1.0, 102.0) + 101 * np.arange(4)[:, None], axis=1
    )
    options = {"lower": 0, "upper": 600, "resolution": 1, "neighbors": "add_remove"}
    options["max_records"] = 200
    expected = np.array([26.0, 51.0, 76.0]) + 101 * np.arange(4)[:, None]
    for known in ({}, {"public_n": 101}, {"public_n": [101, 101, 100, 101]}):
        found = release.joint_quantiles(
            x, [0.25, 0.5, 0.75], epsilon=60.0, draws=3, **known, **options
        )
        assert np.abs(found.values - expected).max() <= 1
    assert (found.guarantee.epsilon, found.guarantee.bounded_range) == (180.0, 180.0)
    counted = release.joint_quantiles(
        [1.0, 2.0, 3.0],
        [0.5],
        epsilon=60.0,
        counts=[[100, 0, 0], [0, 10, 100]],
        **options,
    )
    assert counted.values.tolist() == [[[1.0], [3.0]]]


def test_counts_and_records_give_the_same_draws(monkeypatch):
    """The same words: from records, in any order, with absent ones, and from counts."""
    x, options = (
        [0.0, 1, 1, 3, 3, 3, 2],
        {"epsilon": 3.0, "neighbors": "add_remove", "max_records": 9, "draws": 30} | GRID,
    )
    # What the promise is for, and not how many there are
    many = {"public_n": 200, "ties": 1, "terms": 4, "coverage": 0.3}
    asked = [
        {"x": x},
        {"x": x[::-1]},
        {"x": [np.nan, *x, np.nan]},
        {"x": [*x, 2, 2], "mask": [True] * 7 + [False] * 2},
        {"x": [0, 1, 2, 3], "counts": [1, 2, 1, 3]},
    ]
    repeat_entropy(monkeypatch)
    interval = {key: value for key, value in options.items() if key != "max_records"} | {
        "q": 0.5,
        **many,
    }
    for function, public in (
        (release.joint_quantiles, options | {"qs": LEVELS}),
        (release.confidence_interval, interval),
    ):
        drawn = [function(**one, **public).values.tolist() for one in asked]
        assert all(one == drawn[0] for one in drawn)
        assert len(set(map(str, drawn[0]))) > 3
        assert function(x[1:], **public).values.tolist() != drawn[0]  # the control


def test_data_never_raise():
    wild = [[float("nan"), float("inf"), -float("inf"), 1e300], [float("nan")] * 4]
    for options in (
        {"neighbors": "add_remove", "max_records": 4},
        {"neighbors": "add_remove", "public_n": 10**6},
        {"neighbors": "swap"},
    ):
        found = release.joint_quantiles(wild, LEVELS, epsilon=1.0, **options, **GRID)
        assert found.values.min() >= 0
        assert found.values.max() <= 3
        assert (np.diff(found.values, axis=-1) >= 0).all()
    assert release.joint_quantiles(
        [], LEVELS, epsilon=2.0**-20, neighbors="add_remove", max_records=1, **GRID
    ).values.shape == (1, 3)
    grid = release.Floats(digits=1, smallest=-1, largest=1)
    floats = release.joint_quantiles(
        [[-0.3, 0.2, 0.5], [0.5] * 3], LEVELS, epsilon=1.0, neighbors="swap", grid=grid
    )
    assert floats.resolution is None
    assert np.isin(floats.values, grid.values_of(np.arange(grid.size))).all()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"public_n": 2}, "n is"),  # the number of records, which is public under swap
        ({"qs": [Fraction(1, 2**27)]}, "denominator"),  # ranks beyond 64 bits for some records
        ({"qs": [f"{k}/100" for k in range(1, 100)]}, "at most 40"),  # no memory for some records
        ({"neighbors": "add_remove"}, "max_records="),  # and not the columns
    ],
)
def test_what_would_depend_on_the_records_is_refused(changes, word):
    options = {"x": [1, 2], "qs": [0.25, 0.5], "epsilon": 1.0, "neighbors": "swap"} | GRID | changes
    with pytest.raises(ValueError, match=word):
        release.joint_quantiles(**options)


def test_intervals_are_two_joint_quantiles_with_a_coverage():
    x = np.random.default_rng(4).permutation(41)
    public = {
        "lower": 0,
        "upper": 50,
        "resolution": 1,
        "neighbors": "swap",
        "ties": 1,
        "coverage": 0.6,
        "public_n": 41,
        "terms": 4,
    }
    found = release.confidence_interval(x, 0.5, epsilon=12.0, draws=300, **public)
    assert found.values.shape == (300, 2)
    assert (found.values[:, 0] <= found.values[:, 1]).all()
    # The median of the records
    assert np.mean((found.values[:, 0] <= 20) & (found.values[:, 1] >= 20)) > 0.5
    assert 0.6 <= found.coverage < 1
    with pytest.raises(ValueError, match="public_n must be given"):
        release.confidence_interval(
            x, 0.5, epsilon=1.0, **public | {"public_n": None, "neighbors": "add_remove"}
        )


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["swap", "add_remove"])
def test_intervals_have_the_probabilities_and_the_coverage_of_the_simulation(neighbors):
    x = np.random.default_rng(4).permutation(41)
    public = {
        "lower": 0,
        "upper": 50,
        "resolution": 1,
        "neighbors": neighbors,
        "ties": 1,
        "coverage": 0.6,
        "public_n": 41,
        "terms": 4,
    }
    simulated = dpjax.confidence_interval(x.astype(np.float32), 0.5, 12.0, **public)
    found = release.confidence_interval(x, 0.5, epsilon=12.0, draws=2000, **public)
    assert found.coverage == simulated.coverage
    cdf = np.asarray(simulated.quantiles.marginals().cdf(np.arange(51.0)[:, None]))
    for end in (0, 1):
        counts = np.bincount(found.multiples[:, end], minlength=51)
        statistics.assert_counts_follow(counts, np.diff(cdf[:, end], prepend=0.0))
    statistics.assert_counts_rejected(counts, np.diff(cdf[:, 0], prepend=0.0))


def test_many_equal_records_do_not_make_it_uniform():
    """The best tuples have small parts of a number with many records: with a small R the flat term
    would be all that is left.
    """
    levels, n, size = tuple(Fraction(k, 10) for k in range(1, 10)), 2000, 100
    generator = np.random.default_rng(2)
    hours = np.clip(np.rint(generator.normal(38, 12, (1, n))), 0, size - 1).astype(int)
    hours[:, : n // 2] = 40

    def flat(reach):
        law = Parameters.of(
            levels, Fraction(1), "add_remove", size, False, reach, 8, most_of(counts_of(hours))
        )
        (weights,) = Sampler(law, counts_of(hours)).terms
        return weights[-1] / np.sum(weights)

    reach = default_reach(levels, Fraction(1), size, n)
    assert reach == 235
    assert flat(reach) < 1e-9
    assert flat(50) > 0.999  # control
    assert default_reach(levels, Fraction(1), 10**6, n) == 420


def test_heavy_ties_are_counted_in_full():
    public = {"lower": 0, "upper": 100, "resolution": 1, "neighbors": "add_remove"}
    for known in ({"max_records": 70}, {"public_n": 70}):
        found = release.joint_quantiles(
            [40] * 30 + [70] * 40, LEVELS, epsilon=60.0, draws=20, **known, **public
        )
        assert found.values.tolist() == [[40, 70, 70]] * 20


def log_totals(sampler):
    """The logarithm of the weight of each row's middle term, relative to the flat one."""
    middle = [sampler.numbers.index(number) for number in sampler.middle]
    return np.log(sampler.terms[np.arange(len(middle)), middle] / sampler.terms[:, -1])


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
@pytest.mark.parametrize("cells", [12, pytest.param(5000, marks=pytest.mark.slow)])
def test_records_far_from_all_quantiles_change_no_draw(neighbors, cells):
    levels, epsilon, sizes = tuple(map(Fraction, LEVELS)), Fraction(4), [6000, 8001]
    rng = np.random.default_rng(4)
    x = np.sort(rng.integers(0, cells, (2, max(sizes))), axis=-1)
    counts = Counts.of_records(x, np.arange(max(sizes)) < np.array(sizes)[:, None])
    reach, draws = (8, 40) if cells == 12 else (32, 300)
    law = Parameters.of(
        levels, epsilon, neighbors, cells, False, reach, 2 * reach + 1, most_of(counts)
    )
    words = rng.integers(0, 2**64, (3 * len(levels) + 1, draws, 2), np.uint64)

    less, full = Sampler(law, counts), Sampler(law, counts, kept=2**40)
    assert np.all(less.slots.records < 0.7 * counts.totals)
    assert np.array_equal(full.slots.records, counts.totals)
    (drawn, sure), (expected, _) = less.draw(words), full.draw(words)
    assert sure.mean() > 0.999
    assert np.array_equal(drawn, expected)
    np.testing.assert_allclose(log_totals(less), log_totals(full), rtol=1e-11)
    # A control: with one record on either side of each quantile, much is lost.
    few = Sampler(law, counts, kept=1)
    assert np.all(np.abs(np.subtract(log_totals(few), log_totals(full))) > 1e-4)
    assert cells == 12 or not np.array_equal(few.draw(words)[0], expected)


def test_draws_of_improbable_paths_are_left_to_decimals():
    counts = counts_of([np.random.default_rng(4).integers(0, 12, 9000)])
    law = Parameters.of(
        tuple(map(Fraction, LEVELS)), Fraction(4), "swap", 12, False, 0, 8, most_of(counts)
    )
    words, sampler = (
        np.random.default_rng(5).integers(0, 2**64, (10, 300, 1), np.uint64),
        Sampler(law, counts),
    )
    assert sampler.least < -60
    assert sampler.draw(words)[1].all()
    # A path of three slots and where their runs begin has less
    sampler.least = -10.0
    assert not sampler.draw(words)[1].all()


def test_counts_of_any_size_never_raise_on_the_largest_grid():
    """Parts of the numbers of a grid are 64-bit integers: of 2^30 numbers and 2^40 equal records
    they would not be.
    """
    public = {
        "lower": 0,
        "upper": 2**31 - 4,
        "resolution": 1,
        "epsilon": 64.0,
        "neighbors": "add_remove",
    }
    for number in (1, 2**29, 2**30, 2**31, 2**40, 2**63 - 1, 10**5000):
        found = release.joint_quantiles(
            [5, 2**30], [0.25, 0.75], counts=[number, number], max_records=1000, **public
        )
        assert found.values.shape == (1, 2)
        ends = release.confidence_interval(
            [5, 2**30], 0.5, counts=[number, 1], public_n=1000, **public
        )
        assert ends.values.shape == (1, 2)
        assert found.values.tolist() == [[5.0, 2.0**30]] or number == 1


def test_more_records_than_are_counted_are_refused_under_swap():
    """Their number is public. With a limit on equal ones it would differ between neighbors, and the
    ranks of two levels with it: the loss was 1.75 times epsilon.
    """
    size = 2**31 - 3
    a, b = (
        Counts(np.array([0, 2]), np.array([1, 5]), np.array([2**30 + more, 10 - more]))
        for more in (1, 0)
    )
    assert a.totals == b.totals
    assert countable(a, size).totals != countable(b, size).totals  # the control
    public = {"lower": 0, "upper": size - 1, "resolution": 1, "public_n": 1000}
    interval = release.ConfidenceInterval(q=0.5, coverage=0.9, **public)
    for counts in (a, b):
        with pytest.raises(ValueError, match="at most 1073741824 records"):
            interval.release(counts, 64.0, "swap")
    assert interval.release(a, 64.0, "add_remove").values.shape == (1, 1, 2)
    for method in ("joint", "nested", "recursive"):
        options = {"method": method, "max_records": 1000 if method == "joint" else None}
        statistic = release.Quantiles(("1/4", "1/2", "2/3"), 0, size - 1, 1, **options)
        for counts in (a, b):
            with pytest.raises(ValueError, match="at most 1073741824 records"):
                statistic.release(counts, 1.0, "swap")
        fewer = Counts(a.starts, a.values, np.array([2**30 - 10, 10]))
        for counts, neighbors in ((fewer, "swap"), (a, "add_remove")):
            assert statistic.release(counts, 1.0, neighbors).values.shape == (1, 1, 3)


@pytest.mark.parametrize("more", [{"public_n": 100}, {"max_records": 100, "epsilon": 1e-5}])
def test_no_private_size_takes_all_memory(more):
    """Whether a draw fails would say how many records there are."""
    options = GRID | {"epsilon": 1.0, "neighbors": "add_remove"} | more
    for number in (1, 10**6, 10**9, 2**62):
        found = release.joint_quantiles([1, 2], ["1/4", "1/2"], counts=[number] * 2, **options)
        assert found.values.shape == (1, 2)


@pytest.mark.parametrize(
    ("levels", "epsilon", "most"),
    [
        (["1/2", "500001/1000000"], 1.0, 10**9),
        (["1/100000", "1/2"], 0.01, 10**9),
        (["1/4", "1/2"], 1e-6, 10**9),
    ],
)
def test_what_would_take_all_memory_for_some_private_size_is_refused_for_all(levels, epsilon, most):
    options = GRID | {"epsilon": epsilon, "neighbors": "add_remove", "max_records": most}
    budget = PrivacyFilter(1.0, 0.0, "add_remove")
    for number in (0, 1, 2**62):
        counts = [number, number]
        with pytest.raises(ValueError, match="is too small, or the levels of qs are too uneven"):
            release.joint_quantiles([1, 2], levels, counts=counts, budget=budget, **options)
        drawn = release.private_quantiles([1, 2], levels, counts=counts, **options)
        assert drawn.guarantee.bounded_range == 2 * epsilon  # by the recursion
    assert budget.spent == 0
    known = {"counts": [1, 1], "public_n": 2} | options
    del known["max_records"]
    assert release.joint_quantiles([1, 2], levels, **known).values.shape == (1, 2)


def test_exact_draws_from_a_billion_records_look_at_those_near_the_quantiles():
    counts = Counts(np.array([0, 4]), np.array([1, 4, 6, 9]), np.array([4, 3, 2, 1]) * 10**8)
    law = a_law(LEVELS, 20, terms=4, size=12, max_records=10**9, counts=counts)
    sampler = Sampler(law, counts, bits=20)
    words = words_for(np.random.default_rng(8), sampler, 4)
    drawn = [sampler.exactly(0, words[:, draw, 0].tolist(), more) for draw in range(4)]
    found, sure = Sampler(law, counts).draw(words)
    assert sure.all()
    assert drawn == found[:, 0].tolist()
    assert {(a, b) for a, b, _ in drawn} == {(1, 4)}
    assert sampler.slots.width.shape[-1] < 2000
