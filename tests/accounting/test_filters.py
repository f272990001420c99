"""Filters refuse beyond their budget, odometers bound what adaptive adversaries spend."""

import contextlib
import copy
import dataclasses
import pickle
import threading
from functools import cache
from itertools import product
from math import exp, inf, log, pi, sqrt

import numpy as np
import pytest

from dpjax.accounting import (
    BudgetExceeded,
    Guarantee,
    PartitionFilter,
    PrivacyFilter,
    PrivacyOdometer,
    epsilon_of_zcdp,
    filters,
    gdp_of,
    optimal_pure_delta,
    poisson_subsample,
    zcdp_of,
)
from tests.support.races import admitted_of_two

RANGE = Guarantee(0.1, 0.1, "swap")
LEAKS = Guarantee(0.1, inf, "swap", delta=1e-9)


def test_a_pure_budget():
    budget = PrivacyFilter(1.0, 0.0, "swap")
    for _ in range(10):
        budget.charge(RANGE)
    assert budget.remaining == 0
    for refused in (1e-6, 1e308):
        with pytest.raises(BudgetExceeded, match="exceeds"):
            budget.charge(Guarantee(refused, refused, "swap"))
    assert budget.spent == 1.0  # a refusal is free
    half = PrivacyFilter(1.0, 0.0, "swap")
    half.charge(5 * RANGE)
    assert half.allows(Guarantee(0.5, 0.5, "swap"))
    assert not half.allows(Guarantee(0.500001, 1.0, "swap"))
    assert half.allows(Guarantee(inf, 0.5, "swap"))  # a range is an epsilon


def test_a_budget_is_for_the_persons_of_one_column():
    person = Guarantee(1 / 64, 1 / 64, "swap", unit="person")
    riders, drivers = {"unit": "rider"}, {"unit": "driver"}
    budget = PrivacyFilter(1.0, 0.0, "swap")
    early = budget.session(0.25)
    budget.charge(Guarantee(1 / 64, 1 / 64, "swap"), drivers)  # states no unit
    budget.charge(person)  # states no column
    early.charge(person, riders)
    for other in (budget, early, budget.session(0.25), pickle.loads(pickle.dumps(budget))):
        for refuses in (other.charge, other.allows):
            with pytest.raises(ValueError, match=r'column "rider", .* those of column "driver"'):
                refuses(2 * person, drivers)
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
    odometer = PrivacyOdometer(1e-6, "swap")
    odometer.charge(each)
    assert pickle.loads(pickle.dumps(odometer)).epsilon == odometer.epsilon > 0
    for forgets in (budget, odometer, parts_of("swap", "by_position")):
        with pytest.raises(TypeError):
            dataclasses.replace(forgets)


class SlowFilter(PrivacyFilter):
    """A filter whose first charge hesitates between the look at what is left and the charge."""

    def _has_room(self, costs):
        found = super()._has_room(costs)
        if threading.current_thread() is threading.main_thread():
            self.pause()
        return found


@pytest.mark.parametrize("locked", [True, False])
def test_threads_never_pass_the_budget(locked, monkeypatch):
    """The control has no lock."""
    if not locked:
        monkeypatch.setattr(filters, "Lock", contextlib.nullcontext)
    shared = SlowFilter(1.0, 0.0, "swap")
    admitted, shared.pause = admitted_of_two(
        lambda _: shared.charge(Guarantee(0.75, 0.75, "swap")), lambda other: other.join(0.1)
    )
    assert admitted() == (1 if locked else 2)


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


@pytest.mark.parametrize(
    ("budget", "cost", "message"),
    [
        (PrivacyFilter(1.0, 0.0, "swap"), Guarantee(0.1, 0.1, "add_remove"), "neighbors"),
        (PrivacyFilter(1.0, 1e-6, "swap"), LEAKS, "reserves no delta"),
        (PrivacyFilter(1.0, 0.0, "swap"), Guarantee(neighbors="swap", zcdp=0.01), "pure DP"),
        (
            PrivacyFilter(2.0, 1e-6, "swap", orders=(9.0,)),
            Guarantee(neighbors="swap", renyi=((1.5, 0.1),)),
            "at its orders",
        ),
        (PrivacyOdometer(1e-6, "swap"), Guarantee(0.1, 0.1, "edge"), "neighbors"),
        (PrivacyOdometer(1e-6, "swap"), LEAKS, "reserves no delta"),
        (PrivacyOdometer(0.0, "swap"), Guarantee(neighbors="swap", zcdp=0.1), "pure DP"),
        # Numbers of which the sum would be infinite
        (PrivacyOdometer(1e-6, "swap"), Guarantee(1e308, inf, "swap"), "zCDP"),
    ],
)
def test_what_a_budget_cannot_charge(budget, cost, message):
    with pytest.raises(ValueError, match=message):
        budget.charge(cost)


def test_readings():
    odometer = PrivacyOdometer(1e-6, "swap")
    readings = [odometer.epsilon]
    for _ in range(49):
        odometer.charge(Guarantee(0.2, 0.2, "swap"))
        readings.append(odometer.epsilon)
    assert readings[0] == 0
    assert readings == sorted(readings)
    assert odometer.rho == pytest.approx(49 * 0.005)
    budget = 2.0**-2  # the first doubled budget that holds it
    assert readings[-1] == pytest.approx(budget + 2 * sqrt(budget * -log(6e-6 / (pi * 9) ** 2)))


def largest_delta(epsilon, allows, leak=0.0, steps=(1, 5), loss=0):
    """The delta at epsilon of the best adversary who composes randomised responses of two kinds, of
    ``steps`` times 0.1 each, as ``allows`` says of their numbers, after a loss.

    With the probability ``leak`` a response tells the truth and that it does.
    """

    @cache
    def best(small, large, loss):  # the loss is counted in steps of 0.1
        found = max(-np.expm1(epsilon - 0.1 * loss), 0.0)
        for step, counts in zip(steps, ((small + 1, large), (small, large + 1)), strict=True):
            if allows(*counts):
                right = 1 / (1 + np.exp(-0.1 * step))
                kept = right * best(*counts, loss + step) + (1 - right) * best(*counts, loss - step)
                found = max(found, leak + (1 - leak) * kept)
        return found

    return best(0, 0, loss)


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
    forgets = allowed_by(lambda: PrivacyFilter(1.0, delta, "swap"), pure)
    assert largest_delta(1.0, forgets, leak) > delta
    # No part for a rule: epsilons and deltas add up
    basic = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=1e-6)
    basic.charge(10 * Guarantee(0.1, inf, "swap", delta=1e-7))
    with pytest.raises(BudgetExceeded, match="delta"):
        basic.charge(Guarantee(1e-9, inf, "swap", delta=1e-9))


def test_curves_are_charged_at_public_orders():
    step = poisson_subsample(Guarantee(neighbors="add_remove", zcdp=0.125), probability=0.02)
    budget, count = PrivacyFilter(2.0, 1e-6, "add_remove", orders=(9.0, 12.0, 16.0)), 0
    while budget.allows(10 * step):
        budget.charge(10 * step)
        count += 10
    assert count > 100
    assert (count * step).epsilon_at(1e-6) <= 2.0
    assert (int(1.25 * count) * step).epsilon_at(1e-6) > 2.0  # what the shares of delta cost


def test_an_odometer_at_public_orders():
    orders = (5.0, 10.0, 20.0)
    odometer = PrivacyOdometer(1e-6, "swap", orders=orders)
    odometer.charge(Guarantee(0.1, 0.2, "swap"))
    assert odometer.epsilon == 0.1  # the sum of epsilons
    odometer.charge(400 * RANGE)
    bounds = [
        400 * RANGE.rdp(order) + Guarantee(0.1, 0.2, "swap").rdp(order) + log(3e6) / (order - 1)
        for order in orders
    ]
    assert odometer.epsilon == pytest.approx(min(bounds), rel=1e-9)
    pure = PrivacyOdometer(0.0, "swap")
    pure.charge(3 * Guarantee(0.2, 0.2, "swap"))
    assert pure.epsilon == pytest.approx(0.6)
    loose = PrivacyOdometer(1e-6, "swap", mechanism_delta=5e-7)
    loose.charge(5 * Guarantee(0.1, inf, "swap", delta=1e-7))
    assert loose.epsilon < inf
    loose.charge(LEAKS)
    assert loose.epsilon == inf


@pytest.mark.parametrize(("orders", "part"), [((), 0.3), ((2.0, 4.0, 8.0), 0.5)])
def test_an_odometer_bounds_the_loss_at_all_times(orders, part):
    """The probability that the best of some adversaries ever passes the reading, exactly; the
    control passes a part of the reading.
    """
    delta, parts = 0.05, (Guarantee(0.1, inf, "swap"), Guarantee(0.5, inf, "swap"))

    @cache
    def reading(*counts):
        odometer = PrivacyOdometer(delta, "swap", orders=orders)
        for each, count in zip(parts, counts, strict=True):
            if count:
                odometer.charge(count * each)
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
            kept = right * passes(*counts, loss + step, scale)
            found = max(found, kept + (1 - right) * passes(*counts, loss - step, scale))
        return found

    assert passes(0, 0, 0, 1.0) <= delta < passes(0, 0, 0, part)


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
    budget = parts_of("add_remove", "by_value")
    for part in "abc":
        budget.charge(each, [part])
    budget.charge(each)
    assert [budget.filters[part].remaining for part in "abc"] == [0, 0, 0]
    other = parts_of("swap", "by_position", delta=1e-6)
    other.charge(Guarantee(0.9, inf, "swap"), ["a"])
    with pytest.raises(BudgetExceeded, match="of a part"):
        other.charge(Guarantee(0.9, inf, "swap"), ["b", "a"])
    assert other.filters["b"].spent == 0  # a refusal is free


def test_parts_by_enumeration():
    """Each person is in one of two parts, of which noisy parities are asked twice. The loss of all
    answers is within the budget, and a record that moves passes it.
    """
    budget = parts_of("add_remove", "by_value", (0, 1))
    for part in (0, 0, 1, 1):
        budget.charge(Guarantee(0.5, 1.0, "add_remove"), [part])
    assert not budget.allows(Guarantee(0.01, 0.01, "add_remove"), [1])
    answers = np.array(list(product((0, 1), repeat=4)))

    def log_chances(people):
        """Of all answers, up to a constant."""
        parities = [sum(value for where, value in people if where == part) % 2 for part in (0, 1)]
        return 0.5 * (answers == np.repeat(parities, 2)).sum(axis=1)

    def loss(one, other):
        return np.abs(log_chances(one) - log_chances(other)).max()

    person = list(product((0, 1), repeat=2))
    datasets = [people for size in (0, 1, 2) for people in product(person, repeat=size)]
    assert max(loss(people, (*people, new)) for people in datasets for new in person) == 1.0
    assert max(loss((old,), (new,)) for old in person for new in person) == 2.0


def test_gaussian_noise_is_admitted_by_its_own_rule():
    """More than zCDP admits, and together still within the budget; what is charged first decides,
    before there is an answer.
    """
    for mu, admitted in ((0.05, 22), (0.1, 5)):
        budget, each = PrivacyFilter(1.0, 1e-6, "swap"), Guarantee(neighbors="swap", gdp=mu)
        budget.charge(admitted * each)
        assert not budget.allows(each)
        assert (admitted * each).epsilon_at(1e-6) <= 1.0
        assert not pickle.loads(pickle.dumps(budget)).allows(each)
    other = Guarantee(0.05, 0.05, "swap")
    mixed, begun = PrivacyFilter(1.0, 1e-6, "swap"), PrivacyFilter(1.0, 1e-6, "swap")
    mixed.charge(each)
    mixed.charge(other)  # within what is left for zCDP
    assert not mixed.allows(4 * each)
    begun.charge(other)
    assert begun.budget > mixed.budget
    assert not begun.allows(5 * each)


def test_a_session_is_charged_when_it_opens():
    whole = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    part = whole.session(0.5, 2e-7)
    assert (part.epsilon, part.delta) == (0.5, 2e-7)
    remaining = whole.remaining
    part.charge(Guarantee(0.25, 0.25, "swap"))
    assert whole.remaining == remaining
    for refused in (
        lambda: part.charge(Guarantee(2.0, 2.0, "swap")),
        lambda: whole.session(0.1, 4e-7),  # the delta
        lambda: whole.session(0.9),
    ):
        with pytest.raises(BudgetExceeded):
            refused()
    assert whole.remaining == remaining


def test_an_adversary_with_a_session_keeps_the_budget():
    """By dynamic programming over all adaptive adversaries: 0.1 steps of the whole, and of the
    session in between.
    """
    part = Guarantee(0.1, inf, "swap")

    @cache
    def allows(outer, inner):
        whole = PrivacyFilter(1.0, 0.01, "swap")
        session = whole.session(0.4)
        try:
            for budget, count in ((whole, outer), (session, inner)):
                if count:
                    budget.charge(count * part)
        except BudgetExceeded:
            return False
        return True

    assert allows(0, 4)
    assert not allows(0, 5)
    # The epsilons of all add up to 1
    assert largest_delta(1.0, allows, steps=(1, 1)) == 0
    # Control: what is spent beside the budget
    assert largest_delta(1.0, allows, steps=(1, 1), loss=2) > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=2e-6), "at most delta"),
        (lambda: PrivacyFilter(1.0, 1e-6, "replace"), "neighbors"),
        (lambda: PrivacyFilter(float("nan"), 1e-6, "swap"), "epsilon"),
        (lambda: PrivacyFilter(-1.0, 1e-6, "swap"), "epsilon"),
        (lambda: PrivacyFilter(1.0, 1.0, "swap"), "delta"),
        (lambda: PrivacyFilter(2.0, 1e-6, "swap", orders=(2.0,)), "nothing fits"),
        (lambda: PrivacyFilter(1.0, 1e-6, "swap").session(0.1, 1e-7), "mechanism_delta"),
        (lambda: parts_of("swap", "by_value"), "replaced record"),
        (lambda: parts_of("swap", "by_position", ("a", "a")), "distinct names"),
        (lambda: parts_of("swap", "by_position").charge(RANGE, ["d"]), "names among"),
        (lambda: parts_of("swap", "by_position").charge(RANGE, "a"), "names among"),
    ],
)
def test_budgets_that_would_promise_less(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def parts_of(neighbors, membership, parts=("a", "b", "c"), delta=0.0):
    return PartitionFilter(parts, 1.0, delta, neighbors, membership=membership)


def test_a_budget_is_for_one_unit():
    """Otherwise a person with two rows would lose 1.5 under a promise of 1 for a person."""
    row, person = (Guarantee(0.1, 0.1, "swap", unit=unit) for unit in ("row", "person"))
    whole = PrivacyFilter(1.0, 0.0, "swap")
    first, second = whole.session(0.25), whole.session(0.25)
    first.charge(person)
    assert whole.unit == second.unit == "person"
    parts, odometer = parts_of("swap", "by_position"), PrivacyOdometer(1e-6, "swap")
    parts.charge(2 * person, ["a"])
    odometer.charge(RANGE)  # states no unit
    odometer.charge(person)
    for charge in (whole.charge, second.charge, odometer.charge):
        with pytest.raises(ValueError, match="for a row and for a person do not compose"):
            charge(row)
    with pytest.raises(ValueError, match="do not compose"):
        parts.charge(row, ["b"])
    copy.deepcopy(PrivacyFilter(1.0, 0.0, "swap")).charge(row)


def test_shares_of_delta_add_up():
    def budget(delta, **options):
        return PrivacyFilter(3.0, delta, "swap", **options)

    half = budget(5e-7)
    assert budget(1e-6, mechanism_delta=5e-7).budget == pytest.approx(half.budget, rel=1e-9)
    two, one = budget(1e-6, orders=(9.0, 30.0)), budget(5e-7, orders=(9.0,))
    assert two.budget == pytest.approx(one.budget, rel=1e-9)
    half.charge(Guarantee(neighbors="swap", gdp=1e-9))  # and 1/8 is left for zCDP
    assert half.budget == pytest.approx(gdp_of(3.0, delta=5e-7 * 7 / 8) ** 2 / 2, rel=1e-9)
