"""What a mechanism really costs: audits from its draws, which need no formula for its law."""

from dpjax.auditing.black_box import BlackBoxBound, log_ratio, lower_bound
from dpjax.auditing.one_run import OneRunAudit, audit_in_one_run, epsilon_lower_bound, p_value

__all__ = ["BlackBoxBound", "OneRunAudit", "audit_in_one_run", "epsilon_lower_bound", "log_ratio", "lower_bound", "p_value"]
