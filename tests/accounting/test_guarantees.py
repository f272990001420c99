"""Guarantees add up by the tightest rule that holds, and only under one relation."""

import copy
import functools
import itertools
import pickle
import pkgutil
from math import exp, inf, log

import numpy as np
import pytest

import dpjax
from dpjax import accounting
from dpjax.accounting import (
    Composition,
    Guarantee,
    PrivacyFilter,
    advanced_epsilon,
    bounded_range_epsilon,
    composition,
    composition_theorems,
    for_groups,
    formulas,
    parallel,
    retry_until_success,
)

PURE = Guarantee(0.3, inf, "swap")
RANGE = Guarantee(0.3, 0.3, "swap")
ZCDP = Guarantee(neighbors="swap", zcdp=0.02)
LOOSE = Guarantee(0.3, inf, "swap", delta=1e-8)


def test_order_and_brackets_do_not_matter():
    parts = [PURE, RANGE, PURE, LOOSE]
    expected = None
    for order in itertools.permutations(parts):
        spent = sum(order)
        found = (
            spent.epsilon,
            spent.delta,
            spent.bounded_range,
            spent.rho,
            spent.epsilon_at(1e-5),
            spent.delta_at(0.8),
        )
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert sum(parts) == Composition(((PURE, 2), (RANGE, 1), (LOOSE, 1)))
    assert 3 * (PURE + RANGE) == (PURE + RANGE) * 3 == PURE * 3 + RANGE * 3
    assert (2 * PURE).count == 2
    assert str(2 * PURE).startswith("2 mechanisms: 0.6-DP")


def test_a_sum_of_many_takes_linear_time(monkeypatch):
    """Counted by the checks of parts; the control adds pair by pair."""
    checked, check = [], composition.checks.static_integer
    monkeypatch.setattr(
        composition.checks, "static_integer", lambda *given: checked.append(1) or check(*given)
    )
    many = [Guarantee(0.01 * number, inf, "swap") for number in range(300)]
    whole = sum(many)
    assert whole.parts == tuple((each, 1) for each in many)
    assert pickle.loads(pickle.dumps(sum(many))) == copy.deepcopy(sum(many)) == whole
    assert len(checked) <= 10 * len(many)
    checked.clear()
    pairwise = functools.reduce(
        lambda before, each: Composition((*before.parts, (each, 1))), many[1:], 1 * many[0]
    )
    assert pairwise == whole
    assert len(checked) > 100 * len(many)
    with pytest.raises(ValueError, match="add_remove and swap neighbors do not compose"):
        whole + Guarantee(1.0, 1.0, "add_remove")
    with pytest.raises(AttributeError, match="missing"):
        _ = whole.missing


def test_each_promise_by_its_tightest_conversion():
    assert PURE.rho == pytest.approx(0.3 * np.tanh(0.15))
    assert RANGE.rho == pytest.approx(0.3**2 / 8)
    assert Guarantee(0.3, 0.6, "swap").rho == pytest.approx(0.3 * np.tanh(0.15))
    orders = np.array([1.1, 2.0, 30.0])
    assert (RANGE.rdp(orders) < PURE.rdp(orders)).all()
    assert (RANGE.rdp(orders) <= orders * RANGE.rho).all()
    np.testing.assert_allclose(ZCDP.rdp(orders), 0.02 * orders)
    np.testing.assert_allclose(
        (2 * RANGE + ZCDP).rdp(orders), 2 * RANGE.rdp(orders) + 0.02 * orders
    )


def test_rules():
    rules = (20 * RANGE).rules_at(1e-6)
    assert set(rules) == {"basic", "optimal", "bounded_range", "rdp"}
    assert rules["basic"] == pytest.approx(6.0)
    assert rules["bounded_range"] < rules["rdp"] < rules["optimal"] < rules["basic"]
    assert (20 * RANGE).best_rule_at(1e-6) == ("bounded_range", rules["bounded_range"])
    assert set((20 * PURE).rules_at(1e-6)) == {"basic", "optimal", "rdp"}
    assert set((20 * ZCDP).rules_at(1e-6)) == {"rdp"}
    many = Composition(tuple((Guarantee(0.01 * i, inf, "swap"), 1) for i in range(1, 31)))
    assert set(many.rules_at(1e-6, numerical=False)) == {"basic", "rdp"}  # 2^30 outcomes
    mixed = PURE + ZCDP
    assert mixed.epsilon == inf
    assert set(mixed.rules_at(1e-6)) == {"rdp"}
    for spent in (20 * RANGE, 20 * PURE, 5 * ZCDP, PURE + RANGE, mixed, 3 * LOOSE):
        last = inf
        for delta in (1e-9, 1e-7, 1e-4, 0.1):
            epsilon = spent.epsilon_at(delta)
            assert epsilon <= last
            last = epsilon
            if epsilon < inf:
                assert spent.delta_at(epsilon * (1 + 1e-9)) <= delta * 1.002


def test_deltas_of_the_parts_are_paid_first():
    spent = 10 * LOOSE
    assert spent.delta == pytest.approx(1e-7)
    assert spent.epsilon_at(0.9e-7) == inf
    assert spent.delta_at(3.0) == pytest.approx(1e-7)
    optimal = composition_theorems.optimal_pure_delta([0.3], [10], epsilon=1.0)
    np.testing.assert_allclose(
        spent.rules_at(1 - (1 - 1e-8) ** 10 * (1 - optimal))["optimal"], 1.0, rtol=1e-6
    )
    # What zCDP says, it says with the same deltas.
    both = Guarantee(1.0, inf, "swap", delta=1e-6, zcdp=0.03)
    assert (5 * both).slack == (5 * both).delta == pytest.approx(5e-6)
    assert str(5 * both).startswith(
        "5 mechanisms: (5, 5e-06)-DP and 0.15-zCDP except with probability 5e-06"
    )
    assert (5 * both).rules_at(1e-6) == {}
    assert set((5 * both).rules_at(1e-5)) == {"basic", "optimal", "rdp"}
    together = (5 * both).guarantee()
    assert (together.epsilon, together.delta) == (5.0, pytest.approx(5e-6))
    assert together.zcdp == pytest.approx(0.15)
    with pytest.raises(ValueError, match="mechanism_delta"):
        PrivacyFilter(9.0, 0.0, "swap").charge(together)
    assert both.rho == 0.03
    assert set((2 * Guarantee(0.1, 0.1, "swap", delta=1e-6)).rules_at(1e-3)) == {
        "basic",
        "bounded_range",
        "optimal",
        "rdp",
    }
    assert LOOSE.rho == PURE.rho
    assert spent.guarantee() == Guarantee(
        spent.epsilon, spent.bounded_range, "swap", spent.delta, spent.rho
    )


def test_never_below_a_concrete_pair():
    """Twelve exponential mechanisms of two candidates: the exact delta of the product against what
    is promised.
    """
    each, count = 0.3, 12
    yes = exp(each / 2) / (1 + exp(each / 2))  # scores 0 and 1, at sensitivity 1, against 1 and 0
    wrong = np.arange(count + 1)
    choose = np.array([1.0])
    for _ in range(count):
        choose = np.convolve(choose, [1, 1])
    p, q = (choose * a ** (count - wrong) * (1 - a) ** wrong for a in (yes, 1 - yes))
    spent = count * RANGE
    for epsilon in (0.1, 0.5, 1.0, 1.7):
        exact = np.maximum(p - exp(epsilon) * q, 0).sum()
        assert exact <= spent.delta_at(epsilon)
        assert exact <= 1 - (1 - spent.delta_at(epsilon))
    half = count * Guarantee(0.12, 0.12, "swap")  # control: a promise too small is passed
    assert np.maximum(p - exp(0.5) * q, 0).sum() > half.delta_at(0.5)


def test_relations_do_not_mix():
    other = Guarantee(0.3, 0.3, "add_remove")
    for join in (lambda: PURE + other, lambda: 2 * PURE + 3 * other, lambda: sum([PURE, other])):
        with pytest.raises(ValueError, match="add_remove and swap"):
            join()
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="integer"):
            PURE * bad
    with pytest.raises(TypeError):
        PURE + 1
    with pytest.raises(ValueError, match="delta"):
        (2 * PURE).epsilon_at(0.0)
    with pytest.raises(ValueError, match="epsilon"):
        (2 * PURE).delta_at(-1.0)
    with pytest.raises(ValueError, match="at least one"):
        Composition(())


def test_units_do_not_mix():
    row, person = (Guarantee(0.3, 0.3, "add_remove", unit=unit) for unit in ("row", "person"))
    plain = Guarantee(0.3, 0.3, "add_remove")
    for join in (
        lambda: row + person,
        lambda: 2 * row + 3 * person,
        lambda: sum([row, plain, person]),
    ):
        with pytest.raises(ValueError, match="for a row and for a person do not compose"):
            join()
    with pytest.raises(ValueError, match="do not compose"):
        Composition(((row, 1), (person, 1)))
    with pytest.raises(ValueError, match="do not compose"):
        parallel(row, person, membership="by_value")
    with pytest.raises(ValueError, match="unit must be one of"):
        Guarantee(0.3, 0.3, "add_remove", unit="household")
    for whole in (
        plain + person,
        person + plain,
        sum([plain, plain, person]),
        Composition(((plain, 2), (person, 1))),
    ):
        assert whole.unit == "person"
        assert whole.guarantee().unit == pickle.loads(pickle.dumps(whole)).unit == "person"
        assert str(whole).endswith("under add_remove neighbors, for a person")
        assert "unit='person'" in repr(whole)
        assert Composition.from_json(whole.to_json()) == whole
    assert (2 * plain).unit == ""
    for text in (str(2 * plain), repr(2 * plain), plain.to_json()):
        assert "unit" not in text
        assert "for a" not in text
    assert Guarantee.from_json(row.to_json()) == row != plain
    assert eval(repr(row)) == row


def test_what_is_made_of_a_guarantee_keeps_its_unit():
    added = Guarantee(0.3, 0.3, "add_remove", unit="person")
    replaced = Guarantee(0.3, 0.3, "swap", unit="person")
    loose = Guarantee(0.3, inf, "swap", delta=1e-8, unit="person")
    curve = Guarantee(neighbors="add_remove", gdp=0.5, unit="person")
    made = [
        accounting.poisson_subsample(added, probability=0.1),
        accounting.poisson_subsample(added + curve, probability=0.1),
        accounting.fixed_size_subsample(replaced, taken=1, public_n=10, replacement="without"),
        accounting.fixed_size_subsample(loose, taken=1, public_n=10, replacement="with"),
        for_groups(loose, size=3),
        parallel(added, Guarantee(0.2, 0.2, "add_remove"), membership="by_value"),
        accounting.absorb_failure(replaced, 0.1),
        accounting.condition_on_success(replaced, 0.1),
        retry_until_success(replaced, 0.1, attempts=3, fallback="private"),
        added.with_curve(lambda order: 0.045 * order),
        (3 * added).guarantee(),
        dpjax.best_of.guarantee(added, attempts=dpjax.mechanisms.negative_binomial(10)),
        dpjax.mechanisms.bounded_loss.guarantee(
            replaced, epsilon=0.1, delta=1e-6, failure=0.1, attempts=2, fallback="public"
        ),
    ]
    assert [guarantee.unit for guarantee in made] == ["person"] * len(made)


def test_every_mechanism_says_what_it_costs():
    x = np.linspace(0, 1, 9)
    median = dpjax.median(x, lower=0, upper=1, neighbors="swap")
    spent = (
        dpjax.piecewise_laplace.guarantee(median, 0.5)
        + dpjax.inverse_sensitivity.guarantee(median, 0.5)
        + dpjax.exponential.guarantee("swap", 0.5)
    )
    assert spent.rho == pytest.approx(3 * 0.25 / 8)
    mechanisms = {
        name
        for name in dpjax.mechanisms.__all__
        if hasattr(getattr(dpjax.mechanisms, name), "guarantee")
    }
    modules = {module.name for module in pkgutil.iter_modules(dpjax.mechanisms.__path__)}
    files = {name.removeprefix("_") for name in modules if name.startswith("_")}
    assert {
        "piecewise_laplace",
        "laplace",
        "bounded_loss",
        "nested_quantiles",
        "unbounded_quantile",
    } <= files
    assert mechanisms == files - {"optimal_beta"} | {"spherical_gaussian"}
    for name in mechanisms:
        guarantee = getattr(dpjax.mechanisms, name).guarantee
        assert callable(guarantee)
        assert pickle.loads(pickle.dumps(guarantee)) is guarantee, name
        assert guarantee.__qualname__ == f"{name}.guarantee"


def test_groups():
    assert for_groups(RANGE, size=4) == Guarantee(1.2, 1.2, "swap")
    assert for_groups(ZCDP, size=3).zcdp == pytest.approx(0.18)
    pair = for_groups(Guarantee(0.3, inf, "swap", delta=1e-6), size=2)
    assert pair.epsilon == 0.6
    assert pair.delta == pytest.approx(1e-6 * (1 + exp(0.3)))
    for lost, size in (
        (Guarantee(1.0, inf, "swap", delta=1e-6), 1000),
        (Guarantee(neighbors="swap", renyi=((2.0, 0.1),)), 2),
    ):
        with pytest.raises(ValueError, match="nothing is promised"):
            for_groups(lost, size=size)
    # Randomised response among three numbers one apart: the loss between the ends is twice that
    # between neighbors.
    p = np.exp(-0.3 * np.abs(np.arange(3)[:, None] - np.arange(3)))
    p /= p.sum(axis=0)
    near, far = np.abs(np.log(p[:, 0] / p[:, 1])).max(), np.abs(np.log(p[:, 0] / p[:, 2])).max()
    assert far <= for_groups(Guarantee(float(near), inf, "swap"), size=2).epsilon + 1e-12
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match="size"):
            for_groups(RANGE, size=bad)


def test_parallel():
    first, second = (
        Guarantee(0.5, 0.5, "add_remove"),
        Guarantee(0.2, 0.9, "add_remove", delta=0.0, zcdp=0.01),
    )
    assert parallel(first, second, membership="by_value") == Guarantee(
        0.5, 0.9, "add_remove", zcdp=0.5**2 / 8
    )
    with pytest.raises(ValueError, match="move"):
        parallel(PURE, RANGE, membership="by_value")
    assert parallel(PURE, RANGE, membership="by_position") == Guarantee(0.3, inf, "swap")
    with pytest.raises(ValueError, match="relation"):
        parallel(PURE, first, membership="by_position")
    with pytest.raises(ValueError, match="relation"):
        parallel(membership="by_position")
    with pytest.raises(ValueError, match="membership"):
        parallel(PURE, membership="disjoint")


def renyi(p, q, orders):
    """The larger of the Renyi divergences of two discrete distributions in both directions."""
    a = orders[:, None]
    sums = [
        np.logaddexp.reduce(a * np.log(one) + (1 - a) * np.log(other), axis=1)
        for one, other in ((p, q), (q, p))
    ]
    return np.maximum(*sums) / (orders - 1)


def joint_renyi(first, second, orders):
    """Of two parts drawn independently, over the neighbors that differ in either of them."""
    (p, q), (r, s) = first, second
    before = np.outer(p, r).ravel()
    return np.maximum(
        renyi(before, np.outer(q, r).ravel(), orders), renyi(before, np.outer(p, s).ravel(), orders)
    )


def test_parallel_keeps_zcdp():
    found = parallel(
        Guarantee(1.0, 1.0, "swap"), Guarantee(neighbors="swap", zcdp=0.1), membership="by_position"
    )
    assert found == Guarantee(neighbors="swap", zcdp=0.125)
    one = np.array([0.5, 0.5])
    ranged = one, one * np.exp([0.0, 1.0]) / np.sum(one * np.exp([0.0, 1.0]))  # of range 1
    coin = np.array([1.0, np.exp(accounting.pure_of_zcdp(0.1).item())])
    coin /= coin.sum()
    orders = 1 + np.geomspace(1e-3, 100, 200)
    each = joint_renyi(ranged, (coin, coin[::-1]), orders) / orders
    assert 0.1 < np.max(each) <= found.rho
    loose = Guarantee(1.0, inf, "swap", delta=1e-6)
    # Its zCDP leaves out the delta
    assert parallel(loose, RANGE, membership="by_position") == loose
    both = Guarantee(1.0, inf, "swap", delta=1e-6, zcdp=0.3)
    assert parallel(both, RANGE, membership="by_position") == both


def test_parallel_keeps_curves():
    """The exact divergences of two pairs of distributions whose curves cross."""
    coin, rare = (
        (np.array([0.7, 0.3]), np.array([0.3, 0.7])),
        (np.array([0.98, 0.02]), np.array([0.999, 0.001])),
    )
    unknown = Guarantee(neighbors="swap")
    parts = [
        unknown.with_curve(lambda orders, pair=pair: renyi(*pair, orders) * (1 + 1e-12))
        for pair in (coin, rare)
    ]
    found = parallel(*parts, membership="by_position")
    orders = 1 + np.geomspace(1e-3, 200, 999)
    exact = joint_renyi(coin, rare, orders)
    assert (exact <= found.rdp(orders) * (1 + 1e-9)).all()
    points, kept = np.array(found.renyi).T
    np.testing.assert_allclose(kept, joint_renyi(coin, rare, points), rtol=1e-9)
    for part in parts:  # neither curve alone would do
        assert (exact > 1.05 * part.rdp(orders)).any()
    # Of a part without a curve, what its other promises imply.
    mixed = parallel(parts[1], Guarantee(0.5, 0.5, "swap"), membership="by_position")
    np.testing.assert_array_equal(
        mixed.rdp(orders), np.maximum(mixed.rdp(orders), Guarantee(0.5, 0.5, "swap").rdp(orders))
    )
    assert len(mixed.renyi) == 128
    with pytest.raises(ValueError, match="nothing is promised"):
        parallel(parts[0], unknown, membership="by_position")
    loose = parallel(parts[0], Guarantee(0.5, inf, "swap", delta=1e-6), membership="by_position")
    assert (len(loose.renyi), loose.delta) == (128, 1e-6)
    short = Guarantee(neighbors="swap", renyi=((2.0, 0.1), (8.0, 5.0)))
    last = parallel(parts[0], short, membership="by_position").renyi[-1]
    assert last == (8.0, 5.0)


def test_a_promise_of_nothing_says_so():
    assert str(Guarantee(neighbors="swap")) == "no promise under swap neighbors"


def test_swap_by_value_would_break_the_largest():
    """Two parts, each with a private count at epsilon 1 under add/remove: a record that moves costs
    the sum.
    """
    counts = np.arange(-30, 31)
    distribution = {c: np.exp(-1.0 * np.abs(counts - c)) for c in (0, 1)}
    distribution = {c: p / p.sum() for c, p in distribution.items()}
    before, after = (
        np.outer(distribution[1], distribution[0]),
        np.outer(distribution[0], distribution[1]),
    )
    assert np.log(before / after).max() > 1.99
    assert (
        log(2)
        < 1.0
        <= parallel(*[Guarantee(1.0, 2.0, "add_remove")] * 2, membership="by_value").epsilon
    )


def test_numbers_that_would_make_small_promises_are_refused():
    nan = float("nan")
    changes = (
        {"epsilon": nan},
        {"epsilon": -1.0},
        {"bounded_range": -3.0},
        {"delta": 1.0},
        {"delta": -0.5},
        {"zcdp": nan},
    )
    for change in changes:
        with pytest.raises(ValueError, match=next(iter(change))):
            Guarantee(**({"epsilon": 1.0, "bounded_range": inf, "neighbors": "swap"} | change))
    for bad in ("1.0", True):
        with pytest.raises(TypeError, match="epsilon"):
            Guarantee(bad, inf, "swap")
    with pytest.raises(ValueError, match="neighbors"):
        Guarantee(1.0, 1.0, "replace")
    with pytest.raises(ValueError, match="above 1"):
        PURE.rdp([0.5, 2.0])


@pytest.mark.slow
def test_narrow_types_and_extreme_numbers():
    each = Guarantee(np.float16(1e-4), np.int8(16), "swap")
    assert each.rho > 1e-9
    assert isinstance(each.epsilon, float)
    assert ((2 * RANGE) * np.uint8(200)).count == 400
    assert ((10**6 * RANGE) * np.int32(10**4)).count == 10**10
    assert Guarantee(1e-170, 1e-170, "swap").rho > 0
    assert Guarantee(1e300, 1e300, "swap").rho == 1e300
    assert (2 * Guarantee(1e308, inf, "swap")).epsilon == inf
    assert (Guarantee(0.0, 0.0, "swap") + RANGE).epsilon_at(1e-6) <= 0.3
    assert Guarantee(0.0, 0.0, "swap").rho == 0
    assert (2 * Guarantee(1e-20, 1e-20, "swap")).delta_at(1.0) == 0
    tiny = (3 * Guarantee(inf, 1e-18, "swap")).epsilon_at(1e-20)
    assert 1.7e-18 < tiny <= 3.0000001e-18
    # 0 would be pure DP
    assert 0 < (1 * Guarantee(neighbors="swap", zcdp=0.001)).delta_at(5.0) < 1e-300
    for wide in (4.0, 300.0, 1e5):
        assert (200 * Guarantee(wide, wide, "swap")).epsilon_at(1e-6) <= 200 * wide


def test_numbers_that_overflow_promise_no_more_than_pure_dp():
    for huge in (1e154, 1e200, 1e308):
        one = Guarantee(huge, huge, "swap")
        assert one.epsilon_at(1e-6) == huge
        assert (
            (one.rdp([1.0001, 2.0, 1e6]) >= 0.99 * huge) & (one.rdp([1.0001, 2.0, 1e6]) <= huge)
        ).all()
    many = for_groups(Guarantee(1e-9, inf, "swap", delta=1e-30), size=10**9)
    assert many.delta == pytest.approx(1e-30 * (exp(1) - 1) / 1e-9, rel=1e-8)


def test_a_part_with_a_delta_beside_one_with_zcdp():
    noise = Guarantee(neighbors="swap", zcdp=0.1)
    found = parallel(Guarantee(1.0, inf, "swap", delta=1e-6), noise, membership="by_position")
    assert (found.epsilon, found.delta) == (noise.epsilon_at(1e-6), 1e-6)
    # The rho of either part, except with the probability of 1e-6.
    assert found.rho == pytest.approx(np.tanh(0.5))
    assert 1.0 < found.epsilon < inf


@pytest.mark.slow
def test_a_curve_of_its_own():
    """Laplace noise by its points: between the formula and pure DP, at orders between the points,
    too.
    """
    noise = Guarantee(0.8, 1.6, "swap")
    tight = noise.with_curve(
        lambda order: formulas.rdp_of_laplace(np.full_like(order, 0.8), order, np)
    )
    orders = np.concatenate([1 + np.geomspace(1e-5, 1e6, 500)])
    exact, found = formulas.rdp_of_laplace(np.full_like(orders, 0.8), orders, np), tight.rdp(orders)
    assert (exact <= found * (1 + 1e-12)).all()
    assert (found <= noise.rdp(orders)).all()
    inside = (orders > 1.01) & (orders < 9000)
    assert (found[inside] < 1.01 * exact[inside]).all()
    assert (30 * tight).rules_at(1e-6)["rdp"] < 0.98 * (30 * noise).rules_at(1e-6)["rdp"]
    assert (30 * tight).delta_at(8.0) <= (30 * noise).delta_at(8.0)
    alone = Guarantee(neighbors="swap", renyi=((2.0, 0.1), (8.0, 0.3)))
    assert alone.rho == inf
    assert set((5 * alone).rules_at(1e-6)) == {"rdp"}
    np.testing.assert_allclose(
        (5 * alone).rdp([1.5, 2.0, 5.0, 8.0, 9.0]), [0.5, 0.5, 5 * (0.1 + 2.1) / 2 / 4, 1.5, inf]
    )
    for bad in (
        ((2.0, 0.1), (1.5, 0.2)),
        ((1.0, 0.1),),
        ((2.0, 0.3), (3.0, 0.2)),
        ((2.0, -1.0),),
        ((2.0, inf),),
    ):
        with pytest.raises(ValueError, match="renyi"):
            Guarantee(neighbors="swap", renyi=bad)


def test_the_range_of_adaptive_mechanisms_is_more_than_the_sum():
    r = 0.5

    def coin(high):
        """Probabilities of two outcomes on a pair of neighbors, whose losses are nearly (0, r) or
        (-r, 0).
        """
        rare = 1e-9
        pair = np.array([[1 - rare * np.exp(r), rare * np.exp(r)], [1 - rare, rare]])
        return pair if high else pair[::-1, ::-1]

    # What is asked second depends on the first answer.
    losses = []
    first = coin(True)
    for y in (0, 1):
        second = coin(y == 1)
        losses += [
            np.log(first[0, y] / first[1, y]) + np.log(second[0, z] / second[1, z]) for z in (0, 1)
        ]
    reached = max(losses) - min(losses)
    promised = (2 * Guarantee(r, r, "swap")).bounded_range
    assert 2 * r + 0.4 < reached <= promised + 1e-8
    assert promised == pytest.approx(3 * r)
    assert (1 * Guarantee(r, r, "swap")).bounded_range == r
    assert (Guarantee(1.0, 1.5, "swap") + Guarantee(r, r, "swap")).bounded_range == pytest.approx(
        2 + 2 * r - r
    )
    assert (2 * Guarantee(neighbors="swap", zcdp=0.1)).bounded_range == inf
    assert (2 * Guarantee(1.0, 1.0, "swap", delta=1e-6)).bounded_range == pytest.approx(3.0)


def test_a_composition_keeps_curves_or_says_that_nothing_is_left():
    curve = Guarantee(neighbors="swap", renyi=((2.0, 0.1), (8.0, 0.9)))
    whole = (3 * curve + Guarantee(0.5, 0.5, "swap")).guarantee()
    assert whole.rdp(2.0) == 3 * 0.1 + Guarantee(0.5, 0.5, "swap").rdp(2.0)
    loose = Guarantee(1.0, inf, "swap", delta=1e-6)
    whole = (curve + loose).guarantee()
    assert (whole.delta, whole.rdp(2.0)) == (1e-6, 0.1 + loose.rdp(2.0))
    with pytest.raises(ValueError, match="nothing is promised"):
        (10**7 * loose).guarantee()


def test_edges_are_on_the_safe_side_and_return(x64):
    huge = Guarantee(1e308, 1e308, "swap")
    assert huge.epsilon_at(1e-6) >= 1e307
    assert huge.delta_at(1.0) == (3 * huge).delta_at(1.0) == 1
    assert (3 * huge).epsilon_at(1e-6) == inf == advanced_epsilon(1e308, count=3, delta=1e-6)
    assert Guarantee(neighbors="swap", gdp=1e200).delta_at(1.0) == 1
    many = bounded_range_epsilon(1e-5, count=10**9, delta=1e-6, queries="adaptive")
    assert 0.6 < many < 10**9 * 1e-5
    assert (10**9 * Guarantee(1e-5, 1e-5, "swap")).epsilon_at(1e-6) < many + 0.1
    assert for_groups(Guarantee(1e-9, inf, "swap", delta=1e-15), size=10**9).delta == pytest.approx(
        1.718e-6, rel=1e-3
    )
    for call in (
        lambda: for_groups(RANGE, size=10**400),
        lambda: retry_until_success(RANGE, 0.5, attempts=10**400, fallback="public"),
    ):
        with pytest.raises(ValueError, match="integer from 1 to"):
            call()
