"""Privacy amplification by Poisson subsampling, under add/remove neighbors.

Each individual is taken with probability p, independently of all others, and nothing else may
depend on who was taken. Samples of a fixed size, and swap neighbors, need other theorems
(``fixed_size_subsampling``).

Renyi divergences. Let D(k) bound the divergence of order k of the mechanism on its sample, between
neighbors in both directions. On a Poisson subsample, for integers a >= 2 and K binomial (a, p), in
both directions,

    D'(a) <= log(E e^((K-1) D(K))) / (a - 1),  where K = 0 and 1 count 1.

Proof. The outputs are mixtures, over who else is taken, of (1-p) Q + p P and of Q, and the
exponential of (a-1) times a Renyi divergence is jointly convex; so it suffices to consider two
outputs P and Q, with and without the individual. (1) From the dataset with the individual to that
without it, E_Q (1-p+p P/Q)^a is a binomial sum of E_Q (P/Q)^k <= e^((k-1) D(k)): the bound. (2) In
the other direction, let x = P/Q, m = 1-p+p x and v = p+(1-p) x. The bound covers E_Q m^a, and with
P and Q exchanged E_Q x (v/x)^a. For w = 3 (1-p) / (3-4p+2ap), in [0, 1],

    F(x) = w m^a + (1-w) x (v/x)^a - m^(1-a) - c (x-1) >= 0,  where c makes F'(1) = 0,

because F(1) = 0 and F'' is a (a-1) p^2 times w m^(a-2) + (1-w) v^(a-2) x^(-a-1) - m^(-a-1), which
is not negative: the first two are at least their weighted geometric mean m^(w(a-2)) v^((1-w)(a-2))
x^(-(1-w)(a+1)), and in its ratio to the third, where m >= x^p and v >= x^(1-p), w makes the powers
of x cancel. As E_Q x = 1, E_Q m^(1-a) <= w E_Q m^a + (1-w) E_Q x (v/x)^a: the bound again.
"""

from __future__ import annotations

from math import exp, expm1, inf, log, log1p
from sys import float_info

import numpy as np

from dpjax import checks
from dpjax.accounting.amplification import ORDERS, binomial_curve, spent_on, zcdp_of_curve
from dpjax.accounting.composition import Composition
from dpjax.accounting.guarantee import Guarantee, Points

_ROUNDED_UP = 1 + 2.0**-49  # more than a few roundings to nearest


def poisson_subsample(spent: Guarantee | Composition, *, probability: float) -> Guarantee:
    """Return the guarantee of mechanisms that run on one Poisson subsample of the data.

    If q is the density of the output without an individual, averaged over who else is taken, it is
    (1 - p + p R) q with that individual, where R is in [e^-epsilon, e^epsilon]. The Renyi
    divergences are bounded as in the module docstring, at up to 128 integer orders from 2 to 10^4.
    This bound is exact for Gaussian noise, and within some percent for bounded range if p is small:
    k draws of range epsilon on independent subsamples cost about k p^2 epsilon^2/8 of zCDP, up to
    the orders that matter.

    Args:
        spent: the guarantee of the mechanism on the subsample, or the sum of those that see the
            same subsample.
        probability: p in (0, 1], public, with which each individual is taken.

    Returns:
        A :class:`Guarantee`: (log(1 + p (e^epsilon - 1)), p delta)-DP, of range log(1 + p
        (e^epsilon - 1)) - log(1 - p (1 - e^-epsilon)), with a Renyi curve and zCDP if they are
        known. A range of the mechanism below 2 epsilon does not carry over, since different
        subsamples have different losses, but its Renyi divergence does. For noise without an
        epsilon, zCDP is not amplified, since at large orders the divergence on a subsample grows
        like that on all data. If the mechanism has Gaussian DP, its mu and the probability are
        kept, so that :class:`Composition` can compose the privacy loss distributions.

    Raises:
        ValueError: a parameter is out of range, or neither an epsilon nor a Renyi divergence is
            known.

    Privacy:
        Under add/remove neighbors only. The subsample and its size must stay secret. Add the
        guarantees of mechanisms that see the same subsample before this call, and those of
        mechanisms on independent subsamples after it.

    References:
        Steinke (2022), Theorem 29. For the Renyi divergences: Mironov, Talwar and Zhang (2019),
        "Renyi Differential Privacy of the Sampled Gaussian Mechanism"; Zhu and Wang (2019),
        "Poisson Subsampled Renyi Differential Privacy".

    >>> noise = Guarantee(neighbors="add_remove", zcdp=0.5)  # a Gaussian of deviation 1
    >>> draw = Guarantee(0.1, 0.1, "add_remove")
    >>> step = poisson_subsample(noise + draw, probability=0.05)
    >>> round((200 * step).epsilon_at(1e-5), 3)
    5.384
    >>> print(poisson_subsample(Guarantee(1.0, inf, "add_remove", delta=1e-6), probability=0.1))
    (0.158566, 1e-07)-DP under add_remove neighbors
    """
    composition, guarantee = spent_on("Poisson subsamples", spent, "add_remove")
    p = checks.concrete_proportion("probability", probability)
    if p == 1:
        return guarantee
    curve = () if composition.slack else _subsampled_curve(composition, p)
    noise = None if guarantee.delta else _sampled_noise(guarantee, p)
    if guarantee.epsilon == inf:
        if not curve:
            raise ValueError(
                "spent must have a finite epsilon, or zCDP or Renyi divergences that hold without "
                f"a delta, to be amplified by subsampling; got {guarantee}."
            )
        return Guarantee(neighbors="add_remove", renyi=curve, noise=noise, unit=guarantee.unit)
    most = log1p(p * expm1(guarantee.epsilon)) if guarantee.epsilon < 700 else guarantee.epsilon
    # Near p = 1 the sum 1 - p (1 - e^-epsilon) would cancel
    least = (
        -log1p(p * expm1(-guarantee.epsilon))
        if p < 0.5
        else -log((1 - p) + p * exp(-guarantee.epsilon))
    )
    if guarantee.epsilon:
        # Rounding of a few units; a product may underflow
        most, least = (max(loss * _ROUNDED_UP, float_info.min) for loss in (most, least))
    zcdp = (
        inf
        if guarantee.delta
        else _zcdp(composition, p, curve, most, min(least, guarantee.epsilon))
    )
    spread = inf if guarantee.delta else (most + least) * _ROUNDED_UP
    # An underflow must not state pure DP
    delta = guarantee.delta and max(p * guarantee.delta * _ROUNDED_UP, float_info.min)
    return Guarantee(
        most, spread, "add_remove", delta, zcdp, curve, noise=noise, unit=guarantee.unit
    )


def _sampled_noise(given: Guarantee, p: float) -> tuple[str, float, float] | None:
    """Return the noise of a mechanism on a subsample, if its privacy losses are known."""
    if given.noise:
        name, size, probability = given.noise
        return name, size, probability * p  # a subsample of a subsample
    return ("gaussian", given.gdp, p) if 0 < given.gdp < inf else None


def _zcdp(whole: Composition, p: float, curve: Points, most: float, least: float) -> float:
    """Return a rho of zCDP: the supremum over all orders of the Renyi divergence over the order.

    From order 2 on, the curve gives it. Below, by Taylor's theorem, the quotient is at most
    p^2 (e^(D(2)) - 1) / 2 times e^(3 l), where no loss is below -l: for 1 < a <= 2 the second
    derivatives of m^a and m^(1-a) are at most a (a-1) e^(3 l).
    """
    near_one = (
        p * p * float(np.expm1(min(float(whole.rdp(2.0)), 700.0))) / 2 * exp(min(3 * least, 700.0))
    )
    return min(zcdp_of_curve(curve, near_one=near_one, limit=most), whole.rho)


def _subsampled_curve(whole: Composition, p: float) -> Points:
    """Return pairs of an order and the bound in the module docstring, where it is finite.

    As K = 0 and 1 count 1, it is log(1 + sum over k >= 2 of P(K = k) (e^((k-1) D(k)) - 1)) / (a -
    1), without cancellation.
    """
    k = np.arange(2, ORDERS[-1] + 1)
    with np.errstate(divide="ignore", over="ignore"):
        nats = (k - 1) * whole.rdp(k)
        excess = nats + np.log(-np.expm1(-nats))
    return binomial_curve(excess, p, log1p(-p), float_info.min if whole.rho else 0.0, inf)
