"""Random words from JAX's own keys, and uniform variates with full relative precision near 0."""

from __future__ import annotations

from dpjax.random.keys import check_key
from dpjax.random.variates import uniform, uniforms, words

__all__ = ["check_key", "uniform", "uniforms", "words"]


def __dir__() -> list[str]:
    return __all__
