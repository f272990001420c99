"""Shifted inverse sensitivity: the exact audit of four statistics, the golden losses, candidates,
utility and draws.
"""

import json
import pathlib
from dataclasses import replace
from math import ceil, log

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import Guarantee, inverse_sensitivity, order_statistic, piecewise_laplace
from dpjax.distributions.finite import Finite
from dpjax.mechanisms import shift_for, shifted_inverse
from dpjax.mechanisms.candidates import removals
from dpjax.sensitivity.down import DownSensitivity
from dpjax.statistics.monotone import distinct_count, maximum, nonnegative_sum, user_sum
from tests.support import oracle
from tests.support.audit import audit
from tests.support.distributions import of_one_size
from tests.support.removals import (
    DATASETS,
    DEFINITIONS,
    GRID,
    N_MAX,
    TOP,
    down_sensitivity_of,
    finite_losses,
    kept,
    log_probabilities,
    neighboring,
)
from tests.support.statistics import (
    assert_counts_follow,
    assert_counts_rejected,
    assert_follows,
    assert_rejected,
)

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "E_shifted.json").read_text()
)
ROUNDING = 1e-9
TAUS = (1, 2, 3)
QUICK = ("max",)
# Every value of the statistics, and one below
CANDIDATES = np.array([-1.0, *np.unique([*GRID, TOP, 0.5, 2.0, 3.0, 4.5, 6.0])])


def statistics(quick=QUICK):
    return [
        name if name in quick else pytest.param(name, marks=pytest.mark.slow)
        for name in DEFINITIONS
    ]


def audit_all(distribution, neighbors="add_remove"):
    return audit(distribution, DATASETS, neighbors, GRID)


def assert_private(result, epsilon):
    assert result.loss <= epsilon * (1 + ROUNDING), result
    assert result.range <= epsilon * (1 + ROUNDING), result


@pytest.mark.parametrize("name", statistics())
def test_golden_losses_on_the_line(name, x64):
    """Every dataset and neighbor at both limits of every breakpoint; the losses are the golden
    ones.
    """
    down, epsilon = down_sensitivity_of(name), 2.0
    for tau in TAUS:
        for kind, distribution in {
            "True": shifted_inverse(down, epsilon, tau=tau),
            "False": inverse_sensitivity(down.shift(tau), epsilon),
        }.items():
            result = audit_all(distribution)
            assert_private(result, epsilon)
            golden = GOLDEN["loss_over_epsilon"][name][f"interp={kind},tau={tau}"]
            np.testing.assert_allclose(np.array(result) / epsilon, golden, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFINITIONS)
def test_other_epsilons_and_the_smooth_variants_on_the_line(name, x64):
    down = down_sensitivity_of(name)
    for tau in (*TAUS, 5, 7):
        for epsilon in (0.1, 0.5, 4.0):
            assert_private(audit_all(shifted_inverse(down, epsilon, tau=tau)), epsilon)
            assert_private(audit_all(shifted_inverse(down, epsilon, tau=tau, rho=0.3)), epsilon)
            assert_private(
                audit_all(shifted_inverse(down, epsilon, tau=tau, rho=0.3, support="extended")),
                epsilon,
            )
            assert_private(
                audit_all(inverse_sensitivity(down.shift(tau), epsilon, rho=0.3)), epsilon
            )


@pytest.mark.parametrize("name", statistics())
def test_removals_are_the_post_s_losses_with_sensitivity_1(name, x64):
    """Equations 4 and A from the definition, over all subsets, and Proposition 3 over all
    neighbors.
    """
    down = down_sensitivity_of(name)
    to_at_most, to_below = (np.asarray(a) for a in removals(down, jnp.asarray(CANDIDATES)))
    for row in range(0, len(DATASETS), 7):
        h = kept(DATASETS[row], DEFINITIONS[name])
        for y, at_most, below in zip(CANDIDATES, to_at_most[row], to_below[row], strict=True):
            assert at_most == (np.argmax(h <= y) if (h <= y).any() else np.inf)
            assert below == (np.argmax(h < y) if (h < y).any() else np.inf)
    first, second = neighboring()
    for loss in (to_at_most, to_below):
        infinite = np.isinf(loss[first])
        np.testing.assert_array_equal(infinite, np.isinf(loss[second]))
        difference = np.where(
            infinite,
            0.0,
            np.where(infinite, 0.0, loss[first]) - np.where(infinite, 0.0, loss[second]),
        )
        assert np.abs(difference).max() == 1


@pytest.mark.parametrize("name", statistics(quick=("max",)))
def test_one_person_replaced_costs_no_more(name, x64):
    """Unlike for profiles in general, a removal and an addition move h in opposite directions."""
    down, pairs = down_sensitivity_of(name), neighboring(neighbors="swap")
    for tau in TAUS:
        for epsilon in (0.5, 2.0):
            assert_private(audit_all(shifted_inverse(down, epsilon, tau=tau), "swap"), epsilon)
            distribution = shifted_inverse(down, epsilon, tau=tau, candidates=CANDIDATES)
            assert max(finite_losses(distribution, pairs)) <= epsilon * (1 + ROUNDING)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_loss_and_range_on_candidates(name, x64):
    down, pairs, worst = down_sensitivity_of(name), neighboring(), 0.0
    for tau in TAUS:
        for epsilon in (0.5, 2.0):
            distribution = shifted_inverse(down, epsilon, tau=tau, candidates=CANDIDATES)
            mass = np.exp(log_probabilities(distribution))
            np.testing.assert_allclose(mass.sum(-1), 1.0, rtol=1e-12)
            assert (mass[:, 0] == 0).all()  # below f(empty), whatever the data
            loss, spread = finite_losses(distribution, pairs)
            assert max(loss, spread) <= epsilon * (1 + ROUNDING)
            worst = max(worst, spread / epsilon)
    assert worst == pytest.approx(1.0, rel=1e-9)


def test_the_maximum_on_the_line_is_piecewise_laplace_of_a_large_order_statistic(x64):
    x = jnp.asarray(np.random.default_rng(1).uniform(0, 6, (3, 12)))
    distribution = shifted_inverse(maximum(x, lower=0.0, upper=TOP), 1.5, tau=3)
    same = piecewise_laplace(
        order_statistic(x, 9, lower=0.0, upper=TOP, neighbors="add_remove"), 1.5
    )
    points = np.linspace(0.1, 6.9, 40)[:, None]
    np.testing.assert_allclose(distribution.log_prob(points), same.log_prob(points), atol=1e-12)
    np.testing.assert_allclose(distribution.log_normalizer(), same.log_normalizer(), atol=1e-12)


@pytest.mark.slow
def test_the_gain_of_interpolation_at_the_best_shift(x64):
    """On even spacing; the golden ratios are of random records, whose spacing near the top moves
    them by a few 1e-4.
    """
    x = jnp.arange(1.0, 1001.0) / 1001
    error_of = jax.jit(lambda distribution, value: distribution.mean_abs_error(value))
    for epsilon, shifts in ((0.5, range(38, 43)), (1.0, range(19, 24))):
        down = maximum(x, lower=0.0, upper=2.0)
        error = [
            min(float(error_of(of_one_size(distribution(tau), 1024), down.value)) for tau in shifts)
            for distribution in (
                lambda tau, eps=epsilon, d=down: shifted_inverse(d, eps, tau=tau),
                lambda tau, eps=epsilon, d=down: inverse_sensitivity(d.shift(tau), eps),
            )
        ]
        golden = GOLDEN["interpolated_over_step_error"]["values"][f"eps={epsilon},b=2.0"]
        assert error[1] / error[0] - 1 == pytest.approx(golden - 1, rel=0.15)


# Negative controls: mistakes that the audits must see.


def shifted_by_own_tau(down, epsilon, taus, candidates=None):
    """A shift for each row, as one distribution."""
    distributions = [
        shifted_inverse(down, epsilon, tau=int(tau), candidates=candidates)
        for tau in np.unique(taus)
    ]
    which = np.searchsorted(np.unique(taus), taus)
    if candidates is not None:
        costs = jnp.stack([distribution.cost for distribution in distributions])
        return Finite(
            distributions[0].values, costs[which, np.arange(len(which))], distributions[0].rate
        )
    width = max(distribution.edges.shape[-1] for distribution in distributions)
    rows = {"edges": [], "cost_left": [], "cost_right": []}
    for row, number in enumerate(which):
        distribution = distributions[number]
        missing = width - distribution.edges.shape[-1]
        rows["edges"].append(jnp.pad(distribution.edges[row], (0, missing), mode="edge"))
        for side in ("cost_left", "cost_right"):
            rows[side].append(jnp.pad(getattr(distribution, side), (0, missing)))
    return replace(
        distributions[0], **{name: jnp.stack(values) for name, values in rows.items()}, center=0
    )


def test_control_a_shift_that_depends_on_the_data(x64):
    """A third of the number of people: more people, another target."""
    down, epsilon = down_sensitivity_of("max"), 2.0
    taus = np.array([1 + 2 * (len(data) >= 3) for data in DATASETS])
    loss, spread = finite_losses(shifted_by_own_tau(down, epsilon, taus, CANDIDATES), neighboring())
    assert max(loss, spread) >= 1.2 * epsilon
    result = audit_all(shifted_by_own_tau(down, epsilon, taus))
    assert max(result) >= 1.2 * epsilon
    # And the helper is right
    constant = audit_all(shifted_by_own_tau(down, epsilon, np.full(len(taus), 2)))
    np.testing.assert_allclose(constant, audit_all(shifted_inverse(down, epsilon, tau=2)))


def test_control_a_level_off_by_one_on_one_side(x64):
    epsilon, profile = 2.0, down_sensitivity_of("max").shift(2)
    assert (
        audit_all(
            piecewise_laplace(replace(profile, upper_levels=profile.upper_levels - 1), epsilon)
        ).loss
        >= 1.2 * epsilon
    )


def test_control_one_place_off_in_h_on_one_side(x64):
    """Above at tau - s + 1 instead of tau - s, or below at half the pace; too fast a pace only
    wastes error.
    """
    epsilon, profile = 2.0, down_sensitivity_of("max").shift(2)
    fast = jnp.concatenate([profile.upper[:, :1], profile.upper[:, 2:], profile.upper[:, -1:]], -1)
    assert_private(audit_all(piecewise_laplace(replace(profile, upper=fast), epsilon)), epsilon)
    slow = jnp.concatenate(
        [profile.upper[:, :1], profile.upper[:, :1], profile.upper[:, 1:-2], profile.upper[:, -1:]],
        -1,
    )
    assert max(audit_all(piecewise_laplace(replace(profile, upper=slow), epsilon))) >= 1.2 * epsilon
    twice = replace(
        profile,
        lower=jnp.repeat(profile.lower, 2, axis=-1)[:, : profile.lower.shape[-1]]
        .at[:, -1]
        .set(0.0),
    )
    assert max(audit_all(piecewise_laplace(twice, epsilon))) >= 1.2 * epsilon


def test_control_the_bound_is_the_data_s_own_maximum(x64):
    down = down_sensitivity_of("max")
    assert np.isinf(
        audit_all(shifted_inverse(replace(down, upper=down.value + 1), 2.0, tau=2)).loss
    )


def test_control_candidates_at_the_full_rate_and_removals_in_the_wrong_order(x64):
    epsilon, down, pairs = 2.0, down_sensitivity_of("max"), neighboring()
    distribution = shifted_inverse(down, epsilon, tau=2, candidates=CANDIDATES)
    assert (
        max(finite_losses(replace(distribution, rate=2 * distribution.rate), pairs))
        >= 1.9 * epsilon
    )
    # What remains if the smallest records leave first is no minimum.
    smallest_first = np.array(
        [[max(data[k:], default=0.0) for k in range(N_MAX + 1)] for data in DATASETS]
    )
    wrong = DownSensitivity(jnp.asarray(smallest_first), down.upper)
    assert (
        max(finite_losses(shifted_inverse(wrong, epsilon, tau=2, candidates=CANDIDATES), pairs))
        >= 1.2 * epsilon
    )


def test_why_the_cost_on_candidates_counts_strictly_below(x64):
    """Footnote 4: with l in both places, |l - tau|, the mechanism is private too, but on constant
    data it has no target.
    """
    down = maximum(jnp.full(40, 5.0), lower=0.0, upper=TOP)
    candidates = np.arange(8.0)
    tau = shift_for(1.0, num_candidates=8, failure=0.05)
    distribution = shifted_inverse(down, 1.0, tau=tau, candidates=candidates)
    assert float(distribution.prob(5.0)) >= 0.95
    plain = jnp.abs(removals(down, jnp.asarray(candidates))[0] - tau)
    assert float(Finite(distribution.values, plain, distribution.rate).prob(5.0)) < 0.5
    everyone = down_sensitivity_of("max")
    to_at_most = removals(everyone, jnp.asarray(CANDIDATES[1:]))[0]
    private = Finite(jnp.asarray(CANDIDATES[1:]), jnp.abs(to_at_most - 2), jnp.asarray(1.0))
    assert max(finite_losses(private, neighboring())) <= 2.0 * (1 + ROUNDING)


# The contracts of the distributions.

X = np.random.default_rng(2).lognormal(size=(3, 21)).astype(np.float32)
PIPELINES = {
    "maximum": lambda x, **kw: shifted_inverse(maximum(x, lower=0.0, upper=20.0, **kw), 1.0, tau=3),
    "sum": lambda x, **kw: shifted_inverse(nonnegative_sum(x, upper=100.0, **kw), 1.0, tau=3),
    "user sum": lambda x, **kw: shifted_inverse(
        user_sum(x, jnp.round(4 * x).astype(jnp.int32), upper=100.0, **kw), 1.0, tau=3
    ),
    "distinct": lambda x, **kw: shifted_inverse(
        distinct_count(jnp.round(4 * x).astype(jnp.int32), upper=40.0, **kw), 1.0, tau=3
    ),
    "candidates": lambda x, **kw: shifted_inverse(
        nonnegative_sum(x, upper=100.0, **kw), 1.0, tau=3, candidates=jnp.arange(101.0)
    ),
}


@pytest.mark.optimized
@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_draws_do_not_change_with_padding_or_further_rows(name):
    draw = jax.jit(
        lambda x, count: PIPELINES[name](x, num_records=count).sample(jax.random.key(0), (5,))
    )
    plain = draw(X, jnp.full(3, 21, jnp.int32))
    more = draw(
        np.pad(np.concatenate([X, X + 1]), [(0, 0), (0, 43)], constant_values=7.0),
        jnp.full(6, 21, jnp.int32),
    )
    np.testing.assert_array_equal(more[:, :3], plain)


@pytest.mark.slow
def test_draws_follow_the_exact_distributions():
    distribution, other = (
        shifted_inverse(nonnegative_sum(X[0], upper=100.0), eps, tau=3) for eps in (1.0, 1.2)
    )
    draws = distribution.sample(jax.random.key(1), (200_000,))
    assert_follows(draws, distribution.cdf)
    assert_rejected(draws, other.cdf)
    distribution, other = (
        shifted_inverse(nonnegative_sum(X[0], upper=100.0), eps, tau=3, candidates=np.arange(101.0))
        for eps in (1.0, 1.2)
    )
    counts = np.bincount(
        np.asarray(distribution.sample_index(jax.random.key(2), (200_000,))), minlength=101
    )
    assert_counts_follow(counts, distribution.probabilities())
    assert_counts_rejected(counts, other.probabilities())


@pytest.mark.slow
def test_a_sweep_broadcasts_and_a_bad_parameter_spoils_its_own_row():
    down = maximum(X, lower=0.0, upper=jnp.array([20.0, -1.0, 30.0]))
    epsilon = jnp.array([0.5, -1.0])[:, None]
    for distribution in (
        shifted_inverse(down, epsilon, tau=2),
        shifted_inverse(down, epsilon, tau=2, candidates=jnp.arange(9.0)),
    ):
        assert distribution.batch_shape == (2, 3)
        mean = np.asarray(distribution.mean())
        np.testing.assert_array_equal(np.isfinite(mean), [[True, False, True], [False] * 3])
    unsorted = shifted_inverse(down, 1.0, tau=2, candidates=jnp.array([1.0, 0.0]))
    assert np.isnan(unsorted.mean()).all()


@pytest.mark.slow
def test_more_people_than_the_array_holds_for_the_shift():
    distribution = shifted_inverse(maximum(X[:, :2], lower=0.0, upper=20.0), 1.0, tau=9)
    assert np.isfinite(distribution.sample(jax.random.key(0))).all()


def test_bad_parameters_raise():
    down = maximum(X, lower=0.0, upper=20.0)
    for bad in ([2.0, 1.0], [1.0, 1.0], [0.0, np.inf], [np.nan]):
        with pytest.raises(ValueError, match="increasing"):
            shifted_inverse(down, 1.0, tau=2, candidates=bad)
    for large in ([0.0, 1e39], np.array([-1e39, 0.0]), [0, 10**60]):  # infinite in float32
        with pytest.raises(ValueError, match=r"finite and increasing \(in float32\)"):
            shifted_inverse(down, 1.0, tau=2, candidates=large)
    ends = np.array([-3e38, 3e38], np.float32)  # though their difference is not finite
    assert np.isfinite(shifted_inverse(down, 1.0, tau=2, candidates=ends).values).all()
    for shape in ((0,), (2, 2), ()):
        with pytest.raises(ValueError, match="one-dimensional"):
            shifted_inverse(down, 1.0, tau=2, candidates=np.zeros(shape))
    with pytest.raises(ValueError, match="rho"):
        shifted_inverse(down, 1.0, tau=2, candidates=[1.0, 2.0], rho=0.5)
    for kind in (None, [1.0, 2.0]):
        with pytest.raises(ValueError, match="tau"):
            shifted_inverse(down, 1.0, tau=0, candidates=kind)
        with pytest.raises(ValueError, match="epsilon"):
            shifted_inverse(down, -1.0, tau=2, candidates=kind)
    for bad in ({"num_candidates": 0, "failure": 0.1}, {"num_candidates": 5, "failure": 1.0}):
        with pytest.raises(ValueError, match=r"num_candidates|failure"):
            shift_for(1.0, **bad)


def test_the_shift_reads_public_numbers_and_the_guarantee_names_the_relation():
    for epsilon, k, beta in ((0.1, 7, 0.3), (1.0, 1000, 0.05), (9.0, 2, 0.9)):
        assert shift_for(epsilon, num_candidates=k, failure=beta) == max(
            1, ceil(2 / epsilon * log(k / beta))
        )
    down = maximum(X, lower=0.0, upper=20.0)
    assert shifted_inverse.guarantee(down, 0.7) == Guarantee(0.7, 0.7, "add_remove")
    assert oracle.neighbors_of((1.0,), "add_remove", (2.0,)) == {(), (1.0, 2.0)}
