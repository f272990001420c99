"""Permute and flip on the multiples of a resolution: runs of adjacent multiples of equal cost.

A multiple y throws a coin that shows heads with probability p(y) = exp(-rate * (cost(y) - least
cost)), and one of the heads is taken, uniformly (McKenna and Sheldon 2020). With arrival times v in
(0, 1) in place of the order of a permutation, y wins if it shows heads and no head arrived before:

    P(y) = p(y) * integral over v from 0 to 1 of the product over z != y of (1 - v p(z))

Only positive numbers are added, and a run of w equal costs is one factor to the power w. Let L be
the sum of all p. The integrand is below e^-x at v = x / L: so 8 nodes up to x = 2 and 16 up to x =
36 give every probability to about 1e-12 of itself, or to the rounding of the dtype.

Few draws from a row need no integral. Permute and flip takes the least V(y) / p(y), for independent
uniform V(y): the noisy maximum with the exponential noise -log V(y) (Ding et al. 2021). The least V
of a run of w multiples is 1 - U^(1/w) = -expm1(log(U) / w), one number that loses no digit at
either end, and its place in the run is uniform. So a draw is a race of runs.
"""

from __future__ import annotations

from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.distributions.base import draws_first
from dpjax.distributions.line import Line
from dpjax.distributions.rounded import Rounded
from dpjax.distributions.sampler import first_of
from dpjax.numerics.arrays import broadcast_rows, take
from dpjax.pytrees import pytree
from dpjax.random.variates import uniform, words

_FEW = 4  # up to this many draws from a row, a race costs less than the probabilities
# Panels of the integral, in units of 1 / L, and their numbers of nodes
_PANELS = ((0, 2, 8), (2, 36, 16))
_QUADRATURE = np.array(
    [
        (start, end, *rule)
        for start, end, nodes in _PANELS
        for rule in zip(*np.polynomial.legendre.leggauss(nodes), strict=True)
    ]
)


@pytree
class PermuteAndFlip(Rounded):
    """The distribution of permute and flip on the multiples of a public resolution.

    It has the attributes and methods of :class:`Rounded`, but other probabilities: the costs are
    those of the coins of the multiples. A piece has the same cost at both ends: it is a run of
    multiples of equal cost.

    References:
        McKenna and Sheldon (2020); Ding et al. (2021).

    >>> import jax.numpy as jnp
    >>> from dpjax import median, permute_and_flip
    >>> ages = jnp.array([21.0, 30.0, 30.0, 30.0, 47.0])
    >>> distribution = permute_and_flip(
    ...     median(ages, lower=0, upper=120, neighbors="swap", resolution=1), 4.0
    ... )
    >>> round(float(distribution.prob(30.0)), 3), float(distribution.quantile(0.5))
    (0.881, 30.0)
    """

    def line(self) -> Line:
        """Return the same probabilities as those of an exponential mechanism."""
        cost = cost_of_winning(self._fall, jnp.diff(self.edges))
        rate = jnp.ones((1,), cost.dtype)
        return Line(self.edges, cost, cost, rate, self.batch_shape, cells=True)

    @property
    def _fall(self) -> jax.Array:
        """Rate times the cost above the least, ``(..., k)``."""
        least = jax.lax.stop_gradient(jnp.min(self.cost_left, axis=-1, keepdims=True))
        rate = jnp.minimum(self.rate, float(jnp.finfo(self.rate.dtype).max))
        return rate[..., None] * (self.cost_left - least)

    def _sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        if prod(shape) > _FEW:
            return super()._sample(key, shape)
        return _race(key, self, shape)


def cost_of_winning(fall: jax.Array, number: jax.Array) -> jax.Array:
    """Return minus the log-probability of each candidate of runs of equal cost, ``(..., k)``.

    Args:
        fall: rate times the cost above the least, ``(..., k)``.
        number: the number of candidates of each run, ``(..., k)``; at least one has a fall of 0.
    """
    coin = jnp.exp(-fall)
    total = jnp.sum(coin * number, axis=-1, keepdims=True)

    def add(found: jax.Array, rule: jax.Array) -> tuple[jax.Array, None]:
        start, end, node, weight = rule
        first, last = jnp.minimum(start / total, 1.0), jnp.minimum(end / total, 1.0)
        half = (last - first) / 2
        time = jnp.minimum(first + half * (1 + node), 1 - jnp.finfo(fall.dtype).epsneg)
        missed = jnp.log1p(-time * coin)
        others = jnp.sum(number * missed, axis=-1, keepdims=True) - missed
        return found + weight * half * jnp.exp(others), None

    start = jnp.zeros_like(total + coin)
    return fall - jnp.log(jax.lax.scan(add, start, jnp.asarray(_QUADRATURE, fall.dtype))[0])


def least_of(uniforms: jax.Array, number: jax.Array) -> jax.Array:
    """Return the least of this number of uniform variates, made of one."""
    return -jnp.expm1(jnp.log1p(-uniforms) / number)


@partial(jax.jit, static_argnames="shape")
def _race(key: jax.Array, distribution: PermuteAndFlip, shape: tuple[int, ...]) -> jax.Array:
    batch, edges = distribution.batch_shape, distribution.edges
    number = jnp.diff(edges)
    coin = jnp.where(number > 0, jnp.exp(-distribution._fall), 0.0)[..., None, :]
    drawn = words(key, (*batch, prod(shape), number.shape[-1] + 3))
    # The runs share the lower half of their words, which matters where the upper one is 0.
    variates = uniform(drawn[..., 3:], drawn[..., 2:3], edges.dtype)
    times = least_of(variates, jnp.maximum(number, 1.0)[..., None, :]) / coin
    run, exists = first_of(times), jnp.sum(coin, axis=-1) > 0
    start, length = (take(broadcast_rows(part, batch), run) for part in (edges, number))
    with jax.enable_x64(True):
        share = uniform(drawn[..., 0], drawn[..., 1], jnp.float64)
        place = jnp.ceil(share * length.astype(jnp.float64)).astype(edges.dtype)
    found = jnp.where(exists, start - 0.5 + place, jnp.nan)
    return distribution._value(draws_first(found, shape))
