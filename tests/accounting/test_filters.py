"""Filters refuse beyond their budget, odometers bound what adaptive adversaries spend."""

import contextlib
import copy
import dataclasses
import pickle
import sys
import threading
import time
from functools import cache
from itertools import product
from math import exp, inf, log

import numpy as np
import pytest

from dpjax.accounting import (
    BudgetExceeded,
    Guarantee,
    PartitionFilter,
    PrivacyFilter,
    PrivacyOdometer,
    epsilon_of_zcdp,
    optimal_pure_delta,
    poisson_subsample,
    zcdp_of,
)


def test_a_pure_budget():
    budget = PrivacyFilter(1.0, 0.0, "swap")
    for _ in range(10):
        budget.charge(Guarantee(0.1, 0.1, "swap"))
    assert budget.remaining == 0
    with pytest.raises(BudgetExceeded, match="exceeds"):
        budget.charge(Guarantee(1e-6, 1e-6, "swap"))
    assert budget.spent == 1.0  # a refusal is free
    half = PrivacyFilter(1.0, 0.0, "swap")
    half.charge(5 * Guarantee(0.1, 0.1, "swap"))
    assert half.allows(Guarantee(0.5, 0.5, "swap"))
    assert not half.allows(Guarantee(0.500001, 1.0, "swap"))
    assert half.allows(Guarantee(inf, 0.5, "swap"))  # a range is an epsilon


def test_units_are_charged_apart():
    for budget in (PrivacyFilter(1.0, 0.0, "swap"), PrivacyOdometer(1e-6, "swap")):
        budget.charge(Guarantee(0.1, 0.1, "swap"))
        budget.charge(2 * Guarantee(0.1, 0.1, "swap", unit="person"))
        budget.charge(Guarantee(0.1, 0.1, "swap"))
        with pytest.raises(ValueError, match="for a row and for a person do not compose"):
            budget.charge(Guarantee(0.1, 0.1, "swap", unit="row"))
    parts = PartitionFilter(("north", "south"), 1.0, 0.0, "add_remove", membership="by_value")
    parts.charge(Guarantee(0.1, 0.1, "add_remove", unit="person"), ["north"])
    with pytest.raises(ValueError, match="do not compose"):
        parts.charge(Guarantee(0.1, 0.1, "add_remove", unit="row"), ["south"])


def test_a_budget_is_for_the_persons_of_one_column():
    person = Guarantee(1 / 64, 1 / 64, "swap", unit="person")
    riders, drivers = {"unit": "rider"}, {"unit": "driver"}
    budget = PrivacyFilter(1.0, 0.0, "swap")
    early = budget.session(0.25)
    budget.charge(Guarantee(1 / 64, 1 / 64, "swap"), drivers)  # states no unit
    budget.charge(person)  # states no column
    early.charge(person, riders)
    for other in (budget, early, budget.session(0.25), pickle.loads(pickle.dumps(budget))):
        spent = other.spent
        for refuses in (other.charge, other.allows):
            with pytest.raises(ValueError, match=r'column "rider", .* those of column "driver"'):
                refuses(2 * person, drivers)
        assert other.spent == spent
        assert other.allows(person, riders)
        other.charge(person, riders)
    assert budget.spent == 0.5 + 3 / 64


def test_copies_remember_what_was_spent():
    budget = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    each = Guarantee(0.5, 0.5, "swap", unit="person")
    budget.charge(each, {"statistic": "any"})
    same, *others = copy.copy(budget), copy.deepcopy(budget), pickle.loads(pickle.dumps(budget))
    for other in others:
        assert (other.spent, other.unit, repr(other)) == (budget.spent, "person", repr(budget))
        other.charge(each)
        assert other.spent == 2 * budget.spent
    same.charge(each)
    assert same.spent == budget.spent == others[0].spent
    with pytest.raises(TypeError):  # it would forget
        dataclasses.replace(budget, epsilon=2.0)


class SlowFilter(PrivacyFilter):
    """A filter that hesitates between the look at what is left and the charge."""

    def _has_room(self, costs):
        found = super()._has_room(costs)
        time.sleep(1e-4)
        return found


def charged_by_threads(budget, threads=8):
    """How many times 1/64 was charged by threads that go on until they are refused."""
    admitted, start = [], threading.Barrier(threads)

    def spend():
        start.wait()
        with contextlib.suppress(BudgetExceeded):
            while True:
                budget.charge(Guarantee(1 / 64, 1 / 64, "swap"))
                admitted.append(1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=spend) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    return len(admitted)


def test_threads_never_pass_the_budget():
    for _ in range(5):
        assert charged_by_threads(PrivacyFilter(1.0, 0.0, "swap")) == 64
    assert charged_by_threads(SlowFilter(1.0, 0.0, "swap")) == 64
    most = 0
    for _ in range(10):  # the control, which overspends nine times out of ten
        unlocked = SlowFilter(1.0, 0.0, "swap")
        unlocked._sums.lock = contextlib.nullcontext()
        most = max(most, charged_by_threads(unlocked))
    assert most > 64


def test_a_budget_with_delta_is_one_of_zcdp(x64):
    budget = PrivacyFilter(1.0, 1e-6, "add_remove")
    np.testing.assert_allclose(budget.budget, zcdp_of(1.0, delta=1e-6), rtol=1e-9)
    each, count = Guarantee(0.05, 0.05, "add_remove"), 0
    while budget.allows(each):
        budget.charge(each)
        count += 1
    assert count == int(budget.budget / (0.05**2 / 8))
    assert (
        epsilon_of_zcdp(budget.spent, delta=1e-6)
        <= 1.0
        < epsilon_of_zcdp(budget.spent + each.rho, delta=1e-6)
    )
    assert count > 3 * 20  # of what a pure budget would allow


def test_what_a_budget_cannot_charge():
    pure, loose = PrivacyFilter(1.0, 0.0, "swap"), PrivacyFilter(1.0, 1e-6, "swap")
    for budget in (pure, loose):
        with pytest.raises(ValueError, match="neighbors"):
            budget.charge(Guarantee(0.1, 0.1, "add_remove"))
        with pytest.raises(ValueError, match="reserves no delta"):
            budget.charge(Guarantee(0.1, inf, "swap", delta=1e-9))
    with pytest.raises(ValueError, match="pure DP"):
        pure.charge(Guarantee(neighbors="swap", zcdp=0.01))
    loose.charge(Guarantee(neighbors="swap", zcdp=0.01))
    with pytest.raises(ValueError, match="mechanism_delta"):
        loose.charge(Guarantee(1.0, inf, "swap", delta=1e-6, zcdp=0.001))
    for bad in ((0.0, 0.0), (inf, 0.0), (1.0, 1.0), (1.0, -0.1)):
        with pytest.raises(ValueError, match=r"epsilon|delta"):
            PrivacyFilter(*bad, "swap")
    for bad in ({"delta": 1.0}, {"delta": 1e-6, "first": 0.0}):
        with pytest.raises(ValueError, match=r"delta|first"):
            PrivacyOdometer(neighbors="swap", **bad)
    odometer = PrivacyOdometer(1e-6, "swap")
    for bad in (Guarantee(0.1, 0.1, "edge"), Guarantee(0.1, inf, "swap", delta=1e-9)):
        with pytest.raises(ValueError, match=r"neighbors|zCDP"):
            odometer.charge(bad)


def adaptive_losses(runs, rounds, seed):
    """Losses and rho of an adversary who doubles the cost when ahead: randomised responses, all
    runs at once.
    """
    rng = np.random.default_rng(seed)
    loss, rho, path = np.zeros(runs), np.zeros(runs), []
    for _ in range(rounds):
        epsilon = np.where(loss > np.sqrt(rho), 0.4, 0.1)
        right = rng.uniform(size=runs) < 1 / (1 + np.exp(-epsilon))
        loss, rho = loss + np.where(right, epsilon, -epsilon), rho + epsilon * np.tanh(epsilon / 2)
        path.append((loss.copy(), rho.copy()))
    return path


@pytest.mark.slow
def test_an_odometer_bounds_the_loss_at_all_times():
    delta, runs = 0.05, 4000
    ever, ever_half = np.zeros(runs, bool), np.zeros(runs, bool)
    for loss, rho in adaptive_losses(runs, 60, 0):
        spent, run = np.unique(rho, return_inverse=True)
        bound = np.array([reading(delta, r) for r in spent])[run]
        ever |= loss > bound
        ever_half |= loss > bound / 3
    # At most delta of the runs, with six standard deviations of 4000 runs on top; a third of the
    # bound is passed by many.
    assert ever.mean() <= delta + 6 * np.sqrt(delta / runs)
    assert ever_half.mean() > 2 * delta


def reading(delta, rho):
    odometer = PrivacyOdometer(delta, "swap")
    odometer.charge(Guarantee(neighbors="swap", zcdp=float(rho)))
    return odometer.epsilon


def test_readings():
    odometer = PrivacyOdometer(1e-6, "swap")
    assert odometer.epsilon == 0
    last = 0.0
    for _ in range(49):
        odometer.charge(Guarantee(0.2, 0.2, "swap"))
        assert odometer.epsilon >= last
        last = odometer.epsilon
    assert odometer.rho == pytest.approx(49 * 0.005)
    budget = 2.0**-2  # the first doubled budget that holds it
    assert last == pytest.approx(budget + 2 * np.sqrt(budget * -log(6e-6 / (np.pi * 9) ** 2)))


def test_bad_numbers_do_not_open_a_budget():
    """NaN compares false with everything; a refund would undo a charge."""
    for bad in (float("nan"), -10.0):
        with pytest.raises(ValueError, match="epsilon"):
            PrivacyFilter(1.0, 0.0, "swap").charge(Guarantee(bad, inf, "swap"))
    odometer = PrivacyOdometer(1e-6, "swap")
    with pytest.raises(ValueError, match="zCDP"):
        odometer.charge(Guarantee(1e308, inf, "swap"))
    budget = PrivacyFilter(1.0, 0.0, "swap")
    budget.charge(Guarantee(0.5, 0.5, "swap"))
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            budget.charge(Guarantee(1e308, inf, "swap"))


def test_a_delta_admits_at_least_what_none_admits():
    for each in (
        Guarantee(0.3, 0.6, "swap"),
        Guarantee(0.9, inf, "swap"),
        Guarantee(0.05, 0.05, "swap"),
    ):
        admitted = {}
        for delta in (0.0, 1e-6):
            budget, admitted[delta] = PrivacyFilter(1.0, delta, "swap"), 0
            while budget.allows(each):
                budget.charge(each)
                admitted[delta] += 1
        assert admitted[1e-6] >= admitted[0.0] > 0
    large = Guarantee(0.9, inf, "swap")
    # Control: its rho alone would refuse it
    assert large.rho > PrivacyFilter(1.0, 1e-6, "swap").budget
    mixed = PrivacyFilter(1.0, 1e-6, "swap")
    mixed.charge(Guarantee(neighbors="swap", zcdp=1e-4))
    # Without an epsilon for every part the sum of epsilons admits nothing
    assert not mixed.allows(large)


def largest_delta(epsilon, allows, leak=0.0):
    """The delta at epsilon of the best adversary who composes randomised responses at 0.1 and 0.5,
    each as ``allows`` says.

    With the probability ``leak`` a response tells the truth and that it does.
    """

    @cache
    def best(small, large, loss):  # the loss is counted in steps of 0.1
        found = max(-np.expm1(epsilon - 0.1 * loss), 0.0)
        for step, counts in ((1, (small + 1, large)), (5, (small, large + 1))):
            if allows(*counts):
                right = 1 / (1 + np.exp(-0.1 * step))
                kept = right * best(*counts, loss + step) + (1 - right) * best(*counts, loss - step)
                found = max(found, leak + (1 - leak) * kept)
        return found

    return best(0, 0, 0)


def allowed_by(make, parts):
    """Whether so many of each can be charged, in any order: what a filter allows does not depend on
    the order.
    """

    @cache
    def allows(*counts):
        budget = make()
        try:
            for part, count in zip(parts, counts, strict=True):
                if count:
                    budget.charge(count * part)
        except BudgetExceeded:
            return False
        return True

    return allows


@pytest.mark.parametrize("orders", [(), (12.0,), (6.0, 9.0, 14.0)])
def test_rules_side_by_side_keep_the_delta(orders):
    """All adaptive adversaries, against the filter; the control may spend one budget after the
    other.
    """
    parts, delta = (Guarantee(0.1, inf, "swap"), Guarantee(0.5, inf, "swap")), 0.01
    rho = PrivacyFilter(1.0, delta, "swap").budget
    assert 10 * parts[0].rho < rho < parts[1].rho
    allows = allowed_by(lambda: PrivacyFilter(1.0, delta, "swap", orders=orders), parts)
    assert allows(10, 0)
    assert allows(0, 2)
    found = largest_delta(1.0, allows)
    assert 0 < found <= delta
    assert (
        largest_delta(1.0, lambda small, large: large <= 2 and small * parts[0].rho <= rho) > delta
    )


def test_deltas_of_mechanisms_keep_their_part():
    """As before, with responses that leak; the control forgets that they do."""
    delta, leak = 0.01, 0.0015
    parts = tuple(Guarantee(epsilon, inf, "swap", delta=leak) for epsilon in (0.1, 0.5))
    allows = allowed_by(lambda: PrivacyFilter(1.0, delta, "swap", mechanism_delta=0.0075), parts)
    assert allows(5, 0)
    assert not allows(6, 0)
    assert 0.007 < largest_delta(1.0, allows, leak) <= delta
    pure = tuple(Guarantee(part.epsilon, inf, "swap") for part in parts)
    assert (
        largest_delta(1.0, allowed_by(lambda: PrivacyFilter(1.0, delta, "swap"), pure), leak)
        > delta
    )
    # No part for a rule: epsilons and deltas add up
    basic = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=1e-6)
    for _ in range(10):
        basic.charge(Guarantee(0.1, inf, "swap", delta=1e-7))
    with pytest.raises(BudgetExceeded, match="delta"):
        basic.charge(Guarantee(1e-9, inf, "swap", delta=1e-9))
    with pytest.raises(ValueError, match="at most delta"):
        PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=2e-6)


def test_larger_budgets_admit_at_least_as_much():
    noise = Guarantee(neighbors="add_remove", zcdp=0.05)
    some = (
        Guarantee(0.2, 0.2, "add_remove"),
        Guarantee(0.4, inf, "add_remove"),
        Guarantee(0.05, inf, "add_remove", delta=1e-8),
        noise,
        poisson_subsample(noise, probability=0.05),
    )
    rng = np.random.default_rng(0)
    for orders in ((), (8.0, 32.0)):
        for _ in range(40):
            budgets = [
                PrivacyFilter(epsilon, delta, "add_remove", mechanism_delta=reserved, orders=orders)
                for epsilon, delta, reserved in (
                    (2.5, 1e-7, 5e-8),
                    (3.0, 1e-7, 5e-8),
                    (3.0, 1e-4, 5e-8),
                    (3.0, 1e-4, 5e-6),
                )
            ]
            for index in rng.integers(0, len(some) if orders else 4, 40):
                room = [budget.allows(some[index]) for budget in budgets]
                assert room == sorted(room)
                if not room[0]:  # the others have at least what the least one has
                    break
                for budget in budgets:
                    budget.charge(some[index])


def test_curves_are_charged_at_public_orders():
    step = poisson_subsample(Guarantee(neighbors="add_remove", zcdp=0.125), probability=0.02)
    budget, count = PrivacyFilter(2.0, 1e-6, "add_remove", orders=(9.0, 12.0, 16.0)), 0
    while budget.allows(step):
        budget.charge(step)
        count += 1
    assert (count * step).epsilon_at(1e-6) <= 2.0
    assert count > 100
    assert (int(1.25 * count) * step).epsilon_at(1e-6) > 2.0  # what the shares of delta cost
    unsampled = PrivacyFilter(2.0, 1e-6, "add_remove")
    assert not unsampled.allows(Guarantee(neighbors="add_remove", zcdp=0.125))
    for orders, message in (((1.0,), "above 1"), ((2.0,), "nothing fits")):
        with pytest.raises(ValueError, match=message):
            PrivacyFilter(2.0, 1e-6, "add_remove", orders=orders)
    with pytest.raises(ValueError, match="at its orders"):
        budget.charge(Guarantee(neighbors="add_remove", renyi=((1.5, 0.1),)))


def test_an_odometer_at_public_orders():
    odometer = PrivacyOdometer(1e-6, "swap", orders=(5.0, 10.0, 20.0))
    odometer.charge(Guarantee(0.1, 0.2, "swap"))
    assert odometer.epsilon == 0.1  # the sum of epsilons
    odometer.charge(400 * Guarantee(0.1, 0.1, "swap"))
    rho = np.array([odometer_rdp(order) for order in (5.0, 10.0, 20.0)])
    assert odometer.epsilon == pytest.approx(
        np.min(rho + log(3e6) / np.array([4, 9, 19])), rel=1e-9
    )
    assert odometer.epsilon > (401 * Guarantee(0.1, 0.1, "swap")).epsilon_at(1e-6)
    pure = PrivacyOdometer(0.0, "swap")
    for _ in range(3):
        pure.charge(Guarantee(0.2, 0.2, "swap"))
    assert pure.epsilon == pytest.approx(0.6)
    with pytest.raises(ValueError, match="pure DP"):
        pure.charge(Guarantee(neighbors="swap", zcdp=0.1))
    loose = PrivacyOdometer(1e-6, "swap", mechanism_delta=5e-7)
    loose.charge(5 * Guarantee(0.1, inf, "swap", delta=1e-7))
    assert loose.epsilon < inf
    loose.charge(Guarantee(0.1, inf, "swap", delta=1e-9))
    assert loose.epsilon == inf


def odometer_rdp(order):
    return 400 * Guarantee(0.1, 0.1, "swap").rdp(order) + Guarantee(0.1, 0.2, "swap").rdp(order)


def test_an_odometer_at_orders_bounds_the_loss_at_all_times():
    """The probability that the best of some adversaries ever passes the reading, exactly; half the
    reading is passed.
    """
    delta, orders = 0.05, (2.0, 4.0, 8.0)
    parts = Guarantee(0.1, inf, "swap"), Guarantee(0.5, inf, "swap")

    @cache
    def reading(small, large):
        odometer = PrivacyOdometer(delta, "swap", orders=orders)
        for part, count in zip(parts, (small, large), strict=True):
            if count:
                odometer.charge(count * part)
        return odometer.epsilon

    @cache
    def passes(small, large, loss, scale):
        if small + large and 0.1 * loss > scale * reading(small, large) + 1e-9:
            return 1.0
        if small + large == 25:
            return 0.0
        found = 0.0
        for step, counts in ((1, (small + 1, large)), (5, (small, large + 1))):
            right = 1 / (1 + exp(-0.1 * step))
            found = max(
                found,
                right * passes(*counts, loss + step, scale)
                + (1 - right) * passes(*counts, loss - step, scale),
            )
        return found

    assert passes(0, 0, 0, 1.0) <= delta < passes(0, 0, 0, 0.5)


def conversation(secret, asked, answers, epsilon):
    """The probability of the answers of an interactive mechanism, which draws a hidden coin once.

    Each answer is a response at epsilon about the coin, or about coin XOR secret: by itself it says
    nothing.
    """
    right, total = 1 / (1 + exp(-epsilon)), 0.0
    for coin in (0, 1):
        chance = 0.5
        for question, answer in zip(asked, answers, strict=True):
            chance *= right if answer == (coin if question == 0 else coin ^ secret) else 1 - right
        total += chance
    return total


def concurrent_delta(epsilon, parts):
    """The best adversary who asks each mechanism twice, in any order, each question chosen by all
    answers before.
    """

    @cache
    def best(history):
        counts = [sum(who == number for who, *_ in history) for number in range(len(parts))]
        if sum(counts) == 2 * len(parts):
            chance = [
                np.prod(
                    [
                        conversation(
                            secret,
                            *zip(*[step[1:] for step in history if step[0] == number], strict=True),
                            part,
                        )
                        for number, part in enumerate(parts)
                    ]
                )
                for secret in (1, 0)
            ]
            return max(chance[0] - exp(epsilon) * chance[1], 0.0)
        return max(
            best((*history, (who, question, 0))) + best((*history, (who, question, 1)))
            for who, question in product(range(len(parts)), (0, 1))
            if counts[who] < 2
        )

    return best(())


def test_interactive_mechanisms_compose_concurrently():
    """By every adversary; the control charges each answer by itself, and not the conversation."""
    parts = (2.0, 3.0)
    alone = [interactive_loss(part, 2) for part in parts]
    for epsilon in (0.0, 0.5, 1.5):
        found = concurrent_delta(epsilon, parts)
        exact = optimal_pure_delta(alone, [1, 1], epsilon=epsilon)
        assert found <= exact + 1e-12
        assert found == pytest.approx(exact)
    assert max(interactive_loss(part, 1) for part in parts) == pytest.approx(0.0, abs=1e-12)
    budget = PrivacyFilter(sum(alone), 0.0, "swap")
    for part in alone:
        budget.charge(Guarantee(part, inf, "swap"))
    assert budget.remaining == 0


def interactive_loss(part, asked):
    """The largest log-ratio of a whole conversation with one adversary: what is charged."""
    return max(
        abs(
            log(
                conversation(0, questions, answers, part)
                / conversation(1, questions, answers, part)
            )
        )
        for questions in product((0, 1), repeat=asked)
        for answers in product((0, 1), repeat=asked)
    )


def test_parts_have_budgets_of_their_own():
    each = Guarantee(0.5, 1.0, "add_remove")
    budget = PartitionFilter(("a", "b", "c"), 1.0, 0.0, "add_remove", membership="by_value")
    for part in "abc":
        budget.charge(each, [part])
    budget.charge(each)
    for part in "abc":
        assert budget.filters[part].remaining == 0
    other = PartitionFilter(("a", "b"), 1.0, 1e-6, "swap", membership="by_position", orders=(16.0,))
    other.charge(Guarantee(0.9, inf, "swap"), ["a"])
    with pytest.raises(BudgetExceeded, match="of a part"):
        other.charge(Guarantee(0.9, inf, "swap"), ["b", "a"])
    assert other.filters["b"].spent == 0  # a refusal is free
    for bad, message in (
        ({"neighbors": "swap"}, "replaced record"),
        ({"neighbors": "swapp"}, "must be one of"),
        ({"membership": "value"}, "must be one of"),
        ({"parts": ()}, "at least one"),
        ({"parts": ("a", "a")}, "distinct names"),
    ):
        given = {"parts": ("a", "b"), "neighbors": "add_remove", "membership": "by_value", **bad}
        with pytest.raises(ValueError, match=message):
            PartitionFilter(
                given["parts"], 1.0, 0.0, given["neighbors"], membership=given["membership"]
            )
    for parts in (["d"], [], "a"):
        with pytest.raises(ValueError, match="names among"):
            budget.allows(each, parts)


def test_parts_by_enumeration():
    """Each person is in one of two parts. The loss of all answers is within the budget, and a
    record that moves passes it.
    """
    flips = 1 / (1 + exp(-0.5))

    def chance(people, answers):
        """Noisy parities of both parts, twice."""
        found = 1.0
        for part, given in enumerate(answers):
            parity = sum(value for where, value in people if where == part) % 2
            found *= np.prod([flips if answer == parity else 1 - flips for answer in given])
        return found

    budget = PartitionFilter((0, 1), 1.0, 0.0, "add_remove", membership="by_value")
    for part in (0, 0, 1, 1):
        budget.charge(Guarantee(0.5, 1.0, "add_remove"), [part])
    assert not budget.allows(Guarantee(0.01, 0.01, "add_remove"), [1])
    person, outcomes = (
        list(product((0, 1), repeat=2)),
        list(product(product((0, 1), repeat=2), repeat=2)),
    )
    datasets = [people for size in (0, 1, 2) for people in product(person, repeat=size)]

    def loss(one, other):
        return max(abs(log(chance(one, given) / chance(other, given))) for given in outcomes)

    assert max(
        loss(people, (*people, new)) for people in datasets for new in person
    ) == pytest.approx(1.0)
    assert max(loss((old,), (new,)) for old in person for new in person) == pytest.approx(2.0)


def test_unknown_relations_are_refused():
    for make in (lambda: PrivacyFilter(1.0, 0.0, "swapp"), lambda: PrivacyOdometer(1e-6, "swapp")):
        with pytest.raises(ValueError, match="neighbors must be one of"):
            make()


def test_gaussian_noise_is_admitted_by_its_own_rule():
    """More than zCDP admits, and together still within the budget; what is charged first decides,
    before there is an answer.
    """
    for mu, admitted in ((0.05, 22), (0.1, 5)):
        budget, each = PrivacyFilter(1.0, 1e-6, "swap"), Guarantee(neighbors="swap", gdp=mu)
        for _ in range(admitted):
            budget.charge(each)
        assert not budget.allows(each)
        assert (admitted * each).epsilon_at(1e-6) <= 1.0
        assert (
            pickle.loads(pickle.dumps(budget)).remaining
            == copy.deepcopy(budget).remaining
            == budget.remaining
            < mu**2 / 2
        )
    other = Guarantee(0.05, 0.05, "swap")
    mixed = PrivacyFilter(1.0, 1e-6, "swap")
    mixed.charge(each)
    mixed.charge(other)  # within what is left for zCDP
    assert not mixed.allows(4 * each)
    begun = PrivacyFilter(1.0, 1e-6, "swap")
    begun.charge(other)
    assert begun.budget > mixed.budget
    assert not begun.allows(5 * each)


def test_a_session_is_charged_when_it_opens():
    whole = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    part = whole.session(0.5, 2e-7)
    assert (part.epsilon, part.delta) == (0.5, 2e-7)
    after = copy.deepcopy(whole)
    part.charge(Guarantee(0.25, 0.25, "swap"))
    assert whole.remaining == after.remaining
    with pytest.raises(BudgetExceeded):
        part.charge(Guarantee(2.0, 2.0, "swap"))
    with pytest.raises(BudgetExceeded):
        whole.session(0.1, 4e-7)  # the delta
    with pytest.raises(BudgetExceeded):
        whole.session(0.9)
    assert whole.remaining == after.remaining
    with pytest.raises(ValueError, match="mechanism_delta"):
        PrivacyFilter(1.0, 1e-6, "swap").session(0.1, 1e-7)
    persons = PrivacyFilter(1.0, 0.0, "swap")
    persons.charge(Guarantee(0.1, 0.1, "swap", unit="person"))
    with pytest.raises(ValueError, match="do not compose"):
        persons.session(0.1).charge(Guarantee(0.1, 0.1, "swap", unit="row"))


def test_an_adversary_with_a_session_keeps_the_budget():
    """By dynamic programming over all adaptive adversaries: 0.1 steps of the whole, and of the
    session in between.
    """
    parts = (Guarantee(0.1, inf, "swap"), Guarantee(0.1, inf, "swap"))

    @cache
    def allows(outer, inner):
        whole = PrivacyFilter(1.0, 0.01, "swap")
        session = whole.session(0.4)
        try:
            for budget, part, count in ((whole, parts[0], outer), (session, parts[1], inner)):
                if count:
                    budget.charge(count * part)
        except BudgetExceeded:
            return False
        return True

    @cache
    def best(outer, inner, loss):
        found = max(-np.expm1(1.0 - 0.1 * loss), 0.0)
        for counts in ((outer + 1, inner), (outer, inner + 1)):
            if allows(*counts):
                right = 1 / (1 + np.exp(-0.1))
                found = max(
                    found, right * best(*counts, loss + 1) + (1 - right) * best(*counts, loss - 1)
                )
        return found

    assert allows(0, 4)
    assert not allows(0, 5)
    assert best(0, 0, 0) == 0  # the epsilons of all add up to 1
    assert best(0, 0, 2) > 0  # control: what is spent beside the budget
