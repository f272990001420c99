"""The form of a bound of an error that holds with a stated probability."""

from typing import NamedTuple

import jax


class TailBound(NamedTuple):
    """P(error > threshold) <= probability, both float ``(...)``."""

    threshold: jax.Array
    probability: jax.Array
