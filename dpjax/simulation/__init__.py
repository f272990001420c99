"""Monte-Carlo evaluation of laws: any number of draws in bounded memory, on every device, resumable."""

from dpjax.simulation.monte_carlo import simulate
from dpjax.simulation.progress import Progress
from dpjax.simulation.rows import sharded_sample
from dpjax.simulation.summaries import Estimate

__all__ = ["Estimate", "Progress", "sharded_sample", "simulate"]
