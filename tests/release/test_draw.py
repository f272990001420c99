"""Draws by floats against draws in integers and in decimal arithmetic, word by word, random and
adversarial ones.
"""

import decimal
import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Counts, Floats, GridDistribution, draw
from dpjax.release import exact_flip as permute_and_flip
from dpjax.release.entropy import Bits
from tests.support.exact_draws import (
    CONTEXT,
    EXTREME,
    ByFlips,
    InDecimals,
    given,
    more,
    repeat_entropy,
    uniform_of,
    words_of,
)
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

NEVER = 2**61  # a margin by which no draw is decided
FLIPS = "permute_and_flip"
INVERTED = ("piecewise_laplace", "inverse_sensitivity")
LONG = {"lower": 0, "upper": 2**31 - 3, "resolution": 1}
SHORT = {"lower": 0, "upper": 11, "resolution": 1}


def integers(seed, shape, below):
    return (words_of(seed, shape) % np.uint64(below)).astype(np.int64)


def some_counts(seed, groups, top, values=4, most=9):
    """Groups of a few values with ties, deep ones among them; the first group has no records, the
    second one is all equal.
    """
    group = np.repeat(np.arange(groups), values)
    value, count = (
        integers(f"values {seed}", group.shape, top + 1),
        1 + integers(f"counts {seed}", group.shape, most),
    )
    count[group == 0] = 0
    value[group == 1] = top // 3
    value[group == 2], value[group == 3] = 0, top
    return Counts.of_rows(group, value, count, groups=groups)


def of_votes(votes, epsilon, mechanism):
    """Distributions of the choice by these numbers of votes for candidates 0, 1, ..."""
    counts = Counts.of_matrix(np.arange(len(votes[0])), np.array(votes))
    mode = release.Mode(range(len(votes[0])))
    return mode.distribution(counts, epsilon, "swap", mechanism=mechanism)


def same_size(seed, groups, top, n):
    values = integers(f"records {seed}", (groups, n), top + 1)
    values[0], values[1], values[2, : n // 2] = 0, top, 5
    return Counts.of_records(values)


CASES = {
    "median": lambda mechanism, epsilon: release.Median(**SHORT).distribution(
        some_counts(1, 12, 11), epsilon, "add_remove", mechanism=mechanism
    ),
    "long": lambda mechanism, epsilon: release.Median(**LONG).distribution(
        some_counts(2, 12, LONG["upper"]), epsilon, "add_remove", mechanism=mechanism
    ),
    "halves": lambda mechanism, epsilon: release.Quantile(
        "0.25", **LONG | {"upper": 2**28}, definition="linear"
    ).distribution(some_counts(3, 12, 2**28), epsilon, "add_remove", mechanism=mechanism),
    "deep": lambda mechanism, epsilon: release.Median(**SHORT).distribution(
        some_counts(4, 12, 11, most=3000), epsilon, "add_remove", mechanism=mechanism
    ),
    "sum": lambda mechanism, epsilon: release.Sum(0, 9, 1).distribution(
        same_size(5, 8, 9, 12), epsilon, "swap", mechanism=mechanism
    ),
    "long sum": lambda mechanism, epsilon: release.Sum(0, 2**30, 1).distribution(
        same_size(6, 6, 2**30, 6), epsilon, "swap", mechanism=mechanism
    ),
    "total": lambda mechanism, epsilon: release.NonnegativeSum(2, 2000, 1).distribution(
        some_counts(7, 10, 30, most=4), epsilon, "add_remove", mechanism=mechanism
    ),
    "maximum of floats": lambda mechanism, epsilon: release.Maximum(
        1, grid=Floats(digits=2, smallest=-2, largest=2)
    ).distribution(some_counts(8, 10, 700), epsilon, "add_remove", mechanism=mechanism),
}
SMOOTH = [
    (name, mechanism, epsilon) for name in CASES for mechanism in INVERTED for epsilon in (1.0,)
]
SMOOTH += [
    (name, mechanism, 0.05)
    for name, mechanism in zip(("long", "sum", "deep", "halves"), INVERTED * 2, strict=True)
]
SMOOTH += [
    (name, mechanism, epsilon)
    for name in ("long", "median")
    for mechanism in INVERTED
    for epsilon in (2.0**-30, 64.0)
]


def boundary_words(known, rng, piece=None):
    """Words for the three uniforms on both sides of a boundary: of a piece, of a step in it, of a
    place in a step.
    """
    scale = decimal.Decimal(2**64)
    piece = int(rng.integers(len(known.ends))) if piece is None else piece
    steps, span, _, _ = known.pieces[piece]
    middle = (known.ends[piece] + (known.ends[piece - 1] if piece else 0)) / 2
    step = int(rng.choice([1, steps - 1, int(rng.integers(1, steps + 1))]))
    with decimal.localcontext(CONTEXT):
        of_piece = int(scale * (known.ends[piece] if rng.random() < 0.5 else middle))
        of_step = int(scale * known.share(piece, min(max(step, 1), steps)))
    of_place = 2**64 * int(rng.integers(span)) // span
    away = [
        0,
        0,
        1,
        -1,
        2,
        2**10,
        -(2**10),
        2**11,
        -(2**11),
        -(2**20),
        2**20,
        2**22 - 1,
        1 - 2**22,
        2**22 + 40,
        -(2**22) - 40,
    ]
    found = [
        each + int(rng.choice([*away, 16 * draw.MARGIN + 200, -16 * draw.MARGIN - 200]))
        for each in (of_piece, of_step, of_place)
    ]
    return [min(max(word, 0), 2**64 - 1) for word in found]


def adversarial(distribution, rng, draws):
    """Words ``(uniforms, draws, datasets)``: a quarter random, the others extreme ones or at
    boundaries.
    """
    uniforms = 2 if distribution.mechanism == "piecewise_laplace" else 3
    groups = distribution.profile.groups
    words = rng.integers(0, 2**64, (uniforms, draws, groups), np.uint64)
    words = np.where(rng.random(words.shape) < 0.25, rng.choice(EXTREME, words.shape), words)
    known = [InDecimals(distribution, group) for group in range(groups)]
    for number, group in np.ndindex(draws, groups):
        if (number + group) % 2:
            words[:, number, group] = boundary_words(known[group], rng)[:uniforms]
    return words, known


@pytest.mark.parametrize("draws", [8, pytest.param(80, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "mechanism", "epsilon"), SMOOTH)
def test_floats_decide_what_integers_and_decimals_do(name, mechanism, epsilon, draws):
    """About ten thousand words in all, of which half are at a boundary, and none is decided
    wrongly.
    """
    rng = np.random.default_rng(0)
    distribution = CASES[name](mechanism, epsilon)
    words, known = adversarial(distribution, rng, draws)
    fast = draw.positions(distribution, draws, given(words), more)
    _, sure = draw.decide(distribution, words)
    np.testing.assert_array_equal(
        fast, draw.positions(distribution, draws, given(words), more, margin=NEVER)
    )
    assert 0.2 < sure.mean() < 1
    assert not draw.decide(distribution, words, NEVER)[1].any()
    for number, group in list(np.ndindex(fast.shape))[::7]:
        uniforms = [uniform_of(word, role) for role, word in enumerate(words[:, number, group])]
        assert fast[number, group] == known[group].draw(uniforms), (number, group)
    others = rng.integers(0, 2**64, words.shape, np.uint64)
    assert draw.decide(distribution, others)[1].mean() > 0.99


@pytest.mark.parametrize("mechanism", INVERTED)
def test_what_lies_at_a_boundary_is_read_to_the_bit_that_decides(mechanism):
    """A uniform with the first 64 + 32 k bits of the boundary: on either side of it, by the word
    that follows.
    """
    for name, group in (("median", 4), ("median", 5), ("sum", 4)):
        distribution = CASES[name](mechanism, 1.0)
        known, exactly = InDecimals(distribution, group), draw.Exactly(distribution, group)
        for piece in range(0, len(known.ends) - 1, 2):
            with decimal.localcontext(CONTEXT):
                bits = int(known.ends[piece] * 2**224)  # 64, and five words of 32
            found = []
            for last in (0, 2**32 - 1):
                asked = []

                def further(role, number, bits=bits, last=last, asked=asked):
                    asked.append((role, number))
                    return last if role or number > 4 else bits >> 32 * (4 - number) & (2**32 - 1)

                position = exactly.draw(
                    [bits >> 160, 2**63, 2**63][: 2 if mechanism == "piecewise_laplace" else 3],
                    further,
                )
                uniforms = [
                    uniform_of(bits >> 160 if role == 0 else 2**63, role, further)
                    for role in range(3)
                ]
                expected = known.draw(uniforms[: 2 if mechanism == "piecewise_laplace" else 3])
                assert position == expected
                assert (0, 4) in asked
                found.append(position)
            assert found[0] != found[1]


@pytest.mark.parametrize("mechanism", INVERTED)
def test_control_weights_that_are_off_by_a_billionth_are_seen(mechanism):
    """A part of 2^-30 in one weight moves boundaries by more than the margin."""
    rng, seen = np.random.default_rng(1), 0
    for name in ("median", "long", "sum"):
        distribution = CASES[name](mechanism, 1.0)
        words, known = adversarial(distribution, rng, 12)
        for number, group in np.ndindex(words.shape[1:]):
            piece = int(rng.integers(len(known[group].ends) - 1))
            boundary = int(known[group].ends[piece] * 2**64)
            words[0, number, group] = boundary + int(rng.choice([-1, 1])) * 2**25
        right = draw.positions(distribution, 12, given(words), more)
        np.testing.assert_array_equal(
            right, draw.positions(distribution, 12, given(words), more, margin=NEVER)
        )
        distribution.__dict__["shares"] = distribution.shares * (
            1 + 2.0**-30 * rng.choice([-1, 1], distribution.shares.shape)
        )
        del distribution.__dict__["sums"]
        seen += np.sum(draw.positions(distribution, 12, given(words), more) != right)
    assert seen > 20


def test_control_a_margin_of_nothing_is_wrong():
    """Without it floats decide what they cannot know."""
    distribution, rng = CASES["long"]("piecewise_laplace", 1.0), np.random.default_rng(2)
    words, known = adversarial(distribution, rng, 12)
    for number, group in np.ndindex(words.shape[1:]):
        piece = int(rng.integers(len(known[group].ends) - 1)) if len(known[group].ends) > 1 else 0
        words[0, number, group] = min(int(known[group].ends[piece] * 2**64), 2**64 - 1)
    found, _ = draw.decide(distribution, words)
    assert (found != draw.positions(distribution, 12, given(words), more, margin=NEVER)).any()


def test_a_last_piece_whose_weight_underflows():
    """It has a length and no weight in floats; a uniform of nothing but ones reaches it, and random
    ones never do.
    """
    votes = [[100, 0], [46000, 0], [0, 46000], [0, 100]]
    for mechanism in ("exponential", FLIPS):
        found = of_votes(votes, 2.0, mechanism)
        assert (found.shares > 0).tolist() == [True, True, True, False, False, True, True, True]
    inverted = of_votes(votes, 2.0, "exponential")
    words = np.full((2, 1, 4), 2**64 - 1, np.uint64)
    ones = [
        draw.positions(
            inverted, 1, given(words), lambda role, number, k=k: (2**32 - 1) * (number < k)
        )[0]
        for k in (0, 2, 5)
    ]
    # e^-100 is 2^-144.3, and e^-46000 further away than any of these.
    assert [each.tolist() for each in ones] == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 0, 1, 1]]
    zeros = [
        draw.positions(inverted, 1, given(0 * words), lambda role, number, k=k: int(number == k))[
            0
        ].tolist()
        for k in (0, 2, 5)
    ]
    assert zeros == [[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 1, 0]]
    for group in range(4):
        known = InDecimals(inverted, group)
        for k in (2, 5):
            top = uniform_of(2**64 - 1, 0, lambda role, number, k=k: (2**32 - 1) * (number < k))
            assert known.draw([top, top]) == ones[1 if k == 2 else 2][group]


def test_uniforms_at_the_ends_in_every_role():
    """All words 0 or all ones, and what follows, too, to eight words: nothing fails, and the same
    as in decimals.
    """
    for name in CASES:
        for mechanism in INVERTED:
            distribution = CASES[name](mechanism, 1.0)
            groups, uniforms = (
                distribution.profile.groups,
                2 if mechanism == "piecewise_laplace" else 3,
            )
            for fill in (0, 1):
                words = np.full((uniforms, 1, groups), fill * (2**64 - 1), np.uint64)

                def further(role, number, fill=fill):
                    return fill * (2**32 - 1) if number < 8 else 2**31

                found = draw.positions(distribution, 1, given(words), further)[0]
                for group in range(0, groups, 5):
                    exact = [
                        uniform_of(words[role, 0, group], role, further) for role in range(uniforms)
                    ]
                    assert found[group] == InDecimals(distribution, group).draw(exact)


FLIPPED = [(name, 1.0) for name in CASES]
FLIPPED += [
    ("total", 0.05),
    ("halves", 0.05),
    ("long", 64.0),
    ("median", 64.0),
    ("median", 2.0**-10),
]


def words_of_flips(distribution, rng, draws):
    pieces, groups = len(distribution.profile.near), distribution.profile.groups
    drawn, placed = (
        rng.integers(0, 2**64, (draws, pieces), np.uint64),
        rng.integers(0, 2**64, (draws, groups), np.uint64),
    )
    drawn[::3] = np.where(
        rng.random(drawn[::3].shape) < 0.7, rng.choice(EXTREME, drawn[::3].shape), drawn[::3]
    )
    drawn[1::6] = drawn[1::6, :1]  # all the same
    placed[::2] = rng.choice(EXTREME, placed[::2].shape)
    return drawn, placed


@pytest.mark.parametrize("draws", [4, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "epsilon"), FLIPPED)
def test_flips_by_floats_are_those_in_decimals(name, epsilon, draws):
    rng = np.random.default_rng(3)
    distribution = CASES[name](FLIPS, epsilon)
    drawn, placed = words_of_flips(distribution, rng, draws)
    fast = permute_and_flip.positions(distribution, draws, given(drawn, placed), more)
    starts = distribution.profile.starts
    known = [ByFlips(distribution, group) for group in range(distribution.profile.groups)]
    for number, group in list(np.ndindex(fast.shape))[:: 1 + len(drawn[0]) // 40]:
        own = drawn[number, starts[group] : starts[group + 1]]
        uniforms = [uniform_of(word, role) for role, word in enumerate(own)]
        assert fast[number, group] == known[group].draw(
            uniforms, uniform_of(placed[number, group], len(own))
        ), (number, group)
    left = np.add.reduceat(
        permute_and_flip.candidates(distribution, drawn), starts[:-1], axis=1, dtype=int
    )
    assert 0.3 < np.mean(left == 1) < 1
    assert left.min() >= 1


@pytest.mark.parametrize("name", ["median", "maximum of floats"])
def test_flips_of_which_floats_decide_none(name):
    rng, draws = np.random.default_rng(4), 2
    distribution = CASES[name](FLIPS, 1.0)
    drawn, placed = words_of_flips(distribution, rng, draws)
    fast = permute_and_flip.positions(distribution, draws, given(drawn, placed), more)
    none = permute_and_flip.positions(distribution, draws, given(drawn, placed), more, widened=2.0)
    np.testing.assert_array_equal(fast, none)
    # The control: costs that are off by 2^-30 are seen where two pieces are as near to each other.
    narrow = permute_and_flip.candidates(distribution, drawn, 2.0**-36).sum()
    assert narrow < permute_and_flip.candidates(distribution, drawn, 2.0**-4).sum()


def test_control_flips_with_weights_that_are_off_are_seen():
    """Two candidates, the uniform of the second where both are as good as each other, 2^-32 beside
    it.
    """
    distribution = of_votes([[3, 1]], 1.0, FLIPS)
    other = GridDistribution(
        distribution.profile,
        distribution.exact_rate * (1 + Fraction(1, 2**30)),
        distribution.grid,
        FLIPS,
        (1,),
    )
    seen = 0
    for first in (2**62, 2**63, 2**63 + 2**60):
        # U e^(lam 2), lam = 1/2
        tie = int(decimal.Decimal(first) * CONTEXT.exp(decimal.Decimal(-1)))
        for away in (-(2**32), 2**32, -(2**22), 2**22, -1, 1, 0):
            drawn, placed = np.array([[first, tie + away]], np.uint64), np.zeros((1, 1), np.uint64)
            fast = permute_and_flip.positions(distribution, 1, given(drawn, placed), more)
            assert fast[0, 0] == (0 if away > 0 else 1) or away == 0
            seen += (
                fast[0, 0] != permute_and_flip.positions(other, 1, given(drawn, placed), more)[0, 0]
            )
    assert seen >= 3


def test_flips_by_hand():
    """Single candidates: U e^(lam cost) of each is compared; and a tie of two is decided by the
    words that follow.
    """
    half, quarter, tiny = 2**63, 2**62, 1

    def winner(costs, *uniforms, further=lambda role, i: 0):
        bits = {i: Bits(uniform, 64, i, further) for i, uniform in enumerate(uniforms)}
        return permute_and_flip.exact_winner(Fraction(1), costs, [1] * len(costs), bits)

    assert winner([0, 1], half, quarter) == 0  # .5 against .25 e = .68
    assert winner([0, 0], half, quarter) == 1
    assert winner([0, 30], half, tiny) == 1  # 2^-64 e^30 = 5.8e-7
    assert winner([0, 50], half, tiny) == 0  # 2^-64 e^50 = 281
    assert winner([0, 0], half, half, further=lambda role, i: role * (i == 1)) == 0
    assert winner([0, 0], half, half, further=lambda role, i: (1 - role) * (i == 1)) == 1


def test_choices_between_enclosed_weights():
    """Decided where no bits to come can change it, and only there; an upper end of 0 is never
    chosen.
    """
    assert draw.choose_between([2, 0, 2], [2, 0, 2], Bits(0, 1, 0, more)) == 0
    assert draw.choose_between([2, 0, 2], [2, 0, 2], Bits(1, 1, 0, more)) == 2
    assert (
        draw.choose_between([2, 2, 2], [2, 2, 2], Bits(0, 1, 0, more)) is None
    )  # [0, 1/2) of thirds
    # 3/8 to 1/2 against 1/3 to 1/2
    assert draw.choose_between([1, 2], [2, 2], Bits(3, 3, 0, more)) is None
    assert draw.choose_between([1, 2], [2, 2], Bits(6, 3, 0, more)) == 1
    rng = np.random.default_rng(5)
    for _ in range(300):
        exact = rng.integers(0, 5, 4)
        exact[rng.integers(4)] += 1
        low, high = (
            np.maximum(exact - rng.integers(0, 2, 4), 0),
            np.where(exact > 0, exact + rng.integers(0, 2, 4), 0),
        )
        count = int(rng.integers(1, 8))
        value = int(rng.integers(2**count))
        found = draw.choose_between(low.tolist(), high.tolist(), Bits(value, count, 0, more))
        for weights in (low, exact, high):
            ends = np.cumsum(weights) / max(weights.sum(), 1)
            for u in (value / 2**count, (value + 1) / 2**count - 1e-9):
                if found is not None and weights.sum():
                    assert np.searchsorted(ends, u, side="right") == found


@pytest.mark.parametrize("mechanism", [*INVERTED, FLIPS])
def test_draws_of_many_and_of_few_datasets_are_the_same(mechanism):
    """The same words: one draw of all datasets at once, or many of one."""
    distribution = CASES["median"](mechanism, 0.7)
    draws, groups, starts = 30, distribution.profile.groups, distribution.profile.starts
    way = permute_and_flip if mechanism == FLIPS else draw
    if mechanism == FLIPS:
        words = [words_of(1, (draws, int(starts[-1]))), words_of(2, (draws, groups))]
        part = [[[words[0][d : d + 1], words[1][d : d + 1]] for d in range(draws)]]
        part.append(
            [
                [words[0][:, starts[g] : starts[g + 1]], words[1][:, g : g + 1]]
                for g in range(groups)
            ]
        )
    else:
        words = [words_of(3, (2 if mechanism == INVERTED[0] else 3, draws, groups))]
        part = [
            [[words[0][:, d : d + 1]] for d in range(draws)],
            [[words[0][:, :, g : g + 1]] for g in range(groups)],
        ]
    together = way.positions(distribution, draws, given(*words), more)
    for number in range(draws):
        np.testing.assert_array_equal(
            way.positions(distribution, 1, given(*part[0][number]), more)[0], together[number]
        )
    for group in range(groups):
        one = GridDistribution(
            distribution.profile.one(group),
            distribution.exact_rate,
            distribution.grid,
            mechanism,
            (),
        )
        np.testing.assert_array_equal(
            way.positions(one, draws, given(*part[1][group]), more)[:, 0], together[:, group]
        )


# SHA-256 of the positions that fixed words give, recorded with NumPy 2.4.6. NumPy 1.26.4, the
# oldest that JAX 0.7 takes, gives the same, with vector instructions and without.
DIGESTS = {
    "median": "af35b993cee9f9b3",
    "long": "c95a634b63ad0a21",
    "halves": "aae4ddd0f9745140",
    "deep": "1348a53e1d9b850a",
    "sum": "6679bdce982ecd9d",
    "long sum": "5eb87c7a4f42430c",
    "total": "d69e279cae9aeeaa",
    "maximum of floats": "2bf1db163d5fb744",
}


@pytest.mark.parametrize("name", CASES)
def test_other_versions_of_numpy_draw_the_same(name):
    """The numbers are those of the words and not of an installation: whatever its exponentials
    round to.
    """
    assert digest_of(name) == DIGESTS[name]


def digest_of(name):
    found = hashlib.sha256()
    for mechanism in (*INVERTED, FLIPS):
        distribution, draws = CASES[name](mechanism, 1.0), 40
        pieces, groups = len(distribution.profile.near), distribution.profile.groups
        shapes = (
            [(draws, pieces), (draws, groups)]
            if mechanism == FLIPS
            else [(2 + (mechanism != INVERTED[0]), draws, groups)]
        )
        words = [words_of(f"{name} {mechanism} {shape}", shape) for shape in shapes]
        found.update(distribution.positions(draws, given(*words), more).astype("<i8").tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("mechanism", [*INVERTED, FLIPS])
@pytest.mark.parametrize("depth", [1, 3])
def test_draws_follow_the_distribution(depth, mechanism):
    counts = Counts.of_rows([0] * 6, [0, 2, 5, 7, 8, 12], [1, 1, 1, 2 * depth - 1, 1, 1], groups=1)
    statistic = release.Median(0, 19, 1)
    found = statistic.distribution(counts, 1.3, "add_remove", mechanism=mechanism)
    drawn = np.bincount(found.positions(20_000)[:, 0], minlength=20)
    assert_counts_follow(drawn, found.pmf(np.arange(20.0)[:, None])[:, 0])
    wrong = statistic.distribution(counts, 1.6, "add_remove", mechanism=mechanism)
    assert_counts_rejected(drawn, wrong.pmf(np.arange(20.0)[:, None])[:, 0])
    seeded = np.bincount(found.sample(7, 20_000)[:, 0].astype(int), minlength=20)
    assert_counts_follow(seeded, found.pmf(np.arange(20.0)[:, None])[:, 0])
    np.testing.assert_array_equal(found.sample(7, 5), found.sample(np.random.default_rng(7), (5,)))
    assert not np.array_equal(found.sample(7, 50), found.sample(8, 50))


def test_words_come_from_the_operating_system(monkeypatch):
    public = {"lower": 0, "upper": 2**20, "resolution": 1, "epsilon": 0.1, "neighbors": "swap"}
    drawn = []
    for seed in (0, 0, 1):
        asked = repeat_entropy(monkeypatch, seed)
        drawn.append(release.median([1, 2, 3], **public, draws=3).values.tolist())
        assert asked == [2 * 3 * 8]  # nothing is kept for a later call
    assert drawn[0] == drawn[1] != drawn[2]


def test_no_dataset_no_draw_no_record():
    for mechanism in (*INVERTED, FLIPS):
        none = Counts.of_rows([], [], [], groups=0)
        assert release.Median(**SHORT).release(
            none, 1.0, "add_remove", mechanism=mechanism, draws=3
        ).values.shape == (3, 0)
        empty = Counts.of_rows([], [], [], groups=2)
        found = release.Median(**SHORT).release(
            empty, 1.0, "add_remove", mechanism=mechanism, draws=3
        )
        assert found.values.shape == (3, 2)
        assert ((found.values >= 0) & (found.values <= 11)).all()


def test_numpy_adds_a_total_in_halves():
    """As the margin assumes: equal weights, of which a sum one after the other, the control, is off
    by more than that.
    """
    weights = np.full(2**20, 0.1)
    exact = math.fsum(weights)
    several = np.add.reduceat(np.concatenate([weights, weights]), [0, weights.size])
    assert np.all(np.abs(several / exact - 1) < 2.0**-45)
    assert abs(np.cumsum(weights)[-1] / exact - 1) > 2.0**-45
