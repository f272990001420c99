"""Joint draws of several quantiles: their definition by brute force, over all tuples of fine
positions and all datasets of at most five records; and floats against decimals.
"""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from dpjax.release import joint
from dpjax.release.counts import Counts
from dpjax.release.exact import decay, seeded
from dpjax.release.joint import Chain, FinePoints, Joint, Parts
from tests.support.releases import counts_of
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

VALUES, BITS = 3, 2
LEVELS = (Fraction(1, 4), Fraction(2, 3))
TUPLES = np.array(list(combinations_with_replacement(range(VALUES << BITS), len(LEVELS))))
DATASETS = [x for n in range(6) for x in combinations_with_replacement(range(VALUES), n)]
CASES = list(product((1, 2, 4, 7), (1, 2, 3, 5, 100)))  # N and the cap
RATE, HIGH = Fraction(1, 2), Fraction(4)


@pytest.fixture(autouse=True)
def _few_fine_positions(monkeypatch):
    monkeypatch.setattr(joint, "_POINT_BITS", BITS)


def fine_points(dataset):
    """The i-th of equal records has the digits of i behind its value, in reversed order."""
    fine = []
    for value in range(VALUES):
        for i in range(1, min(dataset.count(value), 2**BITS - 1) + 1):
            fine.append((value << BITS) + int(f"{i:0{BITS}b}"[::-1], 2))
    return np.sort(np.array(fine, int))


def costs(fine, number, cap, levels=LEVELS, tuples=TUPLES, seen=lambda rank, targets: rank):
    """The cost of all tuples; ``seen`` is for a control."""
    targets = np.array([1 + int(q * (number - 1)) for q in levels])
    rank, aims, ends = (
        seen(ranks, targets)
        for ranks in (np.searchsorted(fine, tuples, side="right"), targets, [number, len(fine)])
    )
    away = np.column_stack([0 * rank[:, 0], rank - aims, 0 * rank[:, 0] + ends[1] - ends[0]])
    return np.minimum(np.abs(np.diff(away)).sum(axis=1), cap)


def brute_force(dataset, number, cap, rate=RATE, within=(-1, VALUES << BITS), **how):
    fine = fine_points(dataset)
    fine = fine[(fine > within[0]) & (fine < within[1])]
    weights = (decay(rate, 128) / 2.0**128) ** costs(fine, number, cap, **how)
    return weights / weights.sum()


def loss(relation, law):
    """The largest range of log-ratios of probabilities of neighbors; it bounds their size."""
    found = 0.0
    known = {dataset: np.log(law(dataset)) for dataset in DATASETS}
    for dataset in DATASETS:
        for more in range(VALUES):
            others = [tuple(sorted((*dataset, more)))]
            if relation == "swap":
                both = others[0]
                others = [both[:i] + both[i + 1 :] for i in range(len(both))]
            for other in set(others) & set(known):
                found = max(found, np.ptp(known[dataset] - known[other]))
    return found


def clipped(rank, targets):
    """Control: the number of ranks within the windows, up to each rank."""
    inside = np.abs(np.arange(1, 20)[:, None] - targets - 0.5).min(axis=1) < 1
    return np.append(0, np.cumsum(inside))[rank]


def cut(dataset, number, cap):
    """Control: no weight beyond the windows."""
    weights = brute_force(dataset, number, cap, rate=HIGH)
    return np.where(costs(fine_points(dataset), number, 100) < cap, weights, 1e-300)


@pytest.mark.parametrize(("relation", "changes"), [("add_remove", 2), ("swap", 4)])
def test_no_neighbors_lose_more_than_epsilon(relation, changes):
    epsilon = changes * float(HIGH)
    laws = (partial(brute_force, number=number, cap=cap, rate=HIGH) for number, cap in CASES)
    losses = [loss(relation, law) for law in laws]
    assert 0.7 * epsilon < max(losses) <= 1.0000000001 * epsilon


def test_controls_lose_more():
    controls = {
        "windows": lambda x: brute_force(x, 9, 100, rate=HIGH, seen=clipped),
        "cut": lambda x: cut(x, 4, 2),
    }
    found = {name: loss("add_remove", law) for name, law in controls.items()}
    found["not halved"] = loss("swap", lambda x: brute_force(x, 4, 100, rate=HIGH))
    assert min(found.values()) > 1.05 * 2 * float(HIGH)


def parts_of(points, groups, number):
    """All positions of some groups."""
    group, zeros = np.asarray(groups), np.zeros(len(groups), np.int64)
    number, end = zeros + number, zeros + points.size
    return Parts(number, points.totals[group], group, zeros, end, zeros)


def of_chain(chain, power, tuples=TUPLES):
    """The probability of each tuple, by the weights that a draw chooses from."""
    parts, cap, row = chain.parts, chain._cap, np.zeros(1, int)
    surplus = int(parts.n[0] - parts.number[0])
    fine = parts.edges(chain.points, np.arange(1, parts.n[0] + 1)[None])[0]
    slots = np.searchsorted(fine, tuples, side="right")
    found = np.zeros(len(tuples))

    def go(last, above, slot, chance):
        """Add the tuples whose levels from ``last`` on are in these slots."""
        if last < 0:
            cost = np.abs(np.diff([0, *(np.array(slot) - chain.targets), surplus])).sum()
            same = np.all(slots == slot, axis=1)
            found[same] += chance * max(1 - power(cap - cost), 0) / same.sum()
            return
        weights = chain._slots(last, row, np.array([above]))[0]
        weights = (weights / weights.sum()).astype(float)
        if last == len(LEVELS) - 1:
            found[:] += chance * weights[0] / len(tuples)
        for at in np.flatnonzero(weights[1:]):
            width = np.diff(chain._edges[last])[:, at]
            runs = chain._runs(last, row, np.array([at]), width)[0]
            rank = chain._first[last] + at
            for start in np.flatnonzero(runs):
                chosen = chance * weights[at + 1] * float(runs[start] / runs.sum())
                go(start - 1, rank, [rank] * (last - start + 1) + slot, chosen)

    go(len(LEVELS) - 1, 0, [], 1.0)
    return found / found.sum()


@pytest.mark.parametrize("digits", [0, 40])
def test_chain_is_its_definition(monkeypatch, digits):
    rows, decayed = DATASETS[::3] if digits else DATASETS, decay(RATE, 128) / 2.0**128
    points = FinePoints(counts_of(rows), VALUES)
    for number, cap in CASES:
        monkeypatch.setattr(Joint, "cap", lambda joint, m, cap=cap: cap)
        for group, dataset in enumerate(rows):
            expected = brute_force(dataset, number, cap)
            if abs(len(fine_points(dataset)) - number) < cap:
                law = Joint(points, RATE)
                chain = Chain(law, LEVELS, parts_of(points, [group], number), digits)
                found = of_chain(chain, lambda k: decayed**k)
            else:
                found = np.full(len(TUPLES), 1 / len(TUPLES))
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_windows_far_from_each_other(monkeypatch):
    monkeypatch.setattr(joint, "_POINT_BITS", 5)
    monkeypatch.setattr(Joint, "cap", lambda joint, m: 3)
    dataset = (0,) * 10 + (1,) * 25 + (2,) * 15
    points = FinePoints(counts_of([dataset]), VALUES)
    tuples = np.array(list(combinations_with_replacement(range(VALUES << 5), 2)))
    fine = points.at(np.zeros(50, int), np.arange(1, 51))
    for number in (48, 50):
        cost = costs(fine, number, 3, tuples=tuples)
        expected = (decay(RATE, 128) / 2.0**128) ** cost
        chain = Chain(Joint(points, RATE), LEVELS, parts_of(points, [0], number))
        assert chain._first[1] > chain._first[0] + len(chain._slot)
        found = of_chain(chain, lambda k: (decay(RATE, 128) / 2.0**128) ** k, tuples)
        np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-9)


def draws_of(dataset, number, words, draws=1, levels=LEVELS, rate=RATE, rounds=1):
    points = FinePoints(counts_of([dataset]), VALUES)
    parts = parts_of(points, np.zeros(draws, int), number)
    return Joint(points, rate, 0, words).draw(parts, levels, rounds)


@pytest.mark.parametrize("cap", [3, 100])
def test_draws_follow_the_definition(monkeypatch, cap):
    monkeypatch.setattr(Joint, "cap", lambda joint, m, cap=cap: cap)
    dataset, number = (0, 1, 1, 2), 3
    drawn = draws_of(dataset, number, seeded(1), 20_000)
    kinds = (drawn[:, None] == TUPLES).all(axis=2)
    assert kinds.any(axis=1).all()
    counts = kinds.sum(axis=0)
    assert_counts_follow(counts, brute_force(dataset, number, cap))
    assert_counts_rejected(counts, brute_force(dataset, number, cap, rate=RATE * 4 / 3))


def test_rounds_follow_the_definition(monkeypatch):
    monkeypatch.setattr(Joint, "cap", lambda joint, m: 100)
    levels = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
    # The middle level first, and then one on either side of it
    drawn = draws_of((0, 1, 1, 2), 5, seeded(2), 20_000, levels, rounds=2)
    assert (np.diff(drawn) >= 0).all()

    def law(start, end, number):
        """Of one level of 1/2 from ``start`` to ``end`` - 1."""
        how = {"levels": [Fraction(1, 2)], "tuples": np.arange(max(start, 0), end)[:, None]}
        return brute_force((0, 1, 1, 2), number, 100, within=(start, end), **how)

    size = VALUES << BITS
    middle = np.bincount(drawn[:, 1], minlength=size)
    assert_counts_follow(middle, law(-1, size, 5))
    most = np.argmax(middle)
    lower, upper = (np.bincount(drawn[drawn[:, 1] == most, k], minlength=size) for k in (0, 2))
    assert_counts_follow(lower[: most + 1], law(-1, most + 1, 2))
    assert_counts_follow(upper[most:], law(most, size, 2))
    assert_counts_rejected(lower[: most + 1], law(-1, most + 1, 5))


def words_like(choices):
    """The words of the first call, and the same bits for all further ones."""
    given = [choices]
    return lambda shape: given.pop() if given else np.full(shape, 2**63 + 12345, np.uint64)


def adversarial(dataset, number, lanes):
    """Words that are extreme, or on either side of the boundaries of the first choice."""
    points = FinePoints(counts_of([dataset]), VALUES)
    chain = Chain(Joint(points, RATE), LEVELS, parts_of(points, [0], number), 40)
    sums = np.cumsum(chain._slots(1, np.zeros(1, int), np.zeros(1, int))[0])
    words = seeded(4)((7, lanes))
    for lane in range(lanes):
        boundary = int(sums[lane % (len(sums) - 1)] / sums[-1] * 2**64)
        beside = (-1) ** (lane // 7) * 2 ** (lane % 61)
        words[2, lane] = min(max(boundary + beside, 0), 2**64 - 1)
        words[lane % 7, lane] = (0, 2**64 - 1, words[lane % 7, lane])[lane % 3]
    return words


def test_floats_decide_as_decimals(monkeypatch):
    back = Chain.back

    def by_decimals(chain, row, uniforms):
        drawn = back(chain, row, uniforms)
        return drawn if chain._digits else (*drawn[:-1], np.zeros(len(row), bool))

    def without_slack(chain, row, uniforms):
        chain.slack = chain.slack if chain._digits else 0.0
        return back(chain, row, uniforms)

    words, found = adversarial((0, 1, 1, 2), 4, 400), {}
    for name, way in (("floats", back), ("decimals", by_decimals), ("control", without_slack)):
        monkeypatch.setattr(Chain, "back", way)
        found[name] = draws_of((0, 1, 1, 2), 4, words_like(words.copy()), 400)
    np.testing.assert_array_equal(found["floats"], found["decimals"])
    assert (found["control"] != found["decimals"]).any()


@pytest.mark.parametrize("equal", [1, 2, 5, 8, 100, 127])
def test_points_of_equal_records_are_van_der_corputs(monkeypatch, equal):
    monkeypatch.setattr(joint, "_POINT_BITS", 7)
    points = FinePoints(Counts.of_rows([0, 0], [2, 5], [equal, 1], groups=1), 6)
    expected = [(2 << 7) + int(f"{i:07b}"[::-1], 2) for i in range(1, equal + 1)]
    expected = [0, *sorted(expected), (5 << 7) + 64, 6 << 7]
    group, rank = np.zeros(equal + 3, int), np.arange(equal + 3)
    assert points.at(group, rank).tolist() == expected
    fine = np.arange(6 << 7)
    ranks = points.rank(np.zeros_like(fine), fine)
    assert (ranks == np.searchsorted(expected[1:-1], fine, side="right")).all()


@pytest.mark.parametrize("away", [2000, 40])
def test_floats_decide_no_draw_that_lost_weights(monkeypatch, away):
    """A public N far from n: all tuples cost much, and floats lose some of their weights."""
    monkeypatch.setattr(joint, "_POINT_BITS", 40)
    n, levels = 120, [Fraction(700 + 9 * k, 1000) for k in range(30)]
    counts = Counts.of_rows(np.zeros(n), np.arange(n) * 8, np.ones(n), groups=1)
    points = FinePoints(counts, 1000)
    law = Joint(points, Fraction(1, 2), words=seeded(0))
    parts = Parts(*np.array([[n + away], [n], [0], [0], [points.size], [0]]))
    words = seeded(0)((61, 20)) >> np.uint64(11)
    floats = Chain(law, levels, parts).back(np.zeros(20, np.int64), words * 2.0**-53)
    with localcontext(Context(prec=40, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        reals = np.vectorize(lambda word: Decimal(int(word)) / 2**53, otypes=[object])(words)
        exact = Chain(law, levels, parts, 40).back(np.zeros(20, np.int64), reals)
    sure = floats[-1]
    assert exact[-1].all()
    assert away > 1000 or sure.all()
    for array, other in zip(floats[:-1], exact[:-1], strict=True):
        np.testing.assert_array_equal(array[sure], other[sure])
