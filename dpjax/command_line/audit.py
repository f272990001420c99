"""``dpjax audit``: the claims of all mechanisms, tested on small datasets.

It shows the exact worst loss over small datasets, and a bound from draws. No file is read: the
datasets are all multisets of up to four records from five values.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.accounting import Guarantee
from dpjax.auditing import privacy_loss
from dpjax.auditing.black_box import log_ratio, lower_bound
from dpjax.command_line.audited import (
    ADD_REMOVE_ONLY,
    MECHANISMS,
    RECORDS,
    VALUES,
    Build,
    Dataset,
    Distribution,
    Family,
    budgets,
    family_of,
)
from dpjax.command_line.errors import UserError
from dpjax.command_line.text import (
    aligned,
    as_json,
    promised,
    versions,
    versions_line,
    words_of,
    wrapped,
)
from dpjax.distributions import Finite, PiecewiseExponential
from dpjax.metric_privacy import MetricGuarantee
from dpjax.numerics.batching import broadcast_rows

CONFIDENCE = 0.95
# Relative tolerance; 1e-5 is added, as losses are differences of log-densities in float32
ROUNDING = 1e-4
_PIECES = 16  # the number of pieces to which distributions are padded, to share compiled programs


@dataclass(frozen=True)
class Audit:
    """The audit of one mechanism.

    Attributes:
        mechanism: the name of the mechanism and its statistic.
        guarantee: the guarantee of one draw; under a metric, that of the pair with the largest
            budget.
        exact_loss: the exact largest log-ratio over all pairs and both directions, except with the
            probability delta of the guarantee. Under a metric, the loss of a pair relative to its
            budget, times the largest budget.
        exact_range: the exact largest bounded range, scaled in the same way.
        from_draws: the lower bound on epsilon from draws on the pair with the largest loss, scaled
            in the same way.
        worst_pair: the pair with the largest loss.
    """

    mechanism: str
    guarantee: Guarantee
    exact_loss: float
    exact_range: float
    from_draws: float
    worst_pair: tuple[Dataset, Dataset]

    @property
    def holds(self) -> bool:
        """True if the exact loss and range are at most the claimed ones, up to rounding."""
        pairs = (
            (self.exact_loss, self.guarantee.epsilon),
            (self.exact_range, self.guarantee.bounded_range),
        )
        return all(found <= claim * (1 + ROUNDING) + 1e-5 for found, claim in pairs)


def run(asked: argparse.Namespace) -> tuple[str, int]:
    """Audit every mechanism that is defined under the relation.

    Return the report and the exit code.
    """
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


def _audit(
    name: str, build: Build, family: Family, asked: argparse.Namespace, key: jax.Array
) -> Audit:
    distribution, promise = build(family, asked.epsilon)
    guarantee = (
        promise.guarantee(neighbors=promise.neighbors)
        if isinstance(promise, MetricGuarantee)
        else promise
    )
    share = guarantee.epsilon / budgets(promise, family)
    distribution = _padded(distribution, len(family.datasets))
    loss = privacy_loss(*(_rows(distribution, jnp.asarray(rows)) for rows in family.pairs))
    losses = share * np.asarray(
        loss.epsilon_at(guarantee.delta) if guarantee.delta else loss.epsilon, np.float64
    )
    losses = np.where(np.isnan(losses), np.inf, losses)
    worst = int(losses.argmax())
    pair = family.pairs[:, worst]
    draws = _rows(distribution, jnp.asarray(pair)).sample(key, (asked.draws,))
    score = log_ratio(*(_rows(distribution, row) for row in pair))
    shown = lower_bound(
        draws[:, 0], draws[:, 1], confidence=CONFIDENCE, delta=guarantee.delta, score=score
    )
    return Audit(
        mechanism=name,
        guarantee=guarantee,
        exact_loss=float(losses[worst]),
        exact_range=float(np.max(share * np.asarray(loss.bounded_range, np.float64))),
        from_draws=float(share[worst] * shown.epsilon),
        worst_pair=(family.datasets[pair[0]], family.datasets[pair[1]]),
    )


def _padded(distribution: Distribution, rows: int) -> Distribution:
    """Broadcast a distribution to all rows.

    On the real line, it is padded with pieces of width 0.
    """
    rate = jnp.broadcast_to(distribution.rate, (rows,))
    if isinstance(distribution, Finite):
        return Finite(
            broadcast_rows(distribution.values, (rows,)),
            broadcast_rows(distribution.cost, (rows,)),
            rate,
        )
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
    """Return the table of audits, its legend and the verdict."""
    table = aligned(
        {
            "mechanism": [a.mechanism for a in audits],
            "claimed epsilon": [_claim(a.guarantee) for a in audits],
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
        f"Audit at epsilon {promised(asked.epsilon)} under {asked.neighbors} neighbors: all "
        f"{len(family.datasets)} datasets of {sizes} records from {_set(VALUES)}, all "
        f"{family.pairs.shape[1]} neighboring pairs of them."
    )
    legend = wrapped(
        "exact loss: the supremum of abs(log p/q) over all outputs and pairs, of the "
        "distributions in exact arithmetic.",
        "exact range: the largest log p/q minus the smallest, of one pair. Other datasets may "
        "have larger losses than these.",
        "With a delta, the exact loss holds except with that probability. The budgets of "
        "metric_laplace, linear_selection and small_db depend on the distance of two values: "
        "their losses are relative to the budget of the pair, times the largest.",
        f"from draws: a lower bound on epsilon from {asked.draws} draws of each distribution of "
        f"the worst pair, with {100 * CONFIDENCE:g} % confidence each (Clopper-Pearson; seed "
        f"{asked.seed}).",
        versions_line(),
    )
    broken = [
        f"BROKEN: {a.mechanism} claims {words_of(a.guarantee)}, but its exact loss is "
        f"{a.exact_loss:.4f} and its range {a.exact_range:.4f}."
        for a in audits
        if not a.holds
    ]
    verdict = wrapped(*(broken or ["No exact loss or range is above its claim."]))
    return "\n\n".join([wrapped(head), table, legend, verdict])


def _claim(guarantee: Guarantee) -> str:
    return promised(guarantee.epsilon) + (
        f", delta {promised(guarantee.delta)}" if guarantee.delta else ""
    )


def _json(asked: argparse.Namespace, audits: list[Audit]) -> str:
    answer = {
        **{name: getattr(asked, name) for name in ("epsilon", "neighbors", "draws", "seed")},
        "confidence": CONFIDENCE,
        "values": VALUES,
        **versions(jax=True),
        "holds": all(a.holds for a in audits),
        "rows": [vars(a) | {"holds": a.holds} for a in audits],
    }
    return as_json(answer)


def _set(data: Dataset) -> str:
    return "{" + ", ".join(f"{value:g}" for value in data) + "}"
