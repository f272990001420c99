"""A cdf through some quantiles, against NumPy's interpolation, and with equal quantiles."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions import QuantileCdf
from tests.support import statistics

VALUES = np.array([[0.0, 1.0, 4.0, 10.0], [0.0, 3.0, 3.0, 10.0]])
LEVELS = np.array([0.0, 0.2, 0.7, 1.0])


def test_it_is_the_line_through_its_points(x64):
    y = np.array([-1.0, 0.0, 0.5, 1.0, 2.5, 2.999999, 3.0, 4.0, 9.0, 10.0, 11.0])
    p = np.append((np.arange(200_000) + 0.5) / 200_000, [0.0, 0.2, 0.7, 1.0])

    @jax.jit
    def known(rows):
        draws = rows.sample(jax.random.key(0), (2000,))
        at = rows.cdf(y[:, None]), rows.quantile(p[:, None]), draws
        return (*at, rows.mean(), rows.variance(), rows.histogram([0, 3, 10]), rows.support)

    found = known(QuantileCdf(jnp.asarray(VALUES), jnp.asarray(LEVELS)))
    cdf, points, draws, mean, variance, bins, support = map(np.asarray, found)
    np.testing.assert_allclose(cdf[:, 0], np.interp(y, VALUES[0], LEVELS), atol=1e-15)
    np.testing.assert_allclose(cdf[5:7, 1], [0.2, 0.7], atol=1e-6)  # the jump
    np.testing.assert_allclose(points[:, 0], np.interp(p, LEVELS, VALUES[0]), atol=1e-14)
    np.testing.assert_allclose(points[(p >= 0.2) & (p <= 0.7), 1], 3.0)
    np.testing.assert_allclose(mean, points[:-4].mean(0), rtol=1e-8)
    np.testing.assert_allclose(variance, points[:-4].var(0), rtol=1e-6)
    np.testing.assert_allclose(bins, [[0.2 + 0.5 * 2 / 3, 0.3 + 0.5 / 3], [0.7, 0.3]])
    np.testing.assert_array_equal(support, VALUES[:, [0, -1]].T)
    statistics.assert_follows(draws[:, 0], lambda y: np.interp(y, VALUES[0], LEVELS))
    statistics.assert_rejected(draws[:, 0], lambda y: y / 10)
