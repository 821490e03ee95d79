"""Federated partitioned training (Mlodozeniec et al. 2023, appendix J), and federated averaging."""

from tuneparts.methods.federated.client_data import ClientsConfig
from tuneparts.methods.federated.executor import TasksConfig
from tuneparts.methods.federated.learner import (
    ExchangeConfig,
    FedAvgConfig,
    FederatedConfig,
    FederatedLearner,
)
from tuneparts.methods.federated.server import ServerConfig

__all__ = [
    "ClientsConfig",
    "ExchangeConfig",
    "FedAvgConfig",
    "FederatedConfig",
    "FederatedLearner",
    "ServerConfig",
    "TasksConfig",
]
