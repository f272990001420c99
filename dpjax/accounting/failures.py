"""Guarantees of mechanisms that must not fail.

Failures are absorbed, success is conditioned on, or a fixed number of attempts is made. A mechanism
M succeeds when its output falls into a fixed, public set S: a test that does not read the data
again. Let p be its probability of success on x, q = 1 - p, and p', q' those on a neighbor. All
guarantees below require q <= failure for EVERY dataset: with a bound that holds for typical data
only, the privacy loss is unbounded (footnote 2 of Steinke, "Differentially private algorithms that
never fail", differentialprivacy.org, 2025, the post that all references in this file cite).

Conditioning (Theorem 1). Dividing P[M in T and S] <= e^eps P'[M in T and S] + delta by p gives

    P[M in T | S] <= e^eps (p'/p) P'[M in T | S] + delta/p.

The theorem bounds p'/p by e^eps / (1 - delta/(1-failure)), so that epsilon doubles. But p' <= 1,
p' <= e^eps p + delta and 1 - p <= e^eps (1 - p') + delta give sharper bounds on p'/p, and all three
of them decrease with p. With s = 1 - failure,

    p'/p <= r = min(1, e^eps s + delta, 1 - e^-eps (1 - s - delta)) / s,
    epsilon' = epsilon + log r,   delta' = delta/s,

never above the theorem: at failure 0.1 and epsilon 1 it is 1.07 instead of 2. Let delta = 0 and M
have bounded range b (2 epsilon always is one). A ratio of conditional probabilities is the ratio of
the unconditional ones times a constant, so the range stays b, and since the interval of the losses
contains 0, the loss is at most b. So an epsilon-bounded-range mechanism conditioned on a fixed set
of outputs stays epsilon-DP.

A fixed number m of attempts, then a fallback F. The output distribution is A + q^m F with A(T) =
P[M in T and S] g(q), g(q) = 1 + q + ... + q^(m-1) = (1 - q^m) / (1 - q). Where q > q', g(q)/g(q') =
(p'/p) (1 - q^m)/(1 - q'^m) <= p'/p <= r; elsewhere it is at most 1. So A(T) <= e^eps' A'(T) + delta
g(q): the epsilon is that of the unbounded loop, and the probability failure^m that all attempts
fail is added to delta, which is delta' = delta g(failure) + failure^m. F is arbitrary and may read
the data, as in the warm-up of the post: then there is no failure at all. If F is public, m attempts
are also the composition of m draws.

The warm-up itself (Equation 2) is wrong where the test reads the data. It claims (epsilon, delta +
failure)-DP when an output y with loss(y, x) > alpha is replaced, but its last step assumes that an
output that is kept on x is kept on x'. Counterexample: let M be epsilon-DP, and let y have
probability failure on x', where it is replaced, and e^epsilon failure on x, where it is kept. Then
y reveals that the data are x, with a probability above delta + failure. What holds is P[M(x') in
S*] <= P[M~(x') in S] + failure, so the delta is delta + (1 + e^epsilon) failure.
"""

from __future__ import annotations

from math import exp, expm1, inf, log, log1p
from sys import float_info
from typing import Literal

from dpjax import checks
from dpjax.accounting.guarantee import Guarantee

_ROUNDED_UP = 1 + 2.0**-43  # above the rounding error of the formulas
Fallback = Literal["public", "private"]
Test = Literal["public", "private"]


def absorb_failure(guarantee: Guarantee, failure: float, *, test: Test = "private") -> Guarantee:
    """Return the guarantee of a mechanism whose failures are answered by reading the data.

    With a private test it is (epsilon, delta + (1 + e^epsilon) failure)-DP, and with a public one
    (epsilon, delta + failure)-DP.

    Args:
        guarantee: the guarantee of the mechanism, with a finite epsilon.
        failure: in [0, 1), a bound on the probability of a failure on every dataset.
        test: ``"private"`` where it depends on the data which outputs are failures, such as outputs
            with a high loss; ``"public"`` for a fixed set of outputs.

    Returns:
        A :class:`Guarantee`, with a bounded range only where nothing fails and delta is 0.

    Raises:
        ValueError: epsilon is infinite, or a parameter is out of range, or the new delta would be 1
            or more.

    Privacy:
        Spends no privacy. The post claims the second guarantee for both tests; the module docstring
        has a counterexample.

    References:
        Steinke (2025), Equation 2, corrected.

    >>> print(absorb_failure(Guarantee(1.0, 1.0, "swap"), 1e-6, test="public"))
    1-DP except with probability 1e-06 under swap neighbors
    >>> print(absorb_failure(Guarantee(1.0, 1.0, "swap"), 1e-6))
    1-DP except with probability 3.8e-06 under swap neighbors
    """
    beta = _checked(guarantee, failure)
    checks.one_of("test", test, ("private", "public"))
    # e^epsilon failure, at most e
    other = exp(min(guarantee.epsilon + log(beta), 1.0)) if beta and test == "private" else 0.0
    return _promised(guarantee, guarantee.epsilon, guarantee.delta + beta + other)


def condition_on_success(guarantee: Guarantee, failure: float) -> Guarantee:
    """Return the guarantee of a mechanism that is repeated until it succeeds.

        epsilon' = epsilon + log r, r the largest ratio of two success probabilities,
        delta'   = delta/(1 - failure)

    Args:
        guarantee: the guarantee of one attempt together with the outcome of its test.
        failure: in [0, 1), a bound on the probability of a failure on every dataset.

    Returns:
        A :class:`Guarantee`. If delta is 0, its bounded range is the smaller of that of one attempt
        and twice its epsilon, and the epsilon is at most this range: conditioning leaves an
        epsilon-bounded-range mechanism epsilon-DP.

    Raises:
        ValueError: a parameter is out of range, or ``delta >= 1 - failure``.

    Privacy:
        Spends no privacy. Success must be decided by the output alone, for example by a noisy
        estimate of the loss that is part of the output, against a threshold that does not depend on
        the data. The number of repetitions must stay secret, but a loop that runs until success
        reveals it by its running time; :func:`retry_until_success` does not.

    References:
        Steinke (2025), Theorem 1 and footnote 2.

    >>> round(condition_on_success(Guarantee(1.0, 2.0, "swap"), 0.1).epsilon, 3)
    1.068
    """
    beta = _checked(guarantee, failure)
    return _promised(guarantee, _conditioned(guarantee, beta), guarantee.delta / (1 - beta))


def retry_until_success(
    guarantee: Guarantee, failure: float, *, attempts: int, fallback: Fallback
) -> Guarantee:
    """Return the guarantee of the first success of a fixed number of attempts.

    A fallback is used if there is none.

        epsilon' as in :func:`condition_on_success`,
        delta' = delta (1 - failure^m) / (1 - failure) + failure^m

    Args:
        guarantee: the guarantee of one attempt together with the outcome of its test.
        failure: in [0, 1), a bound on the probability of a failure on every dataset.
        attempts: m, at least 1, chosen without the data. All fail with probability at most
            failure^m.
        fallback: ``"public"`` for a value that does not depend on the data, or ``"private"`` for
            one that may; delta covers both. This matters for a single attempt only.

    Returns:
        A :class:`Guarantee`. One attempt with a public fallback is post-processing and keeps the
        guarantee of the attempt. Several attempts with a public fallback are also a post-processed
        composition of m attempts, whose guarantee, m epsilon and no added failure probability, can
        be the better one.

    Raises:
        ValueError: a parameter is out of range, ``delta >= 1 - failure``, or delta' would be 1 or
            more.

    Privacy:
        Spends no privacy. All m attempts must be made, even after the first success.

    References:
        Steinke (2025), Equation 2 and Theorem 1, for an unbounded loop; the module docstring for a
        fixed number of attempts.

    >>> print(retry_until_success(Guarantee(1.0, 1.0, "swap"), 0.1, attempts=9, fallback="public"))
    1-DP except with probability 1e-09 under swap neighbors
    """
    beta, count = _checked(guarantee, failure), number_of_attempts(attempts)
    checks.one_of("fallback", fallback, ("public", "private"))
    epsilon = _conditioned(guarantee, beta)
    if count == 1:
        return guarantee if fallback == "public" else absorb_failure(guarantee, beta, test="public")
    # An underflow must not state pure DP
    leftover = max(beta**count, float_info.min) if beta else 0.0
    return _promised(guarantee, epsilon, guarantee.delta * (1 - leftover) / (1 - beta) + leftover)


def number_of_attempts(attempts: int) -> int:
    """Validate a static number of attempts, at least 1, and return it."""
    return checks.static_integer("attempts", attempts, 1, 2**53)


def _conditioned(guarantee: Guarantee, beta: float) -> float:
    """Return the epsilon of the output distribution given success."""
    epsilon, delta, success = guarantee.epsilon, guarantee.delta, 1 - beta
    if not beta:
        return epsilon
    # The three bounds on log r, in forms without cancellation; e^epsilon is computed only where
    # that bound may be the smallest.
    grown = log1p(expm1(epsilon) + delta / success) if epsilon < -log(success) else inf
    fewer = log1p((-beta * expm1(-epsilon) + delta * exp(-epsilon)) / success)
    sharp = (epsilon + min(-log(success), grown, fewer)) * _ROUNDED_UP
    return sharp if delta else min(sharp, guarantee.bounded_range, 2 * epsilon)


def _promised(guarantee: Guarantee, epsilon: float, delta: float) -> Guarantee:
    """Return (epsilon, delta)-DP, delta rounded up; if it is 0, with the range of one attempt."""
    delta *= _ROUNDED_UP
    if not delta < 1:
        raise ValueError(f"nothing is promised: delta would be {delta:g}, and must be below 1.")
    bounded_range = inf if delta else min(guarantee.bounded_range, 2 * guarantee.epsilon)
    return Guarantee(epsilon, bounded_range, guarantee.neighbors, delta, unit=guarantee.unit)


def _checked(guarantee: Guarantee, failure: float) -> float:
    checks.instance("this function", guarantee, Guarantee, "what one attempt costs")
    beta = checks.concrete_fraction("failure", failure)
    if not guarantee.epsilon < inf:
        raise ValueError(
            f"guarantee must have a finite epsilon, got {guarantee}: convert it first, by its "
            "epsilon_at(delta)."
        )
    if not guarantee.delta < 1 - beta:
        raise ValueError(
            f"the guarantee's delta must be below 1 - failure, got delta={guarantee.delta} and "
            f"failure={failure}."
        )
    return beta
