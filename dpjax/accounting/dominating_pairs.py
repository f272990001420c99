"""Dominating pairs of mechanisms: outputs on neighbors are no easier to tell apart than P and Q.

    gaussian   N(mu, 1) and N(0, 1): the loss at the outcome y is mu y - mu^2/2
    bounded    two atoms at the losses +-top, and between +-inner a density of the loss l,
               c e^(l/2) under P and c e^(-l/2) under Q

Laplace noise of size e is bounded with top = inner = e, and half of the mass of P at e. The
divergence of an epsilon-DP mechanism of range r is the maximum over t in [r - epsilon, epsilon] of
that of two losses t and t - r (Dong, Durfee and Rogers 2020, Lemma 3.2). A single bounded pair
attains it: top = epsilon, inner = 2 epsilon - r, c = e^(-r/2) / (1 - e^-r) / 2, and an atom
(e^-epsilon - e^-r) / (1 - e^-r) of Q at epsilon. At r = 2 epsilon it is randomized response, and at
r = epsilon it has no atoms.

On a Poisson subsample with probability p the pair is ((1-p) Q + p P, Q) (Zhu, Dong and Wang 2022,
Theorem 11): the loss l becomes log(1 - p + p e^l), and Q is unchanged.
"""

from __future__ import annotations

from math import exp, expm1, inf, pi, sqrt
from typing import NamedTuple

import numpy as np

from dpjax.accounting.guarantee import Guarantee

_COARSE = 2000
_LEAST = 1e-17  # of a mass that is rounded up as far as it takes
_WIDEST = 60.0


class Pair(NamedTuple):
    """A pair that dominates a mechanism except with probability ``lost``.

    Attributes:
        probability: of the Poisson subsample; 1 for all data.
        lost: the mechanism's own delta.
        mu: positive for a Gaussian pair, 0 for a bounded one.
        top: the loss of the atoms of a bounded pair.
        inner: the end of the density of a bounded pair.
        scale: c, the factor of this density.
        upper: the mass of P at ``top``.
        lower: the mass of P at ``-top``.
    """

    probability: float
    lost: float
    mu: float = 0.0
    top: float = 0.0
    inner: float = 0.0
    scale: float = 0.0
    upper: float = 0.0
    lower: float = 0.0

    def ends(self, back: bool, tail: float) -> tuple[float, float]:
        """Return a lower and an upper loss beyond which little mass lies.

        P has at most the mass ``tail`` above the upper one, or if ``back``, Q below the lower one.
        """
        if not self.mu:
            return self._mixed(-self.top), self._mixed(self.top)
        from scipy.special import ndtri

        up, down = (_LEAST, tail) if back else (tail, _LEAST)
        high = max(
            self.mu - float(ndtri(min(up / (2 * self.probability), 0.5))), -float(ndtri(up / 2))
        )
        places = float(ndtri(down)), -float(ndtri(up)) if back else high
        low, high = (self._mixed(self.mu * (place - self.mu / 2)) for place in places)
        return low, high

    def width(self, back: bool, tail: float) -> float:
        """Return the difference of :meth:`ends`."""
        low, high = self.ends(back, tail)
        return high - low

    def between(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the masses of P and Q between consecutive losses ``edges``, without the atoms."""
        base = self._unmixed(edges)
        if self.mu:
            places = np.clip(base / self.mu + self.mu / 2, -40.0, 40.0 + self.mu)
            p, q = _normal(places - self.mu), _normal(places)
        else:
            base = np.clip(base, -self.inner, self.inner)
            grown = 2 * self.scale * np.expm1(np.diff(base) / 2)
            p, q = grown * np.exp(base[:-1] / 2), grown * np.exp(-base[1:] / 2)
        return (1 - self.probability) * q + self.probability * p, q

    def points(self) -> list[tuple[float, float, float]]:
        """Return the atoms: the loss of each, and its masses under P and Q."""
        found = []
        for loss, p in ((self.top, self.upper), (-self.top, self.lower)):
            if p:
                q = p * exp(-loss)
                found.append(
                    (self._mixed(loss), (1 - self.probability) * q + self.probability * p, q)
                )
        return found

    def beyond(self, low: float, high: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the masses of P and Q below ``low``, and those above ``high``.

        0 for a bounded pair.
        """
        if not self.mu:
            return (0.0, 0.0), (0.0, 0.0)
        from scipy.special import ndtr

        places = np.clip(
            self._unmixed(np.array([low, high])) / self.mu + self.mu / 2, -40.0, 40.0 + self.mu
        )
        share, (below, above) = self.probability, places.tolist()
        (p, q), (p_up, q_up) = (
            (float(ndtr(side * (place - self.mu))), float(ndtr(side * place)))
            for side, place in ((1, below), (-1, above))
        )
        return ((1 - share) * q + share * p, q), ((1 - share) * q_up + share * p_up, q_up)

    def coarse(self, back: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return about two thousand losses and their masses, to choose a lattice."""
        low, high = (-self.top, self.top)
        if self.mu:
            low, high = (self.mu * (place + self.mu / 2) for place in (-12.0 - self.mu, 12.0))
        base = np.linspace(low, high, _COARSE + 1)
        edges = self._mixed_all(base)
        p, q = self.between(edges)
        losses, atoms = (edges[1:] + edges[:-1]) / 2, self.points()
        losses = np.append(losses, [loss for loss, _, _ in atoms])
        p, q = (
            np.append(p, [mass for _, mass, _ in atoms]),
            np.append(q, [mass for _, _, mass in atoms]),
        )
        return (-losses, q) if back else (losses, p)

    def _mixed(self, loss: float) -> float:
        return float(self._mixed_all(np.array(loss)))

    def _mixed_all(self, losses: np.ndarray) -> np.ndarray:
        """Return log(1 - p + p e^loss)."""
        return losses if self.probability == 1 else np.log1p(self.probability * np.expm1(losses))

    def _unmixed(self, losses: np.ndarray) -> np.ndarray:
        if self.probability == 1:
            return losses
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log1p(np.expm1(losses) / self.probability)
        return np.where(np.isnan(found), -inf, found)


def pair_of(part: Guarantee) -> Pair | None:
    """Return a pair that dominates a mechanism with this guarantee.

    None if no pair is known or its parameters are out of range.
    """
    name, size, probability = part.noise or ("gaussian", part.gdp, 1.0)
    if name == "gaussian" and size < inf:
        within = 1e-6 <= size <= 12 and probability >= 1e-12
        return Pair(probability, part.delta, mu=size) if within else None
    if name == "laplace":
        half = exp(-size / 2) / 2
        return (
            Pair(probability, part.delta, 0.0, size, size, half / 2, 0.5, exp(-size) / 2)
            if 1e-6 <= size <= _WIDEST
            else None
        )
    epsilon = min(part.epsilon, part.bounded_range)
    spread = min(part.bounded_range, 2 * epsilon)
    if not 1e-6 <= epsilon <= _WIDEST:
        return None
    scale = exp(-spread / 2) / -expm1(-spread) / 2
    # The mass of Q at epsilon, and of P at -epsilon.
    atom = exp(-epsilon) * expm1(epsilon - spread) / expm1(-spread)
    return Pair(
        1.0, part.delta, 0.0, epsilon, 2 * epsilon - spread, scale, exp(epsilon) * atom, atom
    )


def _normal(places: np.ndarray) -> np.ndarray:
    """Return the normal probabilities between consecutive places.

    In narrow cells the density at the middle is used, as the difference of two probabilities
    cancels.
    """
    from scipy.special import ndtr

    width, middle = np.diff(places), (places[1:] + places[:-1]) / 2
    density = np.exp(-middle * middle / 2) / sqrt(2 * pi)
    narrow = density * width * (1 + (middle * middle - 1) * width * width / 24)
    side = np.where(middle > 0, -1.0, 1.0)
    return np.where(
        width < 1e-3, narrow, np.abs(ndtr(side * places[1:]) - ndtr(side * places[:-1]))
    )
