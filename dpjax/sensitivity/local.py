"""The local sensitivity of a statistic within 0, 1, 2, ... changes, and its smooth upper bound."""

from __future__ import annotations

from dataclasses import field

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dpjax import checks
from dpjax.batch import Batch
from dpjax.checks import Relation
from dpjax.pytrees import pytree
from dpjax.sensitivity.profile import SensitivityProfile


@pytree
class SmoothSensitivity(Batch):
    """A statistic and a beta-smooth upper bound of its local sensitivity, which are not private.

    The privacy of mechanisms requires that ``bound`` is at least the local sensitivity, and changes
    by a factor of at most e^beta between neighbors.

    Attributes:
        value: float ``(...)``, the statistic.
        bound: float ``(...)``, the smooth sensitivity, positive.
        beta: ``(...)``, public. It remains a NumPy array if it was a Python or NumPy value:
            mechanisms can then raise if it exhausts epsilon.
        lower: float ``(...)``, the public lower bound of the statistic.
        upper: float ``(...)``, the public upper bound.
        neighbors: static, the neighbor relation.

    References:
        Nissim, Raskhodnikova and Smith (2007), Definitions 2.1 and 2.2; Gillenwater and Munoz
        Medina, Definition 6.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import smooth_sensitivity
    >>> public = {"lower": 0, "upper": 100, "neighbors": "add_remove"}
    >>> round(float(smooth_sensitivity(jnp.array([20.0, 30.0, 50.0]), 0.5, **public).bound), 2)
    14.72
    """

    value: jax.Array
    bound: jax.Array
    beta: jax.Array | np.ndarray
    lower: jax.Array
    upper: jax.Array
    neighbors: Relation = field(default="add_remove", metadata={"static": True})

    _parameters = ("beta",)
    _next_step = ": dpjax.smooth_cauchy, smooth_laplace and smooth_laplace_log_normal take it"


@pytree
class LocalSensitivity(Batch):
    """The local sensitivity of a statistic at every distance, A_0, A_1, ..., which is not private.

    The privacy of what is built on it requires two properties: A_0(x) is at least the local
    sensitivity of x, and A_k(x) <= A_{k+1}(x') for neighbors x and x'. :func:`local_sensitivity`,
    :func:`mean_local_sensitivity` and :func:`triangle_local_sensitivity` return the exact values,
    which have both.

    Attributes:
        value: float ``(...)``, the statistic.
        at_distance: float ``(..., K)``, nondecreasing; the last one is the global maximum.
        lower: float ``(...)``, the public lower bound of the statistic.
        upper: float ``(...)``, the public upper bound.
        neighbors: static, the neighbor relation.

    >>> import jax.numpy as jnp
    >>> from dpjax.statistics import local_sensitivity
    >>> ages = jnp.array([20.0, 30.0, 50.0])
    >>> local_sensitivity(
    ...     ages, lower=0, upper=100, neighbors="add_remove", definition="lower"
    ... ).at_distance.tolist()
    [10.0, 30.0, 50.0, 100.0]
    """

    value: jax.Array
    at_distance: jax.Array
    lower: jax.Array
    upper: jax.Array
    neighbors: Relation = field(default="add_remove", metadata={"static": True})

    _event_axes = ("at_distance",)
    _next_step = (
        ": dpjax.from_local_sensitivity makes a profile of it, dpjax.smooth_cauchy and "
        "propose_test_release take it"
    )

    def smooth(self, beta: ArrayLike) -> SmoothSensitivity:
        """Return the smooth upper bound max_k A_k e^{-beta k}.

        Args:
            beta: positive, chosen without the data; broadcasts against ``batch_shape``, so
                ``beta[:, None]`` is a sweep.
        """
        rate = checks.positive("beta", beta, self.dtype)
        bound = smooth_bound(self.at_distance, rate)
        stored = rate if isinstance(beta, jax.Array) else np.asarray(beta, self.dtype)
        return SmoothSensitivity(
            self.value, bound, stored, self.lower, self.upper, neighbors=self.neighbors
        )


def local_sensitivity_bound(profile: SensitivityProfile) -> LocalSensitivity:
    """Return an upper bound of the local sensitivity at every distance, from a profile.

    The profile must have integer levels.

    A_k = max(U[k+1] - L[k], U[k] - L[k+1]) with U, L the largest and smallest values within k
    changes.

    Args:
        profile: a profile of batch shape ``(...)``, interpolable, with levels 0, 1, 2, ... and no
            steps beyond the last one.

    Returns:
        A :class:`LocalSensitivity`. A_0 is exact if one change reaches all values of the profile;
        A_k may be 2k + 1 times too large, since it is the length of 2k + 1 moves of one change. In
        the example the exact values are 2.25, 2.5, 2.5, 2.5. Prefer exact values where available
        (see :class:`LocalSensitivity`).

    Raises:
        ValueError: the profile is another one (the hull of a mean, which is not interpolable,
            leaves out values that neighbors have).

    Privacy:
        Within k changes the statistic is in [L[k], U[k]], that of neighbors in [L[k+1], U[k+1]], so
        A_k is an upper bound. By Corollary 3.1, U[k](x) <= U[k+1](x') and L[k](x) >= L[k+1](x'),
        hence A_k(x) <= A_{k+1}(x').

    References:
        Durfee (2025), Corollary 3.1, for the property above.

    >>> import jax.numpy as jnp
    >>> from dpjax import mean
    >>> profile = mean(jnp.array([1.0, 2.0, 3.0, 6.0]), lower=0, upper=10, neighbors="swap")
    >>> local_sensitivity_bound(profile).at_distance.tolist()[:4]
    [2.25, 5.75, 8.25, 9.75]
    """
    if not profile.integer_levels or profile.step is not None:
        raise ValueError(
            "profile must have integer levels that end at a bound: truncate it without a step."
        )
    if not profile.interpolable:
        raise ValueError(
            "profile must be interpolable, got one that is not interpolable: its values do not "
            "bound those of neighbors."
        )
    center, last = profile.center, profile.values.shape[-1] - 1
    level = np.arange(max(center, last - center) + 2)  # beyond a bound it is the bound
    up = profile.values[..., np.minimum(center + level, last)]
    down = profile.values[..., np.maximum(center - level, 0)]
    at_distance = jnp.maximum(up[..., 1:] - down[..., :-1], up[..., :-1] - down[..., 1:])
    low, high = profile.bounds or (profile.values[..., 0], profile.values[..., -1])
    return LocalSensitivity(profile.value, at_distance, low, high, neighbors=profile.neighbors)


def representable(smooth: SmoothSensitivity, rate: jax.Array) -> jax.Array:
    """Return ``rate``, or NaN where ``bound/rate`` could overflow.

    This is decided equally for every dataset, since it would otherwise distinguish datasets.
    """
    width = smooth.upper - smooth.lower
    return jnp.where(width < rate * (float(jnp.finfo(rate.dtype).max) * 2.0**-20), rate, jnp.nan)


@jax.jit
def smooth_bound(at_distance: jax.Array, beta: jax.Array) -> jax.Array:
    """Return max_k A_k e^{-beta k}, of the broadcast batch shape."""
    # As a product of two factors: e^(-beta k) itself can underflow where its product with a long
    # gap does not.
    distance = jnp.arange(at_distance.shape[-1], dtype=at_distance.dtype)
    half = jnp.exp(-beta[..., None] / 2 * distance)
    bound = jnp.max(at_distance * half * half, axis=-1)
    # It underflows for long ties. The maximum with a constant preserves smoothness and a positive
    # scale.
    return jnp.maximum(bound, float(jnp.finfo(bound.dtype).tiny) * 2.0**20)
