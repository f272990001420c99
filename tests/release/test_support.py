"""The attack on supports: which outputs are impossible for a neighbor? Many float draws, and no
release.
"""

import jax
import numpy as np
import pytest

from dpjax import median, piecewise_laplace, release

# Neighbors under swap: one record moves, and with it the lower median of nine.
FIRST = np.array([0.1, 0.2, 0.3, 0.5, 0.61, 0.7, 0.8, 0.9, 0.95])
SECOND = np.array([0.1, 0.2, 0.3, 0.5, 0.03, 0.7, 0.8, 0.9, 0.95])


def is_difference(y, inner):
    """Whether a float32 sampler that returns inner - offset, with a float32 offset, can return y at
    all.

    The exact difference of two floats is a multiple of the smaller unit of the two; one that is
    rounded is a multiple of its own unit, and larger. So a small y must be a multiple of the unit
    of the offset, which is nearly as large as ``inner``.
    """
    offset = np.float32(inner) - y
    unit = (
        np.spacing(np.minimum(np.abs(offset), np.float32(inner)).astype(np.float32)).astype(
            np.float64
        )
        / 2
    )
    return np.mod(y.astype(np.float64), unit) == 0


@pytest.mark.slow
def test_float_draws_give_the_dataset_away():
    """Draws below the smallest record start at it for one dataset and at another record for the
    other.
    """
    low = {}
    for name, data in (("first", FIRST), ("second", SECOND)):
        float_draws = piecewise_laplace(
            median(data.astype(np.float32), lower=0, upper=1, neighbors="swap"), 0.1
        )
        draws = np.asarray(float_draws.sample(jax.random.key(0), (200_000,)))
        low[name] = draws[(draws > 0) & (draws < 0.03)]
    # Every draw of the first dataset is 0.1 less an offset; a good part of the second's is not.
    assert low["first"].size > 1000
    assert is_difference(low["first"], 0.1).all()
    impossible = ~is_difference(low["second"], 0.1)
    assert impossible.mean() > 0.01


def test_every_value_of_a_release_is_possible_for_every_neighbor():
    public, cost = (
        {"lower": 0, "upper": 1, "resolution": 2.0**-10, "definition": "linear"},
        {"epsilon": 0.1, "neighbors": "swap"},
    )
    exact = [
        release.exact_distribution(release.Median(**public), data, **cost)
        for data in (FIRST, SECOND)
    ]
    values = np.arange(2049) / 2048  # the midpoint of two records has half the resolution
    for one in exact:
        np.testing.assert_array_equal(one.values, values)
    found = [one.log_pmf(values) for one in exact]
    assert all(np.isfinite(one).all() for one in found)
    assert np.abs(found[0] - found[1]).max() <= 0.1 * (1 + 1e-12)
    assert np.abs(found[0] - found[1]).max() > 0.01
    drawn = release.median([FIRST, SECOND], **public, **cost, draws=2000)
    np.testing.assert_array_equal(drawn.values, drawn.multiples / 2048)
    assert ((drawn.multiples >= 0) & (drawn.multiples <= 2048)).all()
