"""Every distribution on the line against quadrature of its density, or sums over its values, both
from the definition: probabilities, quantiles, moments, errors, clamped ones, and draws.
"""

from functools import partial
from math import lgamma

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import Asinh, Log, PiecewiseExponential, Tails, Transformed, distributions
from dpjax.distributions import Cauchy, DiscreteLaplace, Finite, LaplaceLogNormal, SubsampledLaplace
from tests.distributions.laws import Law, assert_known

PAIR, SCALES = np.array([0.5, -1.0]), np.array([2.0, 0.3])
EVEN = np.linspace(-100.0, 100.0, 401)  # where a density falls as an exponential, in its scales


def arrays(*parts):
    return [jnp.asarray(np.asarray(part, np.float64)) for part in parts]


def symmetric(reach, start=1e-12, panels=400):
    """Cuts for heavy tails."""
    half = np.geomspace(start, reach, panels)
    return np.concatenate([-half[::-1], [0.0], half])


def noise(of_standard, log_density, cuts, more=(), **options):
    """Of two locations and scales; ``log_density`` is that of their standard."""

    def make():
        places = [PAIR + SCALES * cuts, np.repeat(more, 2).reshape(-1, 2)]
        places = np.sort(np.concatenate(places), axis=0)
        law = Law.of_density(lambda y: log_density((y - PAIR) / SCALES), places)
        return of_standard(*arrays(PAIR, SCALES)), law

    return make, {"bounded": False, "rtol": 1e-12, "clamped": True, **options}


def heavy(gamma, reach, moments, more=()):
    def log_density(z):
        return -np.logaddexp(0, gamma * np.log(np.abs(z)))

    # Of a gamma just above 2 no quadrature knows the mean error.
    lacks = ("entropy", "mean_abs_error") if moments == 1 else ("entropy",)
    options = {
        "moments": moments,
        "lacks": lacks,
        "of_moments": 1e-11,
        "more": more,
    }
    make = partial(Cauchy, gamma=gamma)
    return noise(make, log_density, symmetric(reach)[:, None], **options)


def log_normal(sigmas, cuts):
    """E e^(-sigma Y) exp(-z e^(-sigma Y)), by a trapezoid rule without any centring."""
    sigmas = np.array(sigmas)

    def log_density(z):
        z, top = np.abs(z), np.full(z.shape, -np.inf)
        for y in np.arange(-12, 60, 1 / 16):
            top = np.logaddexp(top, -y * y / 2 - sigmas * y - z * np.exp(-sigmas * y))
        return top

    return noise(
        lambda loc, scale: LaplaceLogNormal(loc, scale, jnp.asarray(sigmas)),
        log_density,
        cuts,
        rtol=3e-12,
        lacks=("entropy",),
    )


# Pieces without width, rising, falling and flat ones, and jumps between them.
EDGES = np.array([[-4, -3, -3, -1.5, 0.25, 0.25, 2, 5], [-2, -1, 0, 0.5, 1, 3, 3, 8.0]])
LEFT = np.array([[8, 3, 2.5, 1, 0, 1, 3.5], [4, 4, 3.5, 0, 1, 0, 2]])
RIGHT = np.array([[8, 2, 1.0, 0, 0, 3, 4.5], [3, 3.5, 3, 0.5, 1, 0, 2]])
RATES = np.array([0.5, 12.0])
NO_TAILS, TAILS, OTHERS = ((0, 0), (0, 0)), ((2, 0.5), (0, 1)), ((2, 0.5), (0.4, 1))


def of_pieces(scales=NO_TAILS, edges=EDGES, left=LEFT, right=RIGHT):
    """With tails of these scales below and above, for each of two rows; and the law."""
    scales, cost = np.transpose(scales), (2.0, 2.5)
    ends = edges[:, 0], edges[:, -1]

    def log_density(y):
        found = np.empty_like(y)
        for row, at in enumerate(y.T):
            slot = np.searchsorted(edges[row], at, side="right") - 1
            inside = np.clip(slot, 0, max(left.shape[-1] - 1, 0))
            values = np.full_like(at, np.inf)
            if left.size:
                a, b = edges[row][inside], edges[row][inside + 1]
                rise = (right - left)[row][inside] / np.where(b > a, b - a, 1)
                values = left[row][inside] + rise * (at - a)
            past = ends[0][row] - at, at - ends[1][row]
            for distance, scale, start in zip(past, scales[:, row], cost, strict=True):
                if scale:  # at an edge, the limit from the right
                    there = distance >= 0 if start == cost[1] else distance > 0
                    values = np.where(there, start + distance / scale, values)
            found[:, row] = -RATES[row] * values
        return found

    panels = np.linspace(edges[:, :-1], edges[:, 1:], 13).transpose(2, 0, 1).reshape(-1, 2)
    steps = np.arange(0.0, 60.0, 0.4)[:, None] / RATES
    below, above = ends[0] - scales[0] * steps[::-1], ends[1] + scales[1] * steps
    cuts = np.concatenate([below, panels, above])
    tails = None
    if scales.any():
        tails = Tails(*arrays(cost[0] + 0 * RATES, scales[0], cost[1] + 0 * RATES, scales[1]))
    parts = arrays(edges, left, right, RATES)
    return PiecewiseExponential(*parts, tails), Law.of_density(log_density, cuts)


def laplace():
    nothing = np.zeros((2, 0))
    return of_pieces(((0.1, 0.15), (2, 3)), PAIR[:, None], nothing, nothing)


def on_scale(of, transform, function, log_derivative):
    inner, law = of()
    mapped = law.mapped(function, log_derivative).clamped(transform.lower, transform.upper)
    return Transformed(inner, transform), mapped


def sinh(z):
    return 2 * np.sinh(np.clip(z, -500, 500))


def slope_of_asinh(x):
    return -np.log(2 * np.hypot(1, x / 2))


def discrete_laplace():
    rates = np.array([0.02, 5.0])
    values = np.arange(-4000.0, 4001.0)[:, None]
    law = Law.of_values(PAIR + SCALES[::-1] * values, -rates * np.abs(values))
    return DiscreteLaplace(*arrays(PAIR, SCALES[::-1], rates)), law


def finite():
    values, costs = (
        [3.0, -1.0, 2.0, 2.0, 7.0, 0.5],
        [[5, 5, 5, 5, 5, 5], [0, 1, 2, 0.5, 300, np.inf]],
    )
    rates = np.array([0.7, 1e5])
    costs = 1e5 + np.array(costs) * [[1.0], [1e-5]]  # far from 0
    weights = -rates * (costs - costs.min(axis=-1, keepdims=True)).T
    law = Law.of_values(np.repeat(values, 2).reshape(-1, 2), weights)
    return Finite(*arrays(values, costs, rates)), law


def subsampled_laplace():
    count, scales, p = np.array([3.0, 8.0]), np.array([0.5, 1.0]), 0.3
    make = SubsampledLaplace(*arrays(count, scales, [p, p]), most=10)

    def log_density(y):
        found = np.full(y.shape, -np.inf)
        for k in range(11):
            for row, (n, scale) in enumerate(zip(count, scales, strict=True)):
                if k <= n:
                    choose = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
                    weight = choose + k * np.log(p) + (n - k) * np.log1p(-p)
                    term = weight - np.abs(y[:, row] - k / p) / scale
                    found[:, row] = np.logaddexp(found[:, row], term)
        return found

    cuts = np.arange(-180, 271)[:, None] / (6 * p) + np.zeros(2)
    return make, Law.of_density(log_density, cuts)


CLAMPED = {"bounded": None, "rtol": 1e-9}
KINDS = {
    "PiecewiseExponential": (of_pieces, {}),
    "PiecewiseExponential with tails": (
        partial(of_pieces, TAILS),
        {"bounded": None, "clamped": True},
    ),
    "PiecewiseExponential without pieces": (laplace, {"bounded": False}),
    "Gaussian": noise(
        distributions.Gaussian,
        lambda z: -(z**2) / 2,
        np.linspace(-36, 36, 401)[:, None],
        of_logs=1e-9,  # that of JAX
        lacks=("entropy",),
    ),
    "Cauchy": heavy(2.0, 1e30, 0),
    "Cauchy of 4.5": heavy(4.5, 1e30, 2),
    "Cauchy of 1.3": heavy(1.3, 1e100, 0),
    "Cauchy of 2.0001": heavy(2.0001, 1e30, 1),
    "LaplaceLogNormal": log_normal(
        [0.3, 4.0], np.stack([symmetric(1e6, panels=200), symmetric(1e60, 1e-24, 200)], -1)
    ),
    "LaplaceLogNormal of small sigma": log_normal([0.0, 0.05], np.stack([EVEN, EVEN], -1)),
    "DiscreteLaplace": (
        discrete_laplace,
        {"lacks": ("entropy",), "bounded": False, "rtol": 1e-9, "clamped": True},
    ),
    "Finite": (finite, {}),
    "SubsampledLaplace": (subsampled_laplace, {"bounded": False, "lacks": ("entropy",)}),
    "Transformed": (
        partial(on_scale, of_pieces, Asinh(2.0, lower=-1e3, upper=1e4), sinh, slope_of_asinh),
        {"rtol": 1e-9, "of_moments": 1e-8},
    ),
    "Transformed Cauchy": (
        partial(
            on_scale,
            heavy(2.0, 1e30, 0, more=np.arcsinh([-25.0, 40.0]))[0],
            Asinh(2.0, lower=-50.0, upper=80.0),
            sinh,
            slope_of_asinh,
        ),
        {"of_moments": 1e-9, "lacks": ("entropy",), **CLAMPED},
    ),
    "Transformed Laplace": (
        partial(on_scale, laplace, Log(lower=1e-30, upper=1e30), np.exp, lambda x: -np.log(x)),
        {"of_moments": 1e-9, **CLAMPED},
    ),
}


FURTHER = ("Cauchy of 2.0001", "Cauchy of 4.5", "Transformed Cauchy", "Transformed Laplace")
NEARLY = {
    "Cauchy": KINDS["Cauchy of 2.0001"][0],
    "PiecewiseExponential with tails": partial(of_pieces, OTHERS),
}


@pytest.mark.parametrize("name", NEARLY)
def test_another_definition_is_another_distribution(name, x64):
    make, options = KINDS[name]
    with pytest.raises(AssertionError):
        assert_known(make()[0], NEARLY[name]()[1], **options)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in FURTHER)) for n in KINDS],
)
def test_all_is_as_the_definition_says(name, x64):
    make, options = KINDS[name]
    assert_known(*make(), **options)
