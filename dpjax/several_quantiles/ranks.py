"""Where the profiles of quantiles read sorted rows: at ranks that are fractions with the denominator of q.

They are computed in integers: 0.1 * n in floating point is off by a rank now and then, and a rank off by one on one side leaks
1.44 epsilon.
"""

from fractions import Fraction
from typing import Any, Literal, NamedTuple

from dpjax import checks
from dpjax.checks import Neighbors

Definition = Literal["linear", "lower", "continuous"]
DEFINITIONS = ("linear", "lower", "continuous")


class Ranks(NamedTuple):
    """Where a profile reads: at ``(per_record * n + constant +- step * level) / denominator``, all integers."""

    per_record: int
    constant: int
    step: int
    denominator: int
    definition: Definition

    @property
    def refinement(self) -> int:
        """Into how many parts an interpolated quantile cuts the distance of two records; 1 where it reads records only."""
        return 1 if self.definition == "lower" else self.denominator

    def levels(self, n: int) -> tuple[int, int]:
        """How many levels reach the bounds, below and above, for up to ``n`` records."""
        base = self.per_record * n + self.constant
        down = -(-base // self.step)
        if self.definition != "lower":  # up to rank n + 1
            return down, -(-(self.denominator * (n + 1) - base) // self.step)
        return down, (self.denominator * n - base) // self.step + 1  # past rank n: ceil takes it to n + 1

    def enough(self, levels: int) -> int:
        """From how many records on a quantile's profile of so many levels reaches neither end, whatever the records are."""
        u, v, far = self.per_record, self.denominator, self.step * levels
        return max(-(-(v - self.constant + far) // u), -(-(v + self.constant + far) // (v - u)))

    def unread(self, n: int, levels: int) -> tuple[int, int]:
        """How many of the smallest and of the largest of n records a quantile's profile of so many levels does without.

        Without the u k smallest and the (v - u) k largest, q = u/v, there are v k records fewer, so that the rank to start from
        falls by u k and reads the record it did before. The others are at least ``enough``, and at most v more than that.
        """
        u, v = self.per_record, self.denominator
        times = max((n - self.enough(levels)) // v, 0)
        return u * times, (v - u) * times


def ranks_of_quantile(q: Any, *, definition: Definition, neighbors: Neighbors) -> Ranks:
    """Return where the profile of a quantile reads, or raise for a bad ``q``."""
    fraction = level_of(q)
    u, v = fraction.numerator, fraction.denominator
    step = v if neighbors == "swap" else max(u, v - u)
    constant = 0 if definition == "lower" else v - u
    return Ranks(per_record=u, constant=constant, step=step, denominator=v, definition=definition)


def ranks_of_order_statistic(rank: int, n: int) -> Ranks:
    """Return where the profile of the record of a fixed rank reads, or raise for a rank outside 1..n."""
    rank = checks.static_integer("rank", rank, 1, n, must=f"an integer from 1 to the {n} records on the last axis of x")
    return Ranks(per_record=0, constant=rank, step=1, denominator=1, definition="lower")


def level_of(q: Any) -> Fraction:
    """Return the level of a quantile as a fraction, or raise for one that is not static or not in (0, 1).

    Floats are read to 15 digits, so that three times 0.1 is 3/10.

    >>> level_of(0.1 + 0.2), level_of("1/3")
    (Fraction(3, 10), Fraction(1, 3))
    """
    if checks.is_jax_array(q):
        raise TypeError("a level must be a static number or Fraction, not a JAX array: ranks are computed exactly.")
    fraction = checks.exact(f"{q:.15g}" if isinstance(q, float) else q)
    if fraction is None:
        raise ValueError(
            f"a level must be a number or a Fraction, got {q!r}; dpjax.quantiles and dpjax.release.joint_quantiles take several."
        )
    if not 0 < fraction < 1:
        raise ValueError(f"a level must be strictly between 0 and 1, got {q}.")
    return fraction


def levels_needed(epsilon: float | Fraction) -> int:
    """Return after how many changes a profile may count as the bounds: a power of two; what is beyond has a weight below e^-128.

    >>> levels_needed(1.0), levels_needed(0.01)
    (4096, 32768)
    """
    return max(2**12, 1 << int(256 / epsilon).bit_length())
