# Public name -> module that has it. `__init__.py` reads this table, and so do type checkers.
from tuneparts import data as data
from tuneparts import nets as nets
from tuneparts import ray as ray
from tuneparts import testing as testing
from tuneparts.core.schema import Direction as Direction
from tuneparts.core.schema import Metric as Metric
from tuneparts.data.config import Data as Data
from tuneparts.data.target import Binary as Binary
from tuneparts.data.target import Classes as Classes
from tuneparts.data.target import OwnLoss as OwnLoss
from tuneparts.data.target import Target as Target
from tuneparts.data.target import Values as Values
from tuneparts.hypers import Affine as Affine
from tuneparts.methods.baselines.config import Augerino as Augerino
from tuneparts.methods.baselines.config import Laplace as Laplace
from tuneparts.methods.baselines.config import LastLayer as LastLayer
from tuneparts.methods.baselines.config import PosthocLaplace as PosthocLaplace
from tuneparts.methods.baselines.config import Standard as Standard
from tuneparts.methods.baselines.config import ValidationSet as ValidationSet
from tuneparts.methods.ensembles.config import BatchEnsemble as BatchEnsemble
from tuneparts.methods.ensembles.config import DeepEnsemble as DeepEnsemble
from tuneparts.methods.ensembles.config import Hne as Hne
from tuneparts.methods.ensembles.config import Mimo as Mimo
from tuneparts.methods.ensembles.config import MsdNetEnsemble as MsdNetEnsemble
from tuneparts.methods.ensembles.config import Slimmable as Slimmable
from tuneparts.methods.ensembles.config import (
    UniversallySlimmable as UniversallySlimmable,
)
from tuneparts.methods.federated.config import FedAvg as FedAvg
from tuneparts.methods.federated.config import Federated as Federated
from tuneparts.methods.objective import Objective as Objective
from tuneparts.methods.partitioned.config import Partitioned as Partitioned
from tuneparts.methods.pwfn.config import Pwfn as Pwfn
from tuneparts.methods.superweights.config import Ssn as Ssn
from tuneparts.methods.superweights.config import SuperWeights as SuperWeights
from tuneparts.nets import Own as Own
from tuneparts.results.results import Results as Results
from tuneparts.results.results import load as load
from tuneparts.results.running import extend as extend
from tuneparts.results.running import resume as resume
from tuneparts.results.running import run as run
from tuneparts.search.algorithms.base import Algorithm as Algorithm
from tuneparts.search.algorithms.base import Fixed as Fixed
from tuneparts.search.algorithms.base import GridSearch as GridSearch
from tuneparts.search.algorithms.base import RandomSearch as RandomSearch
from tuneparts.search.algorithms.halving import Asha as Asha
from tuneparts.search.algorithms.halving import Hyperband as Hyperband
from tuneparts.search.algorithms.halving import SuccessiveHalving as SuccessiveHalving
from tuneparts.search.algorithms.pbt import Pbt as Pbt
from tuneparts.search.algorithms.sampler import Optuna as Optuna
from tuneparts.search.algorithms.sampler import OptunaSearch as OptunaSearch
from tuneparts.search.algorithms.sampler import Pruned as Pruned
from tuneparts.search.algorithms.sampler import Tpe as Tpe
from tuneparts.search.arm import Arm as Arm
from tuneparts.search.arm import Resources as Resources
from tuneparts.search.space import Choice as Choice
from tuneparts.search.space import Dimension as Dimension
from tuneparts.search.space import Int as Int
from tuneparts.search.space import LogNormal as LogNormal
from tuneparts.search.space import Normal as Normal
from tuneparts.search.space import Uniform as Uniform
from tuneparts.search.spec import Scale as Scale
from tuneparts.search.spec import Search as Search
from tuneparts.search.stopping import Stop as Stop
from tuneparts.training.config import Method as Method
from tuneparts.training.config import Runtime as Runtime
from tuneparts.training.learner import Context as Context
from tuneparts.training.learner import Learner as Learner

__all__: list[str]
__version__: str
