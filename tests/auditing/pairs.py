"""Neighboring datasets on which mechanisms lose nearly all of their epsilon, and mistakes that
lose more.
"""

from dataclasses import replace
from math import comb

import jax.numpy as jnp
import numpy as np

from dpjax import (
    PiecewiseExponential,
    exponential,
    laplace,
    median,
    permute_and_flip,
    piecewise_laplace,
)
from dpjax.distributions.line import Side
from dpjax.statistics import candidate_counts

EPSILON = 1.0
# Piecewise Laplace loses 0.897 there at epsilon 1, wherever the draw is
SWAP = jnp.array([[0.0, 2, 2, 2], [2.0, 2, 2, 20]])
WORSE = jnp.array([[0.0, 1, 1, 1], [1.0, 1, 1, 20]])
VOTES = jnp.array([[0.0, 0, 0], [0.0, 0, 1]])


def binomial(trials, probability):
    """The probabilities of 0..trials successes, for up to a thousand trials."""
    k = np.arange(trials + 1)
    return (
        np.array([float(comb(trials, int(i))) for i in k])
        * probability**k
        * (1 - probability) ** (trials - k)
    )


PIECES = 16


def of_one_shape(distribution):
    """A piecewise distribution without tails as one of 16 pieces a side, so that all share their
    programs.

    Pieces without width are appended at both ends, as the library pads its profiles itself.
    """
    if not isinstance(distribution, PiecewiseExponential) or distribution.tails is not None:
        return distribution

    def flat(values, size):
        values = np.asarray(values)
        return np.pad(
            np.broadcast_to(values, (2, values.shape[-1])),
            [(0, 0), (0, size - values.shape[-1])],
            mode="edge",
        )

    sides = [
        Side(
            flat(side.values, PIECES + 1), flat(side.cost_near, PIECES), flat(side.cost_far, PIECES)
        )
        for side in (distribution.lower, distribution.upper)
    ]
    return PiecewiseExponential.from_sides(
        *sides, np.broadcast_to(np.asarray(distribution.rate), (2,))
    )


def row(distribution, index, batch=()):
    """One row of a distribution with a batch of two, repeated; the costs may be shared by both."""
    names = (
        ("edges", "cost_left", "cost_right")
        if hasattr(distribution, "edges")
        else ("values", "cost")
    )
    fields = {name: getattr(distribution, name) for name in names}
    rows = {name: array[index] if array.ndim > 1 else array for name, array in fields.items()}
    rate = distribution.rate[index] if distribution.rate.ndim else distribution.rate
    return replace(distribution, **rows, rate=jnp.broadcast_to(rate, batch))


def plm(x, neighbors="swap", epsilon=EPSILON):
    return piecewise_laplace(median(x, lower=0, upper=20, neighbors=neighbors), epsilon)


def faster(distribution, factor):
    return replace(distribution, rate=factor * distribution.rate)


def truncated_by_the_data():
    """The level of truncation read off the data: a row whose largest record is below 10 keeps
    nothing but a jump to the bounds.
    """
    records = jnp.linspace(0, 1, 31)
    x = jnp.stack([records, records.at[0].set(20.0)])
    profile = median(x, lower=0, upper=20, neighbors="swap")
    short, size = profile.truncate(0), profile.upper.shape[-1]
    keeps = (jnp.max(x, axis=-1) > 10)[:, None]
    padded = [
        jnp.concatenate([side[..., :1]] + [side[..., 1:]] * (size - 1), axis=-1)
        for side in (short.upper, short.lower)
    ]
    return piecewise_laplace(
        replace(
            profile,
            upper=jnp.where(keeps, profile.upper, padded[0]),
            lower=jnp.where(keeps, profile.lower, padded[1]),
        ),
        EPSILON,
    )


def candidates(mechanism):
    counts = candidate_counts(VOTES, candidates=jnp.arange(2.0), neighbors="swap")
    return mechanism(counts, EPSILON)


HONEST = {
    "piecewise_laplace": lambda: plm(SWAP),
    "laplace": lambda: laplace(jnp.array([0.0, 1.0]), EPSILON, sensitivity=1.0),
    "bounded laplace": lambda: laplace(
        jnp.array([0.0, 1.0]), EPSILON, sensitivity=1.0, lower=0.0, upper=20.0
    ),
    "exponential": lambda: candidates(exponential),
    "permute_and_flip": lambda: candidates(permute_and_flip),
}
BROKEN = {
    "laplace at too high a rate": lambda: faster(HONEST["laplace"](), 1.4),
    "epsilon for epsilon/2": lambda: faster(plm(SWAP), 2),
    "add/remove values under swap": lambda: plm(WORSE, "add_remove"),
    "truncation by the data": truncated_by_the_data,
    "laplace renormalized": lambda: laplace(
        jnp.array([0.0, 1.0]), EPSILON, sensitivity=1.0
    ).restrict(0.0, 20.0),
}
