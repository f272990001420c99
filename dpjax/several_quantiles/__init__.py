"""Several quantiles of the same records under one budget: what releases share, without JAX.

``levels`` has the requested levels and the ranks that they aim at, ``ranks`` the ranks at which
profiles read sorted records, ``slots`` the multiples of a grid by rank, ``far_records`` the records
that no draw needs, ``halving`` and ``nesting`` the order of draws, and ``interval`` the coverage of
an interval between two quantiles. See ``dpjax/release/exact_chain.py``.
"""
