"""How private the output laws are, measured."""

from dpjax.auditing.privacy_loss import PrivacyLoss, privacy_loss
from dpjax.auditing.worst_neighbor import WorstNeighbor, worst_neighbor

__all__ = ["PrivacyLoss", "WorstNeighbor", "privacy_loss", "worst_neighbor"]
