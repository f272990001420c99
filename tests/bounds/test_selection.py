"""The promises on the expected excess loss of a selection: the constants, and that the exact
distributions keep and attain them.
"""

import json
import pathlib
from math import e, erfc, sqrt

import jax
import numpy as np
import pytest

from dpjax import exponential, noisy_tree
from dpjax.bounds import selection

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "F_accounting.json").read_text()
)
WORST_AT, WORST = (float(x) for x in GOLDEN["max_v_Phic"])


def test_the_constants():
    v = np.linspace(0, 10, 100_001)
    assert pytest.approx(max(x * erfc(x / sqrt(2)) / 2 for x in v), rel=1e-9) == WORST
    assert selection.noisy_tree_excess(16, zcdp=0.5) == pytest.approx(2 * WORST * 4**1.5, rel=1e-14)
    laplace = selection.noisy_tree_excess(9, epsilon=0.5, sensitivity=3.0)
    assert laplace == pytest.approx(16 / (0.5 * e) * 3, rel=1e-14)
    assert selection.exponential_excess(8, 0.5, sensitivity=2.0) == pytest.approx(
        8 * np.log(8), rel=1e-14
    )


@pytest.mark.parametrize("noise", ["zcdp", "epsilon"])
def test_losses_that_count_wrong_decisions_attain_the_bound(noise, x64):
    """Every node then has the worst query; other losses, and other scales of these, stay below."""
    size, budget = 16, 0.4
    scale = sqrt(4 / (2 * budget)) if noise == "zcdp" else 4 / budget
    ones = np.array([bin(i).count("1") for i in range(size)], float)
    worst = 2 * scale * (WORST_AT if noise == "zcdp" else 1.0) * ones
    random = np.random.default_rng(0).exponential(size=(200, size))
    random *= np.geomspace(0.1, 100, 200)[:, None]
    losses = np.concatenate([worst * np.array([[1.0], [0.7], [1.4]]), random])

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
