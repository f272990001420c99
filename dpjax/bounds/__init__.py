"""What the theorems of the papers promise about errors, as functions to compare with the exact distributions.

Privacy: nothing here draws. A bound of public numbers spends nothing; one that reads data is private itself, for analysis only.
A parameter outside its range raises ``ValueError`` (as an element of a JAX array it gives NaN); arrays broadcast.
"""

from dpjax.bounds import duff, finite_ranges, local_modulus, metric_laplace, metric_selection, selection

__all__ = ["duff", "finite_ranges", "local_modulus", "metric_laplace", "metric_selection", "selection"]


def __dir__() -> list[str]:
    return __all__
