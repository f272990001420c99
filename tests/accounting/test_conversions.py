"""Conversions against their formulas by many orders, against quadrature, and against numbers
computed apart.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import accounting
from dpjax.accounting import formulas, zcdp_of

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "F_accounting.json").read_text()
)

ORDERS = 1 + np.exp(np.linspace(-6, 40, 200_001))[:, None]


def log_delta(rho, epsilon):
    """The smallest log delta of rho-zCDP at epsilon, over the orders."""
    a = ORDERS
    return np.min((a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a), axis=0)


def test_conversions_to_zcdp(x64):
    """Against the published formula, and against numbers computed apart (delta = 1e-3)."""
    epsilon = np.array([0.1, 1.0, 2.0])
    classical, tight = (zcdp_of(epsilon, delta=1e-3, conversion=c) for c in ("classical", "tight"))
    np.testing.assert_allclose(np.sqrt(2 * classical), [0.02681, 0.25995, 0.50392], atol=6e-6)
    np.testing.assert_allclose(np.sqrt(2 * tight), [0.04862, 0.34464, 0.62179], atol=6e-6)
    np.testing.assert_allclose(
        classical + 2 * np.sqrt(classical * np.log(1e3)), epsilon, rtol=1e-12
    )
    # The best of many orders gives this delta, and no order a smaller one.
    np.testing.assert_allclose(log_delta(np.asarray(tight), epsilon), np.log(1e-3), atol=1e-7)


EPSILON, DELTA = (
    v.ravel() for v in np.meshgrid([1e-6, 1e-4, 1e-3, 0.1, 1.0, 10.0], [1e-30, 1e-12, 1e-6, 1e-2])
)


def test_float32_stays_on_the_safe_side():
    """Within its rounding: a part in 10^5 of delta's logarithm, and never below the classical
    conversion.
    """
    tight = np.asarray(zcdp_of(EPSILON, delta=DELTA), np.float64)
    assert tight.min() > 0
    excess = log_delta(tight, EPSILON) - np.log(DELTA)
    assert excess.max() < 2e-5 * -np.log(DELTA).min()
    # Control: and no larger rho would do
    assert (log_delta(1.01 * tight, EPSILON) - np.log(DELTA)).min() > 1e-4
    assert np.all(tight >= np.asarray(zcdp_of(EPSILON, delta=DELTA, conversion="classical")))


def test_bad_arguments():
    with pytest.raises(ValueError, match="delta"):
        zcdp_of(1.0, delta=1.0)
    with pytest.raises(ValueError, match="epsilon"):
        zcdp_of(1e-39, delta=0.5)  # XLA would take it for zero
    with pytest.raises(ValueError, match="conversion"):
        zcdp_of(1.0, delta=0.5, conversion="loose")


def named(key):
    return [float(part.split("=")[1]) for part in key.split(",")]


def of(name):
    """Arguments ``(number, cases)`` and values of one table of golden numbers."""
    values = [float(v[0] if isinstance(v, list) else v) for v in GOLDEN[name].values()]
    return np.array([named(k) if "=" in k else [float(k)] for k in GOLDEN[name]]).T, np.array(
        values
    )


CURVES = {
    "pdp_to_rdp": accounting.rdp_of_pure,
    "laplace_rdp": accounting.rdp_of_laplace,
    "br_rdp_tight": accounting.rdp_of_bounded_range,
}


@pytest.mark.parametrize("name", CURVES)
def test_renyi_divergences_have_their_golden_values(name, x64):
    (epsilon, order), expected = of(name)
    np.testing.assert_allclose(CURVES[name](epsilon, order=order), expected, rtol=1e-12)
    on_host = getattr(formulas, CURVES[name].__name__)(epsilon, order, np)
    np.testing.assert_allclose(on_host, expected, rtol=1e-12)
    # What one percent of epsilon changes
    assert np.abs(CURVES[name](1.01 * epsilon, order=order) / expected - 1).min() > 1e-4


def kl_of_bounded_range(epsilon):
    """The limit of the Renyi divergence at order 1."""
    half = epsilon / 2
    return np.log(np.sinh(half) / half) + half / np.tanh(half) - 1


@pytest.mark.slow
def test_other_golden_values(x64):
    (epsilon,), expected = of("pdp_to_zcdp")
    np.testing.assert_allclose(accounting.zcdp_of_pure(epsilon), expected, rtol=1e-12)
    np.testing.assert_allclose(accounting.pure_of_zcdp(expected), epsilon, rtol=1e-12)
    (epsilon,), expected = of("br_to_zcdp_eps2_8")
    np.testing.assert_allclose(accounting.zcdp_of_bounded_range(epsilon), expected, rtol=1e-12)
    np.testing.assert_allclose(accounting.bounded_range_of_zcdp(expected), epsilon, rtol=1e-12)
    (epsilon,), expected = of("br_max_KL")
    np.testing.assert_allclose(kl_of_bounded_range(np.asarray(epsilon)), expected, rtol=1e-9)
    near_one = accounting.rdp_of_bounded_range(epsilon, order=1 + 1e-9)
    np.testing.assert_allclose(near_one, expected, rtol=1e-4)
    assert (near_one >= expected).all()
    for key, value in GOLDEN["zcdp_to_eps"].items():
        rho, delta = named(key)
        found = accounting.epsilon_of_zcdp(rho, delta=delta)
        np.testing.assert_allclose(found, float(value["tight_eps_alpha"][0]), rtol=1e-11)
        np.testing.assert_allclose(accounting.delta_of_zcdp(rho, epsilon=found), delta, rtol=1e-9)
        np.testing.assert_allclose(zcdp_of(found, delta=delta), rho, rtol=1e-10)
        assert (
            found < value["classical"]
            if isinstance(value["classical"], float)
            else found < float(value["classical"])
        )
    for key, value in GOLDEN["zcdp_to_delta"].items():
        rho, epsilon = named(key)
        found = accounting.delta_of_zcdp(rho, epsilon=epsilon)
        np.testing.assert_allclose(found, float(value["tight"][0]), rtol=1e-11)
        assert float(value["gaussian_exact_lower_bound"]) < found


def renyi(p, q, order):
    """Of two lists of probabilities."""
    return np.logaddexp.reduce(order * np.log(p) + (1 - order) * np.log(q), axis=0) / (order - 1)


@pytest.mark.parametrize("epsilon", [0.01, 0.7, 5.0, 40.0])
@pytest.mark.parametrize("order", [1.02, 2.0, 17.0])
def test_conversions_are_the_worst_of_concrete_pairs(epsilon, order, x64):
    """Never below a pair of distributions that keeps the promise, and attained by the worst of
    them.
    """
    yes, no = 1 / (1 + np.exp(-epsilon)), 1 / (1 + np.exp(epsilon))
    response = renyi(np.array([yes, no]), np.array([no, yes]), order)
    np.testing.assert_allclose(accounting.rdp_of_pure(epsilon, order=order), response, rtol=1e-8)
    t = np.linspace(0, epsilon, 20_001)[1:-1]
    up, down = (
        np.expm1(t - epsilon) / np.expm1(-epsilon),
        (np.exp(t - epsilon) - np.exp(-epsilon)) / -np.expm1(-epsilon),
    )
    pairs = np.stack([up, down]), np.stack([up * np.exp(-t), down * np.exp(epsilon - t)])
    ranges = renyi(*pairs, order)
    found = float(accounting.rdp_of_bounded_range(epsilon, order=order))
    assert ranges.max() <= found * (1 + 1e-6)
    assert found <= ranges.max() * (1 + 1e-4) + 1e-12
    assert found <= min(epsilon, order * epsilon**2 / 8) * (1 + 1e-12)
    assert found < response  # a range of epsilon is the stronger promise
    grid = np.linspace(-60 / epsilon, 1 + 60 / epsilon, 1_200_001)
    exponent = -epsilon * (order * np.abs(grid) + (1 - order) * np.abs(grid - 1))
    integral = np.trapezoid(np.exp(exponent), grid) * epsilon / 2
    if epsilon < 30:  # the grid is too coarse for narrower distributions
        laplace = float(accounting.rdp_of_laplace(epsilon, order=order))
        np.testing.assert_allclose(np.exp((order - 1) * laplace), integral, rtol=1e-6)
        assert laplace < response


def test_curves_at_the_ends():
    """Tiny and huge arguments in float32: between 0 and epsilon, finite, and monotone in the order
    and in epsilon.
    """
    epsilon = np.array([1e-30, 1e-6, 1e-3, 0.3, 3.0, 80.0, 1e4, 1e30], np.float32)[:, None]
    order = np.array([1 + 1e-6, 1.001, 1.5, 20.0, 300.0, 1e4, 1e12], np.float32)[None]
    for curve in CURVES.values():
        found = np.asarray(curve(epsilon, order=order), np.float64)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert (found <= epsilon * (1 + 1e-5)).all()
        assert (np.diff(found, axis=0) >= -1e-5 * found[1:]).all()
        assert (np.diff(found, axis=1) >= -2e-4 * found[:, 1:]).all()


@pytest.mark.slow
def test_arrays_gradients_and_bad_rows():
    for function in (
        accounting.zcdp_of_pure,
        accounting.pure_of_zcdp,
        accounting.zcdp_of_bounded_range,
        lambda v: accounting.rdp_of_pure(v, order=3.0),
        lambda v: accounting.rdp_of_bounded_range(v, order=3.0),
        lambda v: accounting.rdp_of_laplace(v, order=3.0),
        lambda v: accounting.epsilon_of_zcdp(v, delta=1e-5),
        lambda v: accounting.delta_of_zcdp(v, epsilon=1.0),
    ):
        both = jax.jit(
            lambda values, function=function: (
                function(values),
                jax.vmap(jax.grad(function))(values),
            )
        )
        values = np.array([0.05, 0.5, -1.0, np.nan, 2.0], np.float32)
        found, slope = both(values)
        np.testing.assert_array_equal(np.isnan(found), [False, False, True, True, False])
        step = np.float32(1e-2) * values[:2]
        around = np.append(np.stack([values[:2] + step, values[:2] - step]), np.float32(1.0))
        above, below = np.asarray(both(around)[0])[:4].reshape(2, 2)
        np.testing.assert_allclose(slope[:2], (above - below) / (2 * step), rtol=5e-3)
        with pytest.raises(ValueError, match="positive"):
            function(-1.0)
    sweep = accounting.epsilon_of_zcdp(
        np.array([0.1, 0.2, 0.3])[:, None], delta=np.array([1e-3, 1e-6])
    )
    assert sweep.shape == (3, 2)
    assert (np.diff(sweep, axis=0) > 0).all()
    assert (np.diff(sweep, axis=1) > 0).all()
    with pytest.raises(ValueError, match="order"):
        accounting.rdp_of_pure(1.0, order=1.0)


@pytest.mark.slow
def test_curves_convert_at_their_best_order():
    """A sum of curves against the search over many orders; a line is zCDP."""
    delta = 1e-6

    def curve(order):
        return 12 * accounting.rdp_of_bounded_range(0.4, order=order) + 0.02 * order

    found = float(accounting.epsilon_of_rdp(curve, delta=delta))
    order = ORDERS[:100_000, 0]
    values = 12 * formulas.rdp_of_bounded_range(np.full_like(order, 0.4), order, np) + 0.02 * order
    by_hand = np.min(
        values + (-np.log(delta) + (order - 1) * np.log1p(-1 / order) - np.log(order)) / (order - 1)
    )
    assert abs(found - by_hand) < 2e-5
    assert abs(float(accounting.delta_of_rdp(curve, epsilon=found)) / delta - 1) < 1e-3
    shaped = accounting.epsilon_of_rdp(
        lambda order: jnp.array([0.1, 0.5])[:, None] * order, delta=delta, shape=(2,)
    )
    np.testing.assert_allclose(
        shaped, accounting.epsilon_of_zcdp(np.array([0.1, 0.5]), delta=delta), rtol=1e-5
    )


def test_rounding_is_to_the_safe_side(x64):
    """Where differences cancel: near order 1, far out, and in half precision."""
    assert accounting.zcdp_of_bounded_range(jnp.asarray(1e-3, jnp.float16)).dtype == jnp.float32
    assert float(accounting.zcdp_of_pure(jnp.asarray(1e-3, jnp.bfloat16))) > 4e-7
    order = 1 + 1e-8
    # The Kullback-Leibler divergence eps + e^-eps - 1 at eps = 1
    limit = np.log1p(-0.5) * 0 + 1 + (np.exp(-1.0) - 1)
    np.testing.assert_allclose(accounting.rdp_of_laplace(1.0, order=order), limit, rtol=1e-7)
    assert accounting.rdp_of_laplace(1.0, order=order) >= limit
    for epsilon in (0.1, 1.0, 5.0):
        assert accounting.rdp_of_bounded_range(epsilon, order=1 + 1e-9) >= kl_of_bounded_range(
            epsilon
        )
