"""The audit of every mechanism: what it claims, its exact worst loss over small datasets, and what draws alone can show.

No file is read: the datasets are all multisets of up to four records from five values, and all their neighbours among them.
"""

from __future__ import annotations

import itertools
import json
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
from dpjax.command_line.errors import UserError
from dpjax.command_line.report import aligned, guarantee_fields, number, promised, said_of, versions, wrapped
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
_PIECES = 16  # laws on the line are padded to so many, and share their compiled programs

Law = PiecewiseExponential | Finite
Dataset = tuple[float, ...]


@dataclass(frozen=True)
class Setting:
    """What is asked: one epsilon and relation for all mechanisms, and how many draws from each law of the worst pair."""

    epsilon: float
    neighbors: Neighbors
    draws: int
    seed: int


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


@dataclass(frozen=True)
class Audit:
    """One mechanism.

    Attributes:
        mechanism: its name and statistic.
        guarantee: what it claims of one draw.
        loss: the exact largest log-ratio over all pairs and both directions.
        range: the exact largest bounded range.
        shown: the lower bound on epsilon from draws on the pair with the largest loss.
        pair: that pair.
    """

    mechanism: str
    guarantee: Guarantee
    loss: float
    range: float
    shown: float
    pair: tuple[Dataset, Dataset]

    @property
    def holds(self) -> bool:
        """Whether neither exact number is above its claim by more than rounding."""
        pairs = ((self.loss, self.guarantee.epsilon), (self.range, self.guarantee.bounded_range))
        return all(found <= claim * (1 + ROUNDING) + 1e-5 for found, claim in pairs)


def _plm(statistic: Callable[[Family], Any], **options: Any) -> Callable[[Family, float], tuple[Law, Guarantee]]:
    def build(family: Family, epsilon: float) -> tuple[Law, Guarantee]:
        profile = statistic(family)
        return piecewise_laplace.piecewise_laplace(profile, epsilon, **options), piecewise_laplace.guarantee(profile, epsilon)

    return build


def _median(family: Family) -> Any:
    return median(family.x, **family.known)


def _inverse_sensitivity(family: Family, epsilon: float) -> tuple[Law, Guarantee]:
    profile = _median(family)
    return inverse_sensitivity.inverse_sensitivity(profile, epsilon), inverse_sensitivity.guarantee(profile, epsilon)


def _duff(family: Family, epsilon: float) -> tuple[Law, Guarantee]:
    profile = median(family.x, definition="lower", **family.known)
    return duff.duff(profile, epsilon), duff.guarantee(profile, epsilon)


def _shifted_inverse(family: Family, epsilon: float) -> tuple[Law, Guarantee]:
    down = maximum(family.x, lower=LOWER, upper=UPPER, count=family.count)
    return shifted_inverse.shifted_inverse(down, epsilon, tau=2), shifted_inverse.guarantee(down, epsilon)


def _laplace(bounded: bool) -> Callable[[Family, float], tuple[Law, Guarantee]]:
    bounds = {"lower": 0.0, "upper": RECORDS * UPPER} if bounded else {}

    def build(family: Family, epsilon: float) -> tuple[Law, Guarantee]:
        law = laplace.laplace(jnp.sum(family.x, axis=-1), epsilon, sensitivity=UPPER - LOWER, **bounds)
        return law, laplace.guarantee(epsilon, neighbors=family.neighbors, bounded=bounded)

    return build


def _candidates(mechanism: Any, guarantee: Callable[..., Guarantee]) -> Callable[[Family, float], tuple[Law, Guarantee]]:
    def build(family: Family, epsilon: float) -> tuple[Law, Guarantee]:
        scores = candidate_counts(family.x, candidates=np.array(VALUES), neighbors=family.neighbors, count=family.count)
        return mechanism(scores, epsilon), guarantee(scores, epsilon)

    return build


MECHANISMS: dict[str, Callable[[Family, float], tuple[Law, Guarantee]]] = {
    "piecewise_laplace, median": _plm(_median),
    "piecewise_laplace, median, rho 0.5": _plm(_median, rho=0.5),
    "piecewise_laplace, quantile 0.9": _plm(lambda family: quantile(family.x, 0.9, **family.known)),
    "piecewise_laplace, mean": _plm(lambda family: mean(family.x, **family.known)),
    "inverse_sensitivity, median": _inverse_sensitivity,
    "duff, median": _duff,
    "shifted_inverse, maximum, tau 2": _shifted_inverse,
    "laplace, sum": _laplace(bounded=False),
    "laplace within bounds, sum": _laplace(bounded=True),
    "exponential, mode": _candidates(exponential.exponential, exponential.guarantee),
    "permute_and_flip, mode": _candidates(permute_and_flip.permute_and_flip, permute_and_flip.guarantee),
}
ADD_REMOVE_ONLY = ("duff, median", "shifted_inverse, maximum, tau 2")


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


def measure(setting: Setting) -> list[Audit]:
    """Audit every mechanism that is defined for the relation.

    Raises:
        UserError: a public parameter that the library refuses.
    """
    family = family_of(setting.neighbors)
    key = jax.random.key(setting.seed)
    try:
        return [
            _audit(name, build, family, setting, jax.random.fold_in(key, i))
            for i, (name, build) in enumerate(MECHANISMS.items())
            if setting.neighbors == "add_remove" or name not in ADD_REMOVE_ONLY
        ]
    except ValueError as error:
        raise UserError(str(error)) from error


def _audit(
    name: str, build: Callable[[Family, float], tuple[Law, Guarantee]], family: Family, setting: Setting, key: jax.Array
) -> Audit:
    law, guarantee = build(family, setting.epsilon)
    law = _padded(law, len(family.datasets))
    first, second = (_rows(law, jnp.asarray(rows)) for rows in family.pairs)
    loss = privacy_loss(first, second)
    losses = np.asarray(loss.epsilon, np.float64)
    losses = np.where(np.isnan(losses), np.inf, losses)
    worst = int(losses.argmax())
    pair = family.pairs[:, worst]
    both = _rows(law, jnp.asarray(pair))
    draws = both.sample(key, (setting.draws,))
    p, q = (_rows(law, row) for row in pair)
    shown = lower_bound(draws[:, 0], draws[:, 1], confidence=CONFIDENCE, score=log_ratio(p, q))
    return Audit(
        mechanism=name,
        guarantee=guarantee,
        loss=float(losses[worst]),
        range=float(np.max(np.asarray(loss.bounded_range, np.float64))),
        shown=float(shown.epsilon),
        pair=(family.datasets[pair[0]], family.datasets[pair[1]]),
    )


def _padded(law: Law, rows: int) -> Law:
    """The same law with an array for each row, and on the line with further pieces of width 0 at the end."""
    rate = jnp.broadcast_to(law.rate, (rows,))
    if isinstance(law, Finite):
        return Finite(broadcast_rows(law.values, (rows,)), broadcast_rows(law.cost, (rows,)), rate)
    edges, left, right = (broadcast_rows(field, (rows,)) for field in (law.edges, law.cost_left, law.cost_right))
    if law.tails is not None:
        tails = jax.tree.map(lambda field: jnp.broadcast_to(field, (rows,)), law.tails)
        return PiecewiseExponential(edges, left, right, rate, tails, center=law.center)
    more = ((0, 0), (0, _PIECES - left.shape[-1]))
    edges, left, right = (jnp.pad(field, more, mode="edge") for field in (edges, left, right))
    return PiecewiseExponential(edges, left, right, rate)


def _rows(law: Law, rows: Any) -> Law:
    return jax.tree.map(lambda field: field[rows], law)


def as_text(setting: Setting, audits: list[Audit]) -> str:
    """Return the audits as a table with what they mean, and the verdict."""
    table = aligned(
        {
            "mechanism": [a.mechanism for a in audits],
            "claimed epsilon": [promised(a.guarantee.epsilon) for a in audits],
            "exact loss": [f"{a.loss:.4f}" for a in audits],
            "from draws": [f"{a.shown:.4f}" for a in audits],
            "claimed range": [promised(a.guarantee.bounded_range) for a in audits],
            "exact range": [f"{a.range:.4f}" for a in audits],
            "worst pair": [" and ".join(_set(data) for data in a.pair) for a in audits],
        },
        left=("mechanism", "worst pair"),
    )
    sizes = f"0 to {RECORDS}" if setting.neighbors == "add_remove" else f"{RECORDS}"
    family = family_of(setting.neighbors)
    where = versions()
    lines = [
        wrapped(
            f"Audit at epsilon {promised(setting.epsilon)} under {setting.neighbors} neighbors: all "
            f"{len(family.datasets)} datasets of {sizes} records from {_set(VALUES)}, "
            f"all {family.pairs.shape[1]} neighbouring pairs of them."
        ),
        "",
        *table,
        "",
        wrapped("exact loss: the supremum of abs(log p/q) over all outputs and pairs, of the laws in exact arithmetic."),
        wrapped(
            "exact range: the largest log p/q minus the smallest, of one pair. Other datasets may lose more than these small ones."
        ),
        wrapped(
            f"from draws: what {setting.draws} draws from each law of the worst pair show without the formula, a lower bound with "
            f"{100 * CONFIDENCE:g} % confidence each (Clopper-Pearson; seed {setting.seed})."
        ),
        f"Device {where['device']}; dpjax {where['dpjax_version']}; JAX {where['jax_version']}.",
        "",
        *(wrapped(line) for line in _verdict(audits)),
    ]
    return "\n".join(lines)


def as_json(setting: Setting, audits: list[Audit]) -> str:
    """Return the audits as one JSON object; a number that is not finite is null."""
    answer = {
        "epsilon": setting.epsilon,
        "neighbors": setting.neighbors,
        "draws": setting.draws,
        "seed": setting.seed,
        "confidence": CONFIDENCE,
        "values": VALUES,
        **versions(),
        "holds": all(a.holds for a in audits),
        "rows": [
            {
                "mechanism": a.mechanism,
                "guarantee": guarantee_fields(a.guarantee),
                "exact_loss": number(a.loss),
                "exact_range": number(a.range),
                "from_draws": number(a.shown),
                "worst_pair": a.pair,
                "holds": a.holds,
            }
            for a in audits
        ],
    }
    return json.dumps(answer, indent=2, allow_nan=False)


def _verdict(audits: list[Audit]) -> list[str]:
    broken = [a for a in audits if not a.holds]
    if not broken:
        return ["No exact loss or range is above its claim."]
    return [
        f"BROKEN: {a.mechanism} claims {said_of(a.guarantee)}, and its exact loss is {a.loss:.4f}, its range {a.range:.4f}."
        for a in broken
    ]


def _set(data: Dataset) -> str:
    return "{" + ", ".join(f"{value:g}" for value in data) + "}"
