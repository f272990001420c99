"""Duff: the paper's median and mode under add/remove, what it refuses, and its privacy on every
small dataset.
"""

import json
import pathlib
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import (
    PiecewiseExponential,
    from_distances,
    inverse_sensitivity,
    mean,
    median,
    piecewise_laplace,
    quantile,
    triangle_count,
)
from dpjax.accounting.guarantee import Guarantee
from dpjax.mechanisms import duff, exponential
from dpjax.statistics import mode
from tests.statistics.test_triangles import all_graphs, brute_force, flips
from tests.support import oracle
from tests.support.audit import audit, neighboring_rows, padded

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "A3_golden_1d.json").read_text()
)
GRID = (0.0, 1.0, 5.0, 6.0, 20.0)
DATASETS = oracle.all_datasets(range(5), GRID)
MIDDLES = (np.array(GRID[1:]) + np.array(GRID[:-1])) / 2
EPSILON = 2.0


def duff_median(x, low, high, **options):
    return median(
        jnp.asarray(x), lower=low, upper=high, neighbors="add_remove", definition="lower", **options
    )


def small_profile(datasets=DATASETS):
    x, count = padded(datasets, 4)
    return duff_median(x, GRID[0], GRID[-1], num_records=count)


def utility_as_printed(y, data, low, high):
    """Section 4.1 of the paper for distinct records, with "n even" for "k even"."""
    n = len(data)
    m = (n + 1) // 2 if n % 2 else n // 2
    x = [low, *data, high]
    for k in range(1, m + 1):
        if x[m - k] <= y <= x[m - k + 1]:
            return -2 * k + n % 2
    for k in range(1, m + 1 + (n % 2 == 0)):
        if x[m + k - 1] <= y <= x[m + k]:
            return -2 * k + (n % 2 == 0)
    raise AssertionError((y, data))


@pytest.mark.parametrize("n", [6, 7])
def test_the_median_is_the_step_function_of_the_paper(n, x64):
    data = np.sort(np.random.default_rng(n).uniform(0.0, 1.0, n))
    # One shape for both n
    distribution = duff(
        duff_median(np.append(data, 0.0), 0.0, 1.0, num_records=np.int32(n)), EPSILON
    )
    edges = np.concatenate([[0.0], data, [1.0]])
    middles = (edges[:-1] + edges[1:]) / 2
    utility = np.array([utility_as_printed(y, list(data), 0.0, 1.0) for y in middles])
    density = np.asarray(distribution.log_prob(middles))
    np.testing.assert_allclose(
        density - density[0], EPSILON / 2 * (utility - utility[0]), atol=1e-12
    )


def test_the_second_case_as_printed_leaves_a_gap():
    """N = 4, m = 2: with "k even" the range of k ends at m = 2 (3 is odd), and nothing covers [y_4,
    b].
    """
    n, m = 4, 2
    printed = [k for k in range(1, m + 2) if k <= m + (k % 2 == 0)]
    mended = [k for k in range(1, m + 2) if k <= m + (n % 2 == 0)]
    # The last covered piece ends at y_4, or at y_5 = b
    assert (max(printed) + m, max(mended) + m) == (4, 5)


@pytest.mark.slow
def test_golden_table(x64):
    distribution = duff(
        duff_median(np.array(GOLDEN["x"]), GOLDEN["a"], GOLDEN["b"]), np.array([0.5, 1.0, 4.0])
    )
    for row, epsilon in enumerate((0.5, 1.0, 4.0)):
        golden = GOLDEN[f"ar_duff|INV|{epsilon}"]
        assert float(distribution.mean_abs_error(golden["f"])[row]) == pytest.approx(
            golden["mean_abs_err"], abs=1e-11
        )
        log_density = distribution.log_prob(np.array(golden["logpdf_at"])[:, None])[:, row]
        np.testing.assert_allclose(log_density, golden["logpdf"], rtol=1e-9, atol=1e-9)


def test_the_median_is_private(x64):
    result = audit(duff(small_profile(), EPSILON), DATASETS, "add_remove", GRID)
    assert result.loss <= EPSILON * (1 + 1e-9)
    assert result.range == pytest.approx(EPSILON, rel=1e-9)  # and attains the range


def test_an_empty_dataset_with_the_value_in_the_middle(x64):
    """The paper's y_0 = a: an empty dataset has the median a. Duff does not see it (one addition
    reaches everything), interpolation does: with (a+b)/2 the range of piecewise Laplace is 1.19
    epsilon.
    """
    profile = small_profile()
    empty = jnp.asarray(np.array([len(data) == 0 for data in DATASETS]))[:, None]
    first = (
        (jnp.arange(profile.upper.shape[-1]) == 0)[None],
        (jnp.arange(profile.lower.shape[-1]) == 0)[None],
    )
    middle = (GRID[0] + GRID[-1]) / 2
    wrong = replace(
        profile,
        upper=jnp.where(empty & first[0], middle, profile.upper),
        lower=jnp.where(empty & first[1], middle, profile.lower),
    )
    assert audit(duff(wrong, EPSILON), DATASETS, "add_remove", GRID).range == pytest.approx(
        EPSILON, rel=1e-9
    )
    assert audit(
        piecewise_laplace(profile, EPSILON), DATASETS, "add_remove", GRID
    ).range == pytest.approx(EPSILON, rel=1e-9)
    assert (
        audit(piecewise_laplace(wrong, EPSILON), DATASETS, "add_remove", GRID).range
        >= 1.18 * EPSILON
    )


def test_control_levels_counted_twice_on_one_side(x64):
    profile = small_profile()
    shorter = replace(profile, upper_levels=profile.upper_levels * 2)
    assert audit(duff(shorter, EPSILON), DATASETS, "add_remove", GRID).range >= 1.4 * EPSILON


def test_control_its_median_under_swap(x64):
    """Replacing a record is two changes: loss and range up to 2 epsilon, less what so few datasets
    show.
    """
    swapped = oracle.all_datasets([4], GRID)
    assert audit(duff(small_profile(swapped), EPSILON), swapped, "swap", GRID).loss >= 1.2 * EPSILON


def test_the_mode_is_the_exponential_mechanism_on_the_gap(x64):
    x = np.array([3.0, 1.0, 3.0, 2.0, 3.0, 1.0])
    scores = mode(x, candidates=[1, 2, 3, 4], neighbors="add_remove")
    distribution = duff(scores, EPSILON)
    np.testing.assert_allclose(
        distribution.log_prob([1.0, 2.0, 4.0]) - distribution.log_prob(3.0),
        [-2.0, -3.0, -4.0],
        rtol=1e-12,
    )
    np.testing.assert_array_equal(
        distribution.probabilities(), exponential(scores, EPSILON).probabilities()
    )


def levels_and_distances(statistic, datasets):
    """The level of every value of the grid in the profiles of small datasets, and the changes to a
    dataset that has it.
    """
    x, count = padded(datasets, 3)
    profile = statistic(
        jnp.asarray(x), lower=GRID[0], upper=GRID[-1], neighbors="add_remove", num_records=count
    )
    sides = (np.asarray(side) for side in (profile.lower, profile.upper))
    lower, upper = (
        np.pad(side, [(0, 0), (0, 9 - side.shape[1])], mode="edge")[..., None] for side in sides
    )
    level = np.argmax((lower <= GRID) & (np.array(GRID) <= upper), axis=1)
    every = oracle.all_datasets(range(8), GRID)
    index = {data: row for row, data in enumerate(every)}
    x, count = padded(every, 7)
    values = np.asarray(
        statistic(
            jnp.asarray(x), lower=GRID[0], upper=GRID[-1], neighbors="add_remove", num_records=count
        ).value
    )
    pairs = np.array(
        [
            (i, index[y])
            for x, i in index.items()
            for y in oracle.neighbors_of(x, "add_remove", GRID)
            if y in index
        ]
    )
    distance = np.where(values[:, None] == np.array(GRID), 0, 99)
    for _ in range(8):
        near = distance.copy()
        np.minimum.at(near, pairs[:, 0], distance[pairs[:, 1]] + 1)
        distance = near
    return profile.reached, level, distance[[index[data] for data in datasets]]


def test_the_levels_of_the_median_are_distances_and_others_are_not():
    """Definition 8 by search over all datasets; a lower quartile falls by removals, but to a value
    that nobody has only by one.
    """
    datasets = oracle.all_datasets(range(4), GRID)
    reached, level, distance = levels_and_distances(
        lambda x, **options: median(x, definition="lower", **options), datasets
    )
    assert reached == "intervals"
    np.testing.assert_array_equal(level, distance)
    reached, level, distance = levels_and_distances(
        lambda x, **options: quantile(x, q=0.25, definition="lower", **options), datasets
    )
    assert reached == "extremes"
    assert (level <= distance).all()
    assert (level < distance).any()


def test_profiles_that_give_another_distribution_than_the_paper_are_refused():
    x = jnp.arange(5.0)
    options = {"lower": 0, "upper": 5, "neighbors": "add_remove"}
    whole = duff_median(x, 0, 5)
    for profile in (
        median(x, **options),
        mean(x, **options),
        quantile(x, q=0.25, definition="lower", **options),
        whole.truncate(2),
        duff_median(x, 0, 5, truncate=2),
    ):
        for call in (duff, duff.guarantee):
            with pytest.raises(ValueError, match="must be the paper's distances"):
                call(profile, 1.0)
    duff(mean(x, values="hull", **options), 1.0)
    # What would have been drawn: the default median is further from the paper's than any rounding.
    edges = np.linspace(0, 5, 101, dtype=np.float32)[1:]
    other, papers = inverse_sensitivity(median(x, **options), 4.0), duff(whole, 4.0)
    assert np.abs(np.asarray(other.cdf(edges)) - np.asarray(papers.cdf(edges))).max() > 0.1


def classical(x, low, high, epsilon):
    """The exponential mechanism on the difference of ranks, as the docstring of Duff says it: u_2
    of the paper's Section 4.
    """
    n = x.shape[-1]
    ends = np.broadcast_to([low, high], (*x.shape[:-1], 2))
    edges = np.concatenate([ends[..., :1], np.sort(x), ends[..., 1:]], axis=-1)
    cost = jnp.abs(2 * jnp.arange(n + 1.0) - n)
    return PiecewiseExponential(jnp.asarray(edges), cost, cost, jnp.asarray(epsilon / 2))


def test_the_classical_median(x64):
    """Eleven uniform records, epsilon 1: its error is .113, that of Duff .123; on every small
    dataset it is private.
    """
    x = np.random.default_rng(0).uniform(size=11)
    found, papers = classical(x, 0.0, 1.0, 1.0), duff(duff_median(x, 0.0, 1.0), 1.0)
    assert [round(float(one.mean_abs_error(np.median(x))), 3) for one in (found, papers)] == [
        0.113,
        0.123,
    ]
    below = np.searchsorted(np.sort(x), middle := np.linspace(0.005, 0.995, 100))
    utility = -np.abs(below - (11 - below))
    np.testing.assert_allclose(np.diff(found.log_prob(middle)), np.diff(utility) / 2, atol=1e-12)
    sizes = [[data for data in DATASETS if len(data) == n] for n in range(5)]
    rows = [np.array(some, float).reshape(len(some), n) for n, some in enumerate(sizes)]
    logs = [
        np.asarray(classical(x, GRID[0], GRID[-1], EPSILON).log_prob(MIDDLES[:, None]))
        for x in rows
    ]
    logs = np.concatenate(logs, axis=1)
    one, other = neighboring_rows(tuple(DATASETS), "add_remove", GRID)
    ratio = logs[:, one] - logs[:, other]
    assert np.abs(ratio).max() <= EPSILON * (1 + 1e-9)
    assert (ratio.max(axis=0) - ratio.min(axis=0)).max() == pytest.approx(EPSILON, rel=1e-9)
    # Control: one record replaced moves the difference of ranks by 2.
    one, other = neighboring_rows(tuple(sizes[4]), "swap", GRID)
    four = logs[:, -len(sizes[4]) :]
    assert np.abs(four[:, one] - four[:, other]).max() > 1.4 * EPSILON


def test_what_it_refuses_and_its_guarantee():
    x = jnp.arange(3.0)
    with pytest.raises(ValueError, match="use inverse_sensitivity"):
        duff(median(x, lower=0, upper=3, neighbors="swap"), 1.0)
    scores = mode(x, candidates=[0, 1], neighbors="add_remove")
    with pytest.raises(ValueError, match="use exponential"):
        duff(replace(scores, neighbors="swap"), 1.0)
    for rho in (0.5, jnp.float32(0.0)):
        with pytest.raises(ValueError, match="left at 0 for CandidateScores"):
            duff(scores, 1.0, rho=rho)
    with pytest.raises(TypeError, match=r"SensitivityProfile .*or CandidateScores"):
        duff(x, 1.0)
    profile = median(x, lower=0, upper=3, neighbors="add_remove", definition="lower")
    assert (
        duff.guarantee(profile, 0.5)
        == duff.guarantee(scores, 0.5)
        == Guarantee(0.5, 0.5, "add_remove")
    )
    with pytest.raises(ValueError, match="add_remove"):
        duff.guarantee(replace(scores, neighbors="swap"), 0.5)
    smooth = duff(profile, 1.0, rho=0.25)
    np.testing.assert_array_equal(smooth.edges, inverse_sensitivity(profile, 1.0, rho=0.25).edges)


def test_a_graph_is_the_set_of_its_edges():
    """All graphs on four nodes: true distances between triangle counts by search, and the levels of
    the profile, at most those.
    """
    adjacency = all_graphs(4)
    count, _ = brute_force(adjacency)
    values = np.unique(count)
    reached = count[:, None] == values
    distance = np.where(reached, 0.0, np.inf)
    for k in range(1, 7):
        reached = reached | flips(reached).any(axis=0)
        distance = np.where(reached & np.isinf(distance), k, distance)
    profile = triangle_count(adjacency, num_levels=6, neighbors="edge").truncate(6)
    sides = np.asarray(profile.lower)[..., None], np.asarray(profile.upper)[..., None]
    level = np.argmax((sides[0] <= values) & (values <= sides[1]), axis=-2)
    assert (level <= distance).all()
    assert (level < distance).any()
    assert duff.guarantee(profile, EPSILON) == Guarantee(EPSILON, EPSILON, "edge")
    scores = from_distances(distance, candidates=values, neighbors="edge")
    # The second one is the control
    for relation, bound in ((scores, 1.0), (replace(scores, scores=2 * scores.scores), 1.7)):
        cost = np.asarray(duff(relation, EPSILON).log_prob(values[:, None])).T
        loss = np.abs(flips(cost) - cost).max()
        assert loss <= EPSILON * (1 + 1e-5) if bound == 1 else loss > bound * EPSILON
    distribution = duff(profile, EPSILON)
    np.testing.assert_array_equal(distribution.edges, inverse_sensitivity(profile, EPSILON).edges)
