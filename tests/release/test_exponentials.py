"""What exact draws rest on: enclosures of exponentials, NumPy's own against decimals, and the
margin that covers their errors.
"""

import decimal
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts, draw
from dpjax.release.entropy import Bits
from dpjax.release.exponentials import (
    Enclosure,
    digit_probability,
    exponential,
    floor_of,
    one_minus_exponential,
    powers,
)
from tests.release.test_draw import adversarial
from tests.support.exact_draws import InDecimals, given, more, uniform_of

PRECISE = decimal.Context(prec=120, Emin=-(10**9), Emax=10**9)
ASSUMED = 2.0**-45
RATES = [Fraction(1, 3), Fraction(1, 2**40), Fraction(57), Fraction(300, 7), Fraction(1, 2**93)]


@pytest.fixture
def precise():
    with decimal.localcontext(PRECISE) as context:
        yield context


def decimal_of(fraction):
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


@pytest.mark.parametrize("rate", RATES)
def test_enclosures_enclose(rate, precise):
    x = decimal_of(rate)
    for bits in (8, 70, 200):
        values = {
            "e^-x": (exponential(rate, bits), (-x).exp()),
            "1 - e^-x": (one_minus_exponential(rate, bits), 1 - (-x).exp()),
            "a digit": (digit_probability(rate, bits), 1 / (1 + x.exp())),
        }
        for name, (found, exact) in values.items():
            scaled = exact * Decimal(2) ** found.scale
            assert found.low <= scaled <= found.high, name
            assert found.high - found.low <= max(3, found.high >> (bits - 3)), name
    mantissa, scale = floor_of(partial(exponential, rate), 62)
    assert mantissa <= (-x).exp() * Decimal(2) ** scale < mantissa + 1
    assert 2**61 <= mantissa < 2**62


def test_operations_on_enclosures_round_outwards(precise):
    rng = np.random.default_rng(0)
    for _ in range(200):
        numbers = [
            Fraction(int(rng.integers(1, 2**34)), 2 ** int(rng.integers(30, 60))) for _ in range(2)
        ]
        one, other = (exponential(number, int(rng.integers(4, 60))) for number in numbers)
        exact = [(-decimal_of(number)).exp() for number in numbers]
        bits = int(rng.integers(4, 40))
        for found, value in (
            (one.times(other, bits), exact[0] * exact[1]),
            (one.one_plus(), 1 + exact[0]),
            (one.one_minus(), 1 - exact[0]),
            *(
                [(one.over(other, bits), exact[0] / exact[1])]
                if other.low > 0 and one.low > 0
                else []
            ),
        ):
            assert found.low <= value * Decimal(2) ** found.scale <= found.high
        low, high = one.scaled(bits)
        assert low <= exact[0] * 2**bits <= high
    assert Enclosure(3, 5, 2).scaled(5) == (24, 40)
    assert Enclosure(3, 5, 2).scaled(1) == (1, 3)


def test_powers_are_right_up_to_a_rounding(precise):
    for rate in (Fraction(1, 1000), Fraction(7, 3), Fraction(1, 2**30)):
        found = powers(rate, 200)
        exact = np.array([(-decimal_of(rate) * j).exp() for j in range(200)])
        with np.errstate(under="ignore"):
            off = [
                abs(Decimal(value) / one - 1)
                for value, one in zip(found.tolist(), exact, strict=True)
                if one > 1e-300
            ]
        assert max(off) <= Decimal(2) ** -52


def test_uniforms_read_what_they_need():
    asked = []

    def further(role, number):
        asked.append((role, number))
        return 2**31

    assert Bits(5, 3, 2, further).times(8) == 5
    assert asked == []
    assert Bits(1, 1, 2, further).times(3) == 2  # [1/2, 1) of three reads on: 1/2 + 1/4
    assert asked == [(2, 0)]
    third = partial(lambda bits: Enclosure(2**bits // 3, 2**bits // 3 + 1, bits))
    assert Bits(1, 2, 0, lambda role, number: 2**29).below(third)  # [1/4, 1/2) and 1/4 + 1/32
    assert not Bits(1, 2, 0, further).below(third)  # 1/4 + 1/8
    assert not Bits(1, 2, 0, lambda role, number: 2**32 - 1).below(third)
    # .01 0101 ... of a third
    one = Bits(1, 2, 0, lambda role, number: 0x55555555 if number < 9 else 0)
    assert one.below(third)
    assert one.count == 2 + 32 * 10


def arguments(rng, number):
    """What the draws compute, of all magnitudes: rates of steps from 2^-84 on, costs times the
    rate, uniforms.
    """
    small = 2.0 ** rng.uniform(-84, 6.4, number)
    uniforms = rng.integers(0, 2**53, number) * 2.0**-53
    uniforms[: number // 2] = 2.0 ** rng.uniform(-53, 0, number // 2)
    uniforms[number // 4 : number // 2] = 1 - uniforms[number // 4 : number // 2]
    uniforms = np.clip(uniforms, 2.0**-53, 1 - 2.0**-53)
    costs = np.where(rng.random(number) < 0.5, rng.uniform(0, 90, number), np.minimum(small, 90))
    return {
        "exp": (np.exp, -costs, lambda x: x.exp()),
        "expm1": (np.expm1, np.minimum(small, 80), lambda x: x.exp() - 1),
        "expm1 of what is negative": (np.expm1, -small, lambda x: x.exp() - 1),
        "log1p": (np.log1p, -uniforms, lambda x: (1 + x).ln()),
    }


def largest_error(function, x, exact):
    """Relative, in arithmetic of 166 bits: differences of 1 and e^-x keep 82 of them down to
    2^-84.
    """
    with decimal.localcontext(decimal.Context(prec=50, Emin=-(10**9), Emax=10**9)):
        return max(
            float(abs(Decimal(value) / exact(Decimal(at)) - 1))
            for value, at in zip(function(x).tolist(), x.tolist(), strict=True)
        )


@pytest.mark.parametrize("number", [2500, pytest.param(250_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["exp", "expm1", "expm1 of what is negative", "log1p"])
def test_exponentials_of_numpy_are_within_what_is_assumed(name, number):
    function, x, exact = arguments(np.random.default_rng(0), number)[name]
    measured = largest_error(function, x, exact)
    # The largest of 250,000 of each on x86-64: 2^-52.8 with NumPy 2.4.6, 2^-51.6 with NumPy 1.26.4.
    assert measured < ASSUMED, f"{name} is off by 2^{np.log2(measured):.1f}, and 2^-45 is assumed"
    single = largest_error(lambda x: function(x.astype(np.float32)).astype(float), x[:50], exact)
    assert single > ASSUMED  # the control


WIDE = {"lower": 0, "upper": 2**31 - 3, "resolution": 1}
MANY = Counts.of_rows(
    [0] * 5, [0, 1, 2**30, 2**30 + 1, 2**31 - 3], [10**9, 10**9 - 3, 7, 10**9, 1], groups=1
)
EVEN = Counts.of_rows(
    [0] * 40, [i * 2**25 for i in range(40)], [1 + i % 3 for i in range(40)], groups=1
)
# Sums to 2^52
FULL = Counts.of_rows([0] * 3, [0, 2**30, 2**31 - 3], [2**20, 2**19, 2**19], groups=1)
EXTREMES = {  # statistic, relation, counts
    "10^9 records": (release.Median(**WIDE), "add_remove", MANY),
    "2^31 multiples": (release.Median(**WIDE), "swap", EVEN),
    "nothing": (release.Median(**WIDE), "add_remove", Counts.of_rows([], [], [], groups=1)),
    "2^52 sums": (release.Sum(**WIDE), "swap", FULL),
    "2^31 totals": (release.NonnegativeSum(2, 2**31 - 3, 1), "add_remove", MANY),
}
INVERTED = ("piecewise_laplace", "inverse_sensitivity")
EXTREME_CASES = [
    (name, epsilon, mechanism)
    for name in EXTREMES
    for epsilon in (2.0**-30, 1.0, 64.0)
    for mechanism in INVERTED
]


def extreme(name, epsilon, mechanism):
    statistic, neighbors, counts = EXTREMES[name]
    return statistic.distribution(counts, epsilon, neighbors, mechanism=mechanism)


def running_error(distribution, monkeypatch, by):
    """How far the running sums are off, in units of 2^-60, if exponentials are off by so much, each
    in the worst direction.
    """
    known = InDecimals(distribution, 0)
    signs = {"exp": lambda x: 1, "expm1": lambda x: np.where(np.asarray(x) < 0, 1, -1)}
    worst = 0.0
    for first in {1, len(known.ends) // 2, len(known.ends) - 1}:  # the sign changes at this piece
        with monkeypatch.context() as patch:

            def off(values, sign, first=first):
                turn = (
                    np.where(np.arange(values.size).reshape(values.shape) < first, 1, -1)
                    if values.size > 1
                    else 1
                )
                return values * (1 + sign * by * turn)

            for name, sign in signs.items():
                exact = getattr(np, name)
                patch.setattr(np, name, lambda x, f=exact, sign=sign: off(f(x), sign(x)))
            for name in ("shares", "sums"):
                distribution.__dict__.pop(name, None)
            sums = distribution.sums.tolist()
        with decimal.localcontext(PRECISE):
            away = [
                abs(Decimal(one) - end * 2**60) for one, end in zip(sums, known.ends, strict=True)
            ]
        worst = max(worst, float(max(away)))
    for name in ("shares", "sums"):
        distribution.__dict__.pop(name, None)
    return worst


@pytest.mark.parametrize(("name", "epsilon", "mechanism"), EXTREME_CASES)
def test_running_sums_stay_within_the_margin(name, epsilon, mechanism, monkeypatch):
    distribution = extreme(name, epsilon, mechanism)
    pieces = len(distribution.profile.near)
    assert running_error(distribution, monkeypatch, 0.0) <= 2**10 + pieces / 2  # as NumPy is
    assert running_error(distribution, monkeypatch, ASSUMED) <= draw.MARGIN + pieces / 2 - 1


def test_control_exponentials_that_are_off_by_more_pass_the_margin(monkeypatch):
    distribution = extreme("2^31 multiples", 1.0, "piecewise_laplace")
    assert running_error(distribution, monkeypatch, 2.0**-40) > draw.MARGIN


@pytest.mark.parametrize(("name", "epsilon", "mechanism"), EXTREME_CASES)
def test_draws_at_the_extremes_are_exact(name, epsilon, mechanism):
    distribution = extreme(name, epsilon, mechanism)
    words, known = adversarial(distribution, np.random.default_rng(0), 12)
    fast = draw.positions(distribution, 12, given(words), more)
    np.testing.assert_array_equal(
        fast, draw.positions(distribution, 12, given(words), more, margin=2**61)
    )
    for number in range(0, 12, 3):
        uniforms = [uniform_of(word, role) for role, word in enumerate(words[:, number, 0])]
        assert fast[number, 0] == known[0].draw(uniforms)
    assert fast.min() >= 0
    assert fast.max() < distribution.size


def test_pieces_far_out_weigh_less_than_the_margin():
    """After so many changes every profile is at the ends: what differs has less than e^-80 of the
    weight of each position.
    """
    counts = Counts.of_rows([0] * 41, np.arange(41), [1000] * 41, groups=1)
    statistic = release.Median(0, 40, 1)
    for epsilon in (1.0, 4.0):
        found = statistic.distribution(counts, epsilon, "add_remove")
        whole = statistic.profile(counts, "add_remove")
        assert found.profile.level.max() <= 160 / epsilon + 1 < whole.level.max()
        exact = release.GridDistribution.of(whole, epsilon, found.grid, batch_shape=(1,))
        np.testing.assert_allclose(
            found.pmf(found.values), exact.pmf(exact.values), rtol=0, atol=41 * np.exp(-80.0)
        )


def peak(function):
    """The memory that a call allocates at most, in bytes."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("neighbors", ["add_remove", "swap"])
def test_a_billion_records_take_the_memory_of_their_values(neighbors):
    few, many = (
        Counts.of_rows(np.zeros(100), np.arange(100), np.full(100, each), groups=1)
        for each in (10, 10**7)
    )
    grid, total = {"lower": 0, "upper": 99, "resolution": 1}, 10**9
    statistics = [
        release.Median(**grid),
        release.Quantile("0.9", **grid, definition="linear"),
        release.Maximum(3, **grid),
    ]
    statistics += [release.NonnegativeSum(3, total, 1), release.DistinctCount(3, 500)]
    for statistic in [*statistics, release.Sum(**grid)] if neighbors == "swap" else statistics:
        sizes = [peak(lambda c=c, s=statistic: s.release(c, 1.0, neighbors)) for c in (few, many)]
        assert sizes[1] < 1.2 * sizes[0] + 2**14, type(statistic).__name__
        assert sizes[1] < 2**20
    flips = {"mechanism": "permute_and_flip"}
    assert peak(lambda: release.Median(**grid).release(many, 1.0, neighbors, **flips)) < 2**20
    assert peak(lambda: np.zeros(many.totals[0] // 100)) > 2**24  # the control
