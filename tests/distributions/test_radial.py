"""Radial distributions in R^d: golden numbers, SciPy's gamma functions, the line as d = 1, draws
against exact distributions.
"""

import json
import pathlib
from itertools import product
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from dpjax import Radial, from_radii, from_vector_radii, k_norm, piecewise_laplace
from dpjax.distributions.directions import log_volume
from dpjax.distributions.shells import Shell
from dpjax.distributions.vectors import norm
from dpjax.random import UniformPair
from tests.support.statistics import assert_follows, assert_rejected

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "G_highdim.json").read_text()
)
RADII, STEP = np.array(GOLDEN["increments"][:3]), GOLDEN["increments"][3]


def in_shells(d, epsilon, p, dtype=np.float64):
    profile = from_vector_radii(
        np.zeros(d, dtype), RADII.astype(dtype), p=p, step=STEP, neighbors="swap"
    )
    return piecewise_laplace(profile, epsilon)


@pytest.mark.parametrize(
    ("d", "p"),
    [
        (100, inf),
        *(
            pytest.param(d, p, marks=pytest.mark.slow)
            for d, p in [(2, 1.0), *product((3, 10), (1.0, 2.0, inf))]
        ),
    ],
)
def test_golden_numbers(d, p, x64):
    epsilon = np.array([1.0, 4.0])
    distribution, wanted = (
        in_shells(d, epsilon, p),
        [GOLDEN["golden"][f"p={p:.0f}|d={d}|eps={e}"] for e in epsilon],
    )
    weights = distribution._log_masses() + d * jnp.log(distribution._unit())
    np.testing.assert_allclose(
        weights, [one["log_shell_weights"] for one in wanted], rtol=0, atol=1e-11
    )
    np.testing.assert_allclose(
        distribution.mean_norm_error(), [one["mean_radius"] for one in wanted], rtol=1e-12
    )
    log_z = -epsilon / 2 - distribution.log_prob(np.zeros(d))  # the cost is 1 at the center
    np.testing.assert_allclose(log_z, [one["logZ"] for one in wanted], rtol=0, atol=1e-11)
    if p != 2:  # the control: the volume of the Euclidean ball
        assert np.all(
            abs(
                log_z
                + log_volume(d, 2.0)
                - log_volume(d, p)
                - np.array([one["logZ"] for one in wanted])
            )
            > 0.1
        )


@pytest.mark.parametrize(
    ("dtype", "d"),
    [(np.float32, 1000), *(pytest.param(np.float64, d, marks=pytest.mark.slow) for d in (2, 1000))],
)
def test_the_norm_of_the_k_norm_mechanism_is_a_gamma_variate(dtype, d, x64):
    noise, eps = k_norm(np.zeros(d, dtype), 2.0, sensitivity=3.0, p=1.7), np.finfo(dtype).eps
    r = 1.5 * d + 1.5 * d**0.5 * np.array([-1.4, -0.5, 0.0, 2.0, 9.0], dtype)
    np.testing.assert_allclose(
        noise.norm_cdf(r), special.gammainc(d, r / 1.5), rtol=40 * (d + 10) * eps
    )
    np.testing.assert_allclose(
        noise.norm_survival(r), special.gammaincc(d, r / 1.5), rtol=40 * (d + 10) * eps
    )
    np.testing.assert_allclose(noise.mean_norm_error(), 1.5 * d, rtol=100 * eps)
    levels = np.array([1e-9, 0.5, 0.999], dtype)
    np.testing.assert_allclose(
        noise.norm_quantile(levels), 1.5 * special.gammaincinv(d, levels), rtol=100 * eps
    )
    assert noise.norm_cdf(np.array([-1.0, 0.0, inf])).tolist() == [0.0, 0.0, 1.0]
    assert noise.log_prob(np.zeros(d)).dtype == noise.norm_quantile(0.5).dtype == dtype


def test_one_dimension_is_the_line(x64):
    """Every p is the same there, and so is piecewise Laplace of radii; p = 1 is independent Laplace
    noise in any dimension.
    """
    line = piecewise_laplace(from_radii(0.0, RADII, neighbors="swap", step=STEP), 3.0)
    y = np.linspace(-9, 9, 41)
    for p in (1.0, 2.5, inf):
        np.testing.assert_allclose(
            in_shells(1, 3.0, p).log_prob(y[:, None]), line.log_prob(y), rtol=0, atol=1e-13
        )
    distribution = in_shells(1, 3.0, 1.0)
    np.testing.assert_allclose(
        distribution.norm_survival(abs(y)), 2 * line.survival(abs(y)), rtol=1e-12
    )
    np.testing.assert_allclose(distribution.mean_norm_error(), line.mean_abs_error(0.0), rtol=1e-13)
    assert np.isnan(distribution.log_prob(np.array([np.nan])))
    assert distribution.log_prob(np.array([np.inf])) == -np.inf
    noise, y = k_norm(np.ones(4), 0.7, sensitivity=2.0, p=1), np.linspace(-3, 8, 12).reshape(3, 4)
    np.testing.assert_allclose(
        noise.log_prob(y), np.sum(stats.laplace.logpdf(y, 1, 2 / 0.7), axis=-1), rtol=1e-13
    )


@pytest.mark.parametrize(
    "p", [1.0, 2.0, *(pytest.param(p, marks=pytest.mark.slow) for p in (1.6, inf))]
)
def test_draws_have_their_radius_and_their_direction(p):
    """The norm by its quadrature in another way, and |u_1|^p of the cone measure, Beta(1/p,
    (d-1)/p); the two are independent.
    """
    d, count = 3, 20_000
    distribution = in_shells(d, 2.0, p, np.float32)
    draws = np.asarray(distribution.sample(jax.random.key(5), (count,)), np.float64)
    radius = np.asarray(norm(jnp.asarray(draws), p))
    r = np.linspace(0, 60, 240_001)
    density = r ** (d - 1) * np.exp(
        -np.interp(r, [0, *np.cumsum(RADII), 90], [0, 1, 2, 3, 3 + (90 - RADII.sum()) / STEP])
    )
    masses = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    assert_follows(radius, lambda at: np.interp(at, r, masses / masses[-1]))
    assert_rejected(
        radius,
        lambda at: np.interp(at, r, np.cumsum(density / (r + 1e-9)) / np.sum(density / (r + 1e-9))),
    )
    first, far = draws[:, 0] / radius, radius > np.median(radius)

    def of_cone(u, p, d=d):
        if p == inf:  # one of d coordinates is at the face
            inside = np.where(abs(u) < 1 - 1e-6, (1 + u) / 2, (1 + np.sign(u)) / 2)
            return (d - 1) / d * inside + np.where(u >= 1 - 1e-6, 1.0, 0.5) / d
        return (
            0.5 + np.sign(u) * special.betainc(1 / p, (d - 1) / p, np.minimum(abs(u), 1.0) ** p) / 2
        )

    for half in (far, ~far):
        inner = abs(first[half]) < 1 - 1e-6
        assert_follows(
            first[half][inner],
            lambda u: (of_cone(u, p) - (p == inf) / (2 * d)) / (1 - (p == inf) / d),
        )
        assert abs(np.mean(~inner) - (p == inf) / d) < 6 / np.sqrt(count)
        assert_rejected(first[half], lambda u: of_cone(u, 1.3))


def test_radii_of_shells_that_are_thin_steep_or_flat(x64):
    """A radius has the probability that it was asked for, down to the smallest uniform where floats
    can tell.
    """
    near, far = np.array([0.0, 0.99, 0.5, 0.0, 30.0]), np.array([0.3, 1.0, 1.0, inf, inf])
    shells = Shell(*map(jnp.asarray, (near, far, np.array([2.0, 0.0, 120.0, 1.0, 0.5]))), 99)
    quantile, part, whole = (
        jax.jit(shells.quantile),
        jax.jit(shells.part),
        np.asarray(jax.jit(shells.log_mass)()),
    )
    for p in (2.0**-65, 1e-3, 0.3, 0.5):
        ends = np.full(5, p), np.full(5, 1 - p)
        low, high = (np.asarray(quantile(UniformPair(*pair))) for pair in (ends, ends[::-1]))
        below, above = np.asarray(part(near, low)) - whole, np.asarray(part(high, far)) - whole
        first, last = (slice(None), slice(None)) if p > 1e-4 else ([0, 3], [3, 4])
        np.testing.assert_allclose(below[first,], np.log(p), rtol=0, atol=1e-9)
        np.testing.assert_allclose(above[last,], np.log(p), rtol=0, atol=1e-9)
        assert np.all((near <= low) & (low < far) & (low <= high) & (high <= far))
    # A flat shell: the difference of two powers.
    flat = Shell(*(jnp.asarray([x]) for x in (0.99, 1.0, 0.0)), 99)
    mass, (_, mean) = jax.jit(lambda: (flat.log_mass(), flat.moments()))()
    np.testing.assert_allclose(mass, np.log((1 - 0.99**100) / 100), rtol=1e-12)
    np.testing.assert_allclose(mean, 100 / 101 * (1 - 0.99**101) / (1 - 0.99**100), rtol=1e-12)


def test_the_density_can_be_differentiated(x64):
    y = np.array([0.4, -0.7, 0.1])

    def log_prob(epsilon, radii):
        profile = from_vector_radii(np.zeros(3), radii, p=2, step=STEP, neighbors="swap")
        return piecewise_laplace(profile, epsilon).log_prob(y)

    slopes = jax.jit(jax.grad(log_prob, (0, 1)))(2.0, RADII)
    h, value = 1e-5, jax.jit(log_prob)
    by_epsilon = (value(2 + h, RADII) - value(2 - h, RADII)) / (2 * h)
    by_radius = [
        (value(2.0, RADII + h * e) - value(2.0, RADII - h * e)) / (2 * h) for e in np.eye(3)
    ]
    np.testing.assert_allclose(slopes[0], by_epsilon, rtol=1e-7)
    np.testing.assert_allclose(slopes[1], by_radius, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.optimized
def test_rows_are_drawn_alone_and_bad_ones_are_nan():
    def draws(rows, count):
        radii = jnp.asarray(
            np.random.default_rng(0).exponential(1, (7, 3)).cumsum(-1), jnp.float32
        )[:rows]
        profile = from_vector_radii(jnp.ones((rows, 5)), radii, p=1, step=4.0, neighbors="swap")
        epsilon = jnp.array([1.0, -1.0, 2.0, 3.0, 0.5, 1.0, 1.0])[:rows]
        distribution = piecewise_laplace(profile, epsilon)
        assert distribution.batch_shape == (rows,)
        return np.asarray(distribution.sample(jax.random.key(2), (count,)))

    few, many = draws(3, 4), draws(7, 40)
    assert few.shape == (4, 3, 5)
    np.testing.assert_array_equal(few, many[:4, :3])
    assert np.isnan(many).all(axis=(0, 2)).tolist() == [False, True] + [False] * 5
    assert not np.isnan(many[:, [0, 2, 3, 4, 5, 6]]).any()


def test_what_it_is_given():
    distribution = in_shells(2, 1.0, 2.0, np.float32)
    assert isinstance(distribution, Radial)
    assert (distribution.batch_shape, distribution.event_shape) == ((), (2,))
    assert distribution.sample(jax.random.key(0)).shape == (2,)
    assert distribution.sample(jax.random.key(0), (0,)).shape == (0, 2)
    with pytest.raises(TypeError, match="typed key"):
        distribution.sample(0)
