"""Federated partitioned training (Mlodozeniec et al. 2023, appendix J), and federated averaging."""

from tuneparts.federated.clients import ClientsConfig
from tuneparts.federated.config import FedAvgConfig, FederatedConfig, TasksConfig
from tuneparts.federated.learner import FederatedLearner
from tuneparts.federated.server import ServerConfig

__all__ = [
    "ClientsConfig",
    "FedAvgConfig",
    "FederatedConfig",
    "FederatedLearner",
    "ServerConfig",
    "TasksConfig",
]
