"""Every pipeline from records to draws, error bars and gradients: the device against the CPU.

A program makes the distributions of a pipeline; programs that ask something of a distribution are
shared by all of a kind. Both devices are asked of the same distribution, the one that the CPU made:
so it is only asking that differs.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from tests.contracts.pipelines import DRAWN, FURTHER, PIPELINES
from tests.support.distributions import of_one_size, strong

X = np.asarray(np.random.default_rng(0).normal(size=(6, 9)), np.float32)
X[:, :2] = 0.0  # a tie
HOLE = 3
# A row without any record
HOLED = np.where(np.arange(len(X))[:, None] == HOLE, np.nan, X).astype(np.float32)
MANY = 100
# Edges, costs and scores are sums of at most 21 numbers below 64 in absolute value: each add rounds
# by half a unit, which makes 2^-14 at most, and a quotient of two of them 2^-13 of 1 + |it|.
MADE = 2.0**-13
# A closed form adds up at most 48 pieces, each off by at most 32 units of 2^-24 of what it weighs;
# weights add up to 1, and values are below 64: 2^-12 of 1 + |it|. A derivative has a division by a
# weight more.
ASKED, SLOPES = 2.0**-12, 2.0**-10
# A draw is a few functions of a uniform variate, each of them off by at most 2^-17 of itself, and
# adds a value: 2^-12 of 1 + |it|.
DRAWS = 2.0**-12
# At most so many draws of 600 are another candidate or piece (test_pieces.py derives it).
EXCHANGED = 3
EXTREME = (1e-6, 1e9)
IN_FLOAT64 = ("plm of the median", "exponential", "gaussian", "clamped smooth cauchy")


def made(pipeline, dtype=np.float32):
    """The program from records to a distribution, of one size for the programs below."""

    @jax.jit
    def distribution(x, eps, a, b):
        return jax.tree.map(strong, of_one_size(pipeline(x, eps, a, b), pieces=352))

    def on(device, x, eps=1.0):
        return device(
            distribution, x.astype(dtype), *(np.asarray(value, dtype) for value in (eps, -3.0, 3.0))
        )

    return on


def asked(distribution):
    """Closed forms at a few points, as far as a distribution has them."""
    points = np.asarray([-1.0, 0.25, 2.0], distribution.dtype)
    if isinstance(distribution, dpjax.JointQuantiles):  # the law for a number that is known
        distribution = dataclasses.replace(distribution, number=distribution.num_records)
    if hasattr(distribution, "mean_norm_error"):
        return {"error": distribution.mean_norm_error()}
    if hasattr(distribution, "log_prob") and getattr(distribution, "event_shape", ()):
        return {
            "log_prob": distribution.log_prob(
                np.linspace(-0.5, 0.5, *distribution.event_shape, dtype=distribution.dtype)
            )
        }
    at = points.reshape(-1, *[1] * len(distribution.batch_shape))
    names = [name for name in ("mean_abs_error", "cdf") if hasattr(distribution, name)]
    return {name: getattr(distribution, name)(at) for name in names}


@jax.jit
def summaries(distribution):
    return asked(distribution)


@jax.jit
def slopes(distribution):
    """The derivatives of a sum of all of them by what a distribution is made of."""
    leaves, structure = jax.tree.flatten(distribution)
    real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

    def total(floats):
        floats = iter(floats)
        whole = [
            next(floats) if is_real else leaf for leaf, is_real in zip(leaves, real, strict=True)
        ]
        values = asked(jax.tree.unflatten(structure, whole)).values()
        return sum(
            (jnp.sum(jnp.nan_to_num(value)) for value in values), jnp.zeros((), distribution.dtype)
        )

    return jax.grad(total)([leaf for leaf, is_real in zip(leaves, real, strict=True) if is_real])


@jax.jit
def draws(key, distribution):
    return distribution.sample(key), distribution.sample(key, MANY)


def far(one, other, tolerance):
    """Where two arrays differ by more than a tolerance of 1 + |them|, or one is no number where the
    other is one.
    """
    one, other = np.asarray(one), np.asarray(other)
    if not np.issubdtype(other.dtype, np.floating):
        return one != other
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= tolerance * (1 + np.abs(other))
    return ~(near | (one == other) | (np.isnan(one) & np.isnan(other)))


def all_near(found, expected, tolerance):
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    for one, other in pairs:
        assert one.dtype == other.dtype
        assert not far(one, other, tolerance).any(), (one, other)
    return pairs


def compare(pipeline, under_test, on_cpu, dtype, slack):
    """All that a pipeline gives on both; and that it would be seen if an epsilon were off by 1
    percent, or the key another.
    """
    distribution, key = made(pipeline, dtype), jax.random.key(0)
    expected, moved = (distribution(on_cpu, HOLED, eps) for eps in (1.0, 1.01))
    all_near(distribution(under_test, HOLED), expected, MADE * slack)
    all_near(under_test(slopes, expected), on_cpu(slopes, expected), SLOPES * slack)
    pairs = all_near(under_test(summaries, expected), on_cpu(summaries, expected), ASKED * slack)
    others = jax.tree.leaves(on_cpu(summaries, moved))
    if (
        any(
            far(*both, MADE * slack).any()
            for both in zip(*map(jax.tree.leaves, (moved, expected)), strict=True)
        )
        and pairs
    ):
        assert any(
            far(other, same, ASKED * slack).any()
            for other, (_, same) in zip(others, pairs, strict=True)
        )
    one, many = near_draws(key, expected, under_test, on_cpu, slack)
    another = on_cpu(draws, jax.random.key(1), expected)
    assert far(many, another[1], DRAWS * slack).sum() > 10 * EXCHANGED
    # What is missing in a row is its own affair: without it, no draw of the others changes in a
    # bit.
    whole = under_test(draws, key, distribution(on_cpu, X))
    rows = np.arange(len(X)) != HOLE
    np.testing.assert_array_equal(one[rows], whole[0][rows])
    np.testing.assert_array_equal(many[:, rows], whole[1][:, rows])
    for eps in EXTREME:
        expected = distribution(on_cpu, HOLED, eps)
        all_near(distribution(under_test, HOLED, eps), expected, MADE * slack)
        all_near(under_test(summaries, expected), on_cpu(summaries, expected), ASKED * slack)
        near_draws(key, expected, under_test, on_cpu, slack)


def near_draws(key, distribution, under_test, on_cpu, slack):
    """Draws on the device, which are those on the CPU but for a few."""
    found, expected = (on(draws, key, distribution) for on in (under_test, on_cpu))
    for one, same in zip(found, expected, strict=True):
        assert one.dtype == same.dtype
        assert far(one, same, DRAWS * slack).sum() <= EXCHANGED
    return found


@pytest.mark.parametrize("name", [*PIPELINES, *FURTHER])
def test_a_pipeline_gives_what_it_gives_on_the_cpu(name, under_test, on_cpu):
    pipeline = (PIPELINES | FURTHER)[name]
    compare(pipeline, under_test, on_cpu, np.float32, 1)


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_and_in_float64(name, under_test, on_cpu, x64):
    compare(PIPELINES[name], under_test, on_cpu, np.float64, 2.0**-29)


@pytest.mark.parametrize("name", DRAWN)
def test_what_takes_a_key_draws_what_it_draws_on_the_cpu(name, under_test, on_cpu):
    given = X, np.float32(1), np.float32(-3), np.float32(3)
    run = jax.jit(DRAWN[name])
    found, expected, other = (
        jax.tree.leaves(on(run, jax.random.key(seed), *given))
        for on, seed in ((under_test, 0), (on_cpu, 0), (on_cpu, 1))
    )
    for one, same in zip(found, expected, strict=True):
        assert far(one, same, DRAWS).sum() <= EXCHANGED / 3
    assert any(
        far(one, another, DRAWS).sum() > 2 for one, another in zip(found, other, strict=True)
    )
