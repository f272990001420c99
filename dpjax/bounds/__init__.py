"""What the theorems of the papers promise about errors, as functions to compare with the exact distributions.

Privacy: nothing here draws. A bound of public numbers spends nothing; one that reads data is private itself, for analysis only.
A parameter outside its range raises ``ValueError`` (as an element of a JAX array it gives NaN); arrays broadcast.

``local_modulus`` has the error that no private mechanism with the same promise stays below, both on a dataset and on those some
changes away. On normal data at epsilon = 1, the exact error is 2.8 times this bound for piecewise Laplace and 2.9 times for Duff
on the lower median, 28 times for piecewise Laplace on radii of the local sensitivity instead of the exact profile, 152 times for
propose-test-release, 212 times for Cauchy noise on the smooth sensitivity and 3842 times for plain Laplace noise (these three over
the bound of all (epsilon, delta)-DP mechanisms, which is smaller; ``benchmarks/experiments/optimality.py``). On two groups of
records with a gap near the median, half of 500 datasets are above 17 times the bound, and the worst is at 1100 (notebook 07): a
wide gap attracts draws, and the bound knows no widths.
"""

from dpjax.bounds import duff, finite_ranges, local_modulus, metric_laplace, metric_selection, selection

__all__ = ["duff", "finite_ranges", "local_modulus", "metric_laplace", "metric_selection", "selection"]


def __dir__() -> list[str]:
    return __all__
