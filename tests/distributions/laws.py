"""What is known of a distribution, from its definition: sums over many points, in plain NumPy."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import Clamped
from tests.support.statistics import assert_counts_follow, assert_counts_rejected

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
SHARES = np.array([1e-12, 1e-4, 0.013, 0.2, 0.31, 0.5, 0.77, 0.95, 0.9999, 1 - 1e-9])
LEVELS = np.concatenate([SHARES, 1 - SHARES, [0.0, 1.0, -0.1, 1.1, np.nan]])
DRAWS = 20_000
ERRORS = ("mean_abs_error", "mean_squared_error")
MOMENTS = ("mean", "variance", "stddev", "entropy")


@dataclass(frozen=True)
class Law:
    """Points and their probabilities, ``(n, rows)``; ``ends`` are points, ``(m, rows)``, up to
    which the probability is a sum.
    """

    points: np.ndarray
    mass: np.ndarray
    log_prob: np.ndarray
    ends: np.ndarray
    discrete: bool

    @staticmethod
    def of_density(log_density, cuts):
        """Gauss-Legendre in the panels between cuts ``(m, rows)``."""
        half = np.diff(cuts, axis=0)[:, None] / 2
        points = cuts[:-1, None] + half * (NODES[:, None] + 1)
        weights = half * WEIGHTS[:, None]
        rows = cuts.shape[-1]
        height = log_density(points.reshape(-1, rows))
        mass = weights.reshape(-1, rows) * np.exp(height - height.max(axis=0))
        log_prob = height - height.max(axis=0) - np.log(mass.sum(axis=0))
        return Law(points.reshape(-1, rows), mass / mass.sum(axis=0), log_prob, cuts, False)

    @staticmethod
    def of_values(values, log_weight):
        """Values ``(n, rows)``, in any order; equal ones add up."""
        log_prob = log_weight - np.logaddexp.reduce(log_weight, axis=0)
        return Law(values, np.exp(log_prob), log_prob, np.sort(values, axis=0), True)

    def mapped(self, function, log_derivative):
        """On the scale of ``function(points)``; the logarithm of its inverse's derivative."""
        points = function(self.points)
        log_prob = self.log_prob + log_derivative(points)
        return replace(self, points=points, ends=function(self.ends), log_prob=log_prob)

    def clamped(self, low, high):
        """With atoms at two ends."""
        points, ends = (np.clip(part, low, high) for part in (self.points, self.ends))
        log_prob = np.where(points == self.points, self.log_prob, np.nan)
        return replace(self, points=points, ends=ends, log_prob=log_prob)

    def total(self, there):
        """The mass where ``there``, ``(j, n, rows)``."""
        return np.sum(np.where(there, self.mass, 0.0), axis=1)

    def expect(self, function_values):
        """E[g(Y)] of values at the points, ``(..., n, rows)``."""
        return np.sum(self.mass * function_values, axis=-2)

    def shares(self, ends, row):
        """The probabilities of the cells between ends, of one row."""
        cell = np.searchsorted(ends, self.points[:, row])
        return np.bincount(cell, self.mass[:, row], minlength=len(ends) + 1)

    def least(self, share):
        """The smallest value that reaches each share, ``(j, rows)``, and where that is clear."""
        order = np.argsort(self.points, axis=0)
        values, masses = (np.take_along_axis(a, order, 0) for a in (self.points, self.mass))
        reached = np.cumsum(masses, axis=0)
        clear = np.abs(reached - share[:, None, None]).min(axis=1) > 1e-13
        # Rounding must not leave the total below a share near 1.
        found = (reached >= share[:, None, None]) & (reached > 0)
        first = np.where(found.any(axis=1), found.argmax(axis=1), (masses > 0).cumsum(0).argmax(0))
        return np.take_along_axis(values, first, 0), clear


def known_at(law, at, centers):
    """What a distribution says of these points, if it has this law."""
    below = law.total(law.points <= at[:, None])
    above = law.total(law.points > at[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_cdf = np.where(below < 0.5, np.log(below), np.log1p(-above))
    away = law.points - centers[:, None]
    return {
        "cdf": below,
        "survival": above,
        "log_cdf": log_cdf,
        "mean_abs_error": law.expect(np.abs(away)),
        "mean_squared_error": law.expect(away**2),
    }


def known(law, at, centers):
    """And of no point."""
    mean = law.expect(law.points)
    variance = law.expect((law.points - mean) ** 2)
    with np.errstate(invalid="ignore"):
        entropy = -law.expect(np.where(law.mass > 0, law.log_prob, 0.0))
    moments = (mean, variance, np.sqrt(variance), entropy)
    return known_at(law, at, centers) | dict(zip(MOMENTS, moments, strict=True))


@jax.jit
def asked(distribution, key, places, at, centers, levels, bounds):
    """Everything that it says, in one program that calls each method once: at points ``(j, rows)``.

    Probabilities at ``at`` are followed by those at the quantiles of the shares, at those of what
    they leave out, at both ends of intervals, and at NaN.
    """
    found = {"ends": distribution.support, "quantile": distribution.quantile(levels)}
    ends = distribution.interval(1 - 2 * levels[:5])
    everywhere = jnp.concatenate([at, found["quantile"][:20], *ends, levels[-1:]])
    for names, given in (
        (("log_prob",), (places,)),
        (("cdf", "survival"), (everywhere,)),
        (("log_cdf",), (at,)),
        (ERRORS, (centers,)),
        (MOMENTS, ()),
    ):
        for name in names:
            try:
                found[name] = getattr(distribution, name)(*given)
            except AttributeError:  # not every distribution has a density, a variance, an entropy
                continue
    draws = distribution.sample(key, (DRAWS,))
    if bounds is None:
        return found, draws, {}
    clamped = Clamped(distribution, *bounds)
    of_clamped = {"mean": clamped.mean(), "mean_abs_error": clamped.mean_abs_error(centers)}
    of_clamped |= {"cdf": clamped.cdf(at), "survival": clamped.survival(at)}
    return found, draws, of_clamped


def questions(law, bounded):
    """Points for probabilities, centers of errors among them, points for densities, and bounds."""
    middle = law.ends
    if not bounded:  # only where what is left out at the ends is no rounding error
        cells = np.stack([law.shares(ends, row) for row, ends in enumerate(law.ends.T)], axis=-1)
        below, above = np.cumsum(cells, axis=0)[:-1], np.cumsum(cells[::-1], axis=0)[-2::-1]
        least = np.maximum(1e14 * np.maximum(cells[1], cells[-2]), 1e-60)
        middle = middle[(np.minimum(below, above) > least).all(axis=-1)]
    at = middle[np.linspace(0, len(middle) - 1, 25).astype(int)]
    centers = at[::4]
    bounds = centers[1], centers[-2]
    if bounded:
        outside = np.stack([law.ends[0] - 1, law.ends[-1] + 1])
        at, centers = (np.concatenate([part, outside]) for part in (at, centers))
    if law.discrete:
        between = 0.3 * np.diff(np.unique(law.ends)).min()
        at, centers = (np.concatenate([part, part + between]) for part in (at, centers))
    places = at if law.discrete else law.points[:: max(1, len(law.points) // 200)]
    return places, at, centers, bounds


def assert_known(
    distribution,
    law,
    *,
    bounded=True,
    rtol=1e-10,
    of_moments=None,
    of_logs=None,
    moments=2,
    lacks=(),
    clamped=False,
):
    """All that it says is what its definition says, and its draws are; those of the next row are
    the control.
    """
    places, at, centers, bounds = questions(law, bounded)
    bounds = bounds if clamped else None
    levels = np.broadcast_to(LEVELS[:, None], (len(LEVELS), law.ends.shape[-1]))
    found, draws, of_clamped = jax.tree.map(
        np.asarray, asked(distribution, jax.random.key(3), places, at, centers, levels, bounds)
    )
    expected = known(law, at, centers)
    found["quantile"], _, extreme, nowhere = np.split(found["quantile"], [10, 20, 22])
    parts = len(at) + np.array([0, 10, 20, 25, 30])  # ten shares twice, and five intervals
    found["cdf"], *below, cdf_of_nan = np.split(found["cdf"], parts)
    found["survival"], *above, _ = np.split(found["survival"], parts)
    found["inverse"] = below[0], above[1], below[2], above[3]
    if law.discrete:
        equal = np.where(law.points == places[:, None], law.log_prob, -np.inf)
        expected["log_prob"] = np.logaddexp.reduce(equal, axis=1)
    else:
        expected["log_prob"] = law.log_prob[:: max(1, len(law.points) // 200)]
    for name in () if moments == 2 else ("variance", "stddev", "mean_squared_error"):
        expected[name] = np.full_like(expected[name], np.inf)
    if moments == 0:
        expected["mean"] = np.full_like(expected["mean"], np.nan)
        expected["mean_abs_error"] = np.full_like(expected["mean_abs_error"], np.inf)
    assert expected.keys() - found.keys() <= set(lacks)
    for name in expected.keys() - set(lacks):
        others = dict.fromkeys((*MOMENTS, *ERRORS), of_moments) | {"log_cdf": of_logs}
        close = others.get(name) or rtol
        # Survival and the cdf have the digits of their tails; others are sums of numbers of 1.
        atol = {"cdf": 1e-15, "survival": 1e-300, "log_cdf": 1e-14}.get(name, close)
        same = {"rtol": close, "atol": atol, "err_msg": name}
        there = ~np.isnan(expected[name]) | (name != "log_prob")  # no density where it is clamped
        np.testing.assert_allclose(found[name][there], expected[name][there], **same)
    assert_inverse(found, law, levels[:10], rtol)
    assert_drawn(draws, law)
    assert np.isnan([*nowhere, *cdf_of_nan]).all()
    if bounded is not None:
        there = np.where(law.mass > 0, law.points, np.nan) if law.discrete else law.ends
        ends = np.nanmin(there, axis=0), np.nanmax(there, axis=0)
        ends = ends if bounded else np.full_like(ends, np.inf) * [[-1], [1]]
        np.testing.assert_allclose(found["ends"], ends, rtol=1e-12)
        np.testing.assert_allclose(extreme, ends, rtol=1e-12)
    if clamped:
        between = law.clamped(*bounds)
        wanted = known_at(between, at, centers) | {"mean": between.expect(between.points)}
        same = {"rtol": 1e-9, "atol": max(1e-9, 1e-15 * np.abs(bounds).max())}
        for name, values in of_clamped.items():
            np.testing.assert_allclose(values, wanted[name], **same, err_msg=name)


def assert_inverse(found, law, shares, rtol):
    """Quantiles are the points that reach a share."""
    if law.discrete:
        wanted, clear = law.least(SHARES)
        np.testing.assert_allclose(found["quantile"][clear], wanted[clear], rtol=1e-14)
        assert clear.mean() > 0.5
        return
    # Elsewhere there are atoms, of what was clamped.
    least = max(law.total(law.points[None] == law.ends[end]).max() for end in (0, -1))
    outside = shares[: len(SHARES) // 2]
    for values, wanted in zip(found["inverse"], (shares, shares, outside, outside), strict=True):
        inside = (wanted > least) & (wanted < 1 - least)
        close = {"rtol": max(10 * rtol, 1e-12), "atol": 1e-14}
        np.testing.assert_allclose(values[inside], wanted[inside], **close)


def assert_drawn(draws, law):
    """Counts of the cells between ends."""
    for row, other in enumerate(np.roll(np.arange(draws.shape[-1]), 1)):
        ends = np.unique(law.ends[:, row])
        ends = ends[np.diff(ends, append=np.inf) > 1e-9]  # bounds are rounded on another scale
        counts = np.bincount(np.searchsorted(ends, draws[:, row]), minlength=len(ends) + 1)
        assert_counts_follow(counts, law.shares(ends, row))
        assert_counts_rejected(counts, 0.9 * law.shares(ends, other) + 0.1 / len(counts))
