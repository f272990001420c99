"""Bounds on errors from the papers' theorems, to compare with exact errors.

Privacy: nothing here draws. A bound of public numbers spends no privacy; a bound that reads data is
not private, and for analysis only. Bounds are float64 of NumPy, computed on the host: arrays
broadcast, and a public number out of range raises ``ValueError``.

``local_modulus`` has lower bounds: every private mechanism has an error of at least this much on a
dataset or on one some changes away. On normal data at epsilon = 1, the exact error on the lower
median is 2.8 times this bound for piecewise Laplace and 2.9 times for Duff, 28 times for piecewise
Laplace on radii of the local sensitivity instead of the exact profile, 152 times for
propose-test-release, 212 times for Cauchy noise on the smooth sensitivity and 3842 times for plain
Laplace noise (for the last three over the smaller bound of all (epsilon, delta)-DP mechanisms;
``benchmarks/experiments/optimality.py``). On two groups of records with a gap near the median, the
ratio is above 17 for half of 500 datasets, and at most 1100 (notebook 07): a wide gap attracts
draws, and the bound does not depend on the widths of gaps.
"""

from __future__ import annotations

from dpjax.bounds import duff, local_modulus, metric, selection

__all__ = ["duff", "local_modulus", "metric", "selection"]


def __dir__() -> list[str]:
    return __all__
