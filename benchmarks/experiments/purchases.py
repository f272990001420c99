"""Total spending and distinct customers of a music shop, private for whole persons, without a bound
on what one person spends.

python benchmarks/experiments/purchases.py [--out FILE] [--png FILE]

69,659 purchases of 23,570 customers (CDNOW, 1997 and 1998); neighbors differ by one person with
all purchases. Columns are mean absolute errors as a share of the true value, closed forms and no
draws:

    interpolated      shifted inverse sensitivity, piecewise Laplace between the values that remain
                      when people leave
    step              the same with flat pieces, as in the literature
    best tau          "interpolated" at the shift that is best for these very data: hindsight, not
                      private
    clipped           every person clipped to a bound, then Laplace noise of that scale: at the best
                      bound for these very data. Hindsight, not private: a fair private rival would
                      have to find the bound first
    clipped, tenfold  the same at a bound ten times too large

The shift tau is chosen without the data: the smallest one at which the range above f(x) adds at
most a RESOLUTION to the error of one whose pieces are one RESOLUTION wide. What the shifted
mechanism leaves out is the spending of the tau largest customers: a column without heavy tails, or
many more people, are where it shines; here clipping wins, if somebody knows the bound. Counting
customers is the control: one person changes the count by exactly 1, plain Laplace noise is the
right answer there, and the shifted mechanism pays for its caution.
"""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dpjax
import output

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
TAUS = (3, 4, 6, 8, 12, 19, 30, 48, 75, 120, 190, 300, 480)
# Public: the largest total that is thought possible, and what counts as close.
QUESTIONS = {"spending": (1e8, 100.0), "customers": (1e6, 1.0)}


def shift(epsilon: float, upper: float, resolution: float) -> int:
    """A shift that reads public numbers only, for a small mean error."""
    return dpjax.shift_for(
        epsilon, num_candidates=int(upper / resolution), failure=resolution / upper
    )


def rows(
    dollars: np.ndarray, customers: np.ndarray, epsilons: tuple[float, ...] = EPSILONS
) -> list[dict[str, Any]]:
    """One row for each question and epsilon."""
    _, person = np.unique(customers, return_inverse=True)
    totals = np.bincount(person, weights=dollars)
    questions = {
        "spending": (
            dpjax.user_sum(jnp.asarray(dollars), person, upper=QUESTIONS["spending"][0]),
            totals,
        ),
        "customers": (
            dpjax.distinct_count(np.unique(customers), upper=QUESTIONS["customers"][0]),
            np.ones(totals.size),
        ),
    }
    found = []
    for question, (down, contributions) in questions.items():
        rate = jnp.asarray(epsilons)
        sweep = np.asarray(error(shifted(down, TAUS), rate[:, None], down.value))
        chosen = tuple(shift(epsilon, *QUESTIONS[question]) for epsilon in epsilons)
        interpolated, step = (
            np.asarray(error(shifted(down, chosen), rate, down.value, mechanism))
            for mechanism in (dpjax.piecewise_laplace, dpjax.inverse_sensitivity)
        )
        true = contributions.sum()
        for i, epsilon in enumerate(epsilons):
            clip, least, tenfold = best_clip(contributions, epsilon)
            found.append(
                {
                    "question": question,
                    "epsilon": epsilon,
                    "tau": chosen[i],
                    "interpolated": float(interpolated[i]) / true,
                    "step": float(step[i]) / true,
                    "best tau": TAUS[int(sweep[i].argmin())],
                    "at best tau": float(sweep[i].min()) / true,
                    "best clip": clip,
                    "clipped": least / true,
                    "clipped, tenfold": tenfold / true,
                }
            )
    return found


@functools.partial(jax.jit, static_argnames="taus")
def shifted(down: dpjax.DownSensitivity, taus: tuple[int, ...]) -> dpjax.SensitivityProfile:
    """The profiles of all shifts in one batch, padded to one length: padding repeats the last value
    and level.
    """

    profiles = [down.shift(tau) for tau in taus]
    before = max(profile.center for profile in profiles)
    after = max(profile.values.size - profile.center for profile in profiles)

    def of_one_length(profile: dpjax.SensitivityProfile) -> dpjax.SensitivityProfile:
        more = before - profile.center, after - (profile.values.size - profile.center)
        values, levels = (
            jnp.pad(row, more, mode="edge") for row in (profile.values, profile.levels)
        )
        return replace(profile, values=values, levels=levels, center=before)

    return jax.tree.map(lambda *rows: jnp.stack(rows), *map(of_one_length, profiles))


def error(
    profile: dpjax.SensitivityProfile,
    epsilon: Any,
    value: Any,
    mechanism: Any = dpjax.piecewise_laplace,
) -> jax.Array:
    """Mean absolute error around the statistic, exactly: the distributions are
    ``shifted_inverse``'s, or its step version.
    """
    return mechanism(profile, epsilon).mean_abs_error(value)


def best_clip(contributions: np.ndarray, epsilon: float) -> tuple[float, float, float]:
    """The bound on one person with the smallest error, that error, and the error at ten times the
    bound.
    """
    grid = np.unique(
        np.concatenate(
            [contributions, np.geomspace(contributions.max() / 1e4, contributions.max(), 2000)]
        )
    )
    grid = grid[grid > 0]
    ordered = np.sort(contributions)
    above = np.concatenate([np.cumsum(ordered[::-1])[::-1], [0.0]])

    def mean_abs_error(clip: np.ndarray) -> np.ndarray:
        first = np.searchsorted(ordered, clip, side="right")
        bias = above[first] - (ordered.size - first) * clip
        scale = clip / epsilon
        return bias + scale * np.exp(-bias / scale)  # E|Laplace - bias|

    errors = mean_abs_error(grid)
    best = int(errors.argmin())
    return (
        float(grid[best]),
        float(errors[best]),
        float(mean_abs_error(10 * grid[best : best + 1])[0]),
    )


def load(folder: Any) -> tuple[np.ndarray, np.ndarray]:
    """Dollars and customers, one purchase a row."""
    table = np.genfromtxt(
        folder / "user_cdnow" / "cdnow_master.csv", delimiter=",", skip_header=1, dtype=str
    )
    return table[:, 3].astype(float), table[:, 0].astype(np.int64)


PLOTTED = "interpolated", "step", "at best tau", "clipped", "clipped, tenfold"
PLOT = output.panels(("question",), "epsilon", PLOTTED, "mean |error| / true value")

if __name__ == "__main__":
    output.run(lambda: rows(*load(output.data_folder())), PLOT)
