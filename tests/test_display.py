"""Objects that show themselves: one line, a table with a picture, a plot; and rows of a batch by
index.
"""

import re
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import Guarantee, auditing, release, simulation
from dpjax.distributions import Finite, Gaussian, PiecewiseExponential, QuantileCdf
from dpjax.mechanisms import IndependentQuantiles

X = np.array([[0.5, 1.0, 4.0], [2.0, 2.0, 3.0], [5.0, 0.0, 1.0], [3.0, 3.0, 3.0]], np.float32)
PUBLIC = {"lower": 0, "upper": 6, "neighbors": "swap"}
PROFILE = dpjax.median(X, **PUBLIC)
GAUSSIAN = Gaussian(jnp.arange(4.0), jnp.float32(0.5))
FINITE = Finite(jnp.arange(3.0), jnp.arange(12.0).reshape(4, 3), jnp.array([[1.0], [2.0]]))
ASKED = dpjax.quantiles(X, [0.25, 0.5], **PUBLIC)
SCORES = dpjax.CandidateScores(jnp.arange(3.0), jnp.arange(3.0), neighbors="swap")
PIECES = PiecewiseExponential(
    jnp.asarray(np.sort(X)), jnp.zeros(2), jnp.ones(2), jnp.array([[0.5], [1.0]]), center=1
)
VALUES = np.array([[3.0, 4.0]])
EACH = Guarantee(0.1, 0.1, "swap")
LAPLACE = dpjax.laplace(jnp.ones(2), jnp.array([0.5, 1.0]), sensitivity=1.0)
LOSS = auditing.privacy_loss(
    dpjax.laplace(jnp.zeros(2), jnp.array([0.5, 1.0]), sensitivity=1.0), LAPLACE
)
WORST = auditing.WorstNeighbor(jnp.float32(1), LOSS, jnp.int32(2), jnp.float32(3.5), X[0], None)
ONE_RUN = auditing.OneRunAudit(0.1, 7, 8, 9, 0.95, 0.0)
EVENT = (
    np.zeros(2),
    np.ones(2),
    np.ones(2, bool),
    np.ones(2, bool),
    np.array([3, 4]),
    np.array([1, 2]),
)
BOUND = auditing.BlackBoxBound(np.array([0.0, 0.5]), 0.9, 1e-6, *EVENT, 50, 60)
ESTIMATE = simulation.Estimate(
    2,
    np.array([0, 0.5, 0.25]),
    np.ones(3),
    -np.ones(3),
    np.ones(3),
    np.array([0.0, 1.0]),
    np.ones((3, 3), int),
)

LOSSES = [(0, ["0.5", "0.5", "0.5", "1"]), (1, ["1", "1", "1", "2"])]

LINES = [
    (
        PROFILE,
        "SensitivityProfile(batch_shape=(4,), dtype=float32, neighbors='swap', reached='extremes')",
    ),
    (GAUSSIAN, "Gaussian(batch_shape=(4,), dtype=float32, scale=0.5)"),
    (FINITE, "Finite(batch_shape=(2, 4), dtype=float32, rate=1 to 2)"),
    (PIECES, "PiecewiseExponential(batch_shape=(2, 4), dtype=float32, rate=0.5 to 1)"),
    (ASKED, "SortedRecords(batch_shape=(4,), dtype=float32, levels=(1/4, 1/2), neighbors='swap')"),
    (
        IndependentQuantiles(PIECES),
        "IndependentQuantiles(batch_shape=(2,), event_shape=(4,), dtype=float32)",
    ),
    (EACH, "Guarantee(epsilon=0.1, bounded_range=0.1, neighbors='swap')"),
    (3 * EACH, "Composition(count=3, epsilon=0.3, delta=0, rho=0.00375, neighbors='swap')"),
    (
        release.Release(VALUES, VALUES.astype(int), None, EACH),
        "Release(values=[[3, 4]], shape=(1, 2), guarantee=0.1-DP and 0.1-bounded-range under swap "
        "neighbors)",
    ),
    (ESTIMATE, "Estimate(shape=(3,), count=2, mean=0 to 0.5, standard_error=0.707107, bins=1)"),
    (LOSS, "PrivacyLoss(batch_shape=(2,), dtype=float32, epsilon=0.5 to 1, bounded_range=1 to 2)"),
    (WORST, f"WorstNeighbor(score=1, place=2, value=3.5, loss={LOSS!r})"),
    (
        WORST._replace(value=jnp.float32(jnp.nan)),
        f"WorstNeighbor(score=1, place=2, removed, loss={LOSS!r})",
    ),
    (
        ONE_RUN,
        "OneRunAudit(epsilon=0.1, correct=7, guesses=8, canaries=9, confidence=0.95, tried=1)",
    ),
    (
        BOUND,
        "BlackBoxBound(batch_shape=(2,), epsilon=0 to 0.5, confidence=0.9, delta=1e-06, "
        "tested_p=50, tested_q=60)",
    ),
]


@pytest.mark.parametrize(("shown", "line"), LINES, ids=lambda item: type(item).__name__)
def test_a_repr_is_one_line_without_arrays(shown, line):
    assert repr(shown) == line


def test_a_guarantee_s_repr_makes_it_again():
    assert eval(repr(EACH)) == EACH
    assert "renyi=128 points" in repr(EACH.with_curve(lambda order: order / 100))


def html_of(shown):
    tree = ET.fromstring(shown._repr_html_())
    cells = [[cell.text or "" for cell in row] for row in tree.iter("tr")]
    lines = [
        [float(c) for point in line.get("points").split() for c in point.split(",")]
        for line in tree.iter(f"{SVG}polyline")
    ]
    return tree.find("code").text, cells, lines


SVG = "{http://www.w3.org/2000/svg}"


def test_notebooks_get_a_table_and_a_picture():
    said, cells, lines = html_of(GAUSSIAN)
    assert said == repr(GAUSSIAN)
    assert [row[0] for row in cells[1:]] == ["0", "1", "2", "3"]
    wanted = np.arange(4)[:, None] + 0.5 * np.array([-1.6448536, 0, 1.6448536])
    np.testing.assert_allclose(
        [[float(cell) for cell in row[1:]] for row in cells[1:]], wanted, rtol=1e-4, atol=1e-6
    )
    assert len(lines) == 4
    assert all(0 <= number <= 260 for line in lines for number in line)
    said, cells, lines = html_of(PROFILE)
    assert [float(row[1]) for row in cells[1:]] == [1, 2, 1, 3]
    assert FINITE._row_names(5) == ["(0, 0)", "(0, 1)", "(0, 2)", "(0, 3)", "(1, 0)"]
    assert html_of(release.Release(VALUES, VALUES.astype(int), None, EACH))[1][1:] == [
        ["0", "3"],
        ["1", "4"],
    ]
    assert [len(html_of(shown)[2]) for shown in (ASKED, EACH, ESTIMATE, SCORES)] == [4, 1, 3, 1]
    assert "<svg" not in (3 * EACH)._repr_html_()
    assert html_of(LOSS)[1] == [
        ["", "epsilon", "forward", "backward", "bounded range"],
        *[[str(k), *rest] for k, rest in LOSSES],
    ]
    assert html_of(BOUND)[1][1:] == [
        ["0", "0", "0", "1", "3", "1"],
        ["1", "0.5", "0", "1", "4", "2"],
    ]


def test_a_batch_of_a_release_has_its_last_axis_side_by_side():
    values = np.arange(12.0).reshape(2, 2, 3)  # two draws of three quantiles of two rows
    shown = release.Release(values, values.astype(int), None, EACH)
    assert html_of(shown)[1] == [
        ["", *(f"draw {draw} [{k}]" for draw in range(2) for k in range(3))],
        ["0", "0", "1", "2", "6", "7", "8"],
        ["1", "3", "4", "5", "9", "10", "11"],
    ]
    assert str(shown).split("\n")[:2] == ["0  1  2 | 6  7  8", "3  4  5 | 9  10  11"]
    many = np.arange(84.0).reshape(1, 2, 3, 14)
    cells = html_of(release.Release(many, many.astype(int), None, EACH))[1]
    # One row is left out
    assert [row[0] for row in cells] == [
        "",
        "(0, 0)",
        "(0, 1)",
        "(0, 2)",
        "(1, 0)",
        "(1, 1)",
        "...",
    ]
    assert [row[-1] for row in cells[:2]] == ["...", ""]  # and four columns
    assert cells[5][1:11] == [str(56 + k) for k in range(10)]
    assert str(release.Release(values[:, :0], values[:, :0].astype(int), None, EACH)) == str(EACH)


def test_a_loss_shows_itself_under_a_trace_without_adding_to_it():
    seen = []
    program = jax.make_jaxpr(lambda loss: (seen.append(repr(loss)), loss.segments.length)[1])(LOSS)
    assert seen == ["PrivacyLoss(batch_shape=(2,), dtype=float32)"]
    assert not program.jaxpr.eqns


def test_plots_say_what_they_show():
    matplotlib = pytest.importorskip("matplotlib", reason="the plot needs the extra 'notebooks'")
    matplotlib.use("agg")
    axes = PROFILE.plot()
    line = axes.get_lines()[1].get_xydata()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("value", "individuals who change")
    assert sorted(map(tuple, line.tolist())) == [(0, 2), (2, 0), (2, 0), (2, 1), (3, 1), (6, 2)]
    assert EACH.plot(axes) is axes
    curve = axes.get_lines()[-1].get_xydata()
    assert axes.get_yscale() == "log"
    np.testing.assert_allclose(curve[5], [EACH.epsilon_at(curve[5, 1]), curve[5, 1]])
    with pytest.raises(TypeError, match="AboveThreshold has no plot"):
        dpjax.above_threshold(X, 1.0, threshold=1.0).plot()


@pytest.mark.parametrize(
    "index", [1, -1, slice(1, 3), [1, 0, 1], (slice(None), 2), (1, 3), ..., None]
)
def test_rows_by_index_are_numpy_s(index):
    chosen = np.arange(8).reshape(2, 4)[index]
    for batch, names in ((FINITE, ("values", "cost")), (PIECES, ("edges", "cost_left"))):
        rows = batch[index]
        assert rows.batch_shape == chosen.shape
        for name in names:
            last = getattr(batch, name).shape[-1]
            whole = np.broadcast_to(getattr(batch, name), (2, 4, last)).reshape(8, last)
            np.testing.assert_array_equal(
                np.broadcast_to(getattr(rows, name), (*chosen.shape, last)), whole[chosen]
            )
        np.testing.assert_array_equal(
            np.broadcast_to(rows.rate, chosen.shape), np.repeat(batch.rate, 4)[chosen]
        )


def test_rows_of_what_has_further_axes():
    np.testing.assert_array_equal(PROFILE[2].upper, PROFILE.upper[2])
    assert PROFILE[2].upper_levels is PROFILE.upper_levels  # what all rows share stays as it is
    np.testing.assert_array_equal(ASKED[1:3].value, ASKED.value[1:3])
    np.testing.assert_array_equal(IndependentQuantiles(PIECES)[1].unsorted.rate, PIECES.rate[1])
    cdf = QuantileCdf(jnp.asarray(np.sort(X)), jnp.array([0.0, 0.5, 1.0]))
    assert cdf[3].quantile(0.5) == 3
    vectors = dpjax.from_vector_radii(
        np.arange(6.0).reshape(3, 2), np.ones((3, 4)), p=2, step=5, neighbors="swap"
    )
    for radial in (
        dpjax.piecewise_laplace(vectors, 1.0),
        dpjax.k_norm(vectors.value, 1.0, sensitivity=1, p=2),
    ):
        assert radial[1].loc.tolist() == [2, 3]
        assert repr(radial[1]).startswith("Radial(batch_shape=(), event_shape=(2,)")
        np.testing.assert_array_equal(
            radial[1].radii, jnp.broadcast_to(radial.radii, (3, radial.radii.shape[-1]))[1]
        )
    assert vectors[2].value.tolist() == [4, 5]
    assert len(list(GAUSSIAN)) == 4
    assert jax.jit(lambda batch: batch[2].mean())(GAUSSIAN) == 2
    with pytest.raises(IndexError):
        GAUSSIAN[4]
    with pytest.raises(TypeError, match="no batch axes"):
        GAUSSIAN[0][0]


def test_json_and_back():
    curve = Guarantee(0.2, 0.4, "swap", delta=1e-6).with_curve(lambda order: order / 100)
    for given in (EACH, curve, dpjax.gaussian.guarantee("swap", 3.0, sensitivity=1.0)):
        assert Guarantee.from_json(given.to_json()) == given
    spent = 3 * EACH + curve
    assert type(spent).from_json(spent.to_json()) == spent
    assert Guarantee.from_json(EACH.to_json()) != Guarantee(0.1, 0.2, "swap")
    found = release.median(
        X, lower=0, upper=6, resolution="0.1", epsilon=1.0, neighbors="swap", draws=2
    )
    read = release.Release.from_json(found.to_json())
    np.testing.assert_array_equal(read.values, found.values)
    np.testing.assert_array_equal(read.multiples, found.multiples)
    assert (read.resolution, read.guarantee) == (found.resolution, found.guarantee)


def test_packages_list_their_public_names_only():
    names = (
        "accounting auditing bounds distributions frames mechanisms metric_privacy random release"
    )
    for name in names.split():
        package = getattr(dpjax, name)
        assert sorted(package.__all__) == dir(package)
    assert set(dir(dpjax)) - set(dpjax.__all__) == {"random", "statistics", "sum"}
    documented = set(re.findall(r"\w+", dpjax.__doc__))
    assert set(dir(dpjax)) - {"__version__"} <= documented
