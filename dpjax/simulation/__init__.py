"""Monte Carlo evaluation of distributions: in bounded memory, on all devices, resumable."""

from __future__ import annotations

from dpjax.simulation.run import Progress, simulate
from dpjax.simulation.sharding import sharded_sample
from dpjax.simulation.summaries import Estimate

__all__ = ["Estimate", "Progress", "sharded_sample", "simulate"]


def __dir__() -> list[str]:
    return __all__
