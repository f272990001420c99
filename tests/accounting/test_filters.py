"""Filters refuse beyond their budget, odometers bound what adaptive adversaries spend."""

import contextlib
import copy
import dataclasses
import pickle
import signal
import threading
from functools import cache
from math import exp, inf, log, pi, sqrt

import numpy as np
import pytest

from dpjax.accounting import (
    BudgetExceeded,
    Guarantee,
    PrivacyFilter,
    PrivacyOdometer,
    filters,
    zcdp_of,
)
from tests.support.races import admitted_of_two

RANGE = Guarantee(0.1, 0.1, "swap")
NOTHING = Guarantee(0.0, 0.0, "swap")
WHOLE = PrivacyFilter(1.0, 0.0, "swap")
NORTH = WHOLE.part("north", membership="by_position")
LEAKS = Guarantee(0.1, inf, "swap", delta=1e-9)


def test_a_pure_budget():
    budget = PrivacyFilter(1.0, 0.0, "swap")
    budget.charge(Guarantee(inf, 0.5, "swap"))  # a range is an epsilon
    for _ in range(5):
        budget.charge(RANGE)
    for refused in (1e-6, 1e308):
        with pytest.raises(BudgetExceeded, match="exceeds"):
            budget.charge(Guarantee(refused, refused, "swap"))
    assert (budget.spent, budget.remaining) == (1.0, 0.0)  # a refusal is free


def test_a_budget_is_for_one_unit_and_the_persons_of_one_column():
    """Otherwise a person with two rows would lose 1.5 under a promise of 1 for a person."""
    row, person = (Guarantee(1 / 64, 1 / 64, "swap", unit=unit) for unit in ("row", "person"))
    riders, drivers = {"unit": "rider"}, {"unit": "driver"}
    whole, odometer = PrivacyFilter(1.0, 0.0, "swap"), PrivacyOdometer(1e-6, "swap")
    north = whole.part("north", membership="by_position")
    whole.charge(RANGE, drivers)  # states no unit
    odometer.charge(person)
    whole.charge(person)  # states no column
    whole.charge(person, riders)
    for other in (whole, north, pickle.loads(pickle.dumps(whole))):
        for refuses in (other.charge, other.fits):
            with pytest.raises(ValueError, match=r'column "rider", .* those of column "driver"'):
                refuses(2 * person, drivers)
        other.charge(person, riders)
    for charge in (whole.charge, north.charge, odometer.charge):
        with pytest.raises(ValueError, match="unit row and person do not compose"):
            charge(row)


def test_copies_remember_what_was_spent():
    budget = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    each = Guarantee(0.5, 0.5, "swap", unit="person")
    budget.charge(each)
    once = budget.spent
    for other in (copy.deepcopy(budget), pickle.loads(pickle.dumps(budget))):
        assert (other.spent, repr(other)) == (once, repr(budget))
        other.charge(each)
        assert other.spent == 2 * once
    copy.copy(budget).charge(each)
    assert budget.spent == 2 * once
    odometer = PrivacyOdometer(1e-6, "swap")
    odometer.charge(each)
    assert pickle.loads(pickle.dumps(odometer)).epsilon == odometer.epsilon > 0
    for forgets in (budget, odometer):
        with pytest.raises(TypeError):
            dataclasses.replace(forgets)


def test_what_was_promised_is_read_only():
    """A larger total would be taken for the promise of all charges so far."""
    for budget in (PrivacyFilter(1.0, 1e-6, "swap"), PrivacyOdometer(1e-6, "swap")):
        for name in ("epsilon", "delta", "neighbors", "mechanism_delta", "_spent"):
            with pytest.raises(AttributeError):
                setattr(budget, name, 5.0)
        assert budget.delta == 1e-6


def test_what_is_left_has_names():
    budget = PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=5e-7)
    budget.charge(Guarantee(0.125, inf, "swap", delta=1e-7))
    rho = budget.budget - budget.spent
    assert budget.left == pytest.approx({"epsilon": 0.875, "rho": rho, "delta": 4e-7})
    for text in (
        "epsilon 0.875 of 1",
        f"rho {rho:g} of {budget.budget:g}",
        "mechanisms 4e-07 of 5e-07",
    ):
        assert text in str(budget)
    each = Guarantee(0.01, inf, "swap", delta=1e-9)
    times = budget.times(each)
    budget.charge(times * each)
    assert not budget.fits(each)
    assert budget.times(NOTHING) == 2**20


@pytest.mark.parametrize(
    ("total", "each", "count"), [(0.3, 0.1, 3), (0.6, 0.2, 3), (1.2, 0.1, 12), (0.9, 0.3, 3)]
)
def test_decimals_add_up(total, each, count):
    """Though the float 0.1 three times is more than the float 0.3; by no more than rounding."""
    budget = PrivacyFilter(total, 0.0, "swap")
    assert budget.times(Guarantee(each, inf, "swap")) == count
    assert not budget.fits(Guarantee(total * (1 + 2.0**-50), inf, "swap"))


class SlowFilter(PrivacyFilter):
    """A filter whose first charge hesitates between the look at what is left and the charge."""

    def _has_room(self, *given):
        found = super()._has_room(*given)
        if threading.current_thread() is threading.main_thread():
            self.pause()
        return found


@pytest.mark.parametrize("locked", [True, False])
def test_threads_never_pass_the_budget(locked, monkeypatch):
    """The control has no lock."""
    shared = SlowFilter(1.0, 0.0, "swap")
    if not locked:
        monkeypatch.setattr(filters, "_LOCK", contextlib.nullcontext())
    admitted, shared.pause = admitted_of_two(
        lambda _: shared.charge(Guarantee(0.75, 0.75, "swap")), lambda other: other.join(0.1)
    )
    assert admitted() == (1 if locked else 2)


class SlowLock:
    """The control: a lock in Python, which an interrupt can leave held."""

    def __init__(self):
        self.native = threading.Lock()
        self.locked = self.native.locked

    def __enter__(self):
        self.native.acquire()
        sum(range(2000))

    def __exit__(self, *_):
        self.native.release()


@pytest.mark.parametrize("native", [True, False])
def test_an_interrupt_leaves_no_lock_held(native, monkeypatch):
    """A signal at 500 moments, most of them within a charge."""

    def interrupt(*_):
        raise KeyboardInterrupt

    former, held = signal.signal(signal.SIGALRM, interrupt), 0
    try:
        for moment in range(500):
            budget = PrivacyFilter(1.0, 0.0, "swap")
            monkeypatch.setattr(filters, "_LOCK", threading.Lock() if native else SlowLock())
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + 4e-7 * moment)
                while True:
                    budget.charge(NOTHING)
            held += filters._LOCK.locked()
    finally:
        signal.signal(signal.SIGALRM, former)
    assert (held == 0) == native


def test_a_budget_with_delta_is_one_of_zcdp():
    budget, each = PrivacyFilter(1.0, 1e-6, "swap"), Guarantee(0.05, 0.05, "swap")
    np.testing.assert_allclose(budget.budget, zcdp_of(1.0, delta=1e-6), rtol=1e-9)
    count = budget.times(each)
    assert count == int(budget.budget / (0.05**2 / 8)) > 3 * 20
    budget.charge(count * each)
    assert not budget.fits(each)
    for rho, within in ((budget.spent, True), (budget.spent + each.zcdp, False)):
        assert (Guarantee(neighbors="swap", zcdp=rho).epsilon_at(1e-6) <= 1.0) == within


@pytest.mark.parametrize(
    ("budget", "cost", "message"),
    [
        (PrivacyFilter(1.0, 0.0, "swap"), Guarantee(0.1, 0.1, "add_remove"), "neighbors"),
        (PrivacyFilter(1.0, 1e-6, "swap"), LEAKS, "reserves no delta"),
        (PrivacyFilter(1.0, 0.0, "swap"), Guarantee(neighbors="swap", zcdp=0.01), "pure DP"),
        (PrivacyOdometer(1e-6, "swap"), Guarantee(0.1, 0.1, "edge"), "neighbors"),
        (PrivacyOdometer(1e-6, "swap"), LEAKS, "reserves no delta"),
        (PrivacyOdometer(0.0, "swap"), Guarantee(neighbors="swap", zcdp=0.1), "pure DP"),
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
    assert (readings[0], readings) == (0, sorted(readings))
    budget = 2.0**-2  # the first doubled budget that holds it
    assert readings[-1] == pytest.approx(budget + 2 * sqrt(budget * -log(6e-6 / (pi * 9) ** 2)))
    pure = PrivacyOdometer(0.0, "swap")
    pure.charge(3 * RANGE)
    assert pure.epsilon == pytest.approx(0.3)
    loose = PrivacyOdometer(1e-6, "swap", mechanism_delta=1e-9)
    loose.charge(LEAKS)
    assert loose.epsilon < inf
    loose.charge(LEAKS)
    assert loose.epsilon == inf


def largest_delta(epsilon, allows, leak=0.0):
    """The delta at epsilon of the best adversary who composes randomised responses of two kinds, of
    0.1 and 0.5, as ``allows`` says of their numbers.

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


def test_rules_side_by_side_keep_the_delta():
    """All adaptive adversaries, against the filter; the control may spend one budget after the
    other.
    """
    parts, delta = (Guarantee(0.1, inf, "swap"), Guarantee(0.5, inf, "swap")), 0.01
    rho = PrivacyFilter(1.0, delta, "swap").budget
    assert 10 * parts[0].zcdp < rho < parts[1].zcdp
    allows = allowed_by(lambda: PrivacyFilter(1.0, delta, "swap"), parts)
    assert allows(10, 0)
    assert allows(0, 2)
    found = largest_delta(1.0, allows)
    assert 0 < found <= delta
    assert (
        largest_delta(1.0, lambda small, large: large <= 2 and small * parts[0].zcdp <= rho) > delta
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


def test_an_odometer_bounds_the_loss_at_all_times():
    """The probability that the best of some adversaries ever passes the reading, exactly; the
    control passes a part of the reading.
    """
    delta, parts = 0.05, (Guarantee(0.1, inf, "swap"), Guarantee(0.5, inf, "swap"))

    @cache
    def reading(*counts):
        odometer = PrivacyOdometer(delta, "swap")
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

    assert passes(0, 0, 0, 1.0) <= delta < passes(0, 0, 0, 0.3)


def test_parts_have_budgets_of_their_own():
    budget, part = PrivacyFilter(1.0, 1e-6, "swap"), {"membership": "by_position"}
    north, south = budget.part("north", **part), budget.part("south", **part)
    north.charge(Guarantee(0.5, inf, "swap"))
    assert (south.spent, budget.spent, budget.left) == (0, north.spent, north.left)
    with pytest.raises(BudgetExceeded):  # of everyone, as of the north
        budget.charge(Guarantee(0.9, inf, "swap"))
    south.charge(Guarantee(0.9, inf, "swap"))
    budget.charge(RANGE)
    assert not south.fits(RANGE)
    assert pickle.loads(pickle.dumps(north)).spent == north.spent < south.spent


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrivacyFilter(1.0, 1e-6, "swap", mechanism_delta=2e-6), "at most delta"),
        (lambda: PrivacyFilter(1.0, 1e-6, "replace"), "neighbors"),
        (lambda: PrivacyFilter(-1.0, 1e-6, "swap"), "epsilon"),
        (lambda: PrivacyFilter(1.0, 1.0, "swap"), "delta"),
        (lambda: WHOLE.part("north"), "replaced record"),
        (lambda: WHOLE.part(""), "the text that names"),
        (lambda: WHOLE.part(3), "the text that names"),
        (lambda: NORTH.part("women", membership="by_position"), "has no parts"),
    ],
)
def test_budgets_that_would_promise_less(make, message):
    with pytest.raises(ValueError, match=message):
        make()
