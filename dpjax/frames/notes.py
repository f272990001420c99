"""What is said of data that spoil a draw: ties, bounds that are too close, and arguments that a release needs besides."""

from __future__ import annotations

from collections.abc import Sequence

TIED_SHARE = 0.1  # from this share of the records on, it is said that a statistic is tied
BOUND_SHARE = 0.25  # from this share of the records on, it is said that they are at a bound


def words_of_ties(shares: Sequence[float], option: str = "resolution=") -> str:
    """Return what is said of the shares of tied statistics, with the option that takes a resolution."""
    return (
        f"{_percent(shares)} of the records are tied: they equal the statistic. A continuous distribution has no mass on a single "
        "value, so the draws spread over the gaps between distinct values, or up to the bounds. Give the resolution of the data as "
        f"{option} (1 for integers); like the bounds it is public."
    )


def words_of_bounds(shares: Sequence[float]) -> str:
    """Return what is said where many records of a group lie at or beyond a bound."""
    return f"{_percent(shares)} of the records are at or beyond a bound, and count as that bound: are the bounds wide enough?"


def words_of_crowded(persons: Sequence[int], max_groups: int) -> str:
    """Return what is said where persons, of so many, have rows in more groups than they count in."""
    some, all_persons = persons
    return (
        f"{some} of {all_persons} persons have rows in more groups than they count in, {max_groups} (max_groups=): their rows in "
        "other groups count nowhere."
    )


def words_of_lacking(lacking: Sequence[str]) -> str:
    """Return what is said where a release by the same arguments would be refused."""
    return f"A release needs {', '.join(lacking)} besides."


def _percent(shares: Sequence[float]) -> str:
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return f"{low if low == high else f'{low} to {high}'} %"
