"""``dpjax audit``: what every mechanism claims, its exact worst loss over small datasets, and what draws alone can show.

No file is read: the datasets are all multisets of up to four records from five values, and all their neighbours among them.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.accounting import Guarantee
from dpjax.auditing.black_box import log_ratio, lower_bound
from dpjax.auditing.privacy_loss import privacy_loss
from dpjax.checks import Neighbors
from dpjax.command_line.text import UserError, aligned, as_json, promised, versions, versions_line, words_of, wrapped
from dpjax.distributions import Finite, PiecewiseExponential
from dpjax.mechanisms import (
    duff,
    exponential,
    inverse_sensitivity,
    laplace,
    permute_and_flip,
    piecewise_laplace,
    shifted_inverse,
)
from dpjax.numerics.batching import broadcast_rows
from dpjax.statistics import candidate_counts, maximum, mean, median, quantile

VALUES = (0.0, 1.0, 5.0, 6.0, 20.0)
LOWER, UPPER, RECORDS = VALUES[0], VALUES[-1], 4
CONFIDENCE = 0.95
ROUNDING = 1e-4  # relative; losses are differences of log-densities in float32, so 1e-5 besides
_PIECES = 16  # distributions on the line are padded to so many, and share their compiled programs

Distribution = PiecewiseExponential | Finite
Dataset = tuple[float, ...]


@dataclass(frozen=True)
class Family:
    """Small datasets, padded, and the rows of all neighbouring pairs."""

    datasets: list[Dataset]
    x: jax.Array
    count: jax.Array
    pairs: np.ndarray
    neighbors: Neighbors

    @property
    def known(self) -> dict[str, Any]:
        """What statistics of bounded records are told."""
        return {"lower": LOWER, "upper": UPPER, "neighbors": self.neighbors, "count": self.count}


Build = Callable[[Family, float], tuple[Distribution, Guarantee]]


@dataclass(frozen=True)
class Audit:
    """One mechanism.

    Attributes:
        mechanism: its name and statistic.
        guarantee: what it claims of one draw.
        exact_loss: the exact largest log-ratio over all pairs and both directions.
        exact_range: the exact largest bounded range.
        from_draws: the lower bound on epsilon from draws on the pair with the largest loss.
        worst_pair: that pair.
    """

    mechanism: str
    guarantee: Guarantee
    exact_loss: float
    exact_range: float
    from_draws: float
    worst_pair: tuple[Dataset, Dataset]

    @property
    def holds(self) -> bool:
        """Whether neither exact number is above its claim by more than rounding."""
        pairs = ((self.exact_loss, self.guarantee.epsilon), (self.exact_range, self.guarantee.bounded_range))
        return all(found <= claim * (1 + ROUNDING) + 1e-5 for found, claim in pairs)


def _of_profile(module: Any, name: str, statistic: Callable[[Family], Any], **options: Any) -> Build:
    """A mechanism, with the guarantee of its module, on what ``statistic`` returns."""

    def build(family: Family, epsilon: float) -> tuple[Distribution, Guarantee]:
        profile = statistic(family)
        return getattr(module, name)(profile, epsilon, **options), module.guarantee(profile, epsilon)

    return build


def _laplace(**bounds: float) -> Build:
    def build(family: Family, epsilon: float) -> tuple[Distribution, Guarantee]:
        distribution = laplace.laplace(jnp.sum(family.x, axis=-1), epsilon, sensitivity=UPPER - LOWER, **bounds)
        return distribution, laplace.guarantee(epsilon, neighbors=family.neighbors, bounded=bool(bounds))

    return build


def _median(family: Family) -> Any:
    return median(family.x, **family.known)


def _counts(family: Family) -> Any:
    return candidate_counts(family.x, candidates=np.array(VALUES), neighbors=family.neighbors, count=family.count)


MECHANISMS: dict[str, Build] = {
    "piecewise_laplace, median": _of_profile(piecewise_laplace, "piecewise_laplace", _median),
    "piecewise_laplace, median, rho 0.5": _of_profile(piecewise_laplace, "piecewise_laplace", _median, rho=0.5),
    "piecewise_laplace, quantile 0.9": _of_profile(
        piecewise_laplace, "piecewise_laplace", lambda family: quantile(family.x, 0.9, **family.known)
    ),
    "piecewise_laplace, mean": _of_profile(piecewise_laplace, "piecewise_laplace", lambda family: mean(family.x, **family.known)),
    "inverse_sensitivity, median": _of_profile(inverse_sensitivity, "inverse_sensitivity", _median),
    "duff, median": _of_profile(duff, "duff", lambda family: median(family.x, definition="lower", **family.known)),
    "shifted_inverse, maximum, tau 2": _of_profile(
        shifted_inverse, "shifted_inverse", lambda family: maximum(family.x, lower=LOWER, upper=UPPER, count=family.count), tau=2
    ),
    "laplace, sum": _laplace(),
    "laplace within bounds, sum": _laplace(lower=0.0, upper=RECORDS * UPPER),
    "exponential, mode": _of_profile(exponential, "exponential", _counts),
    "permute_and_flip, mode": _of_profile(permute_and_flip, "permute_and_flip", _counts),
}
ADD_REMOVE_ONLY = ("duff, median", "shifted_inverse, maximum, tau 2")


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Audit every mechanism that is defined for the relation; return the report and the exit code."""
    family = family_of(asked.neighbors)
    key = jax.random.key(asked.seed)
    try:
        audits = [
            _audit(name, build, family, asked, jax.random.fold_in(key, i))
            for i, (name, build) in enumerate(MECHANISMS.items())
            if asked.neighbors == "add_remove" or name not in ADD_REMOVE_ONLY
        ]
    except ValueError as error:
        raise UserError(str(error)) from error
    report = _json(asked, audits) if asked.json else _text(asked, family, audits)
    return report, 0 if all(audit.holds for audit in audits) else 1


def family_of(neighbors: Neighbors) -> Family:
    """Return all datasets of up to four records (under swap, of four) and their neighbouring pairs."""
    sizes = range(RECORDS + 1) if neighbors == "add_remove" else [RECORDS]
    datasets = [data for size in sizes for data in itertools.combinations_with_replacement(VALUES, size)]
    row = {data: i for i, data in enumerate(datasets)}
    pairs = set()
    for data, i in row.items():
        fewer = [data[:place] + data[place + 1 :] for place in range(len(data))]
        others = fewer if neighbors == "add_remove" else [tuple(sorted((*rest, value))) for rest in fewer for value in VALUES]
        pairs |= {(min(i, row[other]), max(i, row[other])) for other in others if other != data}
    x = np.zeros((len(datasets), RECORDS))
    for i, data in enumerate(datasets):
        x[i, : len(data)] = data
    count = jnp.asarray([len(data) for data in datasets], jnp.int32)
    return Family(datasets, jnp.asarray(x, jnp.result_type(float)), count, np.array(sorted(pairs)).T, neighbors)


def _audit(name: str, build: Build, family: Family, asked: argparse.Namespace, key: jax.Array) -> Audit:
    distribution, guarantee = build(family, asked.epsilon)
    distribution = _padded(distribution, len(family.datasets))
    loss = privacy_loss(*(_rows(distribution, jnp.asarray(rows)) for rows in family.pairs))
    losses = np.asarray(loss.epsilon, np.float64)
    losses = np.where(np.isnan(losses), np.inf, losses)
    worst = int(losses.argmax())
    pair = family.pairs[:, worst]
    draws = _rows(distribution, jnp.asarray(pair)).sample(key, (asked.draws,))
    score = log_ratio(*(_rows(distribution, row) for row in pair))
    return Audit(
        mechanism=name,
        guarantee=guarantee,
        exact_loss=float(losses[worst]),
        exact_range=float(np.max(np.asarray(loss.bounded_range, np.float64))),
        from_draws=float(lower_bound(draws[:, 0], draws[:, 1], confidence=CONFIDENCE, score=score).epsilon),
        worst_pair=(family.datasets[pair[0]], family.datasets[pair[1]]),
    )


def _padded(distribution: Distribution, rows: int) -> Distribution:
    """The same distribution with an array for each row, and on the line with further pieces of width 0 at the end."""
    rate = jnp.broadcast_to(distribution.rate, (rows,))
    if isinstance(distribution, Finite):
        return Finite(broadcast_rows(distribution.values, (rows,)), broadcast_rows(distribution.cost, (rows,)), rate)
    fields = distribution.edges, distribution.cost_left, distribution.cost_right
    edges, left, right = (broadcast_rows(field, (rows,)) for field in fields)
    if distribution.tails is not None:
        tails = jax.tree.map(lambda field: jnp.broadcast_to(field, (rows,)), distribution.tails)
        return PiecewiseExponential(edges, left, right, rate, tails, center=distribution.center)
    more = ((0, 0), (0, _PIECES - left.shape[-1]))
    edges, left, right = (jnp.pad(field, more, mode="edge") for field in (edges, left, right))
    return PiecewiseExponential(edges, left, right, rate)


def _rows(distribution: Distribution, rows: Any) -> Distribution:
    return jax.tree.map(lambda field: field[rows], distribution)


def _text(asked: argparse.Namespace, family: Family, audits: list[Audit]) -> str:
    """The audits as a table with what they mean, and the verdict."""
    table = aligned(
        {
            "mechanism": [a.mechanism for a in audits],
            "claimed epsilon": [promised(a.guarantee.epsilon) for a in audits],
            "exact loss": [f"{a.exact_loss:.4f}" for a in audits],
            "from draws": [f"{a.from_draws:.4f}" for a in audits],
            "claimed range": [promised(a.guarantee.bounded_range) for a in audits],
            "exact range": [f"{a.exact_range:.4f}" for a in audits],
            "worst pair": [" and ".join(_set(data) for data in a.worst_pair) for a in audits],
        },
        left=("mechanism", "worst pair"),
    )
    sizes = f"0 to {RECORDS}" if asked.neighbors == "add_remove" else f"{RECORDS}"
    head = (
        f"Audit at epsilon {promised(asked.epsilon)} under {asked.neighbors} neighbors: all {len(family.datasets)} datasets of "
        f"{sizes} records from {_set(VALUES)}, all {family.pairs.shape[1]} neighbouring pairs of them."
    )
    legend = wrapped(
        "exact loss: the supremum of abs(log p/q) over all outputs and pairs, of the distributions in exact arithmetic.",
        "exact range: the largest log p/q minus the smallest, of one pair. Other datasets may lose more than these small ones.",
        f"from draws: what {asked.draws} draws from each distribution of the worst pair show without the formula, a lower bound "
        f"with {100 * CONFIDENCE:g} % confidence each (Clopper-Pearson; seed {asked.seed}).",
        versions_line(),
    )
    broken = [
        f"BROKEN: {a.mechanism} claims {words_of(a.guarantee)}, and its exact loss is {a.exact_loss:.4f}, "
        f"its range {a.exact_range:.4f}."
        for a in audits
        if not a.holds
    ]
    verdict = wrapped(*(broken or ["No exact loss or range is above its claim."]))
    return "\n\n".join([wrapped(head), table, legend, verdict])


def _json(asked: argparse.Namespace, audits: list[Audit]) -> str:
    answer = {
        **{name: getattr(asked, name) for name in ("epsilon", "neighbors", "draws", "seed")},
        "confidence": CONFIDENCE,
        "values": VALUES,
        **versions(),
        "holds": all(a.holds for a in audits),
        "rows": [vars(a) | {"holds": a.holds} for a in audits],
    }
    return as_json(answer)


def _set(data: Dataset) -> str:
    return "{" + ", ".join(f"{value:g}" for value in data) + "}"
