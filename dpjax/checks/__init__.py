"""Validation of the arguments of public functions, by three rules.

1. Static properties (dtype, rank, an unknown option) raise when a function is called or traced.
2. A public parameter that is a Python or NumPy value out of range raises ``ValueError``. The value
   of a JAX array may be traced and cannot be tested, so a value out of range becomes NaN in its
   batch element.
3. The values of private data never raise: an error that depends on a record would disclose it.

Importing this package does not import JAX; the first use of a check that returns a JAX array does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpjax.checks.host import (
    PADDED,
    host_floats,
    is_jax_array,
    is_traced,
    is_tracing,
    nearest_float,
    refuse_frame,
)
from dpjax.checks.numbers import (
    bounds,
    concrete_delta,
    concrete_epsilon,
    concrete_fraction,
    concrete_nonnegative,
    concrete_positive,
    concrete_probability,
    concrete_proportion,
    finite,
    nonnegative,
    positive,
    static_number,
)
from dpjax.checks.static import (
    NEIGHBORS,
    RELATIONS,
    Neighbors,
    Relation,
    Resolution,
    counted_neighbors,
    exact,
    instance,
    level,
    levels,
    one_of,
    resolution,
    shift,
    static_integer,
    takes,
)

if TYPE_CHECKING:
    from dpjax.checks.arrays import float_array, float_dtype, score_array
else:

    def __getattr__(name: str) -> Any:
        """Import a check that needs JAX on first use."""
        if name not in ("float_array", "float_dtype", "score_array"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module("dpjax.checks.arrays"), name)
        return found
