from tuneparts.methods.federated.config import ClientsConfig as ClientsConfig
from tuneparts.methods.federated.config import ExchangeConfig as ExchangeConfig
from tuneparts.methods.federated.config import FedAvgConfig as FedAvgConfig
from tuneparts.methods.federated.config import FederatedConfig as FederatedConfig
from tuneparts.methods.federated.config import ServerConfig as ServerConfig
from tuneparts.methods.federated.config import TasksConfig as TasksConfig
from tuneparts.methods.federated.learner import FederatedLearner as FederatedLearner
