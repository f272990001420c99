"""Names of version 0.1 that are gone in 0.3."""

import importlib

import pytest

from dpjax.metric_privacy.metrics import Metric
from dpjax.metric_privacy.multiplicative_weights import selection_distribution


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("dpjax.metric_privacy", "PointMetric", Metric),
        ("dpjax.metric_privacy.points", "PointMetric", Metric),
        ("dpjax.metric_privacy.multiplicative_weights", "selection_law", selection_distribution),
    ],
)
def test_an_old_name_warns_and_is_the_new_one(module, old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new.__name__}"):
        assert getattr(importlib.import_module(module), old) is new
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = importlib.import_module(module).nothing
