"""How private output distributions are, measured: exactly from two of them, or from draws alone."""

from dpjax.auditing._privacy_loss import PrivacyLoss, privacy_loss
from dpjax.auditing._trade_off import trade_off
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
