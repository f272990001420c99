"""The promises on the expected excess loss of a selection: the constants, and that the exact
distributions keep and attain them.
"""

from math import e, sqrt

import jax
import numpy as np
import pytest
from scipy.stats import norm

from dpjax import exponential, noisy_tree
from dpjax.bounds import selection

WORST_AT = {"zcdp": 0.7517915247, "epsilon": 1.0}  # max of v P[noise >= v] is there


def test_the_constants():
    gaussian = WORST_AT["zcdp"] * norm.sf(WORST_AT["zcdp"])
    assert max(v * norm.sf(v) for v in np.linspace(0, 10, 1001)) <= gaussian
    found = selection.noisy_tree_excess(16, zcdp=0.5)
    assert found == pytest.approx(2 * gaussian * 4**1.5, rel=1e-14)
    found = selection.noisy_tree_excess(9, epsilon=0.5, sensitivity=3.0)
    assert found == pytest.approx(16 / (0.5 * e) * 3, rel=1e-14)
    with pytest.raises(ValueError, match="exactly one of epsilon"):
        selection.noisy_tree_excess(9)


@pytest.mark.parametrize("noise", WORST_AT)
def test_losses_that_count_wrong_decisions_attain_the_bound(noise, x64):
    """Every node then has the worst query; other losses, and other scales of these, stay below."""
    size, budget = 16, 0.4
    scale = sqrt(4 / (2 * budget)) if noise == "zcdp" else 4 / budget
    ones = np.array([bin(i).count("1") for i in range(size)], float)
    random = np.random.default_rng(0).exponential(size=(200, size))
    random *= np.geomspace(0.1, 100, 200)[:, None]
    worst = 2 * scale * WORST_AT[noise] * ones * np.array([[1.0], [0.7], [1.4]])
    losses = np.concatenate([worst, random])

    @jax.jit
    def expected(losses):
        tree = noisy_tree(-losses, sensitivity=1.0, **{noise: budget})
        other = exponential(-losses, 1.0, sensitivity=1.0)
        return tree.expectation(losses), other.expectation(losses)

    of_tree, of_exponential = (np.asarray(mean) - losses.min(-1) for mean in expected(losses))
    bound = selection.noisy_tree_excess(size, **{noise: budget})
    assert of_tree[0] == pytest.approx(bound, rel=1e-12)
    assert (of_tree[1:] < bound * (1 - 1e-3)).all()
    assert of_exponential.max() <= selection.exponential_excess(size, 1.0)
