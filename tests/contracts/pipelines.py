"""Everything public that draws, through one signature: from padded data and public parameters."""

from functools import partial

import jax.numpy as jnp
import numpy as np

import dpjax
from dpjax import (
    Asinh,
    Clamped,
    Transformed,
    above_threshold,
    bounded_noise_laplace,
    duff,
    exponential,
    from_radii,
    gaussian,
    inverse_sensitivity,
    laplace,
    maximum,
    median,
    metric_privacy,
    mode,
    noisy_tree,
    nonnegative_sum,
    on_scale,
    order_statistic,
    permute_and_flip,
    piecewise_laplace,
    quantile,
    shifted_inverse,
    smooth_cauchy,
    smooth_laplace,
    smooth_laplace_log_normal,
    smooth_sensitivity,
    stand_out,
    triangle_count,
    variance,
)
from dpjax.mechanisms import (
    best_of_distribution,
    bounded_loss_distribution,
    never_fail_distribution,
)


def between(x, a, b):
    """As many candidates as records."""
    return (a + (b - a) * jnp.linspace(0, 1, x.shape[-1] + 2, dtype=jnp.result_type(a, b)))[1:-1]


def ladder(x):
    """Two queries."""
    n = x.shape[-1]
    return np.stack([np.linspace(0, 1, n), np.arange(n) % 4 < 2]).astype(np.float32)


def of(mechanism, statistic, neighbors, **options):
    """A mechanism of the profile of a statistic between the bounds."""

    def pipeline(x, eps, a, b):
        return mechanism(statistic(x, lower=a, upper=b, neighbors=neighbors), eps, **options)

    return pipeline


def choice(x, eps, a, b, mechanism=exponential):
    return mechanism(x, eps, candidates=between(x, a, b), sensitivity=0.5)


SCALE = Asinh(lower=-3, upper=3)
WEIGHTS = np.random.default_rng(0).uniform(size=(5, 21)).astype(np.float32)


def line(x):
    """The metric of as many points in a row as records."""
    return metric_privacy.from_points(np.arange(float(x.shape[-1]))[:, None], epsilon=1.0)


# From padded data and public parameters to a distribution: every statistic and every mechanism,
# through one signature.
PIPELINES = {
    "noisy tree": lambda x, eps, a, b: noisy_tree(
        x, epsilon=eps, candidates=between(x, a, b), sensitivity=0.5
    ),
    "gaussian noisy tree": lambda x, eps, a, b: noisy_tree(
        x, zcdp=eps, candidates=between(x, a, b), sensitivity=0.5
    ),
    "stand out": lambda x, eps, a, b: stand_out(
        x, eps, candidates=between(x, a, b), delta=0.1, fallback=a, sensitivity=0.05
    ),
    "best of": lambda x, eps, a, b: best_of_distribution(
        choice(x, eps, a, b),
        between(x, a, b),
        attempts=(0.5, 0.3, 0.2),
    ),
    "above threshold": lambda x, eps, a, b: above_threshold(
        jnp.nan_to_num(x), eps, threshold=b / 3, sensitivity=0.5
    ).index(),
    "never fail": lambda x, eps, a, b: never_fail_distribution(
        choice(x, eps, a, b),
        np.arange(x.shape[-1]) % 3 < 2,
        fallback=a,
        attempts=4,
    ),
    "bounded loss": lambda x, eps, a, b: bounded_loss_distribution(
        choice(x, eps, a, b),
        -x,
        target=0.5,
        epsilon=eps,
        delta=0.1,
        sensitivity=0.5,
        fallback=a,
        attempts=4,
    ),
    "plm of the median": of(piecewise_laplace, median, "add_remove"),
    "smooth plm": of(piecewise_laplace, median, "swap", rho=0.01),
    "truncated plm": lambda x, eps, a, b: piecewise_laplace(
        median(x, lower=a, upper=b, neighbors="swap").truncate(5), eps
    ),
    "plm with steps": lambda x, eps, a, b: piecewise_laplace(
        median(x, lower=a, upper=b, neighbors="swap").truncate(2, step=b - a), eps
    ),
    "plm of radii": lambda x, eps, a, b: piecewise_laplace(
        from_radii(
            jnp.mean(x, -1),
            jnp.linspace(0.1, 0.4, 4)[(None,) * (x.ndim - 1)],
            neighbors="swap",
            step=b - a,
        ),
        eps,
    ),
    "inv of a quantile": of(inverse_sensitivity, partial(quantile, q=0.9), "add_remove"),
    "inv of an order statistic": of(inverse_sensitivity, partial(order_statistic, rank=3), "swap"),
    "plm of a continuous quantile": of(
        piecewise_laplace, partial(quantile, q=0.3, definition="continuous"), "add_remove"
    ),
    "shifted inverse of a maximum": lambda x, eps, a, b: shifted_inverse(
        maximum(x, lower=a, upper=b), eps, tau=3
    ),
    "shifted inverse of a sum": lambda x, eps, a, b: shifted_inverse(
        nonnegative_sum(x + 3, upper=20 * b), eps, tau=3
    ),
    "plm of triangles": lambda x, eps, a, b: piecewise_laplace(
        triangle_count(
            jnp.maximum(x[..., :, None] * x[..., None, :] - 0.3, 0.0),
            num_levels=8,
            neighbors="edge",
        ),
        eps,
    ),
    "plm of a mean": of(piecewise_laplace, dpjax.mean, "add_remove"),
    "plm of a sum": of(piecewise_laplace, dpjax.sum, "swap"),
    "plm on a resolution": of(piecewise_laplace, partial(median, resolution=0.25), "add_remove"),
    "duff of a mean": of(duff, partial(dpjax.mean, values="hull"), "add_remove"),
    "inv of a variance": of(inverse_sensitivity, variance, "swap"),
    "plm on another scale": lambda x, eps, a, b: Transformed(
        piecewise_laplace(on_scale(median, x, transform=SCALE, neighbors="add_remove"), eps), SCALE
    ),
    "clamped smooth cauchy": lambda x, eps, a, b: Clamped.of(
        smooth_cauchy(smooth_sensitivity(x, 0.02, lower=a, upper=b, neighbors="add_remove"), eps),
        lower=a,
        upper=b,
    ),
    "smooth laplace": of(
        smooth_laplace, partial(smooth_sensitivity, beta=0.005), "swap", delta=1e-3
    ),
    "smooth laplace of a quantile": of(
        smooth_laplace, partial(smooth_sensitivity, beta=0.005, q=0.9), "add_remove", delta=1e-3
    ),
    "plm of a mean's local sensitivities": lambda x, eps, a, b: piecewise_laplace(
        dpjax.from_local_sensitivity(
            dpjax.mean_local_sensitivity(x, lower=a, upper=b, neighbors="add_remove")
        ),
        eps,
    ),
    "clamped smooth laplace-log-normal": lambda x, eps, a, b: Clamped.of(
        smooth_laplace_log_normal(
            smooth_sensitivity(x, 0.01, lower=a, upper=b, neighbors="swap"), eps, sigma=0.3
        ),
        lower=a,
        upper=b,
    ),
    "exponential": choice,
    "permute and flip": partial(choice, mechanism=permute_and_flip),
    "permute and flip on a resolution": of(
        permute_and_flip, partial(median, resolution=0.25), "add_remove"
    ),
    "duff of a mode": lambda x, eps, a, b: duff(
        mode(x, candidates=np.linspace(-2.7, 2.7, 5), neighbors="add_remove"), eps
    ),
    "bounded noise laplace": lambda x, eps, a, b: bounded_noise_laplace(
        jnp.mean(x, -1), eps, sensitivity=b - a, delta=1e-3
    ),
    "laplace": lambda x, eps, a, b: laplace(jnp.mean(x, -1), eps, sensitivity=b - a),
    "gaussian": lambda x, eps, a, b: gaussian(jnp.mean(x, -1), (b - a) / eps),
    "bounded laplace": lambda x, eps, a, b: laplace(
        jnp.mean(x, -1), eps, sensitivity=b - a, lower=a, upper=b
    ),
}


levels = partial(dpjax.quantiles, qs=[0.25, 0.5, 0.75])


def pairs(x):
    """Two-dimensional statistics."""
    return jnp.stack([jnp.mean(x, -1), jnp.mean(jnp.abs(x), -1)], axis=-1)


def halves(x):
    """Scores of two questions with as many answers."""
    return jnp.stack([x, -x], axis=-2)


def chains(x):
    """Three queries, and the scale at which a metric allows them."""
    return metric_privacy.lipschitz_queries(WEIGHTS[:3, : x.shape[-1]], line(x))


# Distributions that have other methods than those of the table above, and those that the table
# leaves out for its size.
FURTHER = {
    "joint quantiles": of(dpjax.joint_quantiles, levels, "add_remove"),
    "joint quantiles on a grid": of(
        dpjax.joint_quantiles, partial(levels, resolution="0.25"), "swap"
    ),
    "propose-test-release": lambda x, eps, a, b: dpjax.propose_test_release(
        dpjax.local_sensitivity(x, lower=a, upper=b, neighbors="add_remove", definition="lower"),
        eps,
        delta=0.01,
        proposal=0.5 * b,
    ),
    "noisy binary search": lambda x, eps, a, b: dpjax.noisy_binary_search(
        maximum(x, lower=a, upper=b),
        tau=3,
        candidates=np.linspace(-4, 3, 9).astype(x.dtype),
        epsilon=eps,
    ),
    "shifted inverse of users' sums": lambda x, eps, a, b: shifted_inverse(
        dpjax.user_sum(x + 3, jnp.arange(x.shape[-1]) % 7, upper=20 * b), eps, tau=3
    ),
    "shifted inverse of a distinct count": lambda x, eps, a, b: shifted_inverse(
        dpjax.distinct_count(jnp.round(2 * jnp.nan_to_num(x)).astype(jnp.int32), upper=12),
        eps,
        tau=2,
    ),
    "decomposable exponential": lambda x, eps, a, b: dpjax.decomposable_exponential(
        halves(x), epsilon=eps, sensitivity=0.5
    ),
    "laplace under a metric": lambda x, eps, a, b: metric_privacy.metric_laplace(
        x, ladder(x), line(x)
    )[..., 0],
    "selection under a metric": lambda x, eps, a, b: metric_privacy.linear_selection(
        x, line(x), weights=WEIGHTS[:, : x.shape[-1]]
    ),
    "exponential under a metric": lambda x, eps, a, b: metric_privacy.metric_exponential(
        x,
        line(x),
        sensitivity=line(x).budgets,
    ),
    "small database": lambda x, eps, a, b: metric_privacy.small_db(
        jnp.abs(x[..., :4]), chains(x[..., :4]), size=3
    ),
    "laplace of a count": lambda x, eps, a, b: laplace(dpjax.count(x, mask=x > 0), eps),
    "laplace of a histogram": lambda x, eps, a, b: laplace(
        dpjax.histogram(x, edges=(-3, -1, 1, 3)), eps
    ),
    "subsampled laplace": lambda x, eps, a, b: dpjax.subsampled_laplace(
        jnp.sum(x > 0, axis=-1), jnp.asarray(eps, x.dtype), probability=0.5, most=x.shape[-1]
    ),
    "k-norm": lambda x, eps, a, b: dpjax.k_norm(pairs(x), eps, sensitivity=b - a, p=1),
    "plm of vectors": lambda x, eps, a, b: piecewise_laplace(
        dpjax.from_vector_radii(pairs(x), [0.1, 0.3, 0.9], p=2, step=b - a, neighbors="swap"), eps
    ),
    "planar laplace": lambda x, eps, a, b: metric_privacy.planar_laplace(pairs(x), eps),
    "spherical gaussian": lambda x, eps, a, b: dpjax.spherical_gaussian(pairs(x), (b - a) / eps),
}

# What takes a key and returns draws.
DRAWN = {
    "best of, drawn": lambda key, x, eps, a, b: dpjax.best_of(
        key,
        laplace(jnp.mean(x, -1), eps, sensitivity=b - a).sample,
        score=lambda y: -jnp.abs(y - 1),
        attempts=(0.5, 0.3, 0.2),
    ),
    "never fail, drawn": lambda key, x, eps, a, b: dpjax.never_fail(
        key,
        laplace(jnp.mean(x, -1), eps, sensitivity=b - a).sample,
        succeeded=lambda y: y < 1,
        fallback=b,
        attempts=4,
    ),
    "bounded loss, drawn": lambda key, x, eps, a, b: dpjax.mechanisms.bounded_loss(
        key,
        laplace(jnp.mean(x, -1), eps, sensitivity=b - a).sample,
        loss=jnp.abs,
        target=0.5,
        epsilon=eps,
        delta=0.1,
        fallback=b,
        attempts=4,
    ),
    "intervals": lambda key, x, eps, a, b: dpjax.sample_intervals(
        key, jnp.abs(x), jnp.arange(x.shape[-1]).astype(x.dtype), epsilon=eps
    ),
    "multiplicative weights": lambda key, x, eps, a, b: metric_privacy.mwem(
        key, jnp.abs(x[..., :4]), chains(x[..., :4]), rounds=3
    ),
}
