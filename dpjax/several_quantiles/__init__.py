"""Several quantiles of the same records under one budget.

On the host, without JAX: ``asked`` has the requested levels and the ranks that they aim at,
``ranks`` the ranks at which profiles read sorted records, ``slots`` the multiples of a grid by
rank, ``far_records`` the records that no draw needs, ``halving`` the order of recursive draws, and
``interval`` the coverage of an interval between two quantiles. On arrays, in JAX: ``chain`` sums
the weights of all tuples, ``joint`` has their distribution, ``marginals`` that of each quantile,
and ``cdf`` the distribution through drawn quantiles.

The mechanisms and their proofs are in ``dpjax.mechanisms``. Releases draw from counts in NumPy, see
``dpjax/release/exact_chain.py``.
"""
