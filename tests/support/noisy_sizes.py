"""What a private choice of groups shows of one group, from its definition."""

from math import exp, tanh

import numpy as np


def outcomes(size, epsilon, threshold, most):
    """The probability of "not kept", then of each noisy size from the threshold on; the last one is
    the rest, from ``most`` on, where ratios are constant.
    """
    if size == 0:
        return np.array([1.0, *[0.0] * (most - threshold + 1)])
    noisy = np.arange(threshold, most)
    mass = tanh(epsilon / 2) * np.exp(-epsilon * abs(noisy - size))
    rest = exp(-epsilon * (most - size)) / (1 + exp(-epsilon))
    return np.array([1 - mass.sum() - rest, *mass, rest])


def divergence(p, q, epsilon):
    """The hockey-stick divergence, the larger one of both ways."""
    ways = (p, q), (q, p)
    return max(float(np.sum(np.maximum(one - exp(epsilon) * other, 0))) for one, other in ways)
