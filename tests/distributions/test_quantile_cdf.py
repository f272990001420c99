"""A cdf through some quantiles, against NumPy's interpolation, and with equal quantiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.distributions import QuantileCdf
from tests.support import statistics

VALUES = np.array([[0.0, 1.0, 4.0, 10.0], [0.0, 3.0, 3.0, 10.0]])
LEVELS = np.array([0.0, 0.2, 0.7, 1.0])


@pytest.fixture
def rows(x64):
    return QuantileCdf(jnp.asarray(VALUES), jnp.asarray(LEVELS))


def test_it_is_the_line_through_its_points(rows):
    y = np.array([-1.0, 0.0, 0.5, 1.0, 2.5, 3.9, 4.0, 9.0, 10.0, 11.0])
    cdf = np.asarray(rows.cdf(y[:, None]))
    np.testing.assert_allclose(cdf[:, 0], np.interp(y, VALUES[0], LEVELS), atol=1e-15)
    # The jump
    np.testing.assert_allclose(rows.cdf(np.array([[2.999999], [3.0]]))[:, 1], [0.2, 0.7], atol=1e-6)
    p = np.array([0.0, 0.1, 0.2, 0.45, 0.7, 0.9, 1.0])
    np.testing.assert_allclose(
        rows.quantile(p[:, None])[:, 0], np.interp(p, LEVELS, VALUES[0]), atol=1e-14
    )
    np.testing.assert_allclose(rows.quantile(np.array([0.2, 0.5, 0.7])[:, None])[:, 1], 3.0)
    assert np.isnan(rows.quantile(np.array(1.1))).all()


def test_moments_and_bins_are_those_of_the_pieces(rows):
    y = (np.arange(200_000) + 0.5) / 200_000
    points = np.asarray(rows.quantile(y[:, None]))
    np.testing.assert_allclose(rows.mean(), points.mean(0), rtol=1e-8)
    np.testing.assert_allclose(rows.variance(), points.var(0), rtol=1e-6)
    np.testing.assert_allclose(
        rows.histogram([0, 3, 10]), [[0.2 + 0.5 * 2 / 3, 0.3 + 0.5 / 3], [0.7, 0.3]]
    )
    # Without the jump at its left edge
    np.testing.assert_allclose(rows.histogram([3, 10])[1], [0.3])
    with pytest.raises(ValueError, match="edges"):
        rows.histogram([1.0])


def test_draws_follow_it(rows):
    draws = np.asarray(rows.sample(jax.random.key(0), (2000,)))
    assert draws.shape == (2000, 2)
    statistics.assert_follows(draws[:, 0], lambda y: np.interp(y, VALUES[0], LEVELS))
    statistics.assert_rejected(draws[:, 0], lambda y: y / 10)


def test_it_plots(rows):
    matplotlib = pytest.importorskip("matplotlib", reason="the plot needs the extra 'notebooks'")
    matplotlib.use("agg")
    line, _ = rows.plot().get_lines()
    np.testing.assert_array_equal(line.get_xydata(), np.stack([VALUES[0], LEVELS], axis=1))
