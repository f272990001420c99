"""The output distributions of all datasets on a public grid, in closed form, in NumPy.

They give probabilities, errors and intervals. Let f be the value of a statistic, c its depth (the
least number of changes that move it), and L(y) the level at which a position y is reached
(``profiles.py``). With lam = epsilon / 2,

    cost(f) = 1 - c,   cost(y) = L(y) for y != f,   P(y) proportional to exp(-lam cost(y)).

**Privacy.** Corollary 3.1 of Durfee (2025), V'(l + 1) >= V(l) for neighbors and integers l, holds
for the interpolations at all real levels, so L'(y) <= L(y) + 1 wherever y is on the same side of f
and f'. If f = f', then |c - c'| <= 1. If f != f', then c = c' = 1: both values cost 0 for their own
dataset and at most 1 for the other, because f' is reached after one change, and a y strictly
between them has L(y) <= 1 and L'(y) <= 1. So the cost changes by at most 1: epsilon-DP and
epsilon-bounded-range. (With 2 - 2 c or -c in the place of 1 - c the loss passes epsilon.)

**Three mechanisms.** Piecewise Laplace is the one above. In inverse sensitivity L(y) is rounded up
to the number of changes that reach y, so that the pieces are flat; the proof is the same. Permute
and flip (McKenna and Sheldon 2020) has the costs of inverse sensitivity: it accepts y with
probability exp(-lam cost(y)) relative to the value, and one of those accepted wins, which is
epsilon-DP and 2 epsilon-bounded-range.

**Closed forms.** A piece of g positions that rises by r from the level l has k ``steps`` of s
positions each, its ``span``, and step number t costs l + (r / k) t: k = g and s = 1 in piecewise
Laplace, k = r and s = g / r in the others. With h = lam r / k its weight is s exp(-lam l) (1 -
e^(-h k)) / (e^h - 1), and t has a truncated geometric distribution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from dpjax import checks
from dpjax.display import Picture, Shown
from dpjax.release import draw, exact_flip
from dpjax.release.counts import running_sums, sums_of
from dpjax.release.entropy import More, further_word, seeded, system_words
from dpjax.release.exponentials import exact_epsilon
from dpjax.release.grid import Candidates, Floats, Multiples
from dpjax.release.profiles import Profile

Mechanism = Literal["piecewise_laplace", "inverse_sensitivity", "permute_and_flip"]
UNIT = 2**60  # cumulative probabilities are integers in units of 2^-60: exact in any order
_LISTED = 2**22  # the largest number of values that ``values`` lists
_LEAST_FLIPS = 2.0**-14  # below it, a profile has too many levels to draw a uniform for each


@dataclass(frozen=True, repr=False, eq=False)
class GridDistribution(Shown):
    """The output distributions of a release, one for each dataset.

    They are functions of the data, not private. All numbers are exact up to the rounding of
    float64. Arguments broadcast against the batch of datasets, whose axes come last.

    Attributes:
        profile: the profiles of all datasets, in positions on ``grid``.
        exact_rate: lam, half of epsilon for values on a grid.
        grid: the values: multiples of a resolution, floats or candidates.
        mechanism: ``"piecewise_laplace"``, ``"inverse_sensitivity"`` or ``"permute_and_flip"``.
        batch_shape: the shape of the batch of datasets.

    >>> from dpjax.release import Counts, Median
    >>> counts = Counts.of_rows([0, 0, 0], [31, 40, 52], [3, 1, 2], groups=1)
    >>> law = Median(lower=0, upper=120, resolution=1).distribution(counts, 4.0, "add_remove")
    >>> law.value.tolist(), law.mean_abs_error(31.0).round(2).tolist()
    ([31.0], [3.01])
    """

    profile: Profile
    exact_rate: Fraction
    grid: Multiples | Floats | Candidates
    mechanism: Mechanism = "piecewise_laplace"
    batch_shape: tuple[int, ...] = ()

    @staticmethod
    def of(
        profile: Profile,
        epsilon: float | Fraction,
        grid: Multiples | Floats | Candidates,
        mechanism: str = "piecewise_laplace",
        batch_shape: Sequence[int] = (),
    ) -> GridDistribution:
        """Return the distributions of a mechanism, selected by its name.

        Raises:
            ValueError: if ``mechanism`` is unknown, or epsilon is below 2^-14 for permute and flip.
        """
        exact: Any = checks.one_of("mechanism", mechanism, get_args(Mechanism))
        cost = exact_epsilon(epsilon)
        if exact == "permute_and_flip":
            if cost < _LEAST_FLIPS:
                raise ValueError(
                    f"permute_and_flip needs an epsilon of at least 2^-14, got {epsilon}: use "
                    "piecewise_laplace."
                )
            profile = profile.in_steps()
        return GridDistribution(profile, cost / 2, grid, exact, tuple(batch_shape))

    def _facts(self) -> dict[str, Any]:
        shown = {"batch_shape": self.batch_shape, "rate": self.rate, "grid": self.grid}
        return shown | {"mechanism": repr(self.mechanism)}

    def _looks(self, rows: int) -> tuple[dict[str, Any], Picture | None]:
        """Return the probabilities of the first dataset that exceed 1e-6 of the largest one."""
        if not self.profile.groups:
            return {}, None
        positions, shares = self._all_of(0)
        seen = slice(*np.flatnonzero(shares > 1e-6 * np.max(shares))[[0, -1]] + [0, 1])
        return {}, Picture(
            self.grid.values_of(positions)[None, seen], shares[None, seen], "value", "probability"
        )

    @property
    def rate(self) -> float:
        """Half of epsilon, lam, as a float."""
        return float(self.exact_rate)

    @property
    def size(self) -> int:
        """The number of values of the grid."""
        return self.profile.size

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw: ``()``, a number."""
        return ()

    @property
    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest value of the grid, float64 of the batch shape each."""
        low, high = self.grid.values_of(np.array([0, self.size - 1]))
        return np.full(self.batch_shape, low), np.full(self.batch_shape, high)

    @property
    def value(self) -> np.ndarray:
        """The centers of the distributions, float64 of the batch shape.

        They are the statistics, unless shifted.
        """
        return self.grid.values_of(self.profile.value).reshape(self.batch_shape)

    @property
    def values(self) -> np.ndarray:
        """All values of the grid, ascending, float64.

        Raises:
            ValueError: if there are more than 2^22 values.
        """
        if self.size > _LISTED:
            raise ValueError(
                f"a grid of {self.size} values is too long to list: use a coarser resolution."
            )
        return self.grid.values_of(np.arange(self.size))

    @cached_property
    def group(self) -> np.ndarray:
        """The dataset of each piece."""
        return np.repeat(np.arange(self.profile.groups), np.diff(self.profile.starts))

    @cached_property
    def steps(self) -> np.ndarray:
        """The number of different costs within each piece, int64."""
        if self.mechanism == "piecewise_laplace":
            return self.profile.length
        return np.maximum(self.profile.rise, 1)

    @cached_property
    def span(self) -> np.ndarray:
        """The number of positions that share one cost, int64."""
        if self.mechanism == "piecewise_laplace":
            return np.ones_like(self.profile.length)
        return self.profile.length // self.steps

    @cached_property
    def step_rate(self) -> np.ndarray:
        """The rate times the increase in cost from one step to the next, float64."""
        return self.rate * (self.profile.rise / self.steps)

    @cached_property
    def costs(self) -> np.ndarray:
        """The cost of the last step of each piece minus that of the value, int64, at least 0."""
        return self.profile.level + self.profile.rise + (self.profile.depth - 1)[self.group]

    @cached_property
    def shares(self) -> np.ndarray:
        """The probability of each piece, float64."""
        if self.mechanism == "permute_and_flip":
            return np.concatenate([np.zeros(0), *self._by_flips(log=False)])
        rise, value = self.profile.rise, self.profile.sign == 0
        by_one = rise.size == 0 or int(rise.max()) <= 1
        with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
            weight = np.exp(
                -self.rate * (self.profile.level + (self.profile.depth - 1)[self.group])
            )
            weight *= -np.expm1(-self.rate) if by_one else -np.expm1(-self.rate * rise)
            weight /= np.expm1(self.step_rate)
            weight *= self.span
        weight[value] = np.exp(-self.rate * self.costs[value])
        return weight / sums_of(weight, self.profile.starts)[self.group]

    @cached_property
    def log_shares(self) -> np.ndarray:
        """The logarithm of each piece's probability, also where the probability underflows."""
        if self.mechanism == "permute_and_flip":
            return np.concatenate([np.zeros(0), *self._by_flips(log=True)])
        rise, sloped = self.profile.rise, self.profile.rise > 0
        with np.errstate(under="ignore"):
            weight = np.log(self.span) - self.rate * (self.costs - rise)
            step, total = self.step_rate[sloped], self.rate * rise[sloped]
            weight[sloped] += np.log(np.expm1(-total) / np.expm1(-step)) - step
            return weight - np.log(sums_of(np.exp(weight), self.profile.starts))[self.group]

    def _by_flips(self, log: bool) -> Iterator[np.ndarray]:
        """Yield the piece probabilities of permute and flip by dataset, or their logarithms."""
        for first, last in itertools.pairwise(self.profile.starts.tolist()):
            costs, widths = self.costs[first:last], self.profile.length[first:last]
            yield exact_flip.probabilities(self.rate, costs, widths, log)

    @cached_property
    def sums(self) -> np.ndarray:
        """The cumulative probabilities of the pieces of each dataset, in units of 2^-60, int64."""
        return running_sums(np.rint(self.shares * UNIT).astype(np.int64), self.profile.starts)

    def pmf(self, values: Any) -> np.ndarray:
        """Return the probability of each value; 0 for a value that is not on the grid."""
        return np.exp(self.log_pmf(values))

    def log_pmf(self, values: Any) -> np.ndarray:
        """Return the logarithm of :meth:`pmf`."""
        points, shape = self._points(values)
        position, on_grid = self._positions(points)
        piece = self._piece_at(np.clip(position, 0, self.size - 1))
        nearer = np.abs(position - self.profile.near[piece]) - (self.profile.sign[piece] != 0)
        rate = self.step_rate[piece]
        first = np.log(_share(rate, 1, self.steps[piece]) / self.span[piece])
        logs = self.log_shares[piece] + first - rate * (nearer // self.span[piece])
        return np.where(on_grid & (position >= 0) & (position < self.size), logs, -np.inf).reshape(
            shape
        )

    def cdf(self, values: Any) -> np.ndarray:
        """Return P(Y <= value)."""
        points, shape = self._points(values)
        position, on_grid = self._positions(points)
        position = np.where(
            ~on_grid & (self.grid.values_of(np.clip(position, 0, self.size - 1)) > points),
            position - 1,
            position,
        )
        inside = np.clip(position, 0, self.size - 1)
        piece = self._piece_at(inside)
        sign, number = self.profile.sign[piece], np.abs(inside - self.profile.near[piece])
        fraction = self._share_of_first(
            piece, np.where(sign < 0, number - 1, np.where(sign > 0, number, 1))
        )
        share = self.shares[piece] * np.where(sign < 0, 1 - fraction, fraction)
        probability = np.minimum(self._below(piece) / UNIT + share, 1.0)
        return np.where(
            position < 0, 0.0, np.where(position >= self.size - 1, 1.0, probability)
        ).reshape(shape)

    def log_cdf(self, values: Any) -> np.ndarray:
        """Return the logarithm of :meth:`cdf`, which is a multiple of 2^-60.

        ``-inf`` where it is 0.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.cdf(values))

    def quantile(self, p: Any) -> np.ndarray:
        """Return the smallest value with ``cdf(value) >= p``, up to rounding.

        NaN where p is not in [0, 1].

        Raises:
            ValueError: if ``p`` is a single number outside [0, 1].
        """
        if isinstance(p, int | float) and not 0 <= p <= 1:
            raise ValueError(f"p must be between 0 and 1, got {p}.")
        levels, shape = self._points(p)
        valid = (levels >= 0) & (levels <= 1)
        target = np.rint(np.where(valid, levels, 0.5) * UNIT).astype(np.int64)
        piece = self._locate(self.sums, target)
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = np.clip((target - self._below(piece)) / (self.shares[piece] * UNIT), 0, 1)
        sign = self.profile.sign[piece]
        place = self._place_of_share(piece, np.where(sign < 0, 1 - fraction, fraction))
        slack = 1e-12 * np.maximum(place, 1)
        number = np.where(sign < 0, np.floor(place + slack) + 1, np.ceil(place - slack))
        number = np.clip(np.nan_to_num(number, nan=1.0), 1, self.profile.length[piece]).astype(
            np.int64
        )
        values = self.grid.values_of(self.profile.near[piece] + sign * number)
        return np.where(valid, values, np.nan).reshape(shape)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the central interval of probability ``level``: two arrays of the batch shape.

        Each side leaves out (1 - level) / 2.
        """
        level = checks.concrete_fraction("level", level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def mean_abs_error(self, center: Any) -> np.ndarray:
        """Return E|Y - center|, the exact mean absolute error of a draw."""
        centers, shape = self._points(center)
        if not isinstance(self.grid, Multiples):
            datasets = np.arange(centers.size) % max(self.profile.groups, 1)
            each = [
                self._error_one_by_one(*pair)
                for pair in zip(datasets.tolist(), centers, strict=True)
            ]
            return np.array(each, np.float64).reshape(shape)
        unit = self.grid.resolution
        positions = centers * unit.denominator / unit.numerator - self.grid.start
        nearest = np.rint(positions)
        positions = np.where(
            np.isclose(self.grid.values_of(nearest), centers, rtol=1e-15, atol=0),
            nearest,
            positions,
        )
        rows = positions.reshape(-1, max(self.profile.groups, 1))
        errors = np.array([self._errors(row) for row in rows], np.float64)
        return (errors * unit.numerator / unit.denominator).reshape(shape)

    def _errors(self, center: np.ndarray) -> np.ndarray:
        """Return E|Y - center| of each dataset, in units of positions."""
        sign, rate, steps, span = self.profile.sign, self.step_rate, self.steps, self.span
        ahead = center[self.group] - self.profile.near
        # The positions of a piece are at 1, 2, ..., its length
        ahead = np.where(sign == 0, ahead + 1, sign * ahead)
        # Steps before that of the center, that step itself, and those after it.
        first = np.clip(np.ceil(ahead / span), 1, steps)
        later, before, through = (
            np.flatnonzero(first > 1),
            np.zeros_like(rate),
            _share(rate, first, steps),
        )
        before[later] = _share(rate[later], first[later] - 1, steps[later])
        rest = ahead - span * (first - 1)
        split = np.clip(np.floor(rest), 0, span)
        far = span * (first - 1 + _mean(rate, steps - first)) + (span + 1) / 2 - ahead
        here = split * (rest - (split + 1) / 2) + (span - split) * ((span + split + 1) / 2 - rest)
        error = (through - before) * here / span
        near = (
            ahead[later]
            - span[later] * (_mean(rate[later], first[later] - 1) - 1)
            - (span[later] + 1) / 2
        )
        error[later] += before[later] * near
        error += np.where(first < steps, (1 - through) * far, 0.0)
        return sums_of(self.shares * error, self.profile.starts)

    def _error_one_by_one(self, group: int, center: float) -> float:
        positions, shares = self._all_of(group)
        return float(np.sum(np.abs(self.grid.values_of(positions) - center) * shares))

    def _all_of(self, group: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the likely positions of one dataset, and their probabilities.

        These are all positions in pieces with a probability above 2^-60. The positions ascend.
        """
        pieces = np.arange(self.profile.starts[group], self.profile.starts[group + 1])
        pieces = pieces[self.shares[pieces] > 2.0**-60]
        length = self.profile.length[pieces]
        number = np.arange(np.sum(length)) - np.repeat(np.cumsum(length) - length, length)
        piece = np.repeat(pieces, length)
        sign = self.profile.sign[piece]
        number = np.where(sign < 0, self.profile.length[piece] - 1 - number, number)
        rate = self.step_rate[piece]
        with np.errstate(under="ignore"):
            share = self.shares[piece] / self.span[piece] * _share(rate, 1, self.steps[piece])
            return self.profile.near[piece] + sign * (number + 1), share * np.exp(
                -rate * (number // self.span[piece])
            )

    def sample(
        self, seed: int | np.random.Generator, shape: int | Sequence[int] = ()
    ) -> np.ndarray:
        """Draw for a simulation, from a seed or a NumPy generator.

        The result is float64 of shape ``shape + batch_shape``.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        positions = self.positions(int(np.prod(shape, dtype=np.int64)), *seeded(seed))
        return self.grid.values_of(positions).reshape(shape + self.batch_shape)

    def positions(
        self, draws: int, words: Any = system_words, more: More = further_word
    ) -> np.ndarray:
        """Draw positions exactly, int64 ``(draws, datasets)``, from the operating system's entropy.

        Simulations and tests pass other sources: ``words(shape)`` returns random 64-bit words, and
        ``more(role, number)`` 32 bits that extend a uniform.
        """
        way = exact_flip if self.mechanism == "permute_and_flip" else draw
        return way.positions(self, draws, words, more)

    def _points(self, given: Any) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return the arguments as flat float64 and the shape of their broadcast with the batch."""
        array = np.asarray(given, np.float64)
        shape = np.broadcast_shapes(array.shape, self.batch_shape)
        return np.broadcast_to(array, shape).ravel(), shape

    def _positions(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions nearest to values, int64, and whether the values are on the grid.

        Positions are -1 and ``size`` beyond the ends.
        """
        position = self.grid.numbers_of(values)[0].astype(np.int64)
        on_grid = np.isclose(
            self.grid.values_of(position), values, rtol=8 * np.finfo(np.float64).eps, atol=0
        )
        low, high = self.grid.values_of(np.array([0, self.size - 1]))
        return np.where(
            on_grid,
            position,
            np.where(values < low, -1, np.where(values > high, self.size, position)),
        ), on_grid

    def _piece_at(self, position: np.ndarray) -> np.ndarray:
        """Return the piece of each position."""
        sign = self.profile.sign
        last = self.profile.near + np.where(
            sign > 0, self.profile.length, np.where(sign < 0, -1, 0)
        )
        return self._locate(last, position)

    def _locate(self, ascending: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the first piece of each dataset with a number of at least the wanted one.

        If there is none, it is the last piece.
        """
        starts = self.profile.starts
        rows = wanted.reshape(-1, max(self.profile.groups, 1))
        found = draw.first_above(ascending + 1, starts, self.group, rows)
        return found.reshape(wanted.shape)

    def _below(self, piece: np.ndarray) -> np.ndarray:
        """Return the total probability of the lower pieces of the dataset, in units of 2^-60."""
        return np.where(piece > self.profile.starts[self.group[piece]], self.sums[piece - 1], 0)

    def _share_of_first(self, piece: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the fraction of a piece's probability in its first positions, counted outwards."""
        rate, steps, span = self.step_rate[piece], self.steps[piece], self.span[piece]
        full_steps, remainder = np.divmod(number, span)
        before = _share(rate, full_steps, steps)
        return before + (_share(rate, np.minimum(full_steps + 1, steps), steps) - before) * (
            remainder / span
        )

    def _place_of_share(self, piece: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Return how many positions of a piece hold this fraction of its probability.

        They are counted outwards. The result is a real number.
        """
        rate, steps, span = self.step_rate[piece], self.steps[piece], self.span[piece]
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.where(
                rate > 0, -np.log1p(share * np.expm1(-rate * steps)) / rate, share * steps
            )
        if self.mechanism == "piecewise_laplace":
            return place
        step = np.clip(np.floor(place * (1 + 1e-12)), 0, steps - 1)
        before, through = _share(rate, step, steps), _share(rate, step + 1, steps)
        return span * (step + np.clip((share - before) / (through - before), 0, 1))


def _share(rate: np.ndarray, number: Any, steps: np.ndarray) -> np.ndarray:
    """Return P(t <= number) for a truncated geometric t = 1, ..., steps."""
    with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
        return np.where(
            rate > 0, np.expm1(-rate * number) / np.expm1(-rate * steps), number / steps
        )


def _mean(rate: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return E[t] for a truncated geometric t = 1, ..., steps.

    The value for ``steps = 0`` is not used.
    """
    x, square = rate * steps, np.square(steps.astype(np.float64))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        exact = -1 / np.expm1(-rate) - steps / np.expm1(x)
    near = (
        (steps + 1) / 2
        - rate * (square - 1) / 12
        + rate * rate * rate * (square * square - 1) / 720
    )
    return np.where(x < 1e-2, near, exact)
