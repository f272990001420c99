"""Profiles of statistics by one signature: records, bounds, a relation, and which are there."""

from functools import partial

from dpjax import maximum, nonnegative_sum, statistics

BOTH = ("swap", "add_remove")


def shifted(statistic, x, *, lower, upper, neighbors, **known):
    """The profile that is drawn from, one person below a statistic that falls when people leave."""
    return statistic(x, lower, upper, **known).shift(1)


def of_largest(x, lower, upper, **known):
    return maximum(x, lower=lower, upper=upper, **known)


def of_total(x, lower, upper, **known):
    return nonnegative_sum(x, upper=4 * upper, **known)


PROFILES = {
    "sum": (statistics.sum, BOTH),
    "sum of at most 7": (partial(statistics.sum, max_count=7), BOTH[1:]),
    "mean": (statistics.mean, BOTH),
    "hull": (partial(statistics.mean, values="hull"), BOTH[1:]),
    "variance": (statistics.variance, BOTH[:1]),
    "median": (statistics.median, BOTH),
    "quantile": (partial(statistics.quantile, q=0.3), BOTH),
    "maximum": (partial(shifted, of_largest), BOTH[1:]),
    "nonnegative sum": (partial(shifted, of_total), BOTH[1:]),
}
