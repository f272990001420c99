"""The draw on the device against the exact one on the host, lane by lane, with random and adversarial words."""

import hashlib
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpjax.release.exact import exact_draw, weights_of
from dpjax.release.integer_profiles import IntegerProfile, order_statistic
from dpjax.release.sampler import WORDS, certified_draw, weigh
from dpjax.release.tables import DIGITS, level_weights, public_tables, rate_of

from dpjax.numerics.two_words import Words
from dpjax.release.distribution import GridDistribution, Pieces, depths_of, pieces_of
from dpjax.several_quantiles.ranks import ranks_of_quantile
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

EXTREME = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)


BLOCK = 150  # rows


def random_profile(rng, rows, pieces, size):
    """Integer values outwards from random centres, with ties, up to both ends of 0..size."""
    value = rng.integers(0, size + 1, (rows, 1))
    sides = []
    for end in (0, size):
        reach = np.sort(rng.integers(0, 2 ** rng.integers(1, size.bit_length() + 1), (rows, pieces)), axis=-1)
        reach = np.where(rng.uniform(size=(rows, pieces)) < 0.3, np.roll(reach, 1, axis=-1), reach)
        reach = np.minimum(np.maximum.accumulate(reach, axis=-1), np.abs(end - value))
        reach[:, -1] = np.abs(end - value)[:, 0]
        sides.append(np.concatenate([value, value + np.sign(end - value) * reach], axis=-1).astype(np.int32))
    return IntegerProfile(*sides)


def more(role, i, seed=0):
    return int.from_bytes(hashlib.blake2b(f"{seed} {role} {i}".encode(), digest_size=4).digest(), "little")


def tied_profile(rng, rows, pieces, size, deepest):
    """The same with deep values, inside the range and at its ends: up to ``deepest`` changes do not move them, or none does."""
    profile = random_profile(rng, rows, pieces + deepest, size)
    level, depth = np.arange(pieces + deepest + 1), rng.integers(1, deepest + 1, (rows, 1))
    depth[0], depth[1] = deepest, pieces + deepest
    sides = [np.where(level < depth, side[:, :1], side) for side in profile]
    at_end = np.arange(rows) % 5 == 2  # of the range: one side has nowhere to go
    sides[1][at_end, :] = size
    sides[0][at_end] = size - np.sort(rng.integers(0, size + 1, (rows, level.size)), axis=-1)[at_end]
    sides[0][at_end] = np.where(level < depth, size, sides[0])[at_end]
    sides[0][:, -1], sides[1][:, -1] = 0, size
    return IntegerProfile(*(side.astype(np.int32) for side in sides))


def drawn_in_blocks(tables, profile, words, **options):
    """Cells, and which are certified, in blocks of ``BLOCK`` rows: one program for any number of rows."""
    rows, found = words.shape[-1], []
    for start in range(0, rows, BLOCK):
        row = np.minimum(np.arange(start, start + BLOCK), rows - 1)
        found.append(certified_draw(tables, *(side[row] for side in profile), words[:, row], **options))
    return tuple(np.concatenate([np.asarray(part) for part in parts])[:rows] for parts in zip(*found, strict=True))


def longer(profile, levels):
    """With so many levels: the last values repeat, as the library pads profiles."""
    return IntegerProfile(*(np.pad(side, [(0, 0), (0, levels - side.shape[-1])], mode="edge") for side in profile))


def assert_equals_host(epsilon, profile, words, fill=None):
    """All certified lanes; returns the share of them."""
    levels = max(profile.lower.shape[-1], profile.upper.shape[-1])
    tables = public_tables(epsilon, levels=levels)
    if levels > 1000:  # of few rows
        cells, certified = (np.asarray(part) for part in certified_draw(tables, *profile, words))
    else:
        cells, certified = drawn_in_blocks(tables, profile, words)
    further = more if fill is None else lambda role, i: fill
    for row in np.flatnonzero(certified):
        exact = exact_draw(epsilon, profile.lower[row], profile.upper[row], words[:, row], more=further)
        assert cells[row] == exact, (row, profile.lower[row], profile.upper[row], words[:, row])
    return certified.mean()


@pytest.mark.optimized
@pytest.mark.parametrize("epsilon", [1.0, 2.0**-30, pytest.param(0.1, marks=pytest.mark.slow), pytest.param(64.0)])
def test_device_equals_host(epsilon):
    rng = np.random.default_rng(0)
    for pieces, size in ((3, 12), (70, 2**30)):
        profile = random_profile(rng, 150, pieces, size)
        words = rng.integers(0, 2**32, (WORDS, 150), dtype=np.uint32)
        assert assert_equals_host(epsilon, profile, words) > 0.98


def at_the_borders(rng, epsilon, profile, words):
    """Words for the piece next to a border between two pieces, and words of digits that are their thresholds."""
    thresholds = public_tables(epsilon, levels=1).thresholds
    for row in range(words.shape[1]):
        pieces = Pieces(*(field.tolist() for field in pieces_of(profile.lower[row], profile.upper[row])))
        ends = list(accumulate(weights_of(rate_of(epsilon), pieces, 200)[0]))
        border = (ends[rng.integers(len(ends))] << 64) // ends[-1]
        uniform = min(max(border + int(rng.integers(-(2**12), 2**12)), 0), 2**64 - 1)
        words[:2, row] = uniform >> 32, uniform & 0xFFFFFFFF
        if row % 3 == 0:
            k = rng.integers(DIGITS)
            words[2 + k, row] = int(thresholds[k]) + rng.integers(-1, 2)


@pytest.mark.slow
@pytest.mark.optimized
def test_device_equals_host_on_adversarial_words():
    rng = np.random.default_rng(1)
    for pieces, size in ((3, 12), (70, 2**30)):
        profile = random_profile(rng, 300, pieces, size)
        extreme = rng.uniform(size=(WORDS, 300)) < 0.8
        words = np.where(extreme, rng.choice(EXTREME, (WORDS, 300)), rng.integers(0, 2**32, (WORDS, 300))).astype(np.uint32)
        words[:, 0], words[:, 1] = 0, 2**32 - 1
        words[2:, 2:150] = rng.integers(0, 2**32, (WORDS - 2, 148))
        at_the_borders(rng, 1.0, IntegerProfile(profile.lower[2:], profile.upper[2:]), words[:, 2:150])
        for fill in (0, 2**32 - 1):
            assert 0.2 < assert_equals_host(1.0, profile, words, fill) < 0.95


@pytest.mark.optimized
@pytest.mark.parametrize("epsilon", [1.0, 2.0**-30, pytest.param(0.1, marks=pytest.mark.slow), pytest.param(64.0)])
def test_device_equals_host_on_deep_ties(epsilon):
    """Values that hardly move, at the ends of the range too, and rows that are one value nearly to their end."""
    rng = np.random.default_rng(8)
    for pieces, size, deepest in ((1, 12, 2), (10, 2**30, 60)):  # of the shapes above
        profile = tied_profile(rng, 150, pieces, size, deepest)
        depths = depths_of(*profile).tolist()
        assert max(depths) == pieces + deepest
        assert len(set(depths)) > deepest / 2
        words = rng.integers(0, 2**32, (WORDS, 150), dtype=np.uint32)
        assert assert_equals_host(epsilon, profile, words) > 0.98


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("epsilon", [1.0, 0.01, 64.0])
def test_device_equals_host_on_adversarial_words_and_deep_ties(epsilon):
    """Twelve thousand lanes in all."""
    rng = np.random.default_rng(9)
    for rows, pieces, size, deepest in ((1700, 3, 12, 8), (300, 70, 2**30, 130)):
        profile, shape = tied_profile(rng, rows, pieces, size, deepest), (WORDS, rows)
        words = np.where(rng.uniform(size=shape) < 0.8, rng.choice(EXTREME, shape), rng.integers(0, 2**32, shape)).astype(np.uint32)
        words[:, 0], words[:, 1] = 0, 2**32 - 1
        words[2:, 2:150] = rng.integers(0, 2**32, (WORDS - 2, 148))
        at_the_borders(rng, epsilon, IntegerProfile(profile.lower[2:], profile.upper[2:]), words[:, 2:150])
        for fill in (0, 2**32 - 1):
            assert 0.2 < assert_equals_host(epsilon, profile, words, fill) < 0.98


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_device_equals_host_where_all_records_are_equal(neighbors):
    """A column of one value, within the range and at its ends: the depth is the largest that so many records can have."""
    rng = np.random.default_rng(10)
    n, size = 201, 100
    cells = np.repeat(np.array([0, 1, 50, size - 1, size], np.int32)[:, None], n, axis=-1).repeat(40, axis=0)
    for definition in ("lower", "linear"):
        ranks = ranks_of_quantile(0.5, definition=definition, neighbors=neighbors)
        profile = order_statistic(cells, np.ones(cells.shape, bool), ranks, high=size, count_is_public=neighbors == "swap")
        depths = set(depths_of(*profile).tolist())
        assert min(depths) >= (n - 1) // 2
        assert max(depths) <= max(side.shape[-1] for side in profile)
        words = rng.integers(0, 2**32, (WORDS, cells.shape[0]), dtype=np.uint32)
        words[:2, ::4] = rng.choice(EXTREME, (2, words[:, ::4].shape[1]))
        words[:2, 1::4] = rng.choice(EXTREME[-2:], (2, words[:, 1::4].shape[1]))
        assert assert_equals_host(0.05, profile, words) > 0.7


def test_a_depth_beyond_all_levels():
    """Nothing moves the value: no statistic has such a profile, and the tables have a weight for it all the same."""
    profile = IntegerProfile(np.full((300, 4), 7, np.int32), np.full((300, 4), 7, np.int32))
    assert depths_of(profile.lower[0], profile.upper[0]) == 4
    rng = np.random.default_rng(11)
    words = rng.choice(EXTREME, (WORDS, 300)).astype(np.uint32)
    words[2:] = rng.integers(0, 2**32, (WORDS - 2, 300))
    cells, certified = drawn_in_blocks(public_tables(1.0, levels=3), profile, words)
    assert certified.all()
    assert (cells == 7).all()
    assert {exact_draw(1.0, [7] * 4, [7] * 4, words[:, i], more=more) for i in range(50)} == {7}


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 3])
def test_draws_follow_the_distribution(depth):
    ties = [7] * (depth - 1)
    profile = IntegerProfile(np.array([[*ties, 7, 5, 5, 2, 0]], np.int32), np.array([[*ties, 7, 8, 12, 19]], np.int32))
    assert depths_of(profile.lower[0], profile.upper[0]) == depth
    number, size = 1_000_000, 20
    words = np.random.default_rng(2).integers(0, 2**32, (WORDS, number, 1), dtype=np.uint32)
    drawn = certified_draw(public_tables(1.3, levels=6), *longer(profile, 7), words)
    assert np.asarray(drawn.certified).all()
    counts = np.bincount(np.asarray(drawn.cell).ravel(), minlength=size)
    one = IntegerProfile(profile.lower[0], profile.upper[0])
    exact = GridDistribution(one, 1.3).pmf(np.arange(size))
    np.testing.assert_allclose(exact.sum(), 1.0, rtol=1e-12)
    assert_counts_follow(counts, exact)
    assert_counts_rejected(counts, GridDistribution(one, 1.5).pmf(np.arange(size)))
    odds = exact * np.exp(np.where(np.arange(size) == 7, 0.65 * (1 if depth > 1 else -1), 0))  # 3 - 2 depth; or a cost of 2
    assert_counts_rejected(counts, odds / odds.sum())


@pytest.mark.slow
def test_the_same_words_give_the_same_cells_everywhere():
    rng = np.random.default_rng(3)
    profile = random_profile(rng, 40, 70, 2**20)
    words = rng.integers(0, 2**32, (WORDS, 40), dtype=np.uint32)
    tables = public_tables(0.5, levels=71)
    draw = certified_draw
    plain = draw(tables, *profile, words)
    mapped = jax.vmap(draw, in_axes=(None, 0, 0, 1))(tables, *profile, words)
    inside = jax.jit(lambda words: draw(tables, *map(jnp.asarray, profile), words))(words)
    for other in (mapped, inside):
        np.testing.assert_array_equal(other.cell, plain.cell)
        np.testing.assert_array_equal(other.certified, plain.certified)
    # Many draws of a row go by a table, one by a block.
    many = rng.integers(0, 2**32, (WORDS, 20, 40), dtype=np.uint32)
    together = draw(tables, *profile, many)
    for i in (0, 19):
        alone = draw(tables, *profile, many[:, i])
        np.testing.assert_array_equal(together.cell[i], alone.cell)
        np.testing.assert_array_equal(together.certified[i], alone.certified)
    before = jax.config.jax_enable_x64
    try:
        jax.config.update("jax_enable_x64", not before)
        again = draw(tables, *profile, words)
    finally:
        jax.config.update("jax_enable_x64", before)
    np.testing.assert_array_equal(again.cell, plain.cell)
    np.testing.assert_array_equal(again.certified, plain.certified)
    assert again.cell.dtype == np.int32


def leading(precision):
    return np.uint32(2**32 - 2 ** (32 - precision))


def cut(tables, precision):
    """Tables of so many bits; a mantissa has 62 of them."""
    mask = leading(precision) >> np.uint32(2)
    levels, own = (side._replace(high=side.high & mask, low=side.low * np.uint32(0)) for side in (tables.levels, tables.own))
    return tables._replace(levels=levels, own=own, thresholds=tables.thresholds & leading(precision))


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("precision", [8, 6])
@pytest.mark.parametrize("size", [40, 2**29])
@pytest.mark.parametrize("deepest", [0, 9])
def test_with_few_bits_the_certified_lanes_are_still_right(deepest, size, precision):
    """The test of the tests: a device that sees 8 bits of each word leaves many lanes in doubt, and is wrong in none.

    In pieces of many cells the last word decides, too.
    """
    rng = np.random.default_rng(4)
    profile = tied_profile(rng, 400, 5, size, deepest) if deepest else random_profile(rng, 400, 5, size)
    words = rng.integers(0, 2**32, (WORDS, 400), dtype=np.uint32)
    tables, padded = public_tables(1.0, levels=14), longer(profile, 15)
    cells, certified = drawn_in_blocks(cut(tables, precision), padded, words & leading(precision), precision=precision)
    exact = np.array([exact_draw(1.0, a, b, words[:, i], more=more) for i, (a, b) in enumerate(zip(*profile, strict=True))])
    assert 0.05 < certified.mean() < 0.999
    np.testing.assert_array_equal(cells[certified], exact[certified])
    assert (cells != exact).any()  # and without the certification it would be wrong: the distribution needs the host
    np.testing.assert_array_equal(drawn_in_blocks(tables, padded, words)[0], exact)


def changed_tables(name, tables):
    """Small faults of the tables. (``<=`` for ``<`` at a threshold changes nothing: such lanes are in doubt.)"""
    if name == "threshold up":
        return tables._replace(thresholds=tables.thresholds + np.uint32(2**20))
    part, fault = name.split(" ")
    weights, rows = getattr(tables, part), np.arange(getattr(tables, part).scale.size)
    if fault == "base":
        weights = type(weights)(*(np.roll(field, 1) for field in weights))
    elif fault == "scale":
        weights = weights._replace(scale=weights.scale + (rows == 2).astype(np.int32))
    elif fault == "mantissa":
        weights = weights._replace(high=weights.high - (rows == 1) * np.uint32(2**22))
    elif fault == "first":
        weights = weights._replace(high=weights.high - (rows == 0) * np.uint32(2**22))
    elif fault == "flat":  # the weight of a value without ties, however deep it is
        weights = type(weights)(*(np.repeat(field[:1], rows.size) for field in weights))
    elif fault == "twice":  # 3 - 2 depth
        weights = type(weights)(*(field[np.minimum(2 * rows, rows[-1])] for field in weights))
    else:
        raise KeyError(name)
    return tables._replace(**{part: weights})


FAULTS = ["threshold up", "levels base", "levels scale", "levels mantissa", "own first"]
DEEP_FAULTS = ["own base", "own scale", "own mantissa", "own flat", "own twice"]


@pytest.mark.parametrize("name", FAULTS + DEEP_FAULTS)
def test_faults_of_the_tables_are_seen_lane_by_lane(name):
    rng = np.random.default_rng(5)
    deepest = 4 if name in DEEP_FAULTS else 0
    profile = tied_profile(rng, 4000, 5, 40, deepest) if deepest else random_profile(rng, 4000, 5, 40)
    words = rng.integers(0, 2**32, (WORDS, 4000), dtype=np.uint32)
    tables, padded = public_tables(1.0, levels=9), longer(profile, 10)
    right, wrong = (
        [np.asarray(part) for part in certified_draw(t, *padded, words)] for t in (tables, changed_tables(name, tables))
    )
    both = right[1] & wrong[1]
    assert both.mean() > 0.5
    assert (right[0] != wrong[0])[both].any()


def words_of(pair):
    return np.asarray(pair.high).astype(object) * 2**32 + np.asarray(pair.low).astype(object)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [3, 1000, 65_535])
@pytest.mark.parametrize("epsilon", [2.0**-30, 1.0, 64.0])
def test_weights_are_at_most_two_units_too_small(epsilon, pieces):
    """In Python integers, at the edges: widths of 1 and 2^31 - 1, none, and all at the end; and no sum passes 62 bits."""
    rng = np.random.default_rng(6)
    levels = level_weights(epsilon, pieces)
    rows = np.stack(
        [
            np.full(pieces, 2**31 - 1),
            np.ones(pieces, np.int64),
            rng.choice([0, 1, 2**31 - 1], pieces),
            np.where(np.arange(pieces) == pieces - 1, 1, 0),
            np.where(np.arange(pieces) == 0, 1, 2**31 - 1),
        ]
    )
    rows[2, 0] = 1
    mantissa = Words(jnp.asarray(levels.high), jnp.asarray(levels.low))
    sums = weigh(jnp.asarray(rows.astype(np.uint32)), mantissa, jnp.asarray(levels.scale))
    found = words_of(sums.weight).reshape(5, -1)[:, :pieces]
    exact = levels.high.astype(object) * 2**32 + levels.low.astype(object)
    scale = levels.scale.astype(object)
    bits = min(52, 62 - (pieces - 1).bit_length())
    for row, widths in enumerate(rows.astype(object)):
        unit = max(int(w).bit_length() + 62 - s for w, s in zip(widths, scale, strict=True) if w) - bits
        for i in sorted({0, 1, pieces // 2, pieces - 1, *rng.integers(0, pieces, 20).tolist()}):
            if widths[i] == 0:
                assert found[row, i] == 0
                continue
            shift = int(scale[i] + unit)
            least, most = int(widths[i] * exact[i]), int(widths[i] * (exact[i] + 1))  # true weight, times 2^shift
            assert found[row, i] << shift <= least
            assert most <= (found[row, i] + 2) << shift
        assert words_of(sums.total)[row] == found[row].sum() < 2**62
        assert int(sums.first[row]) == np.flatnonzero(rows[row])[0]
        assert int(sums.last[row]) == np.flatnonzero(rows[row])[-1]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 64.0])
def test_the_exact_draw_of_many_levels_is_short(epsilon):
    """Far levels lie between 0 and a few units of one scale: 5000 of them are as quick as the near ones."""
    rng = np.random.default_rng(7)
    profile = random_profile(rng, 3, 5000, 2**30)
    words = rng.integers(0, 2**32, (WORDS, 3), dtype=np.uint32)
    words[:2, 1] = 2**32 - 1  # at the very end: it reads on
    assert assert_equals_host(epsilon, profile, words) > 0.6
    assert exact_draw(epsilon, profile.lower[1], profile.upper[1], words[:, 1], more=more) >= 0
