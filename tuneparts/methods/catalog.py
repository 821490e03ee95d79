"""The names of our own methods, and how any method's config class is found.

The name stands in the field `method` of the config, so that a config that was written as JSON finds
its class again, in this process or in a worker.
"""

from typing import TYPE_CHECKING

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.registry import Registry

if TYPE_CHECKING:  # torch takes seconds to import, and a listing does not need it
    from tuneparts.training.config import MethodConfig

METHODS = Registry(
    "method",
    {
        "standard": "tuneparts.methods.baselines.config:StandardConfig",
        "augerino": "tuneparts.methods.baselines.config:AugerinoConfig",
        "validation": "tuneparts.methods.baselines.config:ValidationConfig",
        "laplace": "tuneparts.methods.baselines.config:LaplaceConfig",
        "last_layer": "tuneparts.methods.baselines.config:LastLayerConfig",
        "posthoc_laplace": "tuneparts.methods.baselines.config:PosthocConfig",
        "partitioned": "tuneparts.methods.partitioned.config:PartitionedConfig",
        "released": "tuneparts.methods.partitioned.config:ReleasedConfig",
        "federated": "tuneparts.methods.federated.config:FederatedConfig",
        "fedavg": "tuneparts.methods.federated.config:FedAvgConfig",
        "pwfn": "tuneparts.methods.pwfn.config:PwfnConfig",
        "superweights": "tuneparts.methods.superweights.config:SuperweightsConfig",
        "ssn": "tuneparts.methods.superweights.config:SsnConfig",
        "deep_ensemble": "tuneparts.methods.ensembles.config:DeepEnsembleConfig",
        "batch_ensemble": "tuneparts.methods.ensembles.config:BatchEnsembleConfig",
        "mimo": "tuneparts.methods.ensembles.config:MimoConfig",
        "slimmable": "tuneparts.methods.ensembles.config:SlimmableConfig",
        "universally_slimmable": "tuneparts.methods.ensembles.config:UniversallySlimmableConfig",
        "msdnet": "tuneparts.methods.ensembles.config:MsdNetConfig",
        "hne": "tuneparts.methods.ensembles.config:HneConfig",
    },
    group="tuneparts.methods",
)
"""Nothing is imported until a method is asked for."""
TABLES = Registry(
    "table",
    {
        "communication/total": "tuneparts.methods._tables:COMMUNICATION",
        "superweights/trained": "tuneparts.methods._tables:SHARING",
    },
    group="tuneparts.tables",
)
"""Tables of reports that methods declare (`core.schema.MethodTable`), by the metric whose presence
shows them."""


def config_class(name: str) -> "type[MethodConfig]":
    """The config class of a method, by a name of `METHODS` or `package.module:ConfigClass`.

    Example:
        >>> config_class("standard")(passes=10).passes
        10
    """
    from tuneparts.training.config import MethodConfig

    found: type[MethodConfig] = METHODS.find(name, MethodConfig)
    return found


def check(config: "MethodConfig") -> None:
    """Raise a `ConfigError` if the field `method` of a config does not lead to its class."""
    path, name = import_path.of(type(config)), str(getattr(config, "method", None))
    help_ = "Leave the field `method` out of the class: it is then the class's import path."
    try:
        found = import_path.of(config_class(name))
    except (ConfigError, UnknownNameError) as error:
        raise ConfigError(f"method `{name}` of {path} leads nowhere: {error} {help_}") from error
    if found != path:
        raise ConfigError(f"method `{name}` of {path} is the name of {found}. {help_}")
