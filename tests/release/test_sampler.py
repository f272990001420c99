"""The draw on the device against the exact one on the host, lane by lane, with random and adversarial words."""

import hashlib
from functools import partial
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.numerics.two_words import Words
from dpjax.release.distribution import VARIANTS, GridDistribution, pieces_of
from dpjax.release.exact import exact_draw, weights_of
from dpjax.release.integer_profiles import IntegerProfile
from dpjax.release.sampler import WORDS, certified_draw, weigh
from dpjax.release.tables import DIGITS, public_tables, rate_of
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

EXTREME = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)


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


def assert_equals_host(epsilon, profile, words, variant, fill=None):
    """All certified lanes; returns the share of them."""
    levels = max(profile.lower.shape[-1], profile.upper.shape[-1])
    drawn = certified_draw(public_tables(epsilon, levels=levels), *profile, words, variant=variant)
    cells, certified = np.asarray(drawn.cell), np.asarray(drawn.certified)
    further = more if fill is None else lambda role, i: fill
    for row in np.flatnonzero(certified):
        exact = exact_draw(epsilon, profile.lower[row], profile.upper[row], words[:, row], variant=variant, more=further)
        assert cells[row] == exact, (row, profile.lower[row], profile.upper[row], words[:, row])
    return certified.mean()


@pytest.mark.optimized
@pytest.mark.parametrize("variant", [pytest.param("cell", marks=pytest.mark.slow), "owned_cell"])
@pytest.mark.parametrize("epsilon", [1.0, 2.0**-30, pytest.param(0.1, marks=pytest.mark.slow), pytest.param(64.0)])
def test_device_equals_host(epsilon, variant):
    rng = np.random.default_rng(0)
    for pieces, size in ((3, 12), (70, 2**30)):
        profile = random_profile(rng, 150, pieces, size)
        words = rng.integers(0, 2**32, (WORDS, 150), dtype=np.uint32)
        assert assert_equals_host(epsilon, profile, words, variant) > 0.98


def at_the_borders(rng, epsilon, profile, variant, words):
    """Words for the piece next to a border between two pieces, and words of digits that are their thresholds."""
    thresholds = public_tables(epsilon, levels=1).thresholds
    for row in range(words.shape[1]):
        pieces = pieces_of(profile.lower[row].tolist(), profile.upper[row].tolist(), variant)
        ends = list(accumulate(weights_of(rate_of(epsilon), pieces, 200)[0]))
        border = (ends[rng.integers(len(ends))] << 64) // ends[-1]
        uniform = min(max(border + int(rng.integers(-(2**12), 2**12)), 0), 2**64 - 1)
        words[:2, row] = uniform >> 32, uniform & 0xFFFFFFFF
        if row % 3 == 0:
            k = rng.integers(DIGITS)
            words[2 + k, row] = int(thresholds[k]) + rng.integers(-1, 2)


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("variant", ["cell", "owned_cell"])
def test_device_equals_host_on_adversarial_words(variant):
    rng = np.random.default_rng(1)
    for pieces, size in ((3, 12), (70, 2**30)):
        profile = random_profile(rng, 300, pieces, size)
        extreme = rng.uniform(size=(WORDS, 300)) < 0.8
        words = np.where(extreme, rng.choice(EXTREME, (WORDS, 300)), rng.integers(0, 2**32, (WORDS, 300))).astype(np.uint32)
        words[:, 0], words[:, 1] = 0, 2**32 - 1
        words[2:, 2:150] = rng.integers(0, 2**32, (WORDS - 2, 148))
        at_the_borders(rng, 1.0, IntegerProfile(profile.lower[2:], profile.upper[2:]), variant, words[:, 2:150])
        for fill in (0, 2**32 - 1):
            assert 0.2 < assert_equals_host(1.0, profile, words, variant, fill) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_draws_follow_the_distribution(variant):
    profile = IntegerProfile(np.array([[7, 5, 5, 2, 0]], np.int32), np.array([[7, 8, 12, 19]], np.int32))
    number, size = 100_000, 19 + (variant == "owned_cell")
    words = np.random.default_rng(2).integers(0, 2**32, (WORDS, number, 1), dtype=np.uint32)
    drawn = certified_draw(public_tables(1.3, levels=4), *profile, words, variant=variant)
    assert np.asarray(drawn.certified).all()
    counts = np.bincount(np.asarray(drawn.cell).ravel(), minlength=size)
    one = IntegerProfile(profile.lower[0], profile.upper[0])
    exact = GridDistribution(one, 1.3, variant).pmf(np.arange(size))
    np.testing.assert_allclose(exact.sum(), 1.0, rtol=1e-12)
    assert_counts_follow(counts, exact)
    assert_counts_rejected(counts, GridDistribution(one, 1.5, variant).pmf(np.arange(size)))


@pytest.mark.slow
def test_the_same_words_give_the_same_cells_everywhere():
    rng = np.random.default_rng(3)
    profile = random_profile(rng, 40, 70, 2**20)
    words = rng.integers(0, 2**32, (WORDS, 40), dtype=np.uint32)
    tables = public_tables(0.5, levels=71)
    draw = partial(certified_draw, variant="owned_cell")
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
    own = np.array([tables.own[0] & mask, 0, tables.own[2]], np.uint32)
    thresholds = tables.thresholds & leading(precision)
    return tables._replace(high=tables.high & mask, low=tables.low * np.uint32(0), own=own, thresholds=thresholds)


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("precision", [8, 6])
@pytest.mark.parametrize("size", [40, 2**29])
@pytest.mark.parametrize("variant", VARIANTS)
def test_with_few_bits_the_certified_lanes_are_still_right(variant, size, precision):
    """The test of the tests: a device that sees 8 bits of each word leaves many lanes in doubt, and is wrong in none.

    In pieces of many cells the last word decides, too.
    """
    rng = np.random.default_rng(4)
    profile = random_profile(rng, 400, 5, size)
    words = rng.integers(0, 2**32, (WORDS, 400), dtype=np.uint32)
    tables = public_tables(1.0, levels=6)
    drawn = certified_draw(cut(tables, precision), *profile, words & leading(precision), variant=variant, precision=precision)
    cells, certified = np.asarray(drawn.cell), np.asarray(drawn.certified)
    exact = np.array(
        [exact_draw(1.0, a, b, words[:, i], variant=variant, more=more) for i, (a, b) in enumerate(zip(*profile, strict=True))]
    )
    assert 0.05 < certified.mean() < 0.999
    np.testing.assert_array_equal(cells[certified], exact[certified])
    assert (cells != exact).any()  # and without the certification it would be wrong: the distribution needs the host
    np.testing.assert_array_equal(np.asarray(certified_draw(tables, *profile, words, variant=variant).cell), exact)


def changed_tables(name, tables):
    """Small faults of the tables. (``<=`` for ``<`` at a threshold changes nothing: such lanes are in doubt.)"""
    if name == "threshold up":
        return tables._replace(thresholds=tables.thresholds + np.uint32(2**20))
    if name == "level base":
        return tables._replace(**{field: np.roll(getattr(tables, field), 1) for field in ("high", "low", "scale")})
    if name == "scale":
        return tables._replace(scale=tables.scale + (np.arange(6) == 2).astype(np.int32))
    if name == "mantissa":
        return tables._replace(high=tables.high - (np.arange(6) == 1) * np.uint32(2**22))
    if name == "own":
        return tables._replace(own=tables.own - np.array([2**22, 0, 0], np.uint32))
    raise KeyError(name)


@pytest.mark.parametrize("name", ["threshold up", "level base", "scale", "mantissa", "own"])
def test_faults_of_the_tables_are_seen_lane_by_lane(name, monkeypatch):
    rng = np.random.default_rng(5)
    profile = random_profile(rng, 4000, 5, 40)
    words = rng.integers(0, 2**32, (WORDS, 4000), dtype=np.uint32)
    tables = public_tables(1.0, levels=6)
    right, wrong = (certified_draw(t, *profile, words, variant="owned_cell") for t in (tables, changed_tables(name, tables)))
    both = np.asarray(right.certified & wrong.certified)
    assert both.mean() > 0.5
    assert (np.asarray(right.cell) != np.asarray(wrong.cell))[both].any()


def words_of(pair):
    return np.asarray(pair.high).astype(object) * 2**32 + np.asarray(pair.low).astype(object)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [3, 1000, 65_535])
@pytest.mark.parametrize("epsilon", [2.0**-30, 1.0, 64.0])
def test_weights_are_at_most_two_units_too_small(epsilon, pieces):
    """In Python integers, at the edges: widths of 1 and 2^31 - 1, none, and all at the end; and no sum passes 62 bits."""
    rng = np.random.default_rng(6)
    tables = public_tables(epsilon, levels=pieces)
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
    mantissa = Words(jnp.asarray(tables.high), jnp.asarray(tables.low))
    sums = weigh(jnp.asarray(rows.astype(np.uint32)), mantissa, jnp.asarray(tables.scale))
    found = words_of(sums.weight).reshape(5, -1)[:, :pieces]
    exact = tables.high.astype(object) * 2**32 + tables.low.astype(object)
    scale = tables.scale.astype(object)
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
    assert assert_equals_host(epsilon, profile, words, "cell") > 0.6
    assert exact_draw(epsilon, profile.lower[1], profile.upper[1], words[:, 1], variant="cell", more=more) >= 0
