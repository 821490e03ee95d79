"""Ray Tune search and benchmarking of methods that learn hyperparameters in one run.

What a search file needs can be imported from here. Names of this module are imported when they are
first used, so `import tuneparts` is quick and `tuneparts.partition` needs neither Ray nor MLflow.

Example:
    >>> from tuneparts import Arm, Choice, GridSearch, StandardConfig
    >>> widths = {"net.widths": Choice(options=((16,), (32,)))}
    >>> Arm(name="a", config=StandardConfig(), algorithm=GridSearch(), space=widths).trials_per_seed
    2
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneparts.api import Results as Results
    from tuneparts.api import extend as extend
    from tuneparts.api import load as load
    from tuneparts.api import resume as resume
    from tuneparts.api import run as run
    from tuneparts.baselines.augerino import AugerinoConfig as AugerinoConfig
    from tuneparts.baselines.laplace import LaplaceConfig as LaplaceConfig
    from tuneparts.baselines.last_layer import LastLayerConfig as LastLayerConfig
    from tuneparts.baselines.posthoc import PosthocConfig as PosthocConfig
    from tuneparts.baselines.standard import StandardConfig as StandardConfig
    from tuneparts.baselines.validation import ValidationConfig as ValidationConfig
    from tuneparts.data.config import DataConfig as DataConfig
    from tuneparts.data.target import Binary as Binary
    from tuneparts.data.target import Classes as Classes
    from tuneparts.data.target import OwnLoss as OwnLoss
    from tuneparts.data.target import Target as Target
    from tuneparts.data.target import Values as Values
    from tuneparts.ensembles.batch_ensemble import BatchEnsembleConfig as BatchEnsembleConfig
    from tuneparts.ensembles.deep import DeepEnsembleConfig as DeepEnsembleConfig
    from tuneparts.ensembles.hne import HneConfig as HneConfig
    from tuneparts.ensembles.mimo import MimoConfig as MimoConfig
    from tuneparts.ensembles.msdnet import MsdNetConfig as MsdNetConfig
    from tuneparts.ensembles.slimmable import SlimmableConfig as SlimmableConfig
    from tuneparts.ensembles.slimmable import (
        UniversallySlimmableConfig as UniversallySlimmableConfig,
    )
    from tuneparts.federated.learner import FedAvgConfig as FedAvgConfig
    from tuneparts.federated.learner import FederatedConfig as FederatedConfig
    from tuneparts.models import Own as Own
    from tuneparts.objective import ObjectiveConfig as ObjectiveConfig
    from tuneparts.partition.learner import PartitionedConfig as PartitionedConfig
    from tuneparts.partition.released import ReleasedConfig as ReleasedConfig
    from tuneparts.pwfn.config import PwfnConfig as PwfnConfig
    from tuneparts.schema import Direction as Direction
    from tuneparts.schema import Metric as Metric
    from tuneparts.search.algorithms import Algorithm as Algorithm
    from tuneparts.search.algorithms import Asha as Asha
    from tuneparts.search.algorithms import Fixed as Fixed
    from tuneparts.search.algorithms import GridSearch as GridSearch
    from tuneparts.search.algorithms import Hyperband as Hyperband
    from tuneparts.search.algorithms import MedianStopping as MedianStopping
    from tuneparts.search.algorithms import Optuna as Optuna
    from tuneparts.search.algorithms import OptunaSearch as OptunaSearch
    from tuneparts.search.algorithms import Pb2 as Pb2
    from tuneparts.search.algorithms import Pbt as Pbt
    from tuneparts.search.algorithms import PercentileStopping as PercentileStopping
    from tuneparts.search.algorithms import RandomSearch as RandomSearch
    from tuneparts.search.algorithms import SuccessiveHalving as SuccessiveHalving
    from tuneparts.search.algorithms import Tpe as Tpe
    from tuneparts.search.space import Choice as Choice
    from tuneparts.search.space import Dimension as Dimension
    from tuneparts.search.space import Float as Float
    from tuneparts.search.space import Int as Int
    from tuneparts.search.space import LogNormal as LogNormal
    from tuneparts.search.space import Normal as Normal
    from tuneparts.search.space import Uniform as Uniform
    from tuneparts.search.spec import Arm as Arm
    from tuneparts.search.spec import Resources as Resources
    from tuneparts.search.spec import Scale as Scale
    from tuneparts.search.spec import Search as Search
    from tuneparts.search.stopping import Stop as Stop
    from tuneparts.superweights.learner import SuperweightsConfig as SuperweightsConfig
    from tuneparts.superweights.ssn import SsnConfig as SsnConfig
    from tuneparts.training.learner import Context as Context
    from tuneparts.training.learner import Learner as Learner
    from tuneparts.training.learner import MethodConfig as MethodConfig
    from tuneparts.training.runtime import Runtime as Runtime

__version__ = "0.1.0"

_HOMES = {
    "tuneparts.api": ("Results", "extend", "load", "resume", "run"),
    "tuneparts.baselines.augerino": ("AugerinoConfig",),
    "tuneparts.baselines.laplace": ("LaplaceConfig",),
    "tuneparts.baselines.last_layer": ("LastLayerConfig",),
    "tuneparts.baselines.posthoc": ("PosthocConfig",),
    "tuneparts.baselines.standard": ("StandardConfig",),
    "tuneparts.baselines.validation": ("ValidationConfig",),
    "tuneparts.data.config": ("DataConfig",),
    "tuneparts.data.target": ("Binary", "Classes", "OwnLoss", "Target", "Values"),
    "tuneparts.ensembles.batch_ensemble": ("BatchEnsembleConfig",),
    "tuneparts.ensembles.deep": ("DeepEnsembleConfig",),
    "tuneparts.ensembles.hne": ("HneConfig",),
    "tuneparts.ensembles.mimo": ("MimoConfig",),
    "tuneparts.ensembles.msdnet": ("MsdNetConfig",),
    "tuneparts.ensembles.slimmable": ("SlimmableConfig", "UniversallySlimmableConfig"),
    "tuneparts.federated.learner": ("FedAvgConfig", "FederatedConfig"),
    "tuneparts.models": ("Own",),
    "tuneparts.objective": ("ObjectiveConfig",),
    "tuneparts.partition.learner": ("PartitionedConfig",),
    "tuneparts.partition.released": ("ReleasedConfig",),
    "tuneparts.pwfn.config": ("PwfnConfig",),
    "tuneparts.schema": ("Direction", "Metric"),
    "tuneparts.search.algorithms": (
        "Algorithm",
        "Asha",
        "Fixed",
        "GridSearch",
        "Hyperband",
        "MedianStopping",
        "Optuna",
        "OptunaSearch",
        "Pb2",
        "Pbt",
        "PercentileStopping",
        "RandomSearch",
        "SuccessiveHalving",
        "Tpe",
    ),
    "tuneparts.search.space": (
        "Choice",
        "Dimension",
        "Float",
        "Int",
        "LogNormal",
        "Normal",
        "Uniform",
    ),
    "tuneparts.search.spec": ("Arm", "Resources", "Scale", "Search"),
    "tuneparts.search.stopping": ("Stop",),
    "tuneparts.superweights.learner": ("SuperweightsConfig",),
    "tuneparts.superweights.ssn": ("SsnConfig",),
    "tuneparts.training.learner": ("Context", "Learner", "MethodConfig"),
    "tuneparts.training.runtime": ("Runtime",),
}
"""Where the public names live."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module `tuneparts` has no attribute `{name}`")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
