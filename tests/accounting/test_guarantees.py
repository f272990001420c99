"""Guarantees add up by the tightest rule that holds, and only under one relation."""

import pickle
from math import expm1, inf

import numpy as np
import pytest

import dpjax
from dpjax import accounting
from dpjax.accounting import (
    Composition,
    Guarantee,
    bounded_range_epsilon,
    for_groups,
    parallel,
    rdp_of_laplace,
    retry_until_success,
)

PURE = Guarantee(0.3, inf, "swap")
RANGE = Guarantee(0.3, 0.3, "swap")
ZCDP = Guarantee(neighbors="swap", zcdp=0.02)
LOOSE = Guarantee(0.3, inf, "swap", delta=1e-8)
ADDED = Guarantee(0.3, 0.3, "add_remove")
ROW, PERSON = (Guarantee(0.3, 0.3, "add_remove", unit=unit) for unit in ("row", "person"))


def test_rules():
    rules = (20 * RANGE).rules_at(1e-6)
    assert rules["basic"] == pytest.approx(6.0)
    assert rules["bounded_range"] < rules["rdp"] < rules["optimal"] < rules["basic"]
    assert (20 * RANGE).epsilon_at(1e-6) == rules["bounded_range"]
    many = Composition(tuple((Guarantee(0.01 * i, inf, "swap"), 1) for i in range(1, 31)))
    for spent, names in (
        (20 * RANGE, {"basic", "optimal", "bounded_range", "rdp"}),
        (20 * PURE, {"basic", "optimal", "rdp"}),
        (20 * ZCDP, {"rdp"}),
        (many, {"basic", "rdp"}),  # 2^30 outcomes
        (PURE + ZCDP, {"rdp"}),
    ):
        assert set(spent.rules_at(1e-6)) - {"losses"} == names
    for spent in (20 * RANGE, 20 * PURE, 5 * ZCDP, PURE + RANGE, 3 * LOOSE):
        assert spent.delta_at(spent.epsilon_at(1e-6) * (1 + 1e-9)) <= 1.002e-6


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda: PURE + ADDED, "swap and add_remove"),
        (lambda: parallel(PURE, ADDED, membership="by_position"), "neighbors"),
        (lambda: parallel(PURE, RANGE, membership="by_value"), "move"),
        (lambda: sum([ROW, ADDED, PERSON]), "row and person"),
        (lambda: parallel(ROW, PERSON, membership="by_value"), "row and person"),
        (lambda: Guarantee(float("nan"), inf, "swap"), "epsilon"),
        (lambda: Guarantee(1.0, -3.0, "swap"), "bounded_range"),
        (lambda: Guarantee(1.0, 1.0, "swap", delta=1.0), "delta"),
        (lambda: Guarantee(1.0, 1.0, "replace"), "neighbors"),
        (lambda: PURE * 0, "integer"),
        (lambda: Guarantee(neighbors="swap", renyi=((2.0, 0.3), (3.0, 0.2))), "renyi"),
        # A sum or a group of which nothing is left
        (lambda: (10**8 * LOOSE).guarantee(), "nothing is promised"),
        (lambda: for_groups(LOOSE, size=1000), "nothing is promised"),
        (lambda: for_groups(Guarantee(neighbors="swap", renyi=((2.0, 1.0),)), size=2), "nothing"),
        (lambda: parallel(CURVE, Guarantee(neighbors="swap"), membership="by_position"), "nothing"),
        (lambda: for_groups(RANGE, size=10**400), "integer from 1 to"),
    ],
)
def test_what_does_not_compose(join, message):
    with pytest.raises(ValueError, match=message):
        join()


@pytest.mark.parametrize(
    ("neighbors", "sampled"),
    [
        ("swap", [(0.1, 1 * ADDED)]),
        ("edge", [(0.1, 1 * Guarantee(0.3, 0.3, "edge"))]),
        ("add_remove", [(0.1, 1 * ADDED), (0.1, 2 * ADDED)]),  # copies of a record
        ("swap", [(0.5, 1 * RANGE), (0.6, 2 * RANGE)]),
        ("swap", [(0.0, 1 * RANGE)]),
        ("swap", [(-0.5, 1 * RANGE), (0.6, 2 * RANGE)]),
        ("swap", [(float("nan"), 1 * RANGE)]),
        ("add_remove", [(1.1, 1 * ADDED)]),
    ],
)
def test_samples_that_do_not_amplify(neighbors, sampled):
    """The controls are a Poisson sample, and one of a fixed size with replacement."""
    assert Guarantee(neighbors="add_remove", sampled=((0.1, 1 * ADDED),)).sampled
    assert Guarantee(neighbors="swap", sampled=((0.5, 1 * RANGE), (0.5, 2 * RANGE))).sampled
    with pytest.raises(ValueError, match="no other samples amplify"):
        Guarantee(neighbors=neighbors, sampled=tuple(sampled))


def test_a_sum_is_for_the_unit_that_a_part_states():
    for whole in (ADDED + PERSON, sum([ADDED, ADDED, PERSON]), Composition(((PERSON, 1),))):
        assert whole.unit == whole.guarantee().unit == "person"
        assert pickle.loads(pickle.dumps(whole)).unit == "person"
        assert str(whole).endswith("for a person")
        assert Composition.from_json(whole.to_json()) == whole
    assert (2 * ADDED).unit == ""
    assert Guarantee.from_json(ROW.to_json()) == ROW != ADDED


def test_what_is_made_of_a_guarantee_keeps_its_unit():
    replaced = Guarantee(0.3, 0.3, "swap", unit="person")
    loose = Guarantee(0.3, inf, "swap", delta=1e-8, unit="person")
    curve = Guarantee(neighbors="add_remove", gdp=0.5, unit="person")
    made = [
        accounting.poisson_subsample(PERSON, probability=0.1),
        accounting.poisson_subsample(PERSON + curve, probability=0.1),
        accounting.fixed_size_subsample(replaced, taken=1, public_n=10, replacement="without"),
        accounting.fixed_size_subsample(loose, taken=1, public_n=10, replacement="with"),
        for_groups(loose, size=3),
        parallel(PERSON, ADDED, membership="by_value"),
        accounting.absorb_failure(replaced, 0.1),
        accounting.condition_on_success(replaced, 0.1),
        retry_until_success(replaced, 0.1, attempts=3, fallback="private"),
        PERSON.with_curve(lambda order: 0.045 * order),
        (3 * PERSON).guarantee(),
        dpjax.best_of.guarantee(PERSON, attempts=dpjax.mechanisms.negative_binomial(10)),
        dpjax.mechanisms.bounded_loss.guarantee(
            replaced, epsilon=0.1, delta=1e-6, failure=0.1, attempts=2, fallback="public"
        ),
    ]
    assert [guarantee.unit for guarantee in made] == ["person"] * len(made)


def test_groups():
    assert for_groups(RANGE, size=4) == Guarantee(1.2, 1.2, "swap")
    assert for_groups(ZCDP, size=3).zcdp == pytest.approx(0.18)
    noise = for_groups(Guarantee(neighbors="swap", gdp=1.0), size=3)
    assert (noise.gdp, noise.zcdp) == (3.0, 4.5)
    for size, epsilon, delta in ((2, 0.3, 1e-6), (10**9, 1e-9, 1e-30)):
        loose = for_groups(Guarantee(epsilon, inf, "swap", delta=delta), size=size)
        assert loose.epsilon == pytest.approx(size * epsilon)
        assert loose.delta == pytest.approx(
            delta * expm1(size * epsilon) / expm1(epsilon), rel=1e-8
        )


def test_parallel():
    first = Guarantee(0.5, 0.5, "add_remove")
    second = Guarantee(0.2, 0.9, "add_remove", zcdp=0.01)
    found = parallel(first, second, membership="by_value")
    assert found == Guarantee(0.5, 0.9, "add_remove", zcdp=0.5**2 / 8)
    assert parallel(PURE, RANGE, membership="by_position") == Guarantee(0.3, inf, "swap")
    ranged = Guarantee(bounded_range=0.5, neighbors="add_remove")  # an epsilon that follows
    assert parallel(ranged, second, membership="by_value").epsilon == 0.5
    loose, noise = Guarantee(1.0, inf, "swap", delta=1e-6), Guarantee(neighbors="swap", zcdp=0.1)
    # Its zCDP leaves out the delta
    assert parallel(loose, RANGE, membership="by_position") == loose
    both = parallel(loose, noise, membership="by_position")
    assert (both.epsilon, both.delta) == (noise.epsilon_at(1e-6), 1e-6)
    # The rho of either part, except with the probability of 1e-6.
    assert both.zcdp == pytest.approx(np.tanh(0.5))


CURVE = Guarantee(neighbors="swap", renyi=((2.0, 0.1), (4.0, 0.5), (8.0, 0.9)))


def test_parallel_keeps_curves():
    """The larger one at each order: neighbors differ in one part."""
    other = Guarantee(neighbors="swap", renyi=((2.0, 0.2), (4.0, 0.3), (6.0, 5.0)))
    found = parallel(CURVE, other, membership="by_position")
    assert found.renyi == ((2.0, 0.2), (4.0, 0.5), (6.0, 5.0))
    # Of a part without a curve, what its other promises imply.
    mixed = parallel(CURVE, RANGE, membership="by_position")
    points, kept = np.array(mixed.renyi).T
    np.testing.assert_array_equal(kept, np.maximum(CURVE.rdp(points), RANGE.rdp(points)))


def test_a_curve_of_its_own():
    """Laplace noise by its points: between the formula and pure DP, at orders between the points,
    too.
    """
    noise = Guarantee(0.8, 1.6, "swap")
    tight = noise.with_curve(lambda order: rdp_of_laplace(0.8, order=order))
    orders = 1 + np.geomspace(1e-2, 9e3, 500)
    exact = np.asarray(rdp_of_laplace(0.8, order=orders), float)
    found = tight.rdp(orders)
    assert ((exact <= found * (1 + 1e-4)) & (found < 1.01 * exact)).all()
    assert (tight.rdp([1e5, 1e6]) == noise.rdp([1e5, 1e6])).all()
    alone = Guarantee(neighbors="swap", renyi=((2.0, 0.1), (8.0, 0.3)))
    between = [0.5, 0.5, 5 * (0.1 + 2.1) / 2 / 4, 1.5, inf]
    np.testing.assert_allclose((5 * alone).rdp([1.5, 2.0, 5.0, 8.0, 9.0]), between)
    whole = (3 * alone + LOOSE).guarantee()
    assert whole.delta == 1e-8
    assert whole.rdp(2.0) == pytest.approx(3 * 0.1 + LOOSE.rdp(2.0))


def test_the_range_of_adaptive_mechanisms_is_more_than_the_sum():
    """What is asked second depends on the first answer, on a pair of neighbors whose losses are
    nearly (0, r) or (-r, 0): nearly three times r.
    """
    r, rare = 0.5, 1e-9
    high = np.array([[1 - rare * np.exp(r), rare * np.exp(r)], [1 - rare, rare]])
    asked = np.log([high[0] / high[1], high[1, ::-1] / high[0, ::-1]])  # high, or the reverse
    losses = [asked[0, y] + asked[1 - y, z] for y in (0, 1) for z in (0, 1)]
    promised = (2 * Guarantee(r, r, "swap")).bounded_range
    assert 2 * r + 0.4 < max(losses) - min(losses) <= promised + 1e-8
    assert promised == 4 * r
    assert (1 * Guarantee(r, r, "swap")).bounded_range == r
    assert (2 * ZCDP).bounded_range == inf


def test_edges_are_on_the_safe_side_and_return():
    for huge in (1e154, 1e308):
        one = Guarantee(huge, huge, "swap")
        assert one.epsilon_at(1e-6) == huge
        assert one.delta_at(1.0) == (3 * one).delta_at(1.0) == 1
        divergences = one.rdp([1.0001, 2.0, 1e6])
        assert ((divergences >= 0.99 * huge) & (divergences <= huge)).all()
    assert (3 * one).epsilon_at(1e-6) == inf
    many = bounded_range_epsilon(1e-5, count=10**9, delta=1e-6)
    assert 0.6 < many < 10**9 * 1e-5
    tiny = (3 * Guarantee(inf, 1e-18, "swap")).epsilon_at(1e-20)
    assert 1.7e-18 < tiny <= 3.0000001e-18
    narrow = Guarantee(np.float16(1e-4), np.int8(16), "swap") * np.uint8(200)
    assert (narrow.count, narrow.zcdp > 200e-9) == (200, True)
