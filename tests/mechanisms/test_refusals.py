"""What mechanisms refuse because it would leak, cost more than is stated, or be another mechanism:
combinations of arguments, each of which is right elsewhere.
"""

from dataclasses import replace
from functools import partial
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpjax
from dpjax import Guarantee, mechanisms

X = np.arange(5.0)
KNOWN = {"lower": 0.0, "upper": 9.0}
ADD_REMOVE, SWAP = ({**KNOWN, "neighbors": relation} for relation in ("add_remove", "swap"))
LOCAL = dpjax.local_sensitivity(X, **SWAP)
DOWN = dpjax.maximum(X, **KNOWN)
VECTOR = dpjax.from_vector_radii([1.0, 2.0], [1.0], p=2, step=1.0, neighbors="swap")
SCORES = dpjax.mode(X, candidates=[0, 1], neighbors="add_remove")
median, best_of = partial(dpjax.median, X), mechanisms.best_of.guarantee
pure = Guarantee(1.0, 1.0, "swap")
retry = partial(mechanisms.never_fail, jax.random.key(0), partial(jax.random.normal, shape=(2,)))


def bounded(target):
    """One draw: two targets would make two of it."""
    given = {"epsilon": 1.0, "delta": 0.1, "fallback": 0.0, "attempts": 2}
    draw, key = jax.random.uniform, jax.random.key(0)
    return mechanisms.bounded_loss(key, draw, loss=jnp.abs, target=target, **given)


REFUSED = {
    "interpolation": (
        lambda: dpjax.piecewise_laplace(replace(median(**SWAP), interpolable=False), 1.0),
        "interpolable",
    ),
    "fractional levels": (
        lambda: dpjax.inverse_sensitivity(replace(median(**SWAP), integer_levels=False), 1.0),
        "integer levels",
    ),
    "steps that go on": (
        lambda: dpjax.inverse_sensitivity(median(**SWAP).truncate(1, step=9.0), 1.0),
        "num_steps",
    ),
    "rho without interpolation": (
        lambda: dpjax.inverse_sensitivity(
            replace(median(**SWAP), interpolable=False), 1.0, rho=0.1
        ),
        "rho",
    ),
    "rho of a vector": (lambda: dpjax.piecewise_laplace(VECTOR, 1.0, rho=0.1), "rho"),
    "rho with candidates": (
        lambda: dpjax.shifted_inverse(DOWN, 1.0, tau=2, candidates=[1.0, 2.0], rho=0.5),
        "rho",
    ),
    "one bound": (lambda: dpjax.laplace(0.0, 1.0, sensitivity=1.0, lower=0.0), "upper"),
    "duff, another median": (lambda: dpjax.duff(median(**ADD_REMOVE), 1.0), "distances"),
    "duff, truncated": (
        lambda: dpjax.duff(median(definition="lower", **ADD_REMOVE).truncate(2), 1.0),
        "distances",
    ),
    "duff, the guarantee of a mean": (
        lambda: dpjax.duff.guarantee(dpjax.mean(X, **ADD_REMOVE), 1.0),
        "distances",
    ),
    "duff, swap": (lambda: dpjax.duff(median(**SWAP), 1.0), "inverse_sensitivity"),
    "duff, rho of scores": (lambda: dpjax.duff(SCORES, 1.0, rho=0.5), "rho"),
    "scores without a sensitivity": (lambda: dpjax.exponential(X, 1.0), "sensitivity"),
    "no noise": (lambda: dpjax.noisy_tree(SCORES), "exactly one"),
    "two noises": (
        lambda: dpjax.noisy_binary_search(DOWN, tau=1, candidates=[0.0], epsilon=1.0, zcdp=1.0),
        "exactly one",
    ),
    "two budgets": (
        lambda: dpjax.decomposable_exponential(np.eye(2), sensitivity=1.0, epsilon=1.0, zcdp=1.0),
        "exactly one",
    ),
    "no parts": (
        lambda: dpjax.decomposable_exponential(X, sensitivity=1.0, epsilon=1.0),
        "axis of parts",
    ),
    "candidates not in order": (
        lambda: dpjax.shifted_inverse(DOWN, 1.0, tau=2, candidates=[1.0, 1.0]),
        "increasing",
    ),
    "candidates beyond float32": (
        lambda: dpjax.shifted_inverse(DOWN, 1.0, tau=2, candidates=[0.0, 1e39]),
        "float32",
    ),
    "a delta of one attempt": (
        lambda: best_of(Guarantee(1.0, inf, "swap", delta=1e-6), attempts=[1.0]),
        "delta",
    ),
    "attempts that do not add up": (lambda: best_of(pure, attempts=[0.5, 0.4]), "attempts"),
    "never one attempt": (lambda: best_of(pure, attempts=[0.0, 1.0]), "attempts"),
    "a fallback of another kind": (
        lambda: retry(succeeded=lambda y: y > 0, fallback=(0.0, 1.0), attempts=2),
        "fallback",
    ),
    "a success that is a number": (
        lambda: retry(succeeded=lambda y: y, fallback=0.0, attempts=2),
        "booleans",
    ),
    "two targets for one draw": (lambda: bounded(jnp.ones(2)), "target"),
    "beta for all of epsilon": (lambda: dpjax.smooth_cauchy(LOCAL.smooth(1.5), 1.0), "exhausts"),
    "beta for all of delta": (
        lambda: dpjax.smooth_laplace(LOCAL.smooth(0.2), 1.0, delta=1e-3),
        "exhausts",
    ),
    "beta for all of zcdp": (
        lambda: dpjax.smooth_laplace_log_normal(LOCAL.smooth(0.2), 0.1, sigma=0.3),
        "exhausts",
    ),
    "beta above the published one": (
        lambda: dpjax.smooth_cauchy(LOCAL.smooth(0.21), 1.2, calibration="published"),
        "exhausts",
    ),
    "a delta of Cauchy noise": (
        lambda: mechanisms.optimal_beta(1.0, noise="cauchy", delta=0.1),
        "delta",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_combinations_that_are_refused(name):
    call, said = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=said):
        call()
