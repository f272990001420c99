"""Neighboring datasets on which mechanisms lose nearly all of their epsilon, and mistakes that
lose more.
"""

from dataclasses import replace
from math import comb

import jax.numpy as jnp
import numpy as np

from dpjax import exponential, laplace, median, permute_and_flip, piecewise_laplace
from dpjax.statistics import candidate_counts

EPSILON = 1.0
# Piecewise Laplace loses 0.897 there at epsilon 1, wherever the draw is
SWAP = jnp.array([[0.0, 2, 2, 2], [2.0, 2, 2, 20]])
WORSE = jnp.array([[0.0, 1, 1, 1], [1.0, 1, 1, 20]])
VOTES = jnp.array([[0.0, 0, 0], [0.0, 0, 1]])
CENTERS = jnp.array([0.0, 1.0])


def binomial(trials, probability):
    """The probabilities of 0..trials successes, for up to a thousand trials."""
    k = np.arange(trials + 1)
    ways = np.array([float(comb(trials, int(i))) for i in k])
    return ways * probability**k * (1 - probability) ** (trials - k)


def plm(x, neighbors="swap"):
    return piecewise_laplace(median(x, lower=0, upper=20, neighbors=neighbors), EPSILON)


def noise(center, **bounds):
    return laplace(center, EPSILON, sensitivity=1.0, **bounds)


def faster(distribution, factor):
    return replace(distribution, rate=factor * distribution.rate)


def candidates(mechanism):
    def of(votes):
        counts = candidate_counts(votes, candidates=jnp.arange(2.0), neighbors="swap")
        return mechanism(counts, EPSILON)

    return of


# Functions of datasets, and two neighbors
HONEST = {
    "piecewise_laplace": (plm, SWAP),
    "laplace": (noise, CENTERS),
    "bounded laplace": (lambda center: noise(center, lower=0.0, upper=20.0), CENTERS),
    "exponential": (candidates(exponential), VOTES),
    "permute_and_flip": (candidates(permute_and_flip), VOTES),
}
BROKEN = {
    "laplace at too high a rate": (lambda center: faster(noise(center), 1.4), CENTERS),
    "epsilon for epsilon/2": (lambda x: faster(plm(x), 2), SWAP),
    "add/remove values under swap": (lambda x: plm(x, "add_remove"), WORSE),
    "laplace renormalized": (lambda center: noise(center).restrict(0.0, 20.0), CENTERS),
}
