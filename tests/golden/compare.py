"""How exactly a computed value has to meet a recorded one, and whether it does.

A value may differ from the recorded one by ``tolerance * max(|recorded|, floor)``. The relative tolerance is 1e-12 in float64 and
5e-6 in float32 (42 units in the last place), unless the table says otherwise; the values recorded in float32 are within 0.6
of that of those recorded in float64, but for survival functions and the Renyi divergences of bounded range, which have 2e-5 for
that reason. Quantiles have 2e-5 too: version 0.2 finds each from the far end of its own side of the center, so one of a small
probability that lies across the center is a difference of masses, off by up to 8e-6 of the range. The floor is the natural scale of
the quantity, below which a difference says nothing, since the quantity is the result of a cancellation:

* a logarithm of a density has floor 1: an absolute error of a logarithm is a relative one of the density;
* a probability has floor 1e-3: survival and cdf are differences of sums of order 1 somewhere, and an error of 1e-15 there is
  rounding;
* a place on the line (value of a statistic, mean, quantile, error) has a floor that depends on the largest number of the same
  array (``of_largest``): the positions of knots, of size 100, are added and subtracted, and what is left is not more exact than
  they are;
* a variance or a mean squared error likewise, on the scale of its array;
* what a search or an iteration finds is as exact as the search is (``solution``, ``optimum``); the point where an optimum is
  taken is found half as exactly as the optimum itself (``optimal_point``).

NaN and infinities have to be in the same places, with the same sign. ``exact`` is compared by ``==``.
"""

from __future__ import annotations

import json
import math
import pathlib
from dataclasses import dataclass
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).parent


@dataclass(frozen=True)
class Tolerance:
    """See the head of the file; ``floor`` is absolute, ``of_largest`` is a fraction of the largest recorded number of the array."""

    float64: float = 1e-12
    float32: float = 5e-6
    floor: float = 0.0
    of_largest: float = 0.0

    def of(self, recorded: np.ndarray, dtype: str) -> np.ndarray:
        """The difference that is allowed for each number."""
        size = np.abs(np.where(np.isfinite(recorded), recorded, 0.0))
        largest = self.of_largest * float(size.max(initial=0.0))
        return getattr(self, dtype) * np.maximum(size, max(self.floor, largest))


# By the word behind the last dot of a quantity.
TOLERANCES = {
    "exact": Tolerance(),
    "value": Tolerance(of_largest=0.1),
    "side": Tolerance(of_largest=0.1),
    "levels": Tolerance(),
    "step": Tolerance(),
    "lower_bound": Tolerance(),
    "upper_bound": Tolerance(),
    "log_prob": Tolerance(floor=1.0),
    "log_normalizer": Tolerance(floor=1.0),
    "entropy": Tolerance(floor=1.0),
    "cdf": Tolerance(floor=1e-3),
    "survival": Tolerance(float32=2e-5, floor=1e-3),
    "probability": Tolerance(floor=1e-3),
    "quantile": Tolerance(float32=2e-5, of_largest=0.1),
    "mean": Tolerance(of_largest=0.1),
    "mean_abs_error": Tolerance(of_largest=0.1),
    "mean_squared_error": Tolerance(of_largest=0.1),
    "variance": Tolerance(of_largest=0.1),
    "answers": Tolerance(of_largest=0.1),
    "local_sensitivity_error": Tolerance(of_largest=0.1),
    "scale": Tolerance(of_largest=0.01),
    "number": Tolerance(float32=2e-5),
    "loss": Tolerance(floor=1.0),
    "loss_at": Tolerance(float64=1e-10, floor=1.0),
    "divergence": Tolerance(floor=1.0),
    "solution": Tolerance(float64=1e-9, float32=1e-4),
    "optimum": Tolerance(float64=1e-7, float32=1e-3),
    "optimal_point": Tolerance(float64=1e-4, float32=1e-2),
}


def tolerance_of(quantity: str) -> Tolerance:
    return TOLERANCES[quantity.rsplit(".", 1)[-1]]


def path_of(dtype: str) -> pathlib.Path:
    return FOLDER / f"v01_{dtype}.json"


def load(dtype: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Family, case, quantity: what was recorded."""
    return json.loads(path_of(dtype).read_text())


def plain(value: Any, quantity: str, dtype: str) -> Any:
    """What is written: nested lists of numbers, whose text gives back every bit of that precision."""
    if quantity.rsplit(".", 1)[-1] == "exact":
        return value.tolist() if hasattr(value, "tolist") else value
    rounded = np.asarray(value, np.float64)
    if dtype == "float32":  # the shortest text that gives back the float32
        rounded = np.vectorize(lambda v: float(str(np.float32(v))), otypes=[np.float64])(rounded) if rounded.size else rounded
    return rounded.tolist()


def differences(computed: dict[str, dict[str, Any]], recorded: dict[str, dict[str, Any]], dtype: str) -> list[str]:
    """One line for every quantity of these cases that is not what was recorded; a quantity that is on one side only is one, too."""
    found = []
    for case, quantities in computed.items():
        if case not in recorded:
            found.append(f"{case}: not recorded")
            continue
        for quantity in sorted(quantities.keys() | recorded[case].keys()):
            if quantity not in quantities or quantity not in recorded[case]:
                found.append(f"{case}: {quantity} is {'not recorded' if quantity in quantities else 'not computed'}")
                continue
            said = _difference(quantity, quantities[quantity], recorded[case][quantity], dtype)
            if said:
                found.append(f"{case}: {quantity}: {said}")
    return found


def excess(quantity: str, computed: Any, recorded: Any, dtype: str) -> np.ndarray:
    """By how much of what is allowed each number differs; above 1 is a difference."""
    got, want = np.asarray(computed, np.float64), np.asarray(recorded, np.float64)
    allowed = tolerance_of(quantity).of(want, dtype)
    finite = np.isfinite(want) & np.isfinite(got)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", divide="ignore"):
        by = np.abs(got - want) / allowed
    return np.where(same, 0.0, np.where(finite, by, math.inf))


def _difference(quantity: str, computed: Any, recorded: Any, dtype: str) -> str:
    kind = quantity.rsplit(".", 1)[-1]
    if kind == "exact":
        computed = computed.tolist() if hasattr(computed, "tolist") else computed
        return "" if computed == recorded else f"{computed!r} for {recorded!r}"
    got, want = np.asarray(computed, np.float64), np.asarray(recorded, np.float64)
    if kind in ("side", "levels"):
        got, want = _padded_alike(got, want)
    if got.shape != want.shape:
        return f"shape {got.shape} for {want.shape}"
    over = excess(quantity, got, want, dtype)
    if not np.any(over > 1):
        return ""
    at = np.unravel_index(np.argmax(over), over.shape)
    place = f"at {tuple(map(int, at))}, {over[at]:.3g} times what is allowed; {np.sum(over > 1)} of {over.size}"
    return f"{float(got[at])!r} for {float(want[at])!r} {place}"


def _padded_alike(got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sides of a profile of one length: padding repeats the last value and the last level, and how much of it there is is free.

    Levels that all rows share may have no batch axis.
    """
    length = max(got.shape[-1], want.shape[-1])

    def longer(side: np.ndarray) -> np.ndarray:
        return np.pad(side, [(0, 0)] * (side.ndim - 1) + [(0, length - side.shape[-1])], mode="edge")

    try:
        return tuple(np.broadcast_arrays(longer(got), longer(want)))  # type: ignore[return-value]
    except ValueError:
        return got, want
