"""The ranks at which profiles of quantiles read sorted rows: fractions with the denominator of q.

They are computed in integers: 0.1 * n in floating point is sometimes off by a rank, and a rank off
by one on one side leaks 1.44 epsilon.
"""

from __future__ import annotations

from fractions import Fraction
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

    def levels(self, n: int) -> tuple[int, int]:
        """Return how many levels reach the bounds, below and above, for up to ``n`` records."""
        base = self.per_record * n + self.constant
        down = -(-base // self.step)
        if self.definition != "lower":  # up to rank n + 1
            return down, -(-(self.denominator * (n + 1) - base) // self.step)
        # Beyond rank n: ceil makes it n + 1.
        return down, (self.denominator * n - base) // self.step + 1

    def enough(self, levels: int) -> int:
        """Return a number of records from which on ``levels`` levels reach neither end."""
        u, v, far = self.per_record, self.denominator, self.step * levels
        return max(-(-(v - self.constant + far) // u), -(-(v + self.constant + far) // (v - u)))

    def unread(self, n: int, levels: int) -> tuple[int, int]:
        """Return how many of the smallest and largest of n records the profile does not need.

        Without the u k smallest and the (v - u) k largest, q = u/v, there are v k records fewer, so
        that the rank of the value decreases by u k and reads the same record. The remaining records
        are at least ``enough``, and at most v more.
        """
        u, v = self.per_record, self.denominator
        times = max((n - self.enough(levels)) // v, 0)
        return u * times, (v - u) * times


def ranks_of_quantile(q: Any, *, definition: Definition, neighbors: Neighbors) -> Ranks:
    """Return the ranks of the profile of a quantile, or raise if ``q`` is invalid."""
    fraction = level_of(q)
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


def level_of(q: Any) -> Fraction:
    """Return the level of a quantile as a fraction, or raise if it is not static or not in (0, 1).

    Floats are read to 15 digits, so that three times 0.1 is 3/10.

    >>> level_of(0.1 + 0.2), level_of("1/3")
    (Fraction(3, 10), Fraction(1, 3))
    """
    if checks.is_jax_array(q):
        raise TypeError(
            "a level must be a static number or Fraction, not a JAX array, because ranks are "
            "computed exactly."
        )
    fraction = checks.exact(f"{q:.15g}" if isinstance(q, float) else q)
    if fraction is None:
        raise ValueError(
            f"a level must be a number or a Fraction, got {q!r}: for several levels use "
            "dpjax.quantiles or dpjax.release.joint_quantiles."
        )
    if not 0 < fraction < 1:
        raise ValueError(f"a level must be strictly between 0 and 1, got {q}.")
    return fraction


def levels_needed(epsilon: float | Fraction) -> int:
    """Return the number of changes after which a profile may jump to the bounds: a power of two.

    Values beyond it have a weight below e^-128.

    >>> levels_needed(1.0), levels_needed(0.01)
    (4096, 32768)
    """
    return max(2**12, 1 << int(256 / epsilon).bit_length())
