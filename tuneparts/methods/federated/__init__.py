"""Federated partitioned training (Mlodozeniec et al. 2023, appendix J), and federated averaging."""

from tuneparts.methods.federated.config import (
    ClientsConfig,
    ExchangeConfig,
    FedAvgConfig,
    FederatedConfig,
    ServerConfig,
    TasksConfig,
)
from tuneparts.methods.federated.learner import FederatedLearner

__all__ = [
    "ClientsConfig",
    "ExchangeConfig",
    "FedAvgConfig",
    "FederatedConfig",
    "FederatedLearner",
    "ServerConfig",
    "TasksConfig",
]
