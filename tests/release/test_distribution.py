"""The distribution on all small datasets and all their neighbours, exactly; and the faults that must be caught."""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from dpjax.release.integer_profiles import IntegerProfile, totals_of_persons

from dpjax import release
from dpjax.release import exact_distribution, integer_profiles
from dpjax.release.distribution import GridDistribution, depths_of, pieces_of
from dpjax.several_quantiles.ranks import ranks_of_order_statistic, ranks_of_quantile

TOP = 4  # records are 0..4
EPSILON = 1.0
EITHER = ("add_remove", "swap")


def log_pmf(profile, epsilon, cells):
    return GridDistribution(profile, epsilon).log_pmf(cells)


def datasets(sizes):
    return [data for n in sizes for data in product(range(TOP + 1), repeat=n) if list(data) == sorted(data)]


def neighbours_of(data, neighbors):
    rest = [tuple(data[:i] + data[i + 1 :]) for i in range(len(data))]
    base = [data] if neighbors == "add_remove" else rest
    added = [tuple(sorted((*other, v))) for other in base for v in range(TOP + 1)]
    return set(added + (rest if neighbors == "add_remove" else [])) - {data}


RANKS = {
    "median": (0.5, "linear"),
    "lower median": (0.5, "lower"),
    "lower quantile": (0.3, "lower"),
    "upper quantile": (0.9, "lower"),
    "quantile": (0.25, "linear"),
}


def profiles_of(cells, present, statistic, neighbors):
    """The profile of each row."""
    if statistic == "sum":
        return integer_profiles.sum_of_records(cells, high=TOP)
    if statistic in ("maximum", "maximum without one"):
        return integer_profiles.maximum(cells, present, tau=1 if "one" in statistic else 2, high=TOP)
    if statistic == "distinct":
        return integer_profiles.distinct_count(cells, present, tau=1, high=3)
    if statistic == "total":
        return integer_profiles.nonnegative_sum(cells, present, tau=1, high=10)
    if statistic == "second":
        ranks = ranks_of_order_statistic(2, cells.shape[-1])
    else:
        q, definition = RANKS[statistic.removesuffix(" cut")]
        ranks = ranks_of_quantile(q, definition=definition, neighbors=neighbors)
    most = 1 if statistic.endswith(" cut") else None
    return integer_profiles.order_statistic(cells, present, ranks, high=TOP, count_is_public=neighbors == "swap", most=most)


def profile_of(data, statistic, neighbors, n_max=4):
    cells, present = np.zeros((1, n_max), np.int32), np.zeros((1, n_max), bool)
    cells[0, : len(data)], present[0, : len(data)] = data, True
    if neighbors == "swap":
        cells, present = cells[:, : len(data)], present[:, : len(data)]
    found = profiles_of(cells, present, statistic, neighbors)
    return IntegerProfile(found.lower[0], found.upper[0])


def distributions_of(statistic, neighbors, pmf=log_pmf):
    every = datasets(range(4) if neighbors == "add_remove" else [3])
    rows = [profile_of(data, statistic, neighbors) for data in every]
    cells = np.arange(rows[0].lower[-1], rows[0].upper[-1] + 1)
    return every, np.stack([pmf(row, EPSILON, cells) for row in rows])


def audit(statistic, neighbors, pmf=log_pmf):
    """The largest loss and the largest range over all neighbours, in units of epsilon."""
    every, found = distributions_of(statistic, neighbors, pmf)
    return worst_of(found, pairs_of(every, neighbors), EPSILON)


def pairs_of(every, neighbors):
    """The numbers of all datasets and of their neighbours among them, ``(2, k)``."""
    index = {data: row for row, data in enumerate(every)}
    pairs = [(index[data], index[other]) for data in every for other in neighbours_of(data, neighbors) if other in index]
    return np.array(pairs).T


def worst_of(found, pairs, epsilon):
    one, other = found[pairs[0]], found[pairs[1]]
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isneginf(one) & np.isneginf(other), 0.0, one - other)
    spread = ratio.max(axis=-1) - np.minimum(ratio.min(axis=-1), 0.0)
    return np.abs(ratio).max() / epsilon, spread.max() / epsilon


NAMES = ("median", "median cut", "lower quantile", "quantile", "quantile cut", "second", "maximum", "total", "distinct")
CASES = [(s, r) for r in ("add_remove", "swap") for s in NAMES] + [("sum", "swap")]


@pytest.mark.parametrize(("statistic", "neighbors"), CASES)
def test_loss_and_range_of_all_neighbours(statistic, neighbors):
    loss, spread = audit(statistic, neighbors)
    assert loss <= 1 + 1e-12
    assert 0.3 < spread <= 1 + 1e-12
    _, found = distributions_of(statistic, neighbors)
    np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1.0, rtol=1e-12)


def test_a_profile_that_is_cut_must_end_at_the_ends_of_the_range():
    def within(profile, epsilon, cells):
        return log_pmf(IntegerProfile(profile.lower[:-1], profile.upper[:-1]), epsilon, cells)

    every = datasets(range(4))
    found = np.stack([within(profile_of(data, "median cut", "add_remove"), EPSILON, np.arange(2 * TOP + 1)) for data in every])
    loss, _ = worst_of(found, pairs_of(every, "add_remove"), EPSILON)
    assert loss == np.inf


def with_own_cost(change):
    """The distribution with ``change(depth)`` added to the cost of the value itself, 2 - depth."""

    def pmf(profile, epsilon, cells):
        depth = depths_of(*profile)
        found = log_pmf(profile, epsilon, cells)
        found = np.where(cells == profile.upper[0], found - epsilon / 2 * change(depth), found)
        return found - np.logaddexp.reduce(found)

    return pmf


TWICE_AS_DEEP = with_own_cost(lambda depth: 1 - depth)  # 3 - 2 depth


@cache
def every_dataset(neighbors):
    """All datasets of up to six records, ties and all, as blocks of rows, and the pairs of neighbours."""
    sizes = [range(7)] if neighbors == "add_remove" else [[n] for n in range(1, 7)]
    blocks = []
    for some in sizes:
        every = datasets(some)
        present = np.array([[i < len(data) for i in range(max(some))] for data in every])
        cells = np.array([[*data, *[0] * (max(some) - len(data))] for data in every], np.int32)
        blocks.append((cells, present, pairs_of(every, neighbors)))
    return blocks


@cache
def every_profile(statistic, neighbors):
    """Of all these datasets: the different profiles, which of them each dataset has, and the pairs of neighbours."""
    blocks = []
    for cells, present, pairs in every_dataset(neighbors):
        if statistic == "second" and cells.shape[-1] < 2:
            continue
        profile = profiles_of(cells, present, statistic, neighbors)
        both, of_row = np.unique(np.concatenate(profile, axis=-1), axis=0, return_inverse=True)
        sides = np.split(both, [profile.lower.shape[-1]], axis=-1)
        blocks.append(([IntegerProfile(*one) for one in zip(*sides, strict=True)], of_row.ravel(), pairs))
    return blocks


def exhaustive_audit(statistic, neighbors, epsilon, pmf=log_pmf):
    loss = spread = 0.0
    for profiles, of_row, pairs in every_profile(statistic, neighbors):
        numbers = np.arange(max(one.upper.max() for one in profiles) + 1)
        found = np.stack([pmf(one, epsilon, numbers) for one in profiles])[of_row]
        worst = worst_of(found, pairs, epsilon)
        loss, spread = max(loss, worst[0]), max(spread, worst[1])
    return loss, spread


EXHAUSTIVE = [(s, r) for r in ("add_remove", "swap") for s in (*RANKS, "second", "maximum", "maximum without one", "total")]
EXHAUSTIVE += [("distinct", "add_remove"), ("distinct", "swap"), ("sum", "swap")]
EPSILONS = [0.3, 1.0, 3.0]
# Of the controls, two by default.
CONTROLS = [case if case in EXHAUSTIVE[1::18] else pytest.param(*case, marks=pytest.mark.slow) for case in EXHAUSTIVE]


@pytest.mark.parametrize(("statistic", "neighbors"), EXHAUSTIVE)
def test_the_depth_is_paid_for_in_all_datasets_of_up_to_six_records(statistic, neighbors):
    for epsilon in EPSILONS:
        loss, spread = exhaustive_audit(statistic, neighbors, epsilon)
        assert loss <= 1 + 1e-12
        assert 0.9 < spread <= 1 + 1e-12


@pytest.mark.parametrize(("statistic", "neighbors"), CONTROLS)
def test_control_a_value_twice_as_deep(statistic, neighbors):
    """The cost 3 - 2 depth in the place of 2 - depth: caught wherever a value can be deep, and a sum's never is."""
    for epsilon in EPSILONS:
        loss, spread = exhaustive_audit(statistic, neighbors, epsilon, TWICE_AS_DEEP)
        if statistic == "sum":
            np.testing.assert_allclose((loss, spread), exhaustive_audit(statistic, neighbors, epsilon), rtol=1e-12)
        else:
            assert spread > 1.5 * (1 - 1e-12)
            assert loss > 1.1 or statistic in ("total", "distinct")


@pytest.mark.parametrize(("statistic", "neighbors"), CONTROLS)
def test_control_a_value_at_one_less(statistic, neighbors):
    """The cost 1 - depth, as in finite inverse sensitivity: a value without ties would have the cost 0 of its neighbour's."""
    for epsilon in EPSILONS:
        assert exhaustive_audit(statistic, neighbors, epsilon, with_own_cost(lambda depth: -1))[1] > 1.4


def test_the_audited_profiles_are_those_of_the_releases():
    """The audit reads integer profiles: the functions that users call draw from the same."""
    calls = {
        "lower median": (release.median, {}, EITHER),
        "median": (release.median, {"definition": "linear"}, EITHER),
        "upper quantile": (release.quantile, {"q": 0.9, "definition": "lower"}, EITHER),
        "maximum without one": (release.maximum, {"tau": 1}, ("add_remove",)),
        "sum": (release.sum, {}, ("swap",)),
    }
    common = {"lower": 0, "upper": TOP, "resolution": 1, "epsilon": EPSILON}
    for statistic, (function, options, relations) in calls.items():
        for neighbors in relations:
            for data in [(), *datasets([5])[::9]] if neighbors == "add_remove" else datasets([5])[::9]:
                found = exact_distribution(function, data, neighbors=neighbors, **options, **common)
                profile = profile_of(data, statistic, neighbors, n_max=len(data))
                assert [side.tolist() for side in found.profile] == [side.tolist() for side in profile]
                expected = log_pmf(profile, EPSILON, np.arange(found.size))
                np.testing.assert_allclose(found.log_pmf(found.values), expected, rtol=1e-12)


GOLDEN = {  # of the rank ceil(n/2), from the prototype that this distribution was first audited with
    ("swap", (1, 2, 2, 2, 4)): [0.085901376914521, 0.141627427301399, 0.489216341181283, 0.159239223019516, 0.124015631583281],
    ("swap", (0, 2, 2, 4)): [0.195290906253838, 0.250758487277912, 0.283407973545018, 0.152092710717214, 0.118449922206019],
    ("add_remove", (1, 2, 2, 2, 4)): [
        *(0.030732011006322, 0.083538267070489, 0.784392681448162, 0.056969302824373, 0.044367737650654)
    ],
    ("add_remove", (0, 2, 2, 4)): [0.131334377734440, 0.168636679095890, 0.518087300175674, 0.102283316223778, 0.079658326770218],
}


@pytest.mark.parametrize(("neighbors", "data"), GOLDEN)
def test_golden_probabilities(neighbors, data):
    common = {"lower": 0, "upper": 4, "resolution": 1, "epsilon": 1.0, "neighbors": neighbors}
    found = [exact_distribution(release.median, data, definition="lower", **common)]
    if neighbors == "swap":  # the rank of a fixed number of records
        found.append(exact_distribution(release.order_statistic, data, (len(data) + 1) // 2, **common))
    for one in found:
        assert one.values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        np.testing.assert_allclose(one.pmf(one.values), GOLDEN[neighbors, data], rtol=0, atol=1e-12)
    shallow = with_own_cost(lambda depth: depth - 1)(found[0].profile, 1.0, np.arange(5))  # the control: without depth
    deep = (neighbors, data) != ("swap", (0, 2, 2, 4))
    assert (np.abs(np.exp(shallow) - GOLDEN[neighbors, data]).max() > 0.05) == deep


def mass_of_cost(profile, epsilon, numbers):
    """The density exp(-epsilon/2 C), rounded: by the trapezoids' exact integrals between the points where C bends."""
    lower, upper = profile.lower.tolist(), profile.upper.tolist()
    depth = min([level for side in (lower, upper) for level, v in enumerate(side) if v != side[0]])
    rate, points = epsilon / 2, []  # (place, place, cost, cost)
    for sign, side in ((1, upper), (-1, lower)):
        for level, (a, b) in enumerate(pairwise(side)):
            points.append((sign * (a + sign / 2), sign * (b + sign / 2), level + 1, level + 2, sign))
    mass = np.zeros(numbers.shape)
    for i, y in enumerate(numbers):
        for first, last, near, far, sign in points:
            start, end = max(first, sign * y - 0.5), min(last, sign * y + 0.5)
            if start < end:
                slope = (far - near) / (last - first)
                costs = [near + slope * (place - first) for place in (start, end)]
                mass[i] += (np.exp(-rate * costs[0]) - np.exp(-rate * costs[1])) / (rate * slope)
        mass[i] += np.exp(-rate * (2 - depth)) * (y == upper[0])
    return mass / mass.sum()


def test_it_is_the_rounded_density_of_the_cost():
    """The definition by which the proof goes: 2 - depth within half a unit of the value, and linear outside of it."""
    for statistic, neighbors in EXHAUSTIVE:
        for cells, present, _ in every_dataset(neighbors)[-1:]:
            profile = profiles_of(cells[::13], present[::13], statistic, neighbors)
            numbers = np.arange(profile.upper.max() + 1)
            for sides in zip(*profile, strict=True):
                expected = mass_of_cost(IntegerProfile(*sides), 0.7, numbers)
                np.testing.assert_allclose(GridDistribution(IntegerProfile(*sides), 0.7).pmf(numbers), expected, rtol=1e-11)


def rounded_towards_the_value(profile, epsilon, cells):
    """The cells below the value are moved up by one: the value is the end of its own last cell."""
    found = log_pmf(profile, epsilon, cells)
    below = np.where(cells <= profile.lower[0], log_pmf(profile, epsilon, cells - 1), -np.inf)
    return np.logaddexp(np.where(cells >= profile.upper[0], found, -np.inf), below)


def with_other_levels(change):
    """The distribution with the levels of its pieces changed: the weights are wrong, the shares within a piece are not."""

    def pmf(profile, epsilon, cells):
        found = log_pmf(profile, epsilon, cells)
        for width, level, inner, sign in zip(*pieces_of(profile.lower, profile.upper), strict=True):
            below = sign < 0
            step = inner - cells if below else cells - inner
            inside = (step >= 0) & (step < width)
            found = np.where(inside, found - epsilon / 2 * (change(level, below) - level), found)
        return found - np.logaddexp.reduce(found)

    return pmf


def test_control_the_value_at_cost_0():
    loss, spread = audit("quantile", "add_remove", with_own_cost(lambda depth: -1))
    assert loss > 1.1
    assert spread > 1.5


def test_control_rounding_towards_the_value():
    assert audit("lower quantile", "swap", rounded_towards_the_value)[0] == np.inf


MUTATIONS = {
    "sign": lambda level, below: -level,
    "lower levels from 1": lambda level, below: level + (below and level >= 0),
    "two levels a change": lambda level, below: 2 * level,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_control_wrong_levels(name):
    loss, spread = audit("quantile", "add_remove", with_other_levels(MUTATIONS[name]))
    assert max(loss, spread) > 1.05


def test_tied_data_keep_their_value():
    """The more records would have to change before the value moves, the larger its odds; without depth they grow far less."""
    shallow = with_own_cost(lambda depth: depth - 1)
    for neighbors, statistic in product(EITHER, ("lower median", "median")):
        before = 0.3
        for n in (4, 8, 16, 32):
            profile = profile_of((2,) * n, statistic, neighbors, n_max=n)
            assert depths_of(*profile) >= n // 2
            value, numbers = profile.upper[0], np.arange(profile.upper[-1] + 1)
            mass, without = (np.exp(pmf(profile, EPSILON, numbers))[value] for pmf in (log_pmf, shallow))
            assert before < mass < 1.0
            assert mass / (1 - mass) > 0.999 * np.exp(EPSILON / 2 * (n // 2 - 1)) * without / (1 - without)
            before = mass
        assert before > 0.99


def test_control_a_shift_that_depends_on_the_data():
    """The maximum: private for each shift, not for one that the data choose."""

    def shifted_by_choice(data):
        cells, present = np.zeros((1, 4), np.int32), np.zeros((1, 4), bool)
        cells[0, : len(data)], present[0, : len(data)] = data, True
        found = integer_profiles.maximum(cells, present, tau=1 + 3 * (sum(data) % 2), high=TOP)
        return log_pmf(IntegerProfile(found.lower[0], found.upper[0]), EPSILON, np.arange(TOP + 1))

    worst = max(
        np.ptp(shifted_by_choice(data) - shifted_by_choice(other))
        for data in datasets(range(4))
        for other in neighbours_of(data, "add_remove")
        if len(other) < 4
    )
    assert worst > 1.05 * EPSILON


HOUSEHOLDS = [(), (1,), (3,), (1, 1), (3, 2), (3, 3)]  # the records of one person


def test_persons_with_many_records_count_once():
    """All sets of up to three persons, one person more or less; record by record, the same promise is broken."""

    def log_probabilities(people, *, by_person):
        cells, present, owners = np.zeros((1, 8), np.int32), np.zeros((1, 8), bool), np.zeros((1, 8), np.int64)
        records = [(amount, 10 - number) for number, records in enumerate(people) for amount in records]
        for place, (amount, person) in enumerate(records):
            cells[0, place], owners[0, place], present[0, place] = amount, person, True
        totals, every = totals_of_persons(cells, present, owners) if by_person else (cells, present)
        found = integer_profiles.nonnegative_sum(totals, every, tau=1, high=14)
        return log_pmf(IntegerProfile(found.lower[0], found.upper[0]), EPSILON, np.arange(15))

    worst = {True: 0.0, False: 0.0}
    for size in range(3):
        for people in product(HOUSEHOLDS, repeat=size):
            for one_more in HOUSEHOLDS:
                for by_person in worst:
                    one, other = (log_probabilities(some, by_person=by_person) for some in (people, (*people, one_more)))
                    worst[by_person] = max(worst[by_person], np.ptp(one - other) / EPSILON)
    assert 0.5 < worst[True] <= 1 + 1e-12
    assert worst[False] > 1.2
