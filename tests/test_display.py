"""Objects that show themselves show the right numbers, and rows of a batch by index are NumPy's."""

import sys
import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest

import dpjax
from dpjax.display import Shown
from dpjax.distributions import Finite, Gaussian, PiecewiseExponential

X = np.array([[0.5, 1.0, 4.0], [2.0, 2.0, 3.0], [5.0, 0.0, 1.0], [3.0, 3.0, 3.0]], np.float32)
ROWS = np.arange(4, dtype=np.float32)
GAUSSIAN = Gaussian(ROWS, np.float32([0.5]))
FINITE = Finite(ROWS[:3], np.sort(X), np.float32([[1], [2]]))
PIECES = PiecewiseExponential(np.sort(X), ROWS[:2], ROWS[:2], np.float32([[0.5], [1]]))


def test_a_table_has_the_quantiles_of_each_row():
    rows = ET.fromstring(GAUSSIAN._repr_html_()).iter("tr")
    cells = [[cell.text for cell in row] for row in rows][1:]
    wanted = np.arange(4)[:, None] + 0.5 * np.array([-1.6448536, 0, 1.6448536])
    found = np.array(cells, float)
    np.testing.assert_array_equal(found[:, 0], np.arange(4))
    np.testing.assert_allclose(found[:, 1:], wanted, rtol=1e-4, atol=1e-6)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib", reason="the plot needs the extra 'notebooks'")
    matplotlib.use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    yield pyplot
    pyplot.close("all")


def test_plots_say_what_they_show(pyplot):
    profile = dpjax.median(X, lower=0, upper=6, neighbors="swap")
    line = profile.plot().get_lines()[1].get_xydata()
    assert sorted(map(tuple, line.tolist())) == [(0, 2), (2, 0), (2, 1), (3, 1), (6, 2)]


def test_what_has_no_plot_says_so():
    with pytest.raises(TypeError, match="has no plot"):
        Shown().plot()


def test_what_is_missing_for_a_plot_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"matplotlib is not installed: pip install"):
        GAUSSIAN.plot()


def arrays_of(finite, pieces):
    """With one last axis, of what no batch axis is."""
    rates = finite.rate[..., None], pieces.rate[..., None]
    return finite.values, finite.cost, pieces.edges, pieces.cost_left, *rates


@pytest.mark.parametrize("index", [-1, slice(1, 3), [1, 0, 1], (slice(None), 2), (1, 3), ..., None])
def test_rows_by_index_are_numpy_s(index):
    chosen = np.arange(8).reshape(2, 4)[index]
    shapes = jax.eval_shape(lambda batch: batch[index], FINITE)
    assert shapes.batch_shape == chosen.shape
    rows = jax.jit(lambda *batches: arrays_of(*(batch[index] for batch in batches)))
    found, wanted = rows(FINITE, PIECES), jax.jit(arrays_of)(FINITE, PIECES)
    for some, whole in zip(found, wanted, strict=True):
        last = whole.shape[-1]
        of_all = np.broadcast_to(whole, (2, 4, last)).reshape(8, last)
        np.testing.assert_array_equal(np.broadcast_to(some, (*chosen.shape, last)), of_all[chosen])


def test_rows_end_and_need_an_axis():
    assert len(list(GAUSSIAN)) == 4
    with pytest.raises(IndexError):
        GAUSSIAN[4]
    with pytest.raises(TypeError, match="no batch axes"):
        GAUSSIAN[0][0]


def test_rows_of_vectors_keep_their_coordinates():
    vectors = dpjax.k_norm(ROWS[:2] + ROWS[:3, None], 1.0, sensitivity=1, p=2)
    loc, row, radii = jax.jit(lambda batch: (batch[1].loc, batch[1].radii, batch.radii))(vectors)
    assert loc.tolist() == [1, 2]
    np.testing.assert_array_equal(row, np.broadcast_to(radii, (3, *row.shape))[1])
