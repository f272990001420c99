"""Radial distributions in R^d: golden numbers, SciPy's gamma functions, the line as d = 1, draws
against exact distributions.
"""

from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from dpjax import from_radii, from_vector_radii, k_norm, piecewise_laplace
from dpjax.distributions import radial
from dpjax.distributions.shells import Shell
from tests.support.golden import golden
from tests.support.statistics import assert_follows, assert_rejected

GOLDEN = golden("G_highdim")
RADII, STEP = np.array(GOLDEN["increments"][:3]), GOLDEN["increments"][3]


def in_shells(d, epsilon, p, dtype=np.float64):
    profile = from_vector_radii(
        np.zeros(d, dtype), RADII.astype(dtype), p=p, step=STEP, neighbors="swap"
    )
    return piecewise_laplace(profile, epsilon)


@jax.jit
def norms(distribution, r, levels):
    """All that is known of a norm."""
    ends = distribution.norm_cdf(r), distribution.norm_survival(r)
    density = distribution.log_prob(jnp.zeros_like(distribution.loc))
    return *ends, distribution.norm_quantile(levels), distribution.mean_norm_error(), density


@pytest.mark.parametrize(
    ("d", "p"),
    [
        (100, inf),
        (3, 1.0),
        *(pytest.param(d, p, marks=pytest.mark.slow) for d, p in [(2, 2.0), (10, 2.0)]),
    ],
)
def test_golden_numbers(d, p, x64):
    """Weights of the shells, the last one endless, by probabilities of balls."""
    epsilon = np.array([1.0, 4.0])
    wanted = [GOLDEN["golden"][f"p={p:.0f}|d={d}|eps={e}"] for e in epsilon]
    masses = np.exp(special.log_softmax([one["log_shell_weights"] for one in wanted], axis=-1))
    edges = np.cumsum(RADII)[:, None]
    found = jax.jit(lambda epsilon: norms(in_shells(d, epsilon, p), edges, 0.5))(epsilon)
    below, above, _, mean, density = found
    np.testing.assert_allclose(below.T, np.cumsum(masses, -1)[:, :-1], rtol=1e-10)
    np.testing.assert_allclose(above.T, np.cumsum(masses[:, ::-1], -1)[:, -2::-1], rtol=1e-10)
    np.testing.assert_allclose(mean, [one["mean_radius"] for one in wanted], rtol=1e-12)
    log_z = -epsilon / 2 - np.asarray(density)  # the cost is 1 at the center
    np.testing.assert_allclose(log_z, [one["logZ"] for one in wanted], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("dtype", "d"),
    [(np.float32, 1000), *(pytest.param(np.float64, d, marks=pytest.mark.slow) for d in (2, 1000))],
)
def test_the_norm_of_the_k_norm_mechanism_is_a_gamma_variate(dtype, d, x64):
    eps, close = np.finfo(dtype).eps, 40 * (d + 10) * np.finfo(dtype).eps
    r = 1.5 * d + 1.5 * d**0.5 * np.array([-1.4, -0.5, 0.0, 2.0, 9.0], dtype)
    r, levels = np.append(r, np.array([-1, 0, inf], dtype)), np.array([1e-9, 0.5, 0.999], dtype)
    noise = k_norm(np.zeros(d, dtype), dtype(2.0), sensitivity=3.0, p=1.7)
    below, above, quantiles, mean, density = norms(noise, r, levels)
    np.testing.assert_allclose(below[:5], special.gammainc(d, r[:5] / 1.5), rtol=close)
    np.testing.assert_allclose(above[:5], special.gammaincc(d, r[:5] / 1.5), rtol=close)
    np.testing.assert_allclose(mean, 1.5 * d, rtol=100 * eps)
    np.testing.assert_allclose(quantiles, 1.5 * special.gammaincinv(d, levels), rtol=100 * eps)
    assert below[5:].tolist() == [0.0, 0.0, 1.0]
    assert density.dtype == quantiles.dtype == dtype


def test_one_dimension_is_the_line(x64):
    """Every p is the same there, and so is piecewise Laplace of radii; p = 1 is independent Laplace
    noise in any dimension.
    """
    y, corners = np.linspace(-9, 9, 41), np.linspace(-3, 8, 12).reshape(3, 4)

    @jax.jit
    def known():
        line = piecewise_laplace(from_radii(0.0, RADII, neighbors="swap", step=STEP), 3.0)
        radial = [in_shells(1, 3.0, p) for p in (1.0, 2.5, inf)]
        density = [one.log_prob(y[:, None]) - line.log_prob(y) for one in radial]
        tails = radial[0].norm_survival(abs(y)), 2 * line.survival(abs(y))
        errors = radial[0].mean_norm_error(), line.mean_abs_error(0.0)
        nowhere = radial[0].log_prob(np.array([[np.nan], [np.inf]]))
        noise = k_norm(np.ones(4), 0.7, sensitivity=2.0, p=1)
        return density, tails, errors, nowhere, noise.log_prob(corners)

    density, tails, errors, nowhere, log_prob = known()
    np.testing.assert_allclose(density, np.zeros((3, 41)), rtol=0, atol=1e-13)
    np.testing.assert_allclose(*tails, rtol=1e-12)
    np.testing.assert_allclose(*errors, rtol=1e-13)
    np.testing.assert_array_equal(nowhere, [np.nan, -np.inf])
    wanted = np.sum(stats.laplace.logpdf(corners, 1, 2 / 0.7), axis=-1)
    np.testing.assert_allclose(log_prob, wanted, rtol=1e-13)


@pytest.mark.parametrize(
    "p", [4.0, inf, *(pytest.param(p, marks=pytest.mark.slow) for p in (1.0, 2.0))]
)
def test_draws_have_their_radius_and_their_direction(p):
    """The norm by its cdf, and |u_1|^p of the cone measure, Beta(1/p, (d-1)/p); the two are
    independent.
    """
    d, count, r = 3, 8_000, np.linspace(0, 60, 250)

    @jax.jit
    def run(key):
        both = in_shells(d, np.float32([2.0, 2.3]), p, np.float32)
        return both.sample(key, (count,))[:, 0], both.norm_cdf(np.float32(r)[:, None])

    draws, cdfs = (np.asarray(found, np.float64) for found in run(jax.random.key(5)))
    radius, (right, wrong) = np.linalg.norm(draws, p, axis=-1), cdfs.T
    assert_follows(radius, lambda at: np.interp(at, r, right))
    assert_rejected(radius, lambda at: np.interp(at, r, wrong))
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
    whole = np.asarray(jax.jit(lambda: shells.moments()[0])())
    quantile, part = jax.jit(shells.quantile), jax.jit(shells.part)
    for p in (2.0**-65, 1e-3, 0.3, 0.5):
        low, high = (np.asarray(quantile(np.full(5, lower), np.log(p))) for lower in (True, False))
        below, above = np.asarray(part(near, low)) - whole, np.asarray(part(high, far)) - whole
        first, last = (slice(None), slice(None)) if p > 1e-4 else ([0, 3], [3, 4])
        np.testing.assert_allclose(below[first,], np.log(p), rtol=0, atol=1e-9)
        np.testing.assert_allclose(above[last,], np.log(p), rtol=0, atol=1e-9)
        assert np.all((near <= low) & (low < far) & (low <= high * (1 + 1e-12)) & (high <= far))
    # A flat shell: the difference of two powers.
    flat = Shell(*(jnp.asarray([x]) for x in (0.99, 1.0, 0.0)), 99)
    mass, (_, mean) = jax.jit(lambda: (flat.part(flat.near, flat.far), flat.moments()))()
    np.testing.assert_allclose(mass, np.log((1 - 0.99**100) / 100), rtol=1e-12)
    np.testing.assert_allclose(mean, 100 / 101 * (1 - 0.99**101) / (1 - 0.99**100), rtol=1e-12)


def test_the_largest_uniform_has_a_finite_radius(monkeypatch):
    """Single precision rounds one in 2^25 to 1, which as a share of a tail would be all of it."""
    noise = k_norm(np.zeros(2, np.float32), 1.0, sensitivity=1.0, p=2)
    monkeypatch.setattr(radial, "uniforms", lambda _, shape, dtype: jnp.ones(shape, dtype))
    draws = jax.jit(lambda key: noise._sample(key, (8,)))(jax.random.key(0))
    norm = np.linalg.norm(draws, axis=-1)
    np.testing.assert_allclose(norm, special.gammaincinv(2, 0.5), rtol=1e-5)
    shell = Shell(jnp.zeros(1), jnp.full(1, inf), jnp.ones(1), 1)
    all_of_it = jax.jit(shell.quantile)(np.array([True]), np.zeros(1, np.float32))
    assert not np.isfinite(all_of_it[0])  # the control


def test_density_and_draws_can_be_differentiated(x64):
    """A draw moves with epsilon and the radii; in so small steps it does not leave its shell."""
    y, h = np.array([0.4, -0.7, 0.1]), 1e-6

    @jax.jit
    def both(parameters):
        def found(parameters):
            profile = from_vector_radii(
                np.zeros(3), parameters[1:], p=2, step=STEP, neighbors="swap"
            )
            distribution = piecewise_laplace(profile, parameters[0])
            return jnp.append(distribution.sample(jax.random.key(1), 6), distribution.log_prob(y))

        moved = parameters + h * jnp.concatenate([jnp.eye(4), -jnp.eye(4)])
        above, below = jnp.split(jax.vmap(found)(moved), 2)
        return jnp.moveaxis(jax.jacrev(found)(parameters), -1, 0), (above - below) / (2 * h)

    np.testing.assert_allclose(*both(np.append(2.0, RADII)), rtol=1e-5, atol=1e-8)
