"""Many private quantiles: rank errors of joint draws, the recursion, one draw for each level and
SliceQuantiles, under add/remove at epsilon = 1.

python benchmarks/experiments/many_quantiles.py [--quick] [--out FILE] [--png FILE]

The levels are k/(m + 1). One dataset of n standard normal draws for each n, with the bounds -20 and
20: "dense" as drawn, "tied" rounded to a grid of 10,001 numbers. The rank error of y for the level
q is the distance of q n from [#records < y, #records <= y]; the table has means over draws of the
largest and of the mean rank error, in records, and "(se)", the standard error of the former. Joint
draws are left out where they are slow.

    joint               dpjax.joint_quantiles
    known n             the same with a public n, as SliceQuantiles has it
    recursive           Kaplan, Schnapp and Stemmer (2022), see several_quantiles.py
    independent         piecewise Laplace for each quantile at its share of epsilon
    slices              SliceQuantiles (Imola and others, 2025) with the authors' numbers, where its
                        gap assumption holds
    slices, tight       the same with .24 epsilon for the rate of a slice, about the most that its
                        proof allows
    slices, no proof    the same as slices where the assumption fails: there is no pure guarantee,
                        and a proven one costs more

SliceQuantiles and the recursion need no distinct values for their privacy, but never draw a tied
value themselves: of tied data they get records that are spread evenly at random within half a step
of the grid, which needs no secret, and their draws are rounded.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import numpy as np

import dpjax
import output
import several_quantiles
import slice_quantiles

EPSILON, BOUNDS, STEP, RATIO, DRAWS, SEED = 1.0, (-20.0, 20.0), Fraction(1, 250), 1e6, 30, 2026
SIZES, COUNTS = (1000, 10_000, 100_000), (9, 31, 63, 127, 255)
ASSUMED = (31, 150_000)  # where the gap assumption of SliceQuantiles holds for 31 levels as well
CASES = [*((m, n) for m in COUNTS for n in SIZES if n >= 20 * m / EPSILON), ASSUMED]
QUICK = [(9, 12_000)]
JOINT_WORK = 2 * 10**8  # the most m^2 n


def population(n: int, tied: bool) -> np.ndarray:
    """Records ``(n,)``."""
    x = np.clip(np.random.default_rng(SEED).normal(size=n), *BOUNDS)
    return np.rint(x / float(STEP)) * float(STEP) if tied else x


def rank_errors(x: np.ndarray, found: np.ndarray, levels: list[Fraction]) -> np.ndarray:
    """Of draws ``(draws, m)``."""
    ordered, aim = np.sort(x), np.array([float(q * len(x)) for q in levels])
    below, upto = np.searchsorted(ordered, found, "left"), np.searchsorted(ordered, found, "right")
    return np.maximum(0, np.maximum(below - aim, aim - upto))


def _asked(x: np.ndarray, levels: list[Fraction], tied: bool) -> Any:
    resolution = STEP if tied else None
    return dpjax.quantiles(
        x, levels, lower=BOUNDS[0], upper=BOUNDS[1], neighbors="add_remove", resolution=resolution
    )


def recursive(x: np.ndarray, levels: list[Fraction], tied: bool, draws: int) -> np.ndarray:
    qs = [float(q) for q in levels]
    return several_quantiles.recursive(_spread(x, tied), qs, EPSILON, *BOUNDS, draws, SEED)


def independent(x: np.ndarray, levels: list[Fraction], tied: bool, draws: int) -> np.ndarray:
    known: dict[str, Any] = {"lower": BOUNDS[0], "upper": BOUNDS[1], "neighbors": "add_remove"}
    known["resolution"] = STEP if tied else None
    keys = jax.random.split(jax.random.key(SEED), len(levels))
    profiles = (dpjax.quantile(x, q, **known) for q in levels)
    singles = (dpjax.piecewise_laplace(profile, EPSILON / len(levels)) for profile in profiles)
    found = [one.sample(key, draws) for key, one in zip(keys, singles, strict=True)]
    return np.sort(np.stack(found, axis=-1), axis=-1)


def joint(public: bool) -> Callable[..., np.ndarray | None]:
    """Joint draws, with a public or a private number of records."""

    def contestant(
        x: np.ndarray, levels: list[Fraction], tied: bool, draws: int
    ) -> np.ndarray | None:
        if len(levels) ** 2 * len(x) > JOINT_WORK:
            return None
        number = len(x) if public else None
        distribution = dpjax.joint_quantiles(_asked(x, levels, tied), EPSILON, public_n=number)
        return np.asarray(distribution.sample(jax.random.key(SEED), draws))

    return contestant


def _spread(x: np.ndarray, tied: bool) -> np.ndarray:
    half = float(STEP) / 2
    return x + np.random.default_rng(SEED + 1).uniform(-half, half, len(x)) if tied else x


def slices(share: float, pure: bool) -> Callable[..., np.ndarray | None]:
    """SliceQuantiles, for cases where the gap assumption holds (``pure``) or where it fails."""

    def contestant(
        x: np.ndarray, levels: list[Fraction], tied: bool, draws: int
    ) -> np.ndarray | None:
        qs, n = np.array([float(q) for q in levels]), len(x)
        if slice_quantiles.is_pure(qs, n, EPSILON, RATIO, share) != pure:
            return None
        options: dict[str, Any] = {
            "size": n,
            "ratio": RATIO,
            "draws": draws,
            "seed": SEED,
            "share": share,
            "pure": pure,
        }
        return slice_quantiles.slice_quantiles(_spread(x, tied), qs, EPSILON, *BOUNDS, **options)

    return contestant


# Functions of records, levels, whether tied, and draws.
CONTESTANTS: dict[str, Callable[..., np.ndarray | None]] = {
    "joint": joint(public=False),
    "known n": joint(public=True),
    "recursive": recursive,
    "independent": independent,
    "slices": slices(1 / 8, pure=True),
    "slices, tight": slices(0.24, pure=True),
    "slices, no proof": slices(1 / 8, pure=False),
}


def rows_of(m: int, n: int, tied: bool, draws: int = DRAWS) -> list[dict[str, Any]]:
    """One row for each contestant that answers."""
    x, levels, rows = population(n, tied), [Fraction(k, m + 1) for k in range(1, m + 1)], []
    for name, contestant in CONTESTANTS.items():
        found = contestant(x, levels, tied, draws)
        if found is None:
            continue
        if tied:  # the same floats as the records
            found = np.rint(found / float(STEP)) * float(STEP)
        errors = rank_errors(x, found, levels)
        largest = errors.max(1)
        row = {
            "data": "tied" if tied else "dense",
            "m": m,
            "n": n,
            "contestant": name,
            "largest": float(largest.mean()),
        }
        rows.append(
            row | {"(se)": float(largest.std(ddof=1) / draws**0.5), "mean": float(errors.mean())}
        )
    return rows


def rows(cases: list[tuple[int, int]] = CASES) -> list[dict[str, Any]]:
    return [row for m, n in cases for tied in (False, True) for row in rows_of(m, n, tied)]


def plot(figure: Any, found: list[dict[str, Any]]) -> None:
    """The largest rank errors of all contestants in one row for each case."""
    wide: dict[tuple, dict[str, Any]] = {}
    for row in found:
        where = {name: row[name] for name in ("data", "m", "n")}
        wide.setdefault(tuple(where.values()), where)[row["contestant"]] = row["largest"]
    draw = output.panels(("data", "m"), "n", CONTESTANTS, "mean of the largest rank error")
    draw(figure, list(wide.values()))


if __name__ == "__main__":
    output.run(rows, plot, quick={"cases": QUICK})
