"""When is a subsample free? The figures of the post "Limits of Privacy Amplification by
Subsampling", and plans for training.

python benchmarks/experiments/subsampling.py [--out FILE] [--png FILE]

Laplace noise on a Poisson subsample, at the same privacy, against Laplace noise on all records
(Steinke 2025):

    ratio          p epsilon_p / epsilon (Equation 7): the noise of all records relative to that of
                   the subsample
    bound          p / (p + epsilon) (Equation 6), and for epsilon = c p the limit log(1 + c) / c
                   (Equation 8)

And for Gaussian noise, as in training, at epsilon 1 and delta 1e-6 for a number of epochs, steps
times the probability p:

    noise          the least deviation for each step (sensitivity 1), on Poisson subsamples
    noise / p      the same for an estimate of the sum over all records
    all records    the least deviation without sampling, for as many steps
    fixed size     on samples of fixed size without replacement, where a replaced record moves the
                   sum by 1, too

Closed forms and Renyi divergences, no draws.
"""

from typing import Any

import numpy as np

import output
from dpjax.accounting import (
    Guarantee,
    fixed_size_subsample,
    gdp_of,
    least_noise,
    poisson_subsample,
    sampling_efficiency,
)

EPSILONS = np.geomspace(1e-3, 10, 41)
PROBABILITIES = (0.5, 0.1, 0.01, 0.001)
MULTIPLES = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)  # of p, for epsilon
TARGET, DELTA, RECORDS = 1.0, 1e-6, 10_000
PLANS = ((0.01, 1), (0.01, 10), (0.1, 1), (0.1, 10), (0.1, 100))  # probability, epochs


def efficiency() -> list[dict[str, Any]]:
    """The ratio by epsilon for each probability, and by probability for each multiple."""
    found = []
    pairs = [("epsilon", float(e), p) for p in PROBABILITIES for e in EPSILONS]
    pairs += [("multiple", c * p, p) for c in MULTIPLES for p in np.geomspace(1e-4, 1, 9).tolist()]
    epsilon, probability = (np.array([pair[i] for pair in pairs]) for i in (1, 2))
    ratios = np.asarray(sampling_efficiency(epsilon, probability=probability), float)
    for (figure, e, p), ratio in zip(pairs, ratios, strict=True):
        limit = p / (p + e) if figure == "epsilon" else float(np.log1p(e / p) * p / e)
        found.append(
            {
                "figure": figure,
                "epsilon": e,
                "probability": p,
                "ratio": float(ratio),
                "bound": limit,
            }
        )
    return found


def plans(given: tuple[tuple[float, int], ...] = PLANS) -> list[dict[str, Any]]:
    """The least noise of each plan."""
    found = []
    for p, epochs in given:
        steps = round(epochs / p)

        def poisson(sigma: float, p: float = p, steps: int = steps) -> Any:
            return steps * poisson_subsample(
                Guarantee(neighbors="add_remove", gdp=1 / sigma), probability=p
            )

        def fixed(sigma: float, p: float = p, steps: int = steps) -> Any:
            noise = Guarantee(neighbors="swap", gdp=1 / sigma)
            return steps * fixed_size_subsample(
                noise, taken=round(p * RECORDS), public_n=RECORDS, replacement="without"
            )

        noise = least_noise(poisson, epsilon=TARGET, delta=DELTA)
        found.append(
            {
                "figure": "plan",
                "probability": p,
                "epochs": epochs,
                "steps": steps,
                "noise": noise,
                "noise / p": noise / p,
                "all records": float(np.sqrt(steps)) / gdp_of(TARGET, delta=DELTA),
                "fixed size": least_noise(fixed, epsilon=TARGET, delta=DELTA),
            }
        )
    return found


def rows() -> list[dict[str, Any]]:
    return efficiency() + plans()


PLOT = output.panels(("figure", "probability"), "epsilon", ("ratio", "bound"), "ratio")

if __name__ == "__main__":
    output.run(rows, PLOT)
