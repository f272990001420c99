"""Bounds on the expected excess loss of a selection.

It is the loss of the drawn candidate minus the smallest loss. The noisy tree loses 2 |q| if the
noise of a query q exceeds it and reverses its sign, at each of R = ceil(log2 k) nodes, whatever
happened at the nodes above; so at most 2 R scale max over v >= 0 of v P[noise >= v] in total.
Losses of 2 v scale times the number of ones in the candidate's binary index attain this bound. The
exponential mechanism loses at most (2 sensitivity/epsilon) log k, by a bound on its entropy, and
permute and flip no more than that.
"""

from __future__ import annotations

from math import e, log, sqrt

from dpjax.bounds.theorem import Count, Positive, theorem
from dpjax.mechanisms import tree_rounds

GAUSSIAN_WORST = 0.169971207479904  # max of v P[N(0, 1) >= v], at v = 0.7518
LAPLACE_WORST = 1 / (2 * e)  # max of v e^-v / 2, at v = 1


@theorem
def noisy_tree_excess(
    num_candidates: Count,
    *,
    epsilon: Positive = None,
    zcdp: Positive = None,
    sensitivity: Positive = 1.0,
) -> float:
    """Return a bound on the expected excess loss of the noisy tree.

        Gaussian: 2 R sqrt(R / (2 zcdp)) * 0.16997...   (0.34 R^(3/2) at a variance of R)
        Laplace:  2 R (R / epsilon) / (2 e) = R^2 / (e epsilon),
        both times the sensitivity of the scores

    References:
        Steinke, "Open problem: selection via low-sensitivity queries", differentialprivacy.org
        (2025), Equation 3; the Laplace constant is derived in the same way.

    >>> round(noisy_tree_excess(1024, zcdp=0.5), 2), round(noisy_tree_excess(1024, epsilon=1.0), 2)
    (10.75, 36.79)
    """
    if (epsilon is None) == (zcdp is None):
        raise ValueError(
            "exactly one of epsilon (Laplace noise) and zcdp (Gaussian noise) must be given."
        )
    rounds = tree_rounds(num_candidates)
    most = 2 * rounds * sensitivity
    if zcdp is None:
        return most * rounds / epsilon * LAPLACE_WORST
    return most * sqrt(rounds / (2 * zcdp)) * GAUSSIAN_WORST


@theorem
def exponential_excess(
    num_candidates: Count, epsilon: Positive, *, sensitivity: Positive = 1.0
) -> float:
    """Return a bound on the expected excess loss of a selection.

    It holds for the exponential mechanism and permute and flip. It is (2 sensitivity / epsilon) log
    k, for k candidates.

    References:
        McSherry and Talwar (2007); McKenna and Sheldon (2020), Theorem 2.

    >>> round(exponential_excess(1024, 1.0), 2)
    13.86
    """
    return 2 * sensitivity / epsilon * log(num_candidates)
