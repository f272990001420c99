"""One wrong argument in a call that is right otherwise is refused by one sentence that names it, a
``TypeError`` or ``ValueError`` of the library.
"""

import inspect
import re

import numpy as np
import pytest

from tests.contracts.calls import AGES, PUBLISHED, STATISTICS, calls_of, given
from tests.contracts.objects import statistic
from tests.contracts.public import function, functions

nan, inf = float("nan"), float("inf")
POSITIVE = (0.0, -1.0, nan, inf, "one", True)
NOT_NEGATIVE = (-1.0, nan, "one", True)
WITHIN_ONE = (-0.1, 1.5, nan, "one", True)
WHOLE = (-1, 1.5, 3.0, inf, True, np.bool_(True), "one", np.array([3]), (3,))
OPTION = ("another", 1)
OBJECT = (3, "text")

# Wrong values of a parameter, by its name, which means the same wherever it stands
BAD = {
    **dict.fromkeys(("epsilon", "sensitivity", "sigma", "scale"), POSITIVE),
    **dict.fromkeys(("zcdp", "gdp", "beta", "rho", "order", "gamma"), NOT_NEGATIVE),
    **dict.fromkeys(("delta", "failure", "coverage", "confidence", "probability"), WITHIN_ONE),
    **dict.fromkeys(("rank", "truncate", "num_levels", "num_nodes", "num_candidates"), WHOLE),
    **dict.fromkeys(
        ("count", "size", "attempts", "rounds", "draws", "num_queries", "refine"), WHOLE
    ),
    **dict.fromkeys(("neighbors", "definition", "mechanism", "strategy"), OPTION),
    **dict.fromkeys(("profile", "smooth", "local", "down", "asked", "distribution"), OBJECT),
    **dict.fromkeys(("guarantee", "spent", "metric", "key"), OBJECT),
    **dict.fromkeys(("lower", "upper"), (nan, "one")),
    **dict.fromkeys(("x", "values", "scores", "value"), (["text"],)),
    "q": (-0.1, 1.5, nan, "half"),
    "resolution": (-1, nan, inf, "one"),
    "support": ("another",),
    "tau": (-1, nan, inf, True, "one"),
}
# How a message names a parameter, where not by its name
SAID_AS = {
    "q": "q|level",
    "zcdp": "zcdp|epsilon",
    "x": "x|counts|records",
    "values": "values|queries",
}
# Parameters for which some values above are right, or that take any object with the methods
OTHERS = {
    # A loss of epsilon 0 has a delta, and a p-value
    *((name, "epsilon") for name in ("bounded_range_delta", "optimal_pure_delta", "p_value")),
    *((f"delta_of_{name}", "epsilon") for name in ("gdp", "rdp", "zcdp")),
    # Its bound holds for any delta
    ("lower_bound", "delta"),
    # A distribution, and data that never raise
    ("log_ratio", "q"),
    ("privacy_loss", "q"),
    ("subsampled_laplace", "count"),
    ("release", "x"),
    # A seed; Laplace noise needs no gamma
    ("simulate", "key"),
    ("optimal_beta", "gamma"),
    # A function of noise to what is spent
    ("least_noise", "spent"),
    # What has the methods of a profile, of a composition
    ("level_measure", "profile"),
    *((name, "profile") for name in ("local_sensitivity_error", "local_sensitivity_bound")),
    *((name, "down") for name in ("shifted_interval", "noisy_binary_search")),
    ("trade_off_bound", "spent"),
    # 0 and infinity are epsilons with a Renyi divergence
    *((f"rdp_of_{promise}", "epsilon") for promise in ("pure", "bounded_range", "laplace")),
}


def error_of(call, arguments, options):
    try:
        call(*arguments, **options)
    except Exception as error:
        return error
    return None


def accepted(call, valid, *names):
    """The wrong arguments that a call takes, or refuses in words that are not the library's."""
    bound, found = inspect.signature(call).bind(*valid[0], **valid[1]), []
    for parameter in inspect.signature(call).parameters:
        said = rf"\b({SAID_AS.get(parameter, parameter)})|\btakes an? |neighbor relation"
        others = any((name, parameter) in OTHERS for name in names)
        for value in () if others else BAD.get(parameter, ()):
            changed = inspect.signature(call).bind(*bound.args, **bound.kwargs)
            changed.arguments[parameter] = value
            error = error_of(call, changed.args, changed.kwargs)
            if type(error) not in (TypeError, ValueError) or not re.search(said, str(error), re.I):
                found.append((parameter, value, error))
    return found


@pytest.mark.parametrize(("package", "name"), functions())
def test_a_wrong_argument_is_named(package, name):
    assert accepted(function(package, name), calls_of(package)[name], package, name) == []


@pytest.mark.parametrize("name", STATISTICS)
def test_a_wrong_argument_of_a_statistic_is_named(name):
    assert accepted(function("release", name), STATISTICS[name], "release", name) == []


def test_a_wrong_argument_of_a_release_is_named():
    median = statistic("Median")
    for method in (median.release, median.distribution):
        assert accepted(method, given(AGES, **PUBLISHED), "release") == []
    assert accepted(median.cost, given(1.0, 2, "swap")) == []


def test_controls_what_is_taken_or_refused_in_other_words_is_found():
    def careless(*, epsilon, delta, tau):
        if not 0 < epsilon < inf:
            raise ValueError("a parameter is out of range")
        if not 0 <= delta < 1:
            raise ValueError("delta must be at least 0 and below 1")
        return tau

    found = accepted(careless, given(epsilon=1.0, delta=0.1, tau=3))
    assert {(parameter, repr(value)) for parameter, value, _ in found} == {
        *(("epsilon", repr(value)) for value in POSITIVE),  # True is taken
        ("delta", "'one'"),
        *(("tau", repr(value)) for value in BAD["tau"]),
    }
