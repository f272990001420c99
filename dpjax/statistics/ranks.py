"""The ranks at which profiles of quantiles read sorted rows: fractions with the denominator of q.

They are computed in integers: 0.1 * n in floating point is sometimes off by a rank, and a rank off
by one on one side leaks 1.44 epsilon.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from dpjax import checks
from dpjax.checks import Neighbors

Definition = Literal["linear", "lower", "continuous"]
DEFINITIONS = ("linear", "lower", "continuous")


class Ranks(NamedTuple):
    """Ranks of a profile, ``(per_record * n + constant +- step * level) / denominator``."""

    per_record: int
    constant: int
    step: int
    denominator: int
    definition: Definition

    @property
    def refinement(self) -> int:
        """The number of parts between two records for interpolation; 1 without it."""
        return 1 if self.definition == "lower" else self.denominator

    @property
    def whole(self) -> bool:
        """Whether all ranks that are read are those of records, in every dataset."""
        return self.definition == "lower" or self.denominator == 1

    def levels(self, n: int) -> tuple[int, int]:
        """Return how many levels reach the bounds, below and above, for up to ``n`` records."""
        base = self.per_record * n + self.constant
        down = -(-base // self.step)
        if self.definition != "lower":  # up to rank n + 1
            return down, -(-(self.denominator * (n + 1) - base) // self.step)
        # Beyond rank n: ceil makes it n + 1.
        return down, (self.denominator * n - base) // self.step + 1


def ranks_of_quantile(q: Any, *, definition: Definition, neighbors: Neighbors) -> Ranks:
    """Return the ranks of the profile of a quantile, or raise if ``q`` is invalid."""
    fraction = checks.level(q)
    u, v = fraction.numerator, fraction.denominator
    step = v if neighbors == "swap" else max(u, v - u)
    constant = 0 if definition == "lower" else v - u
    return Ranks(per_record=u, constant=constant, step=step, denominator=v, definition=definition)


def ranks_of_order_statistic(rank: int, n: int) -> Ranks:
    """Return the ranks of the profile of the record of a fixed rank, or raise outside 1..n."""
    rank = checks.static_integer(
        "rank", rank, 1, n, must=f"an integer from 1 to the {n} records on the last axis of x"
    )
    return Ranks(per_record=0, constant=rank, step=1, denominator=1, definition="lower")
