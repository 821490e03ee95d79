"""Name -> "module:ConfigClass"; the only list of methods, resolved on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuneparts.errors import UnknownNameError

if TYPE_CHECKING:  # torch takes seconds to import, and a listing does not need it
    from tuneparts.training.learner import MethodConfig

METHODS: dict[str, str] = {
    "standard": "tuneparts.baselines.standard:StandardConfig",
    "augerino": "tuneparts.baselines.augerino:AugerinoConfig",
    "validation": "tuneparts.baselines.validation:ValidationConfig",
    "laplace": "tuneparts.baselines.laplace:LaplaceConfig",
    "posthoc_laplace": "tuneparts.baselines.posthoc:PosthocConfig",
    "partitioned": "tuneparts.partition.config:PartitionedConfig",
    "released": "tuneparts.partition.released:ReleasedConfig",
    "federated": "tuneparts.federated.config:FederatedConfig",
    "fedavg": "tuneparts.federated.config:FedAvgConfig",
    "pwfn": "tuneparts.pwfn.learner:PwfnConfig",
    "superweights": "tuneparts.superweights.learner:SuperweightsConfig",
    "deep_ensemble": "tuneparts.ensembles.deep:DeepEnsembleConfig",
    "batch_ensemble": "tuneparts.ensembles.batch_ensemble:BatchEnsembleConfig",
    "mimo": "tuneparts.ensembles.mimo:MimoConfig",
    "slimmable": "tuneparts.ensembles.slimmable:SlimmableConfig",
    "universally_slimmable": (
        "tuneparts.ensembles.universally_slimmable:UniversallySlimmableConfig"
    ),
}

_FOR_MEASURING: dict[str, str] = {
    "null": "tuneparts.bench.null:NullConfig",
}
"""What benches and tests run instead of training; not offered to anyone."""


def config_class(name: str) -> "type[MethodConfig]":
    """The config class of a method; an unknown name lists the known ones."""
    known = METHODS | _FOR_MEASURING
    if name not in known:
        raise UnknownNameError("method", name, METHODS)
    module, _, attribute = known[name].partition(":")
    cls: type[Any] = getattr(import_module(module), attribute)
    return cls
