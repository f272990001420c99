"""How many records equal the statistic of their dataset: where many do, a continuous distribution spoils it."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

TIED_SHARE = 0.1  # from this share of the records on, it is said that a statistic is tied
_AT_A_TIME = 2**22  # records of each dataset


def ties(
    records: np.ndarray, count: np.ndarray, value: np.ndarray, resolution: Fraction | None, missing: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many of each dataset's records equal each of its statistics: as a share, and as a number.

    Args:
        records: float ``(rows, n)``, clamped.
        count: integers ``(rows,)``, how many leading records are there.
        value: float ``(rows, k)``, the statistics.
        resolution: that records are rounded to, or None.
        missing: what a NaN record counts as; None if it is absent.
    """
    tied, present = np.zeros(value.shape, np.int64), np.zeros(len(count), np.int64)
    for start in range(0, records.shape[-1], _AT_A_TIME):
        some = records[:, start : start + _AT_A_TIME]
        there = np.arange(start, start + some.shape[-1]) < count[:, None]
        if missing is not None:
            some = np.where(np.isnan(some), missing, some)
        if resolution is not None:
            some = np.rint(some * resolution.denominator / resolution.numerator) * resolution.numerator / resolution.denominator
        there &= ~np.isnan(some)
        present += np.sum(there, axis=-1)
        some = some.astype(value.dtype)
        tied += np.stack([np.sum(there & (some == value[:, k, None]), axis=-1) for k in range(value.shape[1])], axis=-1)
    return tied / np.maximum(present, 1)[:, None], tied


def words_of_ties(shares: Sequence[float], option: str) -> str:
    """Return what is said of the shares of tied statistics, with the option that takes a resolution."""
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return (
        f"{low if low == high else f'{low} to {high}'} % of the records are tied: they equal the statistic. A continuous "
        "distribution has no mass on a single value, so the draws spread over the gaps between distinct values, or up to the "
        f"bounds. Give the resolution of the data as {option} (1 for integers); like the bounds it is public."
    )
