"""Random words, uniform pairs, and Gumbel and exponential noise, by row keys.

The noise has full-precision tails.
"""

from __future__ import annotations

from dpjax.numerics.two_words import Words
from dpjax.random.keys import check_key, row_keys
from dpjax.random.uniforms import (
    UniformPair,
    exponential,
    exponential_from_uniform,
    gumbel,
    gumbel_from_uniform,
    uniform,
    uniform_from_words,
    words,
)

__all__ = [
    "UniformPair",
    "Words",
    "check_key",
    "exponential",
    "exponential_from_uniform",
    "gumbel",
    "gumbel_from_uniform",
    "row_keys",
    "uniform",
    "uniform_from_words",
    "words",
]


def __dir__() -> list[str]:
    return __all__
