"""Ray Tune search and benchmarking of methods that learn hyperparameters in one run.

What a search file needs can be imported from here. Names of this module are imported when they are
first used, so `import tuneparts` is quick.

Example:
    >>> from tuneparts import Arm, Choice, GridSearch, StandardConfig
    >>> widths = {"net.widths": Choice(options=((16,), (32,)))}
    >>> Arm(name="a", config=StandardConfig(), algorithm=GridSearch(), space=widths).trials_per_seed
    2
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneparts.core.schema import Direction as Direction
    from tuneparts.core.schema import Metric as Metric
    from tuneparts.data.config import DataConfig as DataConfig
    from tuneparts.data.target import Binary as Binary
    from tuneparts.data.target import Classes as Classes
    from tuneparts.data.target import OwnLoss as OwnLoss
    from tuneparts.data.target import Target as Target
    from tuneparts.data.target import Values as Values
    from tuneparts.methods.baselines.augerino import AugerinoConfig as AugerinoConfig
    from tuneparts.methods.baselines.laplace import LaplaceConfig as LaplaceConfig
    from tuneparts.methods.baselines.last_layer import LastLayerConfig as LastLayerConfig
    from tuneparts.methods.baselines.posthoc import PosthocConfig as PosthocConfig
    from tuneparts.methods.baselines.standard import StandardConfig as StandardConfig
    from tuneparts.methods.baselines.validation import ValidationConfig as ValidationConfig
    from tuneparts.methods.ensembles.batch_ensemble import (
        BatchEnsembleConfig as BatchEnsembleConfig,
    )
    from tuneparts.methods.ensembles.deep import DeepEnsembleConfig as DeepEnsembleConfig
    from tuneparts.methods.ensembles.hne import HneConfig as HneConfig
    from tuneparts.methods.ensembles.mimo import MimoConfig as MimoConfig
    from tuneparts.methods.ensembles.msdnet import MsdNetConfig as MsdNetConfig
    from tuneparts.methods.ensembles.slimmable import SlimmableConfig as SlimmableConfig
    from tuneparts.methods.ensembles.slimmable import (
        UniversallySlimmableConfig as UniversallySlimmableConfig,
    )
    from tuneparts.methods.federated.config import FedAvgConfig as FedAvgConfig
    from tuneparts.methods.federated.config import FederatedConfig as FederatedConfig
    from tuneparts.methods.objective import ObjectiveConfig as ObjectiveConfig
    from tuneparts.methods.partitioned.learner import PartitionedConfig as PartitionedConfig
    from tuneparts.methods.partitioned.released import ReleasedConfig as ReleasedConfig
    from tuneparts.methods.pwfn.config import PwfnConfig as PwfnConfig
    from tuneparts.methods.superweights.learner import SuperweightsConfig as SuperweightsConfig
    from tuneparts.methods.superweights.ssn import SsnConfig as SsnConfig
    from tuneparts.models import Own as Own
    from tuneparts.results.extending import extend as extend
    from tuneparts.results.results import Results as Results
    from tuneparts.results.results import load as load
    from tuneparts.results.running import resume as resume
    from tuneparts.results.running import run as run
    from tuneparts.search.algorithms import Algorithm as Algorithm
    from tuneparts.search.algorithms import Asha as Asha
    from tuneparts.search.algorithms import Fixed as Fixed
    from tuneparts.search.algorithms import GridSearch as GridSearch
    from tuneparts.search.algorithms import Hyperband as Hyperband
    from tuneparts.search.algorithms import Optuna as Optuna
    from tuneparts.search.algorithms import OptunaSearch as OptunaSearch
    from tuneparts.search.algorithms import Pbt as Pbt
    from tuneparts.search.algorithms import Pruned as Pruned
    from tuneparts.search.algorithms import RandomSearch as RandomSearch
    from tuneparts.search.algorithms import SuccessiveHalving as SuccessiveHalving
    from tuneparts.search.algorithms import Tpe as Tpe
    from tuneparts.search.space import Choice as Choice
    from tuneparts.search.space import Dimension as Dimension
    from tuneparts.search.space import Int as Int
    from tuneparts.search.space import LogNormal as LogNormal
    from tuneparts.search.space import Normal as Normal
    from tuneparts.search.space import Uniform as Uniform
    from tuneparts.search.spec import Arm as Arm
    from tuneparts.search.spec import Resources as Resources
    from tuneparts.search.spec import Scale as Scale
    from tuneparts.search.spec import Search as Search
    from tuneparts.search.stopping import Stop as Stop
    from tuneparts.training.learner import Context as Context
    from tuneparts.training.learner import Learner as Learner
    from tuneparts.training.learner import MethodConfig as MethodConfig
    from tuneparts.training.runtime import Runtime as Runtime

__version__ = "0.1.0"

_HOMES = {
    "tuneparts.results.extending": ("extend",),
    "tuneparts.results.results": ("Results", "load"),
    "tuneparts.results.running": ("resume", "run"),
    "tuneparts.methods.baselines.augerino": ("AugerinoConfig",),
    "tuneparts.methods.baselines.laplace": ("LaplaceConfig",),
    "tuneparts.methods.baselines.last_layer": ("LastLayerConfig",),
    "tuneparts.methods.baselines.posthoc": ("PosthocConfig",),
    "tuneparts.methods.baselines.standard": ("StandardConfig",),
    "tuneparts.methods.baselines.validation": ("ValidationConfig",),
    "tuneparts.data.config": ("DataConfig",),
    "tuneparts.data.target": ("Binary", "Classes", "OwnLoss", "Target", "Values"),
    "tuneparts.methods.ensembles.batch_ensemble": ("BatchEnsembleConfig",),
    "tuneparts.methods.ensembles.deep": ("DeepEnsembleConfig",),
    "tuneparts.methods.ensembles.hne": ("HneConfig",),
    "tuneparts.methods.ensembles.mimo": ("MimoConfig",),
    "tuneparts.methods.ensembles.msdnet": ("MsdNetConfig",),
    "tuneparts.methods.ensembles.slimmable": ("SlimmableConfig", "UniversallySlimmableConfig"),
    "tuneparts.methods.federated.config": ("FedAvgConfig", "FederatedConfig"),
    "tuneparts.models": ("Own",),
    "tuneparts.methods.objective": ("ObjectiveConfig",),
    "tuneparts.methods.partitioned.learner": ("PartitionedConfig",),
    "tuneparts.methods.partitioned.released": ("ReleasedConfig",),
    "tuneparts.methods.pwfn.config": ("PwfnConfig",),
    "tuneparts.core.schema": ("Direction", "Metric"),
    "tuneparts.search.algorithms": (
        "Algorithm",
        "Asha",
        "Fixed",
        "GridSearch",
        "Hyperband",
        "Optuna",
        "OptunaSearch",
        "Pbt",
        "Pruned",
        "RandomSearch",
        "SuccessiveHalving",
        "Tpe",
    ),
    "tuneparts.search.space": (
        "Choice",
        "Dimension",
        "Int",
        "LogNormal",
        "Normal",
        "Uniform",
    ),
    "tuneparts.search.spec": ("Arm", "Resources", "Scale", "Search"),
    "tuneparts.search.stopping": ("Stop",),
    "tuneparts.methods.superweights.learner": ("SuperweightsConfig",),
    "tuneparts.methods.superweights.ssn": ("SsnConfig",),
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
