"""Privacy amplification by samples: Poisson samples under add/remove, fixed sizes under swap.

Nothing else may depend on who was taken. The privacy losses on samples are in ``losses``. Here are
the closed forms: epsilon and delta, and for Poisson samples a Renyi curve.

**Poisson samples.** Each individual is taken with probability p, independently of all others. If
D(k) bounds the Renyi divergence of order k on the sample in both directions, that of an integer
order a >= 2 is at most

    log(1 + sum over k = 2..a of C(a, k) p^k (1-p)^(a-k) (e^((k-1) D(k)) - 1)) / (a - 1).

Proof. The outputs are mixtures, over who else is taken, of (1-p) Q + p P and
of Q, and the exponential of (a-1) times a Renyi divergence is jointly convex; so it suffices to
consider two outputs P and Q, with and without the individual. (1) From the dataset with the
individual to that without it, E_Q (1-p+p P/Q)^a is a binomial sum of E_Q (P/Q)^k <= e^((k-1) D(k)).
(2) In the other direction, let x = P/Q, m = 1-p+p x and v = p+(1-p) x. The bound covers E_Q m^a,
and with P and Q exchanged E_Q x (v/x)^a. For w = 3 (1-p) / (3-4p+2ap), in [0, 1],

    F(x) = w m^a + (1-w) x (v/x)^a - m^(1-a) - c (x-1) >= 0,  where c makes F'(1) = 0,

because F(1) = 0 and F'' is a (a-1) p^2 times w m^(a-2) + (1-w) v^(a-2) x^(-a-1) - m^(-a-1), which
is not negative: the first two are at least their weighted geometric mean m^(w(a-2)) v^((1-w)(a-2))
x^(-(1-w)(a+1)), and in its ratio to the third, where m >= x^p and v >= x^(1-p), w makes the powers
of x cancel. As E_Q x = 1, E_Q m^(1-a) <= w E_Q m^a + (1-w) E_Q x (v/x)^a: the bound again.

**Samples of a fixed size** m of n records, n public, have no Renyi curve here: the composition of
their privacy losses gives about half of its epsilon.

On all samples but those with replacement, the output is a mixture of outputs of the mechanism on
neighbors with the same weights, so that its zCDP, Gaussian DP and Renyi divergences still hold.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, expm1, inf, log, log1p
from sys import float_info
from typing import Literal

import numpy as np

from dpjax import checks
from dpjax.accounting.conversions import mixed
from dpjax.accounting.groups import for_groups
from dpjax.accounting.guarantee import Composition, Cost, Guarantee, Points, points_of

_ROUNDED_UP = 1 + 2.0**-48  # more than a few roundings to nearest
# sorted(set()), as np.unique imports numpy.ma
_ORDERS = np.array(sorted(set(np.rint(np.geomspace(2, 1e4, 128)).tolist())))


def poisson_subsample(spent: Cost, *, probability: float) -> Guarantee:
    """Return the guarantee of mechanisms that run on one Poisson subsample of the data.

    If q is the density of the output without an individual, averaged over who else is taken, it is
    (1 - p + p R) q with that individual, where R is in [e^-epsilon, e^epsilon].

    Args:
        spent: the guarantee of the mechanism on the subsample, or the sum of those that see the
            same subsample.
        probability: p in (0, 1], public, with which each individual is taken.

    Returns:
        A :class:`Guarantee`: (log(1 + p (e^epsilon - 1)), p delta)-DP, of range log(1 + p
        (e^epsilon - 1)) - log(1 - p (1 - e^-epsilon)), and where they are known, with a Renyi
        curve, which is exact for Gaussian noise, and with the privacy losses on the subsample,
        which :class:`Composition` composes. zCDP and Gaussian DP are kept, but not amplified, since
        at large orders the divergence on a subsample grows like that on all data. A range of the
        mechanism below 2 epsilon does not carry over, since different subsamples have different
        losses, but its privacy losses do.

    Raises:
        ValueError: a parameter is out of range, or neither an epsilon nor privacy losses nor a
            Renyi divergence is known.

    Privacy:
        Under add/remove neighbors only. The subsample and its size must stay secret. Add the
        guarantees of mechanisms that see the same subsample before this call, and those of
        mechanisms on independent subsamples after it.

    References:
        Steinke (2022), Theorem 29; Zhu, Dong and Wang (2022), Theorem 11, for the privacy losses.
        For the Renyi divergences: Mironov, Talwar and Zhang (2019), "Renyi Differential Privacy of
        the Sampled Gaussian Mechanism"; Zhu and Wang (2019), "Poisson Subsampled Renyi Differential
        Privacy".

    >>> noise = Guarantee(neighbors="add_remove", gdp=1.0)  # a Gaussian of deviation 1
    >>> step = poisson_subsample(noise, probability=0.05)
    >>> round((200 * step).rules_at(1e-5)["rdp"], 3)
    5.371
    >>> print(poisson_subsample(Guarantee(1.0, inf, "add_remove", delta=1e-6), probability=0.1))
    0.158566-DP except with probability 1e-07 under add_remove neighbors
    """
    _amplified("Poisson subsamples", spent, "add_remove")
    p = checks.concrete_proportion("probability", probability)
    if p == 1:
        return (1 * spent).guarantee()
    pure = spent.epsilon
    epsilon, lost = _mixed(pure, p), p * expm1(-pure)
    # Close to -1, one more than it would cancel
    least = -log1p(lost) if lost > -0.5 else -log(1 - p + p * exp(-pure))
    spread = (epsilon + max(least * _ROUNDED_UP, float_info.min)) * _ROUNDED_UP if pure else 0.0
    return _sampled(
        spent,
        [(p, 1)],
        epsilon,
        spread,
        p * spent.delta,
        () if spent.delta else _poisson_curve(spent, p),
    )


def fixed_size_subsample(
    spent: Cost, *, taken: int, public_n: int, replacement: Literal["with", "without"]
) -> Guarantee:
    """Return the guarantee of mechanisms that run on one random sample of fixed size.

    Args:
        spent: the guarantee of the mechanism on the sample, or the sum of those that see the same
            sample; under swap neighbors.
        taken: m, the size of the sample; with replacement at most 100,000.
        public_n: n, the number of records.
        replacement: ``"without"``, every subset of that size equally likely (m at most n), or
            ``"with"``, m independent draws.

    Returns:
        A :class:`Guarantee`: without replacement (log(1 + m/n (e^epsilon - 1)), m/n delta)-DP, and
        with it (m log(1 + (e^epsilon - 1)/n), delta (e^epsilon' - 1) / (e^epsilon - 1))-DP; where
        they are known, with the privacy losses on the sample, and without replacement with the zCDP
        and Gaussian DP of the mechanism, which are not amplified.

    Raises:
        ValueError: a parameter is out of range, or neither an epsilon nor privacy losses are known.

    Privacy:
        Under swap neighbors only: the number of records is public. The sample must stay secret. Add
        the guarantees of mechanisms that see the same sample before this call, and those of
        mechanisms on independent samples after it.

    References:
        Balle, Barthe and Gaboardi (2018), "Privacy Amplification by Subsampling", Theorems 9 and
        10.

    >>> spent = Guarantee(1.0, inf, "swap", delta=1e-6)
    >>> print(fixed_size_subsample(spent, taken=10, public_n=100, replacement="without"))
    0.158566-DP except with probability 1e-07 under swap neighbors
    """
    _amplified("samples of a fixed size", spent, "swap")
    checks.one_of("replacement", replacement, ("with", "without"))
    n, without = checks.static_integer("public_n", public_n, 1), replacement == "without"
    m = checks.static_integer("taken", taken, 1, n if without else 100_000)
    if without and m == n:
        return (1 * spent).guarantee()
    pure, growth, copies = spent.epsilon, m / n, [(m / n, 1)]
    epsilon = _mixed(pure, m / n)
    if not without:
        epsilon, copies = m * _mixed(pure, 1 / n), _copies(m, n)
        if pure:
            growth = expm1(epsilon) / expm1(pure) if epsilon < 700 else inf
    return _sampled(spent, copies, epsilon, 2 * epsilon, spent.delta * growth, kept=without)


def _copies(m: int, n: int) -> list[tuple[float, int]]:
    """Return the probabilities that m draws take one of n records 1, 2, ... times, and the numbers.

    That of all unlikely numbers is last, with the number 0.
    """
    from scipy.stats import binom

    numbers = np.arange(1, m + 1)
    weights = binom.pmf(numbers, m, 1 / n)
    likely = weights > 1e-18
    rest = max(float(weights[~likely].sum()), float_info.min)
    return [*zip(weights[likely].tolist(), numbers[likely].tolist(), strict=True), (rest, 0)]


def _amplified(sample: str, spent: Cost, neighbors: str) -> None:
    """Validate the cost of mechanisms that see one sample."""
    checks.instance(f"subsampling by {sample}", 1 * spent, Composition, "a guarantee, or a sum")
    if spent.neighbors != neighbors:
        raise ValueError(
            f"{sample} amplify under {neighbors} neighbors, this guarantee is under "
            f"{spent.neighbors}."
        )


def _sampled(
    spent: Cost,
    copies: list[tuple[float, int]],
    epsilon: float,
    spread: float,
    delta: float,
    curve: Points = (),
    kept: bool = True,
) -> Guarantee:
    """Return the guarantee on a sample, with what is known.

    ``copies`` are the probabilities that the differing record is in it so many times.
    """
    exact = not spent.delta
    # An underflow must not state pure DP
    delta = 0.0 if exact else max(delta * _ROUNDED_UP, float_info.min)
    noise = Guarantee(neighbors=spent.neighbors, gdp=spent.gdp)
    whole = 1 * (noise if exact and spent.gdp < inf else spent)
    known = whole.losses_known()
    if epsilon == inf or delta >= 1:
        if not (exact and (curve or known)):
            raise ValueError(
                "neither an epsilon nor a privacy loss or Renyi divergence that holds without a "
                f"delta is known on the sample, for {spent}."
            )
        epsilon, spread, delta = inf, inf, 0.0
    return Guarantee(
        epsilon,
        spread if exact else inf,
        spent.neighbors,
        delta,
        float(spent.zcdp) if exact and kept else inf,
        curve,
        spent.gdp if exact and kept else inf,
        sampled=tuple((share, _group(whole, size)) for share, size in copies if known),
        unit=spent.unit,
    )


def _group(whole: Composition, size: int) -> Composition:
    """Return what mechanisms cost groups of a size, except with the deltas of the groups."""
    try:
        group = ((for_groups(part, size=size), count) for part, count in whole.parts)
        return Composition(tuple((replace(part, delta=0.0), count) for part, count in group))
    except ValueError:  # nothing is promised
        return 1 * Guarantee(neighbors=whole.neighbors)


def _mixed(epsilon: float, share: float) -> float:
    """Return the epsilon on a sample, rounded up."""
    if not 0 < epsilon < inf:
        return epsilon
    return max(min(float(mixed(epsilon, share)) * _ROUNDED_UP, epsilon), float_info.min)


def _poisson_curve(whole: Cost, p: float) -> Points:
    """Return the Renyi curve of the module docstring, where it is finite."""
    from scipy.special import gammaln, logsumexp

    all_k = np.arange(2, _ORDERS[-1] + 1)
    with np.errstate(divide="ignore", over="ignore"):
        nats = (all_k - 1) * whole.rdp(all_k)
        log_terms = nats + np.log(-np.expm1(-nats))
    found = []
    for order in _ORDERS:
        k = all_k[: int(order) - 1]
        ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        parts = ways, k * log(p), (order - k) * log1p(-p), log_terms[: k.size]
        with np.errstate(invalid="ignore"):
            # The addend is above the rounding error.
            logs = sum(parts) + 2.0**-50 * np.nan_to_num(sum(map(np.abs, parts)), posinf=0.0)
        # 1e-10 covers the error of gammaln
        found.append(np.logaddexp(0.0, logsumexp(logs) + 1e-10) / (order - 1))
    least = float_info.min if whole.zcdp else 0.0  # a sum may underflow
    return points_of(_ORDERS, np.maximum(np.fmin(found, whole.rdp(_ORDERS)), least))
