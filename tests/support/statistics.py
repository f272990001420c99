"""One false-positive rate for every statistical test: 1e-6. Keys are fixed, so a test that passes
goes on passing.

Two tests, both with bounds that hold at every sample size:
* the Dvoretzky-Kiefer-Wolfowitz inequality (Massart's constant) for draws against an exact cdf,
* the Laurent-Massart tail of chi-square for counts, in bins pooled to an expected count of at least
  5.
"""

from math import log, sqrt

import numpy as np

FALSE_POSITIVE_RATE = 1e-6


def cdf_statistic(draws, cdf):
    """The largest distance between the empirical and the exact cdf, and its critical value."""
    draws = np.sort(np.asarray(draws, np.float64).ravel())
    exact, n = np.asarray(cdf(draws), np.float64), draws.size
    distance = max(np.max(np.arange(1, n + 1) / n - exact), np.max(exact - np.arange(n) / n))
    return float(distance), sqrt(log(2 / FALSE_POSITIVE_RATE) / (2 * n))


def assert_follows(draws, cdf):
    """The draws have this cdf."""
    distance, critical = cdf_statistic(draws, cdf)
    assert distance <= critical, f"a cdf is {distance:.5f} off, above {critical:.5f}"


def assert_rejected(draws, cdf):
    """The negative control: the draws do not have this cdf, and the same test sees it."""
    distance, critical = cdf_statistic(draws, cdf)
    assert distance > critical, f"a cdf is {distance:.5f} off, not above {critical:.5f}"


def count_statistic(counts, probabilities):
    """Pearson's chi-square over pooled bins, and its critical value."""
    counts, expected = (
        np.asarray(counts, np.float64),
        np.asarray(probabilities, np.float64) * np.sum(counts),
    )
    order = np.argsort(expected)
    observed_bins, expected_bins, held = [], [], [0.0, 0.0]
    for i in order:
        held = [held[0] + counts[i], held[1] + expected[i]]
        if held[1] >= 5:
            observed_bins.append(held[0])
            expected_bins.append(held[1])
            held = [0.0, 0.0]
    observed_bins[-1] += held[0]
    expected_bins[-1] += held[1]
    observed, wanted = np.array(observed_bins), np.array(expected_bins)
    x, freedom = log(1 / FALSE_POSITIVE_RATE), len(wanted) - 1
    return float(np.sum((observed - wanted) ** 2 / wanted)), freedom + 2 * sqrt(freedom * x) + 2 * x


def assert_counts_follow(counts, probabilities):
    """The counts have these probabilities."""
    statistic, critical = count_statistic(counts, probabilities)
    assert statistic <= critical, f"chi-square is {statistic:.1f}, above {critical:.1f}"


def assert_counts_rejected(counts, probabilities):
    """The negative control of :func:`assert_counts_follow`."""
    statistic, critical = count_statistic(counts, probabilities)
    assert statistic > critical, f"chi-square is {statistic:.1f}, not above {critical:.1f}"
