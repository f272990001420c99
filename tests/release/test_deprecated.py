"""The names of version 0.1 work, warn, and name the new ones."""

import numpy as np
import pytest

from dpjax import release
from dpjax.release import deprecated, words

Grid = deprecated.Grid
GRID = Grid(0, 0, 30)
X = np.array([12, 14, 14, 15, 19, 22, 28])


@pytest.mark.parametrize("name", deprecated._NAMES)
def test_every_old_name_warns(name):
    with pytest.warns(DeprecationWarning, match=f"dpjax.release.{name} goes in version 0.3: use .*of dpjax.release"):
        assert getattr(release, name) is deprecated._NAMES[name][0]


def test_unknown_names_are_no_attributes():
    with pytest.raises(AttributeError, match="has no attribute 'medain'"):
        release.medain  # noqa: B018


SMALL = {"lower": 0, "upper": 29, "resolution": 1}
LINEAR = {"definition": "linear"}  # the default of old
BOTH = {
    "median": ("median", {}, release.median, SMALL | LINEAR),
    "fine": ("median", {"grid": Grid(-2, 10, 81)}, release.median, {"lower": 10, "upper": 30, "resolution": 0.25} | LINEAR),
    "coarse": ("median", {"grid": Grid(2, -8, 11)}, release.median, {"lower": -8, "upper": 32, "resolution": 4} | LINEAR),
    "sum": ("sum", {"neighbors": "swap"}, release.sum, SMALL | {"neighbors": "swap"}),
    "mean": ("mean", {"neighbors": "swap"}, release.mean, SMALL | {"neighbors": "swap"}),
    "quantile": (deprecated.Quantile(0.25, "lower"), {}, release.quantile, SMALL | {"q": 0.25, "definition": "lower"}),
    "linear": (deprecated.Quantile(0.25), {}, release.quantile, SMALL | {"q": 0.25} | LINEAR),
    "rank": (deprecated.OrderStatistic(3), {}, release.order_statistic, SMALL | {"rank": 3}),
    "maximum": (deprecated.Maximum(2), {}, release.maximum, SMALL | {"tau": 2}),
    "total": (deprecated.Total(1, 99), {}, release.nonnegative_sum, {"tau": 1, "upper": 98, "resolution": 1}),
    "total of a grid": (deprecated.Total(1, None), {}, release.nonnegative_sum, {"tau": 1, "upper": 29, "resolution": 1}),
    "persons": (
        *(deprecated.Total(1, 99), {"persons": X, "grid": Grid(-1, 0, 10)}, release.user_sum),
        {"tau": 1, "upper": 49, "resolution": 0.5, "person_ids": X},
    ),
    "distinct": (deprecated.Distinct(1, 20), {"grid": None}, release.distinct_count, {"tau": 1, "upper": 19}),
}


@pytest.mark.parametrize("name", BOTH)
def test_old_statistics_are_the_new_functions(name):
    statistic, old, function, new = BOTH[name]
    common = {"epsilon": 1.5, "neighbors": "add_remove"}
    now = release.exact_distribution(function, X, **(common | new))
    for law in ("auto", "owned_cell"):
        was = deprecated.exact_law(X, statistic=statistic, law=law, **({"grid": GRID} | common | old))
        np.testing.assert_array_equal(was.pmf(now.values), now.pmf(now.values))
        assert was.pmf(now.values).sum() == pytest.approx(1.0)
        assert (was.resolution, was.start) == (now.resolution, now.start)
        assert [side.tolist() for side in was.profile] == [side.tolist() for side in now.profile]
    for gone in ("cell", "point"):
        for call in (deprecated.exact_law, deprecated.release):
            with pytest.raises(ValueError, match=f"law='{gone}' is gone"):
                call(X, statistic=statistic, law=gone, **({"grid": GRID} | common | old))


@pytest.mark.parametrize(
    "name", ["certified_draw", "exact_draw", "host_exact", "log_pmf", "Knots", "public_tables", "to_grid", "VARIANTS", "variant"]
)
def test_internals_have_no_old_names(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(release, name)


@pytest.mark.slow
def test_the_old_release_draws_the_same_values(monkeypatch):
    monkeypatch.setattr(words.os, "urandom", lambda n: bytes(range(32)))
    common = {"epsilon": 1.5, "neighbors": "add_remove"}
    was = deprecated.release(X, statistic="median", grid=GRID, draws=3, **common)
    assert was.values.tolist() == release.median(X, **SMALL, **LINEAR, draws=3, **common).values.tolist()
    votes = deprecated.release(X, statistic=deprecated.Mode((14.0, 28.0)), epsilon=1.0, neighbors="swap")
    assert votes.values.tolist() == release.mode(X, candidates=(14.0, 28.0), epsilon=1.0, neighbors="swap").values.tolist()
    for wrong in ({"statistic": "range"}, {"statistic": deprecated.Mode((14.0, 28.0))}):
        with pytest.raises((TypeError, ValueError), match=r"statistic must be|unexpected keyword"):
            deprecated.release(X, grid=GRID, **wrong, **common)
