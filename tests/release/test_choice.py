"""The choice of a candidate on the device against the exact one, and costs beyond the tables."""

import numpy as np

from dpjax.release.choice import certified_choice, exact_choice
from dpjax.release.tables import public_tables
from tests.release.test_draw import EXTREME, more


def test_device_equals_host_and_levels_beyond_the_table_are_in_doubt():
    rng = np.random.default_rng(0)
    tables = public_tables(1.5, levels=30)
    costs = rng.integers(0, 30, (300, 70))
    costs[:100] += rng.integers(0, 2, (100, 1)) * 40  # whole rows far out
    costs[100:150, 3] = 31  # one candidate too far
    words = np.where(rng.uniform(size=(2, 300)) < 0.3, rng.choice(EXTREME, (2, 300)), rng.integers(0, 2**32, (2, 300))).astype(
        np.uint32
    )
    drawn = certified_choice(tables, costs.astype(np.int32), words)
    certified = np.asarray(drawn.certified)
    covered = (costs < 30).all(axis=-1)
    assert not certified[~covered].any()
    assert certified[covered].mean() > 0.9
    for row in np.flatnonzero(certified):
        assert np.asarray(drawn.cell)[row] == exact_choice(1.5, costs[row], words[:, row], more=more)
    # Clipped to the table, the far candidate would be as likely as one at the last level: another law, and nobody would see it.
    clipped = np.asarray(certified_choice(tables, np.minimum(costs, 29).astype(np.int32), words).cell)
    exact = np.array([exact_choice(1.5, c, w, more=more) for c, w in zip(costs[:100], words.T[:100], strict=True)])
    assert (clipped[:100] != exact).any()
