"""The names of version 0.1 work, warn, and name the new ones."""

import numpy as np
import pytest

from dpjax import release
from dpjax.release import Grid, deprecated, words

GRID = Grid(0, 0, 30)
X = np.array([12, 14, 14, 15, 19, 22, 28])


@pytest.mark.parametrize("name", deprecated._NAMES)
def test_every_old_name_warns(name):
    with pytest.warns(DeprecationWarning, match=f"dpjax.release.{name} goes in version 0.3: use .*of dpjax.release"):
        assert getattr(release, name) is deprecated._NAMES[name][0]


def test_unknown_names_are_no_attributes():
    with pytest.raises(AttributeError, match="has no attribute 'medain'"):
        release.medain  # noqa: B018


BOTH = {
    "median": ("median", {}, release.median, {}),
    "quantile": (deprecated.Quantile(0.25, "lower"), {}, release.quantile, {"q": 0.25, "definition": "lower"}),
    "rank": (deprecated.OrderStatistic(3), {}, release.order_statistic, {"rank": 3}),
    "maximum": (deprecated.Maximum(2), {}, release.maximum, {"tau": 2}),
    "total": (deprecated.Total(1, 99), {}, release.nonnegative_sum, {"tau": 1, "size": 99}),
    "persons": (deprecated.Total(1, 99), {"persons": X}, release.user_sum, {"tau": 1, "size": 99, "person_ids": X}),
    "distinct": (deprecated.Distinct(1, 20), {"grid": None}, release.distinct_count, {"tau": 1, "size": 20, "grid": None}),
}


@pytest.mark.parametrize("name", BOTH)
def test_old_statistics_are_the_new_functions(name):
    statistic, old, function, new = BOTH[name]
    common = {"epsilon": 1.5, "grid": GRID, "neighbors": "add_remove"}
    for law in ("auto", "cell", "owned_cell"):
        was = deprecated.exact_law(X, statistic=statistic, law=law, **(common | old))
        options = {key: value for key, value in (common | new).items() if value is not None}
        now = release.exact_distribution(function, X, **options, **({} if law == "auto" else {"variant": law}))
        np.testing.assert_array_equal(was.pmf(np.arange(25)), now.pmf(np.arange(25)))
        assert (was.law, was.knots.upper.tolist()) == (now.variant, now.profile.upper.tolist())


@pytest.mark.slow
def test_the_old_release_draws_the_same_cells(monkeypatch):
    monkeypatch.setattr(words.os, "urandom", lambda n: bytes(range(32)))
    common = {"epsilon": 1.5, "grid": GRID, "neighbors": "add_remove"}
    was = deprecated.release(X, statistic="median", law="cell", draws=3, **common)
    assert was.cells.tolist() == release.median(X, variant="cell", draws=3, **common).cells.tolist()
    with pytest.warns(DeprecationWarning, match="variant"):
        assert was.law == "cell"
    votes = deprecated.release(X, statistic=deprecated.Mode((14.0, 28.0)), epsilon=1.0, neighbors="swap")
    assert votes.cells.tolist() == release.mode(X, candidates=(14.0, 28.0), epsilon=1.0, neighbors="swap").cells.tolist()
    for wrong in ({"statistic": "range"}, {"statistic": deprecated.Mode((14.0, 28.0))}):
        with pytest.raises((TypeError, ValueError), match=r"statistic|grid"):
            deprecated.release(X, **wrong, **common)
