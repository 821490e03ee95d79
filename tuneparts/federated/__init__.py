"""Federated partitioned training (Mlodozeniec et al. 2023, appendix J), and federated averaging."""

from tuneparts.federated.client_data import ClientsConfig
from tuneparts.federated.executor import TasksConfig
from tuneparts.federated.learner import (
    ExchangeConfig,
    FedAvgConfig,
    FederatedConfig,
    FederatedLearner,
)
from tuneparts.federated.server import ServerConfig

__all__ = [
    "ClientsConfig",
    "ExchangeConfig",
    "FedAvgConfig",
    "FederatedConfig",
    "FederatedLearner",
    "ServerConfig",
    "TasksConfig",
]
