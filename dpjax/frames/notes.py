"""Notes about data that make draws inaccurate, and about arguments that a release lacks."""

from __future__ import annotations

from collections.abc import Sequence

TIED_SHARE = 0.1  # the least share of tied records that is reported
BOUND_SHARE = 0.25  # the least share of records at a bound that is reported


def words_of_ties(shares: Sequence[float], option: str = "resolution=") -> str:
    """Return the note for statistics with these shares of ties.

    It names the option that takes a resolution.
    """
    return (
        f"{_percent(shares)} of the records are tied: they equal the statistic. A continuous "
        "distribution has no mass on a single value, so the draws spread over the gaps between "
        f"distinct values, or up to the bounds. Give the resolution of the data as {option} (1 for "
        "integers); like the bounds it is public."
    )


def words_of_bounds(shares: Sequence[float]) -> str:
    """Return the note for groups with many records at or beyond a bound."""
    return (
        f"{_percent(shares)} of the records are at or beyond a bound, and count as that bound: are "
        "the bounds wide enough?"
    )


def words_of_crowded(persons: Sequence[int], max_groups: int) -> str:
    """Return the note for persons with rows in more than ``max_groups`` groups.

    ``persons`` is (some, all).
    """
    some, all_persons = persons
    return (
        f"{some} of {all_persons} persons have rows in more groups than they count in, "
        f"{max_groups} (max_groups=): their rows in other groups are left out."
    )


def words_of_lacking(lacking: Sequence[str]) -> str:
    """Return the note for arguments that a release would need in addition."""
    return f"A release needs {', '.join(lacking)} in addition."


def _percent(shares: Sequence[float]) -> str:
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return f"{low if low == high else f'{low} to {high}'} %"
