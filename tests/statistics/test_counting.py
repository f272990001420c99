"""Counts and histograms against NumPy's, and the exact privacy loss of the geometric mechanism on
them.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import count, histogram

X = np.array(
    [[0.0, 1.0, 1.5, 2.0, 3.0, 3.0, np.nan, 9.0], [2.0, 2.0, 2.0, -1.0, 3.0, 0.5, 0.5, np.inf]],
    np.float32,
)
EDGES = (0.0, 1.0, 2.0, 3.0)


def test_counts_are_numpy_s():
    kept = np.stack([X == X, X >= 2, X < 3, np.arange(8) < np.array([[7], [2]])])

    @jax.jit
    def all_of_them(x, mask):
        return (
            count(x, mask=mask).value,
            histogram(x, edges=EDGES, mask=mask).value,
            histogram(x, edges=EDGES, num_records=np.array([7, 2])).value,
            histogram(np.zeros((2, 0)), edges=EDGES).value,
            histogram(x, edges=jnp.array([0.0, 2.0, 1.0])).value,
        )

    counts, bins, leading, empty, unsound = map(np.asarray, all_of_them(X, kept))
    for k, masks in enumerate(kept):
        for row, there in enumerate(masks):
            some = X[row][there & ~np.isnan(X[row])]
            assert counts[k, row] == some.size
            wanted = np.histogram(some[np.isfinite(some)], EDGES)[0]
            assert bins[k, row].tolist() == wanted.tolist()
    np.testing.assert_array_equal(leading, bins[3])
    assert empty.tolist() == [[0, 0, 0]] * 2
    assert np.isnan(unsound).all()  # what cannot be refused under jit


def test_one_record_more_or_less_costs_epsilon_in_all_bins_together():
    """Exactly: losses of independent bins add up."""
    row, epsilon, values = X[0], 0.7, np.arange(-20.0, 40.0, dtype=np.float32)[:, None, None]
    fewer = np.where(np.eye(8, dtype=bool), np.nan, row)
    swapped = np.where(row == 1.0, np.float32(2.5), row)

    @jax.jit
    def logs(x):
        log_prob = dpjax.laplace(histogram(x, edges=EDGES), epsilon).log_prob(values)
        return jnp.moveaxis(log_prob, 0, 1)

    own, *others = np.asarray(logs(np.stack([row, *fewer, swapped])), np.float64)
    losses = [np.sum(np.max(np.abs(own - other), axis=0)) for other in others]
    assert max(losses[:-1]) == pytest.approx(epsilon, rel=1e-5)
    assert losses[-1] == pytest.approx(2 * epsilon, rel=1e-5)  # a swap is not covered


def test_the_noise_of_a_sum_has_the_scale_of_its_largest_record():
    total = jax.jit(partial(dpjax.sum, lower=-2, upper=3, neighbors="add_remove"))(X[0, :6])
    assert float(dpjax.laplace(total, 0.5).mean_abs_error(total.value)) == pytest.approx(6.0)


COUNTED = {"x": [1.0, 2.0, 2.0]}
EDGED = {**COUNTED, "edges": [0, 1, 3]}
OF_COUNTS = partial(count, **COUNTED)
MEDIAN = partial(dpjax.median, **COUNTED, lower=0, upper=9, neighbors="swap")


@pytest.mark.parametrize(
    ("word", "call"),
    [
        # Under swap the number of records is public
        ("swap", partial(count, **COUNTED, neighbors="swap")),
        ("swap", partial(histogram, **EDGED, neighbors="swap")),
        ("steps", lambda: dpjax.laplace(MEDIAN(), 1.0)),
        ("steps", lambda: dpjax.laplace(OF_COUNTS(), 1.0, sensitivity=2.0)),
        ("clamp", lambda: dpjax.laplace(OF_COUNTS(), 1.0, lower=0, upper=9)),
    ],
)
def test_what_cannot_be_counted(word, call):
    with pytest.raises(ValueError, match=word):
        call()


def test_a_relation_may_be_given_and_is_add_remove():
    """The keywords that all other statistics take may be given to these, too."""
    assert OF_COUNTS(neighbors="add_remove").value == OF_COUNTS().value == 3
