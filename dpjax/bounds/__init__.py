"""What the theorems of the papers promise about errors, as functions to compare with the exact laws: nothing here draws."""

from dpjax.bounds import duff, finite_ranges, metric_laplace, metric_selection, selection

__all__ = ["duff", "finite_ranges", "metric_laplace", "metric_selection", "selection"]
