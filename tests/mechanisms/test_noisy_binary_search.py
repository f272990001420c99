"""The noisy binary search: its rounds, its exact probabilities, its losses over all small datasets,
and the published constant.
"""

import json
import pathlib
from dataclasses import replace
from math import ceil, erfc, exp, log, log2, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import Guarantee
from dpjax.mechanisms import noisy_binary_search, search_rounds, search_shift_for
from dpjax.sensitivity.down import DownSensitivity
from dpjax.statistics.monotone import maximum
from tests.support.removals import (
    DEFINITIONS,
    down_sensitivity_of,
    finite_losses,
    log_probabilities,
    neighboring,
)
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "H_binary_search.json").read_text()
)
SCALED = GOLDEN["loss_with_the_published_scale"]
ROUNDING = 1e-9
CANDIDATES = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 6.0, 7.0])
NOISE = {
    "laplace": lambda t: exp(t) / 2 if t <= 0 else 1 - exp(-t) / 2,
    "gaussian": lambda t: erfc(-t / sqrt(2)) / 2,
}


def pseudocode(loss, size, tau, scale, cdf, low=0, high=None):
    """The post's loop with both branches taken: the probability of every candidate and the largest
    number of rounds.
    """
    high = size - 1 if high is None else high
    if not low + 1 < high:
        return {high: 1.0}, 0
    k = (low + high) // 2
    left = cdf((tau - loss(k)) / scale)
    right = cdf((loss(k) - tau) / scale)
    (a, deep), (b, deeper) = (
        pseudocode(loss, size, tau, scale, cdf, *half) for half in ((low, k), (k, high))
    )
    return {leaf: left * p for leaf, p in a.items()} | {
        leaf: right * p for leaf, p in b.items()
    }, 1 + max(deep, deeper)


def test_rounds_of_the_table_of_the_formula_and_of_the_loop():
    assert search_rounds(1) == 0
    for row in GOLDEN["rounds"]:
        k = row["Y"]
        simulated = pseudocode(lambda k: 0.0, k, 1.0, 1.0, NOISE["laplace"])[1]
        assert search_rounds(k) == simulated == row["worst_rounds"] == row["correct"]
        assert ceil(log2(k)) - 1 == row["blog_bound"]
    assert any(row["blog_bound"] < row["correct"] for row in GOLDEN["rounds"])
    for k in (2**20 + 1, 2**20 + 2):
        assert search_rounds(k) == ceil(log2(k - 1))


@pytest.mark.parametrize(
    "size", [11, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3, 6, 38))]
)
@pytest.mark.parametrize("noise", NOISE)
def test_probabilities_are_those_of_the_loop(noise, size, x64):
    h = -np.sort(-np.random.default_rng(0).integers(0, size + 1, (4, 30)) * 1.0, axis=-1)
    h[:, -1] = 1.0  # candidate 0 lies below every value of f
    costs, tau = np.array([0.3, 2.0, 1.0, 1.0]), np.array([2.0, 1.0, 7.5, 300.0])
    distribution = noisy_binary_search(
        DownSensitivity(jnp.asarray(h), jnp.asarray(size + 1.0)),
        tau=tau,
        candidates=np.arange(float(size)),
        **{"epsilon" if noise == "laplace" else "zcdp": costs},
    )
    rounds = max(search_rounds(size), 1)
    for row in range(4):
        scale = rounds / costs[row] if noise == "laplace" else sqrt(rounds / (2 * costs[row]))
        exact, _ = pseudocode(
            lambda k, own=h[row]: float(np.sum(own > k)), size, tau[row], scale, NOISE[noise]
        )
        expected = np.array([exact.get(k, 0.0) for k in range(size)])
        np.testing.assert_allclose(
            np.exp(log_probabilities(distribution))[row], expected, rtol=1e-9, atol=1e-300
        )


def search(down, epsilon, tau=2.0, candidates=CANDIDATES, rounds=None):
    """The search with a number of rounds of one's own in the scale."""
    true = search_rounds(len(candidates))
    return noisy_binary_search(
        down, epsilon=epsilon * true / (rounds or true), tau=tau, candidates=candidates
    )


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("max", CANDIDATES),
        *(
            pytest.param(name, CANDIDATES, marks=pytest.mark.slow)
            for name in DEFINITIONS
            if name != "max"
        ),
        *(
            pytest.param(name, CANDIDATES[[0, 1, 3, 5, 7, 10]], marks=pytest.mark.slow)
            for name in DEFINITIONS
        ),
    ],
)
def test_the_loss_of_laplace_noise_stays_within_epsilon(name, candidates, x64):
    """Over all datasets and neighbors, exactly; the range is twice that at most."""
    down, largest = down_sensitivity_of(name), 0.0
    pairs, swaps = neighboring(), neighboring(neighbors="swap")
    for epsilon in (0.5, 2.0):
        for tau in (0.5, 2.0, 3.0):
            distribution = search(down, epsilon, tau, candidates)
            loss, spread = finite_losses(distribution, pairs)
            assert loss <= epsilon * (1 + ROUNDING)
            assert spread <= 2 * epsilon * (1 + ROUNDING)
            assert finite_losses(distribution, swaps)[0] <= epsilon * (1 + ROUNDING)
            largest = max(largest, loss / epsilon)
    if name == "max":
        assert largest >= 0.7


@pytest.mark.parametrize(
    "k", [k if k == "6" else pytest.param(k, marks=pytest.mark.slow) for k in SCALED]
)
def test_control_the_published_scale(k, x64):
    """All records at the lowest candidate and one more person at the highest: the loss with the
    scale log2(k)/epsilon.
    """
    size = int(k)
    x = np.array([[1.0] * 5, [1.0] * 4 + [float(size)]])
    down = maximum(x, lower=1.0, upper=float(size), num_records=np.array([4, 5]))
    candidates, pair = np.arange(1.0, size + 1), np.array([[0], [1]])
    for tau in (1.0, 3.0):
        for epsilon in (0.5, 2.0):
            loss, _ = finite_losses(search(down, epsilon, tau, candidates, rounds=log2(size)), pair)
            assert loss / epsilon == pytest.approx(SCALED[k], rel=1e-9)
            assert finite_losses(search(down, epsilon, tau, candidates), pair)[0] == pytest.approx(
                epsilon, rel=1e-9
            )


def test_control_a_threshold_that_depends_on_the_data(x64):
    down, epsilon = down_sensitivity_of("max"), 2.0
    # Not capped below four people
    people = np.sum(np.diff(np.asarray(down_sensitivity_of("sizesq").values)) != 0, axis=-1)
    distribution = noisy_binary_search(
        down, epsilon=epsilon, tau=1.0 + 3.0 * people, candidates=CANDIDATES
    )
    assert finite_losses(distribution, neighboring())[0] >= 1.2 * epsilon


def renyi(distribution, pairs, alpha):
    """The largest Renyi divergence of order alpha over neighboring rows, in both directions."""
    logs = log_probabilities(distribution)[:, 1:]  # the first candidate is never returned
    first, second = np.concatenate([pairs, pairs[::-1]], axis=-1)
    terms = alpha * logs[first] + (1 - alpha) * logs[second]
    top = terms.max(axis=-1)
    return float(np.max(top + np.log(np.exp(terms - top[:, None]).sum(-1)))) / (alpha - 1)


ORDERS = (1.001, 1.5, 2.0, 4.0, 16.0, 64.0)


@pytest.mark.parametrize(
    "name", [n if n == "max" else pytest.param(n, marks=pytest.mark.slow) for n in DEFINITIONS]
)
def test_renyi_divergences_of_both_noises(name, x64):
    """rho-zCDP is alpha rho at every order: Gaussian noise by design, Laplace noise at epsilon^2/(2
    R).
    """
    down, pairs, rounds = down_sensitivity_of(name), neighboring(), search_rounds(len(CANDIDATES))
    for tau in (1.0, 3.0, 20.0):
        for rho in (0.1, rounds / 2):
            gaussian = noisy_binary_search(down, zcdp=rho, tau=tau, candidates=CANDIDATES[1:])
            laplace = noisy_binary_search(
                down, epsilon=sqrt(2 * search_rounds(10) * rho), tau=tau, candidates=CANDIDATES[1:]
            )
            for distribution in (gaussian, laplace):
                for alpha in ORDERS:
                    assert renyi(distribution, pairs, alpha) <= alpha * rho * (1 + ROUNDING)


def test_control_gaussian_noise_for_the_published_rounds(x64):
    """With deviation 1 the divergence of order alpha is nearly R alpha / 2 at tau = alpha: too few
    rounds in the scale show.
    """
    x = np.array([[1.0] * 5, [1.0] * 4 + [6.0]])
    down = maximum(x, lower=1.0, upper=6.0, num_records=np.array([4, 5]))
    rho, alpha = search_rounds(6) / 2, 32.0
    pair = np.array([[0], [1]])
    right = renyi(
        noisy_binary_search(down, zcdp=rho, tau=alpha, candidates=np.arange(1.0, 7.0)), pair, alpha
    )
    assert 0.98 * alpha * rho <= right <= alpha * rho
    published = noisy_binary_search(
        down, zcdp=rho * 3 / log2(6), tau=alpha, candidates=np.arange(1.0, 7.0)
    )
    assert renyi(published, pair, alpha) >= 1.1 * alpha * rho


@pytest.mark.slow
def test_the_first_candidate_is_never_returned():
    """So where f(x) is the first candidate the post's bound fails for certain; a candidate in front
    mends it.
    """
    down = maximum(jnp.zeros(50), lower=0.0, upper=7.0)
    distribution = noisy_binary_search(down, tau=20.0, candidates=np.arange(8.0), epsilon=5.0)
    assert float(distribution.prob(0.0)) == 0
    assert (
        float(
            noisy_binary_search(down, tau=20.0, candidates=np.arange(-1.0, 8.0), epsilon=5.0).prob(
                0.0
            )
        )
        >= 0.99
    )
    assert float(noisy_binary_search(down, tau=1.0, candidates=[3.0], epsilon=1.0).prob(3.0)) == 1
    assert float(noisy_binary_search(down, tau=1.0, candidates=[3.0, 4.0], zcdp=1.0).prob(4.0)) == 1


@pytest.mark.slow
def test_derivatives_by_the_parameter(x64):
    """Also with candidates below f(empty), whose loss is infinite, and where a loss is just tau."""
    down = maximum(jnp.array([1.0, 3.0, 3.0, 6.0]), lower=1.0, upper=7.0)

    @jax.jit
    def error(cost, tau):
        return tuple(
            noisy_binary_search(
                down, tau=tau, candidates=jnp.arange(-3.0, 8.0), **{name: cost}
            ).mean_abs_error(4.0)
            for name in ("epsilon", "zcdp")
        )

    gradients = jax.jit(jax.jacobian(error, argnums=(0, 1)))(jnp.float64(0.7), jnp.float64(2.0))
    for number in range(2):
        for position, step in enumerate(((1e-5, 0.0), (0.0, 1e-5))):
            central = (
                error(0.7 + step[0], 2.0 + step[1])[number]
                - error(0.7 - step[0], 2.0 - step[1])[number]
            )
            assert float(gradients[number][position]) == pytest.approx(
                float(central) / 2e-5, rel=1e-5
            )


def test_a_sweep_broadcasts_and_a_bad_parameter_spoils_its_own_row():
    down = maximum(jnp.ones((3, 4)), lower=0.0, upper=jnp.array([20.0, -1.0, 30.0]))
    for name in ("epsilon", "zcdp"):
        distribution = noisy_binary_search(
            down, tau=2.0, candidates=jnp.arange(9.0), **{name: jnp.array([0.5, -1.0])[:, None]}
        )
        assert distribution.batch_shape == (2, 3)
        np.testing.assert_array_equal(
            np.isfinite(distribution.mean()), [[True, False, True], [False] * 3]
        )
    distribution = noisy_binary_search(
        down, tau=jnp.array([[1.0], [jnp.nan]]), candidates=jnp.arange(9.0), epsilon=1.0
    )
    np.testing.assert_array_equal(
        np.isfinite(distribution.mean()), [[True, False, True], [False] * 3]
    )
    assert np.isnan(
        noisy_binary_search(
            down, tau=1.0, candidates=jnp.array([1.0, 0.0, 2.0]), epsilon=1.0
        ).mean()
    ).all()


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("noise", ["epsilon", "zcdp"])
def test_draws_do_not_change_with_padding_or_further_rows(noise):
    x = np.random.default_rng(2).lognormal(size=(3, 21)).astype(np.float32)

    @jax.jit
    def draw(x, count):
        down = maximum(x, lower=0.0, upper=20.0, num_records=count)
        distribution = noisy_binary_search(
            down, tau=3.0, candidates=jnp.linspace(-0.5, 20.0, 42), **{noise: 1.0}
        )
        return distribution.sample(jax.random.key(0), (50,))

    plain = draw(x, jnp.full(3, 21, jnp.int32))
    np.testing.assert_array_equal(
        draw(np.pad(x, [(0, 0), (0, 43)]), jnp.full(3, 21, jnp.int32)), plain
    )
    np.testing.assert_array_equal(
        draw(np.concatenate([x, x + 1]), jnp.full(6, 21, jnp.int32))[:, :3], plain
    )


@pytest.mark.slow
def test_draws_follow_the_exact_law():
    down = maximum(jnp.arange(30.0), lower=0.0, upper=40.0)
    distribution, other = (
        noisy_binary_search(down, tau=5.0, candidates=np.arange(-1.0, 41.0), epsilon=eps)
        for eps in (2.0, 2.4)
    )
    counts = np.bincount(
        np.asarray(distribution.sample_index(jax.random.key(2), (200_000,))), minlength=42
    )
    assert_counts_follow(counts, distribution.probabilities())
    assert_counts_rejected(counts, other.probabilities())


def test_bad_parameters_raise():
    down = maximum(jnp.ones(3), lower=0.0, upper=2.0)
    good = {"tau": 1.0, "candidates": [0.0, 1.0, 2.0], "epsilon": 1.0}
    for wrong, match in (
        ({"zcdp": 1.0}, "exactly one"),
        ({"epsilon": None}, "exactly one"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": None, "zcdp": -1.0}, "zcdp"),
        ({"tau": 0.0}, "tau"),
        ({"candidates": [1.0, 0.0]}, "increasing"),
    ):
        with pytest.raises(ValueError, match=match):
            noisy_binary_search(down, **(good | wrong))
    with pytest.raises(ValueError, match="num_candidates"):
        search_rounds(0)
    with pytest.raises(ValueError, match="failure"):
        search_shift_for(num_candidates=5, failure=0.0, epsilon=1.0)


def test_shifts_and_guarantees():
    assert search_shift_for(num_candidates=6, failure=0.1, epsilon=0.5) == pytest.approx(
        3 / 0.5 * log(3 / 0.1)
    )
    assert search_shift_for(num_candidates=6, failure=0.1, zcdp=0.5) == pytest.approx(
        sqrt(3 / 0.5 * log(3 / 0.1))
    )
    down = maximum(jnp.ones(3), lower=0.0, upper=2.0)
    assert noisy_binary_search.guarantee(down, num_candidates=6, epsilon=0.5) == Guarantee(
        0.5, 1.0, "add_remove", zcdp=0.25 / 6
    )
    infinite = float("inf")
    assert noisy_binary_search.guarantee(down, num_candidates=6, zcdp=0.5) == Guarantee(
        infinite, infinite, "add_remove", zcdp=0.5
    )
    assert (
        replace(noisy_binary_search.guarantee(down, num_candidates=2, zcdp=0.5), zcdp=1.0).zcdp
        == 1.0
    )


@pytest.mark.slow
def test_float32_stays_float32_where_float64_is_enabled(x64):
    x = jnp.asarray(np.random.default_rng(3).uniform(0, 7, (2, 30)), jnp.float32)
    for name in ("epsilon", "zcdp"):
        single, double = (
            noisy_binary_search(
                maximum(x.astype(t), lower=0.0, upper=7.0),
                tau=3.0,
                candidates=CANDIDATES,
                **{name: 1.0},
            )
            for t in (jnp.float32, jnp.float64)
        )
        assert single.dtype == single.cost.dtype == jnp.float32
        np.testing.assert_allclose(single.cost, double.cost, rtol=1e-5)
