from tuneparts.methods.federated.config import ClientsConfig as ClientsConfig
from tuneparts.methods.federated.config import ExchangeConfig as ExchangeConfig
from tuneparts.methods.federated.config import FedAvg as FedAvg
from tuneparts.methods.federated.config import Federated as Federated
from tuneparts.methods.federated.config import ServerConfig as ServerConfig
from tuneparts.methods.federated.config import TasksConfig as TasksConfig
from tuneparts.methods.federated.learner import FederatedLearner as FederatedLearner
