"""A mechanism is made never to fail, at a cost: absorb the failures, condition on success, try a fixed number of times.

A mechanism M succeeds when its output falls into a fixed, public set S: a test that does not read the data again. With p its
probability of success on x, q = 1 - p, and p', q' those on a neighbour, the guarantees below rest on q <= failure for EVERY
dataset. A bound that holds for typical data only is no bound: the loss is then unbounded (footnote 2 of Steinke, "Differentially
private algorithms that never fail", differentialprivacy.org, 2025: the post of all references in this file).

Conditioning (Theorem 1). From P[M in T and S] <= e^eps P'[M in T and S] + delta follows, divided by p,

    P[M in T | S] <= e^eps (p'/p) P'[M in T | S] + delta/p.

The theorem bounds p'/p by e^eps / (1 - delta/(1-failure)), twice epsilon in all. But p' <= 1, p' <= e^eps p + delta and
1 - p <= e^eps (1 - p') + delta say more, and all three bounds on p'/p are the larger the smaller p is. With s = 1 - failure,

    p'/p <= r = min(1, e^eps s + delta, 1 - e^-eps (1 - s - delta)) / s,    epsilon' = epsilon + log r,   delta' = delta/s,

never above the theorem: at failure 0.1 and epsilon 1 it is 1.07 and not 2. If delta = 0 and M has bounded range b (2 epsilon always
is one), a ratio of conditional probabilities is the ratio of the plain ones times a constant: the range stays b, and since it holds
0 the loss is at most b. So an epsilon-bounded-range mechanism conditioned on a fixed set of outputs stays epsilon-DP.

Renyi divergences. Of densities f and f', those given S are f/p and f'/p', so

    D_a(f/p || f'/p') = log(p^-a p'^(a-1) integral over S of f^a f'^(1-a)) / (a-1) <= D_a(f || f') + a/(a-1) log(1/s),

since p' is at most 1. A divergence is at most that of any larger order.

A fixed number m of attempts, then a fallback F. The output distribution is A + q^m F with A(T) = P[M in T and S] g(q),
g(q) = 1 + q + ... + q^(m-1) = (1 - q^m) / (1 - q). Where q > q', g(q)/g(q') = (p'/p) (1 - q^m)/(1 - q'^m) <= p'/p <= r; elsewhere
it is at most 1. So A(T) <= e^eps' A'(T) + delta g(q): the epsilon is that of the unbounded loop, and the leftover, which is
charged to delta in full, makes delta' = delta g(failure) + failure^m. Nothing was asked of F, which may read the data, as in the
warm-up of the post: then there is no failure at all. If F is public, m attempts are also the composition of m draws.

The warm-up itself (Equation 2) is wrong where the test reads the data. It promises (epsilon, delta + failure) when an output y
with loss(y, x) > alpha is replaced, but its last step takes for granted that x' keeps what x keeps. Let M be epsilon-DP and y
have probability failure on x', where it is replaced, and e^epsilon failure on x, where it is kept: one output says it was x, with a
probability above delta + failure. What holds is P[M(x') in S*] <= P[M~(x') in S] + failure, so delta + (1 + e^epsilon) failure.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, expm1, inf, log, log1p
from sys import float_info
from typing import Literal

import numpy as np

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee

Bound = Literal["sharp", "published"]
Fallback = Literal["public", "private"]
Test = Literal["public", "private"]


def absorb_failure(guarantee: Guarantee, failure: float, *, test: Test = "private") -> Guarantee:
    """Return the guarantee of a mechanism whose failures are replaced by an answer that reads the data.

        test "private": (epsilon, delta + (1 + e^epsilon) failure),   test "public": (epsilon, delta + failure)

    Args:
        guarantee: that of the mechanism, with a finite epsilon here and in the other functions.
        failure: in [0, 1), a bound on the probability of a failure on every dataset.
        test: ``"private"`` where the data say which outputs are failures, such as those of a high loss; ``"public"`` for a fixed
            set of outputs.

    Returns:
        A :class:`Guarantee`, with neither bounded range nor zCDP.

    Raises:
        ValueError: also where delta would be 1 or more.

    Privacy:
        None is spent. The post claims the second guarantee for both tests; the counterexample is at the top of this file.

    References:
        Steinke (2025), Equation 2, corrected.

    >>> print(absorb_failure(Guarantee(1.0, 1.0, "swap"), 1e-6, test="public"))
    (1, 1e-06)-DP under swap neighbors
    >>> print(absorb_failure(Guarantee(1.0, 1.0, "swap"), 1e-6))
    (1, 3.71829e-06)-DP under swap neighbors
    """
    beta = _checked(guarantee, failure)
    checks.one_of("test", test, ("private", "public"))
    other = exp(min(guarantee.epsilon + log(beta), 1.0)) if beta and test == "private" else 0.0  # e^epsilon failure, at most e
    return replace(_promised(guarantee, guarantee.epsilon, guarantee.delta + beta + other), bounded_range=inf)


def condition_on_success(guarantee: Guarantee, failure: float, *, bound: Bound = "sharp") -> Guarantee:
    """Return the guarantee of a mechanism that is repeated until it succeeds.

        published: epsilon' = 2 epsilon - log(1 - delta/(1 - failure)),   delta' = delta/(1 - failure)
        sharp:     epsilon' = epsilon + log r, r the largest ratio of two success probabilities; the same delta'

    Args:
        guarantee: that of one attempt together with the outcome of its test.
        failure: as for :func:`absorb_failure`.
        bound: ``"sharp"``, derived at the top of this file, or ``"published"``, Theorem 1.

    Returns:
        A :class:`Guarantee`. If delta is 0 its bounded range is that of one attempt, or twice its epsilon, and ``"sharp"`` is never
        above it: conditioning leaves an epsilon-bounded-range mechanism epsilon-DP. Of noise that is zCDP and has no epsilon, a
        curve of Renyi divergences.

    Raises:
        ValueError: also for ``delta >= 1 - failure``.

    Privacy:
        None is spent. The success must be read from the output alone (a noisy estimate of the loss that is part of it, against a
        threshold that does not depend on the data). The number of repetitions must stay secret: a loop that runs until success
        tells it by the time it takes; :func:`retry_until_success` does not.

    References:
        Steinke (2025), Theorem 1 and footnote 2.

    >>> one = Guarantee(0.5, float("inf"), "swap", delta=1e-6)
    >>> print(condition_on_success(one, 0.5, bound="published"))
    (1.00001, 2e-06)-DP under swap neighbors
    >>> round(condition_on_success(Guarantee(1.0, 2.0, "swap"), 0.1).epsilon, 3)
    1.068
    """
    if isinstance(guarantee, Guarantee) and guarantee.epsilon == inf and not guarantee.delta and guarantee.rho < inf:
        success = 1 - checks.concrete_fraction("failure", failure)

        def curve(order: np.ndarray) -> np.ndarray:
            of_order = guarantee.rdp(order) - order / (order - 1) * log(success) * (1 + 1e-15)
            return np.minimum.accumulate(of_order[::-1])[::-1]

        return Guarantee(inf, inf, guarantee.neighbors, unit=guarantee.unit).with_curve(curve)
    beta = _checked(guarantee, failure)
    return _promised(guarantee, _conditioned(guarantee, beta, bound), guarantee.delta / (1 - beta))


def retry_until_success(
    guarantee: Guarantee, failure: float, *, attempts: int, fallback: Fallback, bound: Bound = "sharp"
) -> Guarantee:
    """Return the guarantee of the first success of a fixed number of attempts, with a fallback if there is none.

        epsilon' as in :func:`condition_on_success`,   delta' = delta (1 - failure^m) / (1 - failure) + failure^m

    Args:
        guarantee: as for :func:`condition_on_success`.
        failure: as for :func:`absorb_failure`.
        attempts: m, at least 1, chosen without the data; see :func:`attempts_for`.
        fallback: ``"public"``, a value that does not depend on the data, or ``"private"``: then also the fallback's reading of the
            data is paid for, by the same delta. Only for a single attempt does it make a difference here.
        bound: as for :func:`condition_on_success`.

    Returns:
        A :class:`Guarantee`. One attempt with a public fallback is post-processing and keeps that of the attempt. More of them are
        also a post-processed composition of m attempts, which can be the better guarantee (m epsilon, and no leftover).

    Raises:
        ValueError: as :func:`condition_on_success`, and where delta' would be 1 or more.

    Privacy:
        None is spent. All attempts must be made, whatever came of the first ones.

    References:
        Steinke (2025), Equation 2 and Theorem 1, for an unbounded loop; the top of this file for a fixed number of attempts.

    >>> print(retry_until_success(Guarantee(1.0, 1.0, "swap"), 0.1, attempts=9, fallback="public"))
    (1, 1e-09)-DP under swap neighbors
    """
    beta, count = _checked(guarantee, failure), number_of_attempts(attempts)
    checks.one_of("fallback", fallback, ("public", "private"))
    epsilon = _conditioned(guarantee, beta, bound)
    if count == 1:
        return guarantee if fallback == "public" else absorb_failure(guarantee, beta, test="public")
    leftover = max(beta**count, float_info.min) if beta else 0.0  # a power that underflows is still no pure promise
    return _promised(guarantee, epsilon, guarantee.delta * (1 - leftover) / (1 - beta) + leftover)


def attempts_for(failure: float, *, leftover: float) -> int:
    """Return the smallest number of attempts that all fail with probability at most ``leftover``, in (0, 1): failure^m <= leftover.

    It reads public numbers only.

    >>> attempts_for(0.5, leftover=1e-6), attempts_for(0.9, leftover=1e-6), attempts_for(0.0, leftover=0.5)
    (20, 132, 1)
    """
    beta, leftover = checks.concrete_fraction("failure", failure), checks.concrete_probability("leftover", leftover)
    count = max(1, ceil(log(leftover) / log(beta)) - 1) if beta else 1  # from one below: the quotient of the logarithms rounds
    while beta**count > leftover:
        count += 1
    return count


def number_of_attempts(attempts: int) -> int:
    """Return a static number of attempts, at least 1; raise where it is none."""
    return checks.static_integer("attempts", attempts, 1, 2**53)


def _conditioned(guarantee: Guarantee, beta: float, bound: Bound) -> float:
    """The epsilon of the distribution given success."""
    checks.one_of("bound", bound, ("sharp", "published"))
    epsilon, delta, success = guarantee.epsilon, guarantee.delta, 1 - beta
    if bound == "published":
        return 2 * epsilon - log(1 - delta / success)
    if not beta:
        return epsilon
    # Each of the three bounds as log r, without the difference of two numbers near 1; e^epsilon only where it decides.
    grown = log1p(expm1(epsilon) + delta / success) if epsilon < -log(success) else inf
    fewer = log1p((-beta * expm1(-epsilon) + delta * exp(-epsilon)) / success)
    sharp = epsilon + min(-log(success), grown, fewer)
    return sharp if delta else min(sharp, guarantee.bounded_range, 2 * epsilon)


def _promised(guarantee: Guarantee, epsilon: float, delta: float) -> Guarantee:
    """(epsilon, delta)-DP; without a delta, the range is that of the attempt, or twice its epsilon."""
    if not delta < 1:
        raise ValueError(f"nothing is promised: delta would be {delta:g}.")
    kept = inf if delta else min(guarantee.bounded_range, 2 * guarantee.epsilon)
    return Guarantee(epsilon, kept, guarantee.neighbors, delta, unit=guarantee.unit)


def _checked(guarantee: Guarantee, failure: float) -> float:
    checks.instance("this", guarantee, Guarantee, "what one attempt costs")
    beta = checks.concrete_fraction("failure", failure)
    if not guarantee.epsilon < inf:
        raise ValueError(f"a guarantee with a finite epsilon is needed, got {guarantee}: convert it first.")
    if not guarantee.delta < 1 - beta:
        raise ValueError(f"delta must be below the probability of success, got delta={guarantee.delta} and failure={failure}.")
    return beta
