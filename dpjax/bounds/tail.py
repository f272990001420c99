"""A bound of an error that holds with a stated probability."""

from __future__ import annotations

from typing import NamedTuple

import jax


class TailBound(NamedTuple):
    """A tail bound, P(error > threshold) <= probability; both are float arrays ``(...)``."""

    threshold: jax.Array
    probability: jax.Array
