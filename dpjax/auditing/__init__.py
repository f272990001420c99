"""Auditing of privacy guarantees, by exact privacy losses or by draws alone.

The privacy loss between two distributions of this library is exact, so a mechanism can be tested on
a dataset and its neighbors (:func:`privacy_loss`, :func:`worst_neighbor`, :func:`trade_off`). A
training can be tested with canaries, records that are each included by a coin flip: any score that
distinguishes included canaries from excluded ones gives a lower bound on epsilon
(:func:`audit_scores` from one run, :func:`lower_bound` from many, with and without the canary).
``dpjax.bounds`` has lower bounds on errors.
"""

from __future__ import annotations

from dpjax.auditing._privacy_loss import PrivacyLoss, privacy_loss, trade_off
from dpjax.auditing._worst_neighbor import WorstNeighbor, worst_neighbor
from dpjax.auditing.from_draws import BlackBoxBound, log_ratio, lower_bound
from dpjax.auditing.one_run import (
    OneRunAudit,
    audit_in_one_run,
    audit_scores,
    epsilon_lower_bound,
    p_value,
)

__all__ = [
    "BlackBoxBound",
    "OneRunAudit",
    "PrivacyLoss",
    "WorstNeighbor",
    "audit_in_one_run",
    "audit_scores",
    "epsilon_lower_bound",
    "log_ratio",
    "lower_bound",
    "p_value",
    "privacy_loss",
    "trade_off",
    "worst_neighbor",
]


def __dir__() -> list[str]:
    return __all__
