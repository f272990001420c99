"""Draws against the exact cdf, with negative controls; injected words; what is bitwise and what is
not.
"""

import itertools
import os
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    PiecewiseExponential,
    Tails,
    inverse_sensitivity,
    laplace,
    median,
    piecewise_laplace,
    sample_intervals,
)
from dpjax.distributions import sampling
from dpjax.distributions.line import Side
from dpjax.numerics.two_words import Words
from dpjax.random import uniforms
from tests.support.distributions import of_one_size
from tests.support.statistics import (
    assert_counts_follow,
    assert_counts_rejected,
    assert_follows,
    assert_rejected,
)

DRAWS = 200_000
METHODS = ("gumbel", "gumbel rows", "tree rows", "table")
PIECES = 14  # of each side of any distribution of these data: one program for all
DATA = jnp.array([0.1, 0.3, 0.3, 0.35, 0.5, 0.52, 0.6, 0.6, 0.6, 0.8, 0.95])


def draw(distribution, method, seed=0):
    if method.endswith(" rows"):  # one draw from each of many equal rows
        rate = np.broadcast_to(np.asarray(distribution.rate), (DRAWS,))
        rows = PiecewiseExponential.from_sides(
            distribution.lower, distribution.upper, rate, distribution.tails
        )
        return np.asarray(rows.sample(jax.random.key(seed), method=method.removesuffix(" rows")))
    return np.asarray(distribution.sample(jax.random.key(seed), (DRAWS,), method=method))


CASES = [
    (m, mechanism, rho)
    for m in METHODS
    for mechanism in (piecewise_laplace, inverse_sensitivity)
    for rho in (0.0, 0.03)
]


@cache
def two_of_one_size(mechanism, rho):
    profile = median(DATA, lower=0, upper=1, neighbors="add_remove")
    return tuple(
        of_one_size(mechanism(profile, epsilon, rho=rho), PIECES) for epsilon in (1.0, 1.15)
    )


@pytest.mark.parametrize(
    ("method", "mechanism", "rho"),
    [
        case
        if case == ("tree rows", piecewise_laplace, 0.03)
        else pytest.param(*case, marks=pytest.mark.slow)
        for case in CASES
    ],
)
def test_draws_follow_the_exact_cdf(method, mechanism, rho):
    distribution, other = two_of_one_size(mechanism, rho)
    draws = draw(distribution, method)
    assert_follows(draws, distribution.cdf)
    assert_rejected(draws, other.cdf)


def test_within_a_piece_the_two_mechanisms_differ():
    """Same pieces with the same probabilities: the control is another distribution inside them."""
    profile = median(jnp.array([0.5]), lower=0, upper=1, neighbors="swap")
    plm, inv = piecewise_laplace(profile, 2.0), inverse_sensitivity(profile, 2.0)
    assert_rejected(plm.sample(jax.random.key(0), (DRAWS,)), inv.cdf)
    assert_rejected(inv.sample(jax.random.key(0), (DRAWS,)), plm.cdf)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["gumbel", "gumbel rows", "tree rows", "table"],
)
def test_distributions_with_tails(method):
    distribution = laplace(3.0, 2.0, sensitivity=1.0)
    draws = draw(distribution, method)
    assert_follows(
        draws, lambda y: np.where(y < 3, np.exp(2 * (y - 3)) / 2, 1 - np.exp(-2 * (y - 3)) / 2)
    )
    assert_rejected(draws, laplace(3.0, 2.3, sensitivity=1.0).cdf)
    tails = Tails(jnp.float32(2), jnp.float32(0.5), jnp.float32(1.5), jnp.float32(0.0))
    mixed = PiecewiseExponential(
        jnp.arange(3.0),
        jnp.array([2.0, 1.0]),
        jnp.array([1.0, 1.5]),
        jnp.float32(1),
        tails,
        center=1,
    )
    draws = draw(mixed, method)
    assert_follows(draws, mixed.cdf)
    assert float(draws.max()) <= 2
    assert float(draws.min()) < 0


def far_above(costs, rate=30.0):
    """Rows of the pieces 0, 1, 2 whose costs are 0, 1/16 and 1/8 above a common one; the rest of
    the range is free but empty.
    """
    costs = jnp.asarray(np.float32(costs)[:, None] + np.array([0.0, 0.0625, 0.125], np.float32))
    edges = jnp.array([0.0, 1.0, 2.0, 3.0], jnp.float32)
    return PiecewiseExponential(edges, costs, costs, jnp.float32(rate), center=0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tree", "table", "gumbel"])
def test_all_mass_may_lie_behind_millions_of_nats(method):
    """Long ties: 2^24 bits and more below cost 0 the pieces have the chances that the difference of
    their costs says.
    """
    costs = (0.0, 100_000.0, 500_000.0, 1_000_000.0)
    distribution, steeper = far_above(costs), far_above(costs, rate=45.0)
    draws = np.asarray(distribution.sample(jax.random.key(7), (20_000,), method=method))

    def cdf(whole):  # each row's draws by its own
        return np.asarray(whole.cdf(np.sort(draws, axis=0)))

    # Rows have the same distribution, up to rounding
    below, control = cdf(distribution), cdf(steeper)
    for row in range(len(costs)):
        assert_follows(draws[:, row], lambda y, row=row: below[:, row])
        assert_rejected(draws[:, row], lambda y, row=row: control[:, row])


@pytest.mark.optimized
@pytest.mark.slow
def test_neighboring_lengths_of_a_long_tie_have_neighboring_draws():
    @jax.jit
    def run(count):
        same = jnp.full((999_936,), 20.0, jnp.float32)
        profile = median(
            same, lower=0, upper=100, neighbors="add_remove", definition="lower", num_records=count
        )
        distribution = piecewise_laplace(profile, 100.0)
        return distribution.cdf(30.0), distribution.sample(jax.random.key(0), (300,))

    for n in (999_934, 999_935, 999_936):
        below, draws = run(jnp.int32(n))
        assert float(below) == 1
        assert float(draws.max()) < 30


def test_intervals_without_a_length_or_infinitely_far_are_never_chosen():
    widths, levels = jnp.array([-2.0, 1.0, 3.0, 2.0]), jnp.array([0.0, 0.0, jnp.inf, 1.0])
    index, offset = sample_intervals(jax.random.key(0), widths, levels, epsilon=1.0, shape=(300,))
    assert sorted(set(np.asarray(index).tolist())) == [1, 3]
    assert bool(((offset >= 0) & (offset <= 2)).all())


@pytest.mark.slow
def test_pieces_falling_either_way():
    distribution = PiecewiseExponential(
        jnp.arange(4.0),
        jnp.array([0.0, 3.0, 1.0]),
        jnp.array([2.0, 0.5, 1.0]),
        jnp.float32(1.5),
        center=1,
    )
    for method in ("gumbel", "table"):
        assert_follows(draw(distribution, method), distribution.cdf)


@pytest.mark.slow
def test_gumbel_and_table_choose_pieces_with_the_same_exact_probabilities():
    widths = jnp.array([0.0, 0.5, 0.02, 3.0, 0.0, 0.3])
    levels = jnp.array([0.0, 1.0, 2.0, 3.0, 4.0, 4.5])
    weights = np.asarray(widths) * np.exp(-0.5 * np.asarray(levels))
    off_by_one = np.asarray(widths) * np.exp(-0.5 * np.asarray([0, 1, 1, 2, 3, 3.5]))
    for within, shape in itertools.product(("exponential", "uniform"), ((), (DRAWS,))):
        rows = jnp.broadcast_to(widths, (1 if shape else DRAWS, 6))
        index, offset = sample_intervals(
            jax.random.key(5), rows, levels, epsilon=1.0, within=within, shape=shape
        )
        counts = np.bincount(np.asarray(index).ravel(), minlength=6)
        assert counts[[0, 4]].sum() == 0
        assert_counts_follow(counts, weights / weights.sum())
        assert_counts_rejected(counts, off_by_one / off_by_one.sum())
        inside = np.asarray(offset).ravel()[np.asarray(index).ravel() == 3] / 3
        sloped, flat = (lambda r: np.expm1(-0.5 * r) / np.expm1(-0.5)), (lambda r: r)
        assert_follows(inside, sloped if within == "exponential" else flat)
        assert_rejected(inside, flat if within == "exponential" else sloped)


def distribution_of(x, count, epsilon, neighbors="add_remove", **options):
    return piecewise_laplace(
        median(x, lower=-4.0, upper=4.0, neighbors=neighbors, num_records=count), epsilon, **options
    )


INVARIANCE = [  # every two of the three together
    ("add_remove", {}, (40,)),
    ("add_remove", {"rho": 0.01}, ()),
    ("swap", {}, ()),
    ("swap", {"rho": 0.01}, (40,)),
]


def assert_bitwise_invariant(neighbors, options, shape, further):
    """Between jitted calls, for paddings with further rows; an uneven batch and lengths on both
    sides of 32 and 64 meet XLA's remainder loops.
    """
    rng = np.random.default_rng(0)
    x, count = rng.normal(size=(7, 37)).astype(np.float32), rng.integers(0, 38, 7).astype(np.int32)

    @jax.jit
    def run(x, count):
        return distribution_of(x, count, 0.7, neighbors, **options).sample(jax.random.key(3), shape)

    plain = np.asarray(run(x, count))
    assert np.isfinite(plain).all()
    for more, rows in further:
        taller = np.concatenate([x, rng.normal(size=(rows, 37)).astype(np.float32)])
        fill = np.full((7 + rows, more), np.nan if neighbors == "add_remove" else 9.0, np.float32)
        counts = np.concatenate([count, np.full(rows, 20, np.int32)])
        found = np.asarray(run(np.concatenate([taller, fill], axis=1), counts))
        np.testing.assert_array_equal(found[..., :7], plain)
    return run, x, count, plain


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize(
    ("neighbors", "options", "shape"),
    [("add_remove", {}, ()), pytest.param("swap", {"rho": 0.01}, (40,), marks=pytest.mark.slow)],
)
def test_draws_do_not_change_with_padding_or_further_rows(neighbors, options, shape):
    assert_bitwise_invariant(neighbors, options, shape, further=((28, 26),))


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize(("neighbors", "options", "shape"), INVARIANCE)
def test_draws_do_not_change_with_any_padding_or_batch(neighbors, options, shape):
    run, x, count, plain = assert_bitwise_invariant(
        neighbors, options, shape, further=((1, 1), (300, 100))
    )
    np.testing.assert_array_equal(np.asarray(run(x[:1], count[:1]))[..., :1], plain[..., :1])


def rows_of_every_kind():
    """Ordinary, tied for thousands of nats, of tiny and of huge scale, constant: most need a base
    of their own.
    """
    rng = np.random.default_rng(2)
    ordinary = rng.normal(size=41)
    tied = np.where(np.arange(41) < 36, 0.5, ordinary)
    return np.stack(
        [ordinary, tied, ordinary * 1e-30, ordinary * 1e30, np.full(41, 0.25), ordinary + 1]
    ).astype(np.float32)


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 300.0])
def test_rows_of_every_kind_by_the_tree_and_by_the_table(epsilon):
    """A row's draws do not depend on whether other rows need more careful weights."""
    x = rows_of_every_kind()
    scale = np.array([4, 4, 4e-30, 4e30, 4, 4], np.float32)

    @partial(jax.jit, static_argnames="method")
    def run(x, scale, method):
        distribution = piecewise_laplace(
            median(x, lower=-scale, upper=scale, neighbors="add_remove"), epsilon
        )
        return distribution.sample(jax.random.key(4), (40,), method=method)

    for method in ("tree", "table"):
        draws = np.asarray(run(x, scale, method))
        assert np.isfinite(draws).all()
        np.testing.assert_array_equal(np.asarray(run(x[:1], scale[:1], method))[:, 0], draws[:, 0])
        # The same distribution at another scale: the same pieces are chosen, so the draws are in
        # proportion.
        for row, factor in ((2, 1e-30), (3, 1e30)):
            distribution = piecewise_laplace(
                median(x[row] / factor, lower=-4.0, upper=4.0, neighbors="add_remove"), epsilon
            )
            uniform = np.asarray(distribution.cdf(draws[:, row] / factor))
            assert 0.05 < uniform.mean() < 0.95


@pytest.mark.slow
def test_closed_forms_do_not_move_with_padding_beyond_rounding():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 37)).astype(np.float32)
    padded = np.concatenate([x, np.full((7, 300), np.nan, np.float32)], axis=1)

    @jax.jit
    def known(data):
        distribution = distribution_of(data, None, 0.7)
        return distribution.cdf(0.3), distribution.log_prob(0.3), distribution.mean_abs_error(0.3)

    for plain, more in zip(known(x), known(padded), strict=True):
        # Sums of 80 masses in another order: 80 units, and the logarithm of one.
        np.testing.assert_allclose(plain, more, rtol=0, atol=80 * 2.0**-23)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (20,)])
def test_jit_and_eager_agree_to_a_few_units(shape):
    x = jax.random.normal(jax.random.key(0), (500, 41))
    eager = distribution_of(x, None, 0.7).sample(jax.random.key(1), shape)
    jitted = jax.jit(lambda x: distribution_of(x, None, 0.7).sample(jax.random.key(1), shape))(x)
    # Not bitwise: XLA fuses differently. 16 units of the range of the data.
    np.testing.assert_allclose(eager, jitted, rtol=0, atol=16 * 4 * float(np.finfo(np.float32).eps))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (5,)])
def test_vmap_is_the_loop(shape):
    x, keys = jax.random.normal(jax.random.key(0), (6, 41)), jax.random.split(jax.random.key(1), 6)
    mapped = jax.jit(jax.vmap(lambda k, row: distribution_of(row, None, 0.7).sample(k, shape)))(
        keys, x
    )
    one = jax.jit(lambda k, row: distribution_of(row, None, 0.7).sample(k, shape))
    loop = np.stack([one(k, row) for k, row in zip(keys, x, strict=True)])
    np.testing.assert_allclose(mapped, loop, rtol=0, atol=16 * 4 * float(np.finfo(np.float32).eps))


@pytest.mark.optimized
def test_a_map_over_epsilon_with_one_key_is_compiled_in_silence(capfd):
    """XLA reported a circular simplification where the condition of the noise was mapped, too."""
    x, key = jnp.linspace(0.0, 1.0, 101), jax.random.key(0)
    epsilons = jnp.array([0.5, 1.0, 2.0])

    def one(epsilon):
        profile = median(x, lower=0.0, upper=1.0, neighbors="add_remove")
        return piecewise_laplace(profile, epsilon).sample(key)

    found = jax.vmap(one)(epsilons)
    np.testing.assert_allclose(found, [one(epsilon) for epsilon in epsilons], atol=1e-6)
    os.write(2, b"the control")
    assert capfd.readouterr().err == "the control"


@pytest.mark.slow
def test_first_draws_stay_when_more_are_asked_for():
    distribution = distribution_of(jax.random.normal(jax.random.key(0), (3, 41)), None, 1.0)
    # Up to 64 draws from a row are made in one way, more in another
    for fewer, more in ((5, 40), (70, 5000)):
        some, all_of_them = (distribution.sample(jax.random.key(2), (n,)) for n in (fewer, more))
        np.testing.assert_array_equal(some, all_of_them[:fewer])


@pytest.mark.slow
def test_a_million_draws_from_a_thousand_pieces_fit_in_memory():
    """Their product would be 10^9 numbers; and the mean agrees with the exact one within five
    standard errors.
    """
    distribution = distribution_of(jax.random.normal(jax.random.key(0), (1001,)), None, 1.0)
    draws = distribution.sample(jax.random.key(2), (1_000_000,))
    assert draws.shape == (1_000_000,)
    assert abs(float(draws.mean() - distribution.mean())) < 5 * float(distribution.stddev()) / 1000


@pytest.mark.slow
def test_draws_have_the_dtype_of_the_data(x64):
    for dtype, expected in (
        (jnp.float64, "float64"),
        (jnp.float32, "float32"),
        (jnp.bfloat16, "float32"),
        (jnp.int32, "float64"),
    ):
        assert (
            distribution_of(np.arange(5).astype(dtype), None, 1.0).sample(jax.random.key(0)).dtype
            == expected
        )


def test_bad_arguments():
    distribution = distribution_of(jnp.arange(5.0), None, 1.0)
    with pytest.raises(ValueError, match="method must be one of 'auto', 'tree', 'table', 'gumbel'"):
        distribution.sample(jax.random.key(0), method="alias")
    with pytest.raises(TypeError, match="typed key"):
        distribution.sample(0)
    for widths, levels in ((1.0, 1.0), (jnp.ones(3), jnp.ones(2)), (jnp.ones(0), jnp.ones(0))):
        with pytest.raises(ValueError, match="same last axis"):
            sample_intervals(jax.random.key(0), widths, levels, epsilon=1.0)
    with pytest.raises(ValueError, match="within must be one of"):
        sample_intervals(
            jax.random.key(0), jnp.ones(2), jnp.ones(2), epsilon=1.0, within="gaussian"
        )
    with pytest.raises(ValueError, match="epsilon must be finite and positive"):
        sample_intervals(jax.random.key(0), jnp.ones(2), jnp.ones(2), epsilon=0.0)


@pytest.mark.slow
def test_rows_without_width_give_nan_and_a_valid_index():
    widths = jnp.array([[0.0, 0.0], [1.0, jnp.nan], [1.0, 2.0]])
    for shape in ((), (6,)):
        index, offset = sample_intervals(
            jax.random.key(0), widths, jnp.arange(2.0), epsilon=1.0, shape=shape
        )
        assert ((index >= 0) & (index <= 1)).all()
        assert np.isnan(offset).all(axis=tuple(range(len(shape)))).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "method", ["tree", "table", pytest.param("gumbel", marks=pytest.mark.slow)]
)
def test_a_row_with_a_nan_has_no_draws_at_any_epsilon(method):
    """Where the NaN has no mass, too, and beside a row that has to be weighed again; the others
    have draws.
    """
    values = np.tile(np.linspace(0.0, 1.0, 12, dtype=np.float32), (3, 1))
    values[1, 7], values[2, :9] = np.nan, 0.0
    levels = jnp.arange(11.0)
    run = jax.jit(
        lambda values, rate: PiecewiseExponential(values, levels, levels, rate, center=0).sample(
            key, (5,), method=method
        )
    )
    key = jax.random.key(0)
    for rate in (1e9, 1.0):
        for rows in (slice(None), [0, 1, 0]):
            draws = np.asarray(run(jnp.asarray(values[rows]), jnp.float32(rate)))
            assert np.isnan(draws).all(axis=0).tolist() == [False, True, False]
            assert np.isfinite(draws[:, [0, 2]]).all()


@pytest.mark.parametrize("method", ["tree", pytest.param("table", marks=pytest.mark.slow)])
def test_a_long_piece_whose_height_no_float_holds_has_its_share(method):
    """Of 2^-128.5, and 2^100 long, beside one of 2^-30; the control has one of the other height."""
    costs, other = (jnp.array([30.0, height]) * np.log(2.0) for height in (128.5, 131.0))
    edges = jnp.array([0.0, 1.0, 1.0 + 2.0**100])

    def distribution(costs, batch=()):
        return PiecewiseExponential(
            jnp.broadcast_to(edges, (*batch, 3)), costs, costs, jnp.float32(1.0), center=0
        )

    draws = np.asarray(distribution(costs, (4000,)).sample(jax.random.key(0), method=method))
    counts = np.array([np.sum(draws <= 1), np.sum(draws > 1)])
    shares, controls = (
        np.array([p, 1 - p]) for p in (float(distribution(c).cdf(1.0)) for c in (costs, other))
    )
    assert 0.2 < shares[0] < 0.3
    assert_counts_follow(counts, shares)
    assert_counts_rejected(counts, controls)


@pytest.mark.parametrize("fields", [("4", "4", "8"), ("4", "8", "8"), ("8", "4", "4")])
def test_fields_of_different_dtypes_are_of_the_wider_one(fields, x64):
    edges, costs, rate = (
        jnp.asarray(value, "f" + size)
        for value, size in zip(([0, 1, 3, 4], [2, 1, 1], 0.5), fields, strict=True)
    )
    wide = PiecewiseExponential(
        *(part.astype(jnp.float64) for part in (edges, costs, costs + 0.5, rate)), center=1
    )
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        mixed = PiecewiseExponential(edges, costs, costs + 0.5, rate, center=1)
        assert float(mixed.mean_abs_error(1.0)) == pytest.approx(
            float(wide.mean_abs_error(1.0)), rel=1e-6
        )
        for method in ("tree", "table"):
            draws = [d.sample(jax.random.key(0), (50,), method=method) for d in (mixed, wide)]
            np.testing.assert_allclose(*draws, rtol=1e-5)


def test_many_draws_from_pieces_and_tails_do_not_change_with_padding():
    """Pieces without width at the end of either side; the control has another tail."""
    values, cost = (
        np.cumsum(np.random.default_rng(0).exponential(size=(2, 4, 8)), axis=-1).astype(np.float32),
        np.arange(7.0),
    )

    def draws(padding, lower_scale=2.0):
        longer, costs = (
            np.pad(values, ((0, 0), (0, 0), (0, padding)), mode="edge"),
            np.pad(cost, (0, padding), mode="edge"),
        )
        lower, upper = (
            Side(jnp.asarray(side), *[jnp.asarray(costs, jnp.float32)] * 2)
            for side in (-longer[0], longer[1])
        )
        tails = Tails(*map(jnp.float32, (1.0, lower_scale, 1.0, 3.0)))
        distribution = PiecewiseExponential.from_sides(lower, upper, jnp.float32(0.3), tails)
        return np.asarray(distribution.sample(jax.random.key(1), (200,)))

    np.testing.assert_array_equal(draws(0), draws(45))
    assert (draws(0) != draws(0, 2.1)).any()


def test_empty_shapes():
    distribution = distribution_of(jnp.arange(5.0), None, 1.0)
    assert distribution.sample(jax.random.key(0), (0,)).shape == (0,)
    assert distribution_of(jnp.zeros((0, 5)), None, 1.0).sample(jax.random.key(0)).shape == (0,)


def two_tails(lower_cost, lower_scale, upper_cost, upper_scale):
    tails = Tails(*map(jnp.float32, (lower_cost, lower_scale, upper_cost, upper_scale)))
    return PiecewiseExponential(jnp.zeros(1), jnp.zeros(0), jnp.zeros(0), jnp.float32(1.0), tails)


@pytest.mark.parametrize(("below", "above"), [(1.0, 3.0), (3.0, 1.0), (0.0, 1.0), (1.0, 0.0)])
def test_without_pieces_the_tails_have_their_shares(below, above):
    draws = np.asarray(two_tails(2.0, below, 2.0, above).sample(jax.random.key(0), (20_000,)))
    counts, shares = (
        np.array([np.sum(draws < 0), np.sum(draws > 0)]),
        np.array([below, above]) / (below + above),
    )
    if 0 in shares:
        assert counts.tolist() == (20_000 * shares).tolist()
        return
    assert_counts_follow(counts, shares)
    assert_counts_rejected(counts, shares[::-1])


@pytest.mark.parametrize("lighter", ["lower", "upper"])
def test_a_tail_of_mass_two_to_the_minus_forty_is_reached(lighter, monkeypatch):
    scales = (2.0**-40, 1.0) if lighter == "lower" else (1.0, 2.0**-40)
    line = two_tails(0.0, scales[0], 0.0, scales[1]).line()
    for low, inside in ((2**23, True), (2**24 - 2**10, True), (2**24 + 2**10, False)):
        words = Words(jnp.zeros(1, jnp.uint32), jnp.full(1, low, jnp.uint32))
        monkeypatch.setattr(uniforms, "fold_in_range", lambda *_, words=words, **__: words)
        point = sampling.draw(jax.random.key(0), line, 1, "auto")[1]
        assert bool(point[0] > 0) == (inside == (lighter == "upper"))
