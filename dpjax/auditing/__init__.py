"""How private output distributions are, measured: exactly from two of them, or from draws alone.

The privacy loss of every distribution here is exact, so a mechanism can be tested on a dataset and all its neighbours
(:func:`worst_neighbor`, :func:`privacy_loss`, :func:`trade_off`). What a training costs can be tested with canaries, records of
which each is in by a coin: any score that tells those in from those out bounds epsilon from below (:func:`audit_scores` from one
run, :func:`roc_lower_bound` and :func:`lower_bound` from many). How far the errors of a mechanism are from the best possible is
told by ``dpjax.bounds``. ``python -m dpjax audit`` prints, for every mechanism, its claim, the exact worst loss over families of
small datasets, and what can be shown from draws alone.
"""

from dpjax.auditing._privacy_loss import PrivacyLoss, privacy_loss
from dpjax.auditing._trade_off_curve import trade_off
from dpjax.auditing._worst_neighbor import WorstNeighbor, worst_neighbor
from dpjax.auditing.attack_scores import audit_scores, roc_lower_bound
from dpjax.auditing.black_box import BlackBoxBound, log_ratio, lower_bound
from dpjax.auditing.one_run import OneRunAudit, audit_in_one_run, epsilon_lower_bound, p_value

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
    "roc_lower_bound",
    "trade_off",
    "worst_neighbor",
]


def __dir__() -> list[str]:
    return __all__
