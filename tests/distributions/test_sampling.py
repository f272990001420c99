"""Draws against exact cdfs, few from a row by races and many by a table, with controls 10 % off;
words that reach far; rows without a distribution; gradients; rows that are appended or sharded.
"""

import os
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import PiecewiseExponential, Tails, sample_intervals
from dpjax.distributions import sampler
from dpjax.distributions.line import Lanes, Weights
from dpjax.distributions.sampler import FEW, Table, by_races, sample_pieces
from dpjax.numerics.arrays import take
from tests.distributions.hostile import HOSTILE, Pieces
from tests.support.statistics import (
    assert_counts_follow,
    assert_counts_rejected,
    assert_follows,
    assert_rejected,
)

ROWS = 2048
KEY = jax.random.key(0)
ONES, HALF = 2**32 - 1, 2**31


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HOSTILE)
def test_draws_follow_the_exact_cdf(name, dtype, x64):
    law = HOSTILE[name]
    exact = law.rounded(dtype)
    for rows, draws in ((ROWS, FEW), (1, ROWS * FEW)):
        points = np.asarray(law.distribution(dtype, rows).sample(KEY, draws))
        assert points.dtype == dtype
        assert_follows(points, exact.cdf)
        assert_rejected(points, lambda y: exact.cdf(y, 1.1))


def test_rates_and_costs_that_differ_by_row():
    edges = np.float32([[-1, 0, 0, 2, 30], [5, 6, 7, 8, 8], [0, 0.01, 1, 9, 9]])
    left, right = np.float32([[2, 0, 9, 1], [4, 4, 1, 0], [0, 0, 3, 7]]), np.float32([1, 2, 0.5, 5])
    rates = np.float32([0.3, 4.0])[:, None, None]
    for rows, draws in ((1024, FEW), (1, 1024 * FEW)):
        rate = np.broadcast_to(rates, (2, 1, rows))
        batch = PiecewiseExponential(edges[:, None], left[:, None], right, rate)
        points = np.moveaxis(np.asarray(batch.sample(KEY, draws)), 0, -1)
        for sweep, row in np.ndindex(2, 3):
            law = Pieces(edges[row], left[row], right, rates[sweep, 0, 0])
            assert_follows(points[sweep, row], law.cdf)
            assert_rejected(points[sweep, row], lambda y, law=law: law.cdf(y, 1.1))


@pytest.mark.parametrize("within", ["exponential", "uniform"])
def test_intervals_have_their_exact_probabilities(within):
    """Those without a length, of a negative one, or infinitely far are never chosen."""
    widths = np.float32([0.0, 0.5, 0.02, 3.0, -2.0, 0.3, 1.0, 1.0])
    levels = np.float32([0.0, 1.0, 2.0, 3.0, 4.0, 4.5, np.inf, 1e30])
    weights = np.maximum(widths, 0) * np.exp(-0.5 * levels)
    control = np.maximum(widths, 0) ** 1.1 * np.exp(-0.55 * levels)
    sloped, flat = (lambda r: np.expm1(-0.5 * r) / np.expm1(-0.5)), (lambda r: r)
    nearly, wrong = (lambda r: np.expm1(-0.8 * r) / np.expm1(-0.8)), (lambda r: r**1.1)
    rows = np.stack([widths, 0 * widths, widths])
    rows[2, 3] = np.nan
    for count, draws in ((ROWS, FEW), (1, ROWS * FEW)):
        options = {"epsilon": np.ones(count, np.float32), "within": within, "shape": draws}
        index, offset = (
            np.asarray(a).ravel() for a in sample_intervals(KEY, widths, levels, **options)
        )
        counts = np.bincount(index, minlength=8)
        assert counts[[0, 4, 6, 7]].sum() == 0
        assert_counts_follow(counts, weights / weights.sum())
        assert_counts_rejected(counts, control / control.sum())
        inside = offset[index == 3] / 3
        assert_follows(inside, sloped if within == "exponential" else flat)
        assert_rejected(inside, nearly if within == "exponential" else wrong)
    for draws in (5, FEW + 1):  # rows without a length, or with a NaN, have an index and no point
        index, offset = map(
            np.asarray, sample_intervals(KEY, rows, levels, epsilon=1.0, shape=draws)
        )
        assert ((index >= 0) & (index <= 7)).all()
        assert np.isnan(offset).all(axis=0).tolist() == [False, True, True]
        assert np.isfinite(offset[:, 0]).all()


# --- words ---


@pytest.mark.parametrize("mass", [2.0**-40, 1e-12])
def test_a_race_is_won_by_a_small_mass_as_often_as_it_should(mass):
    """The others' noise is log 2: the least of them over its weight is what has to be beaten."""
    size, light = 33, 6
    split = Lanes.of(size)
    race = jax.jit(lambda weights, drawn: by_races(drawn, Weights.of(weights)))
    lane, slot = light % split.lanes, light // split.lanes
    mates = np.arange(lane, size, split.lanes)
    alone = np.ones(size, np.float32)
    alone[mates] = 0
    heavy = max(alone[i :: split.lanes].sum() for i in range(split.lanes))
    for weights, beaten in ((alone, np.log(2) / heavy), (np.ones(size, np.float32), np.log(2))):
        weights[light] = mass
        drawn = np.full((2, split.noise), HALF, np.uint32)
        drawn[:, 2 + lane] = 0 if weights is alone else 2**20
        drawn[:, 2 + split.lanes + slot] = 0
        shared = 0 if weights is alone else 1
        drawn[:, shared] = np.array([0.99, 1.01]) * mass * beaten * 2.0**64
        found, exists = race(weights, drawn)
        assert (found == light).tolist() == [True, False]
        assert exists.all()


@pytest.mark.parametrize("mass", [2.0**-40, 1e-12])
def test_a_table_has_its_share_of_a_small_mass(mass):
    weights = np.float32([1.0, mass] + [1.0] * 31)
    assert np.cumsum(weights)[1] == 1  # which float32 does not have
    total = 32 + mass
    shares = [1 - 0.02 * mass, 1 + 0.02 * mass, 1 + 0.98 * mass, 1 + 1.02 * mass]
    numbers = [int(share / total * 2.0**64) for share in shares]
    drawn = np.array([divmod(number, 2**32) for number in numbers], np.uint32)
    found = jax.jit(lambda weights, drawn: Table.of(weights).find(drawn)[0])(weights, drawn)
    assert found.tolist() == [0, 1, 1, 2]


def test_the_last_of_a_table_has_weight():
    """Sums in another order may differ where nothing is added; words of all ones reach the end."""
    generator = np.random.default_rng(0)
    weights = generator.exponential(size=(300, 1001)).astype(np.float32) ** 8
    weights[:, 800:] = 0
    weights[generator.random((300, 1001)) < 0.3] = 0

    @jax.jit
    def find(weights, drawn):
        table = Table.of(weights)
        found = table.find(drawn)
        return found[0], *table.share(*found)

    drawn = np.full((300, 1, 2), ONES, np.uint32)
    found, below, above = map(np.asarray, find(weights, drawn))
    assert (np.take_along_axis(weights, found, axis=-1) > 0).all()
    assert ((below >= 0) & (below <= 1) & (above >= 0) & (above <= 1)).all()


def typical(key, shape):
    """Words that are all alike, or random, but for one; 24 rows for which each is tried in turn."""
    *_, draws, size = shape
    places = np.arange(draws)[:, None] % (size + 1) == np.arange(size)
    alike = np.full((3, draws, size), np.reshape([0, HALF, ONES], (3, 1, 1)))
    others = [*alike, np.random.default_rng(0).integers(0, 2**32, (draws, size))]
    rows = [np.where(places, lone, other) for lone in (0, ONES) for other in others]
    return jnp.asarray(np.array(rows * 3, np.uint32))


@pytest.mark.parametrize("draws", [20, FEW + 1])
@pytest.mark.parametrize("tailed", [False, True])
def test_no_word_leads_out_of_the_pieces_that_have_weight(draws, tailed, monkeypatch):
    infinite = np.float32(np.inf)
    edges = np.float32([-2, -2, -1.5, 0, 0, 1e-6, 3, 4, 4])
    left = np.float32([0, 3, 2, 0, 0, 1, infinite, 0])
    right = np.float32([0, 2, 0, 0, 1, 5, infinite, 0])
    tails = Tails(*np.float32([3, 0.5, 5, 0])) if tailed else None
    rates = np.repeat(np.float32([1e-6, 1.0, 1e9]), 8)
    monkeypatch.setattr(sampler, "words", typical)

    @jax.jit
    def sample(rates):
        line = PiecewiseExponential(*jax.device_put((edges, left, right)), rates, tails).line()
        assert Lanes.of(line.size).noise + 2 <= 20
        piece, points = sample_pieces(KEY, line, draws)
        return line.width(piece), take(line.low, piece), line.ends(piece), points

    width, cost, (low, high), points = map(np.asarray, sample(rates))
    assert (width > 0).all()
    assert (cost < infinite).all()
    assert ((points >= low) & (points <= high)).all()


# --- rows ---


@pytest.mark.parametrize("pieces", [11, 23])  # a minimum of six numbers may pass over a NaN
@pytest.mark.parametrize("draws", [FEW, FEW + 1])
def test_rows_with_a_nan_or_without_width_have_no_draws_and_those_beside_them_have(draws, pieces):
    values = np.tile(np.linspace(0.0, 1.0, pieces + 1, dtype=np.float32), (5, 1))
    values[1, 7], values[2, :9], values[3] = np.nan, 0.0, 0.25
    levels = np.arange(pieces, dtype=np.float32)
    for rate in (5e-7, 1.0, 5e8):
        rates = np.float32([rate] * 4 + [np.nan])
        points = np.asarray(PiecewiseExponential(values, levels, levels, rates).sample(KEY, draws))
        lost = [False, True, False, True, True]
        assert (
            np.isnan(points).all(axis=0).tolist() == np.isnan(points).any(axis=0).tolist() == lost
        )
        alone = PiecewiseExponential(values[[0, 0, 2, 0, 0]], levels, levels, rates[[0] * 5])
        alone = np.asarray(alone.sample(KEY, draws))
        np.testing.assert_array_equal(points[:, [0, 2]], alone[:, [0, 2]])


def test_no_decay_is_too_steep():
    costs = np.float32([0, 9e37, 9e37])
    law = PiecewiseExponential(np.float32([0, 1, 2]), costs[:-1], costs[1:], np.float32(1))
    points = np.asarray(law.sample(KEY, FEW))
    assert ((points >= 0) & (points < 1e-30)).all()
    assert law.mean() < 1e-30


@pytest.mark.parametrize("draws", [FEW, 2 * FEW])
def test_gradients_of_draws_agree_with_differences(draws, x64, monkeypatch):
    """Of flat pieces, rising and falling ones, and tails; a shift of the data shifts the draws."""
    edges = np.array([-1, 0, 0, 0.5, 2, 3.0])
    left, right = np.array([2.0, 0, 0, 0, 3]), np.array([1.0, 0, 0, 2, 3])

    def line(parameters):
        shift, scale, rate, tail = parameters
        tails = Tails(np.float64(1), tail, np.float64(2), 2 * tail)
        return PiecewiseExponential(shift + scale * edges, left, right, rate, tails).line()

    def sample(parameters):
        return sample_pieces(KEY, line(parameters), draws)[1]

    at, step = np.array([0.3, 1.5, 0.8, 0.4]), 1e-6
    table = jax.jit(lambda at: Table.of(line(at).weights().of_all()[0]))(at)
    monkeypatch.setattr(Table, "of", lambda weights: table)  # the place in a piece is a constant
    sample = jax.jit(sample)
    slopes = np.asarray(jax.jit(jax.jacfwd(sample))(at))
    ends = [[sample(at + h), sample(at - h)] for h in step * np.eye(4)]
    moved = np.moveaxis(-np.diff(jax.device_get(ends), axis=1)[:, 0], 0, -1) / (2 * step)
    np.testing.assert_allclose(slopes, moved, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(slopes[:, 0], 1, rtol=1e-12)
    assert np.abs(slopes[:, 1:]).max(axis=0).min() > 0.1


def test_many_draws_are_made_in_chunks(monkeypatch):
    """Also of a number that chunks do not divide; a chunk is a matter of speed."""
    law = HOSTILE["epsilon 1"].distribution(np.float32, 3)
    whole = jax.jit(lambda law: sample_pieces(KEY, law.line(), 100))(law)
    monkeypatch.setattr(sampler, "_CHUNK", 3 * 37)
    parts = jax.jit(lambda law: sample_pieces(KEY, law.line(), 100))(law)
    for one, same in zip(parts, whole, strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-5, atol=1e-6)


def of_rows(count):
    """Rows that are all different."""
    edges = np.sort(np.random.default_rng(0).normal(size=(8, 22)).astype(np.float32))[:count]
    cost = np.abs(np.arange(21, dtype=np.float32) - 10)
    return PiecewiseExponential(edges, cost, cost, np.ones(count, np.float32))


def sharded():
    """Draws of rows on four devices, and alone."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    alone = of_rows(8)
    apart = replace(
        alone, edges=jax.device_put(alone.edges, rows), rate=jax.device_put(alone.rate, rows)
    )
    for draws in (3, FEW + 1):
        np.testing.assert_allclose(
            apart.sample(KEY, draws), alone.sample(KEY, draws), rtol=1e-5, atol=1e-6
        )
    words = jax.jit(lambda key: sampler.words(key, (8, 5)), out_shardings=rows)(KEY)
    np.testing.assert_array_equal(words, sampler.words(KEY, (8, 5)))
    assert len(words.sharding.device_set) == len(jax.devices()) == 4


@pytest.mark.slow
def test_rows_on_several_devices_have_the_draws_of_rows_on_one():
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=4"
    here = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-m", __name__], env=here, check=True, cwd=os.getcwd())


if __name__ == "__main__":
    sharded()
