"""Public parameters and arrays at the door of the library, in the three tiers that every function keeps.

1. Static facts (dtype, rank, an unknown option) raise when the function is called or traced.
2. A public parameter given as a Python or NumPy value is checked at once and raises ``ValueError``; the same parameter
   given as a JAX array cannot be looked at under a trace, so a bad value becomes NaN for its own batch element.
3. Data never raises: an error that depends on a record discloses it.
"""

from dpjax.checks.arrays import (
    above_one,
    bounds,
    codes,
    finite,
    float_array,
    float_dtype,
    host_floats,
    nearest_float,
    nonnegative,
    positive,
    probability,
    proportion,
    refuse_frame,
    remaining,
)
from dpjax.checks.concrete import (
    concrete_delta,
    concrete_epsilon,
    concrete_fraction,
    concrete_nonnegative,
    concrete_positive,
    concrete_probability,
    concrete_proportion,
)
from dpjax.checks.static import (
    NEIGHBORS,
    RELATIONS,
    Neighbors,
    Relation,
    Resolution,
    exact,
    instance,
    one_of,
    resolution,
    static_integer,
    static_number,
)
