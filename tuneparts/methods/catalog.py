"""The names of our own methods, and how any method's config class is found.

The name stands in the field `method` of the config, so that a config that was written as JSON finds
its class again, in this process or in a worker.
"""

from typing import TYPE_CHECKING

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.registry import Registry

if TYPE_CHECKING:  # torch takes seconds to import, and a listing does not need it
    from tuneparts.training.learner import MethodConfig

METHODS = Registry(
    "method",
    {
        "standard": "tuneparts.methods.baselines.standard:StandardConfig",
        "augerino": "tuneparts.methods.baselines.augerino:AugerinoConfig",
        "validation": "tuneparts.methods.baselines.validation:ValidationConfig",
        "laplace": "tuneparts.methods.baselines.laplace:LaplaceConfig",
        "last_layer": "tuneparts.methods.baselines.last_layer:LastLayerConfig",
        "posthoc_laplace": "tuneparts.methods.baselines.posthoc:PosthocConfig",
        "partitioned": "tuneparts.methods.partitioned.learner:PartitionedConfig",
        "released": "tuneparts.methods.partitioned.released:ReleasedConfig",
        "federated": "tuneparts.methods.federated.config:FederatedConfig",
        "fedavg": "tuneparts.methods.federated.config:FedAvgConfig",
        "pwfn": "tuneparts.methods.pwfn.config:PwfnConfig",
        "superweights": "tuneparts.methods.superweights.learner:SuperweightsConfig",
        "ssn": "tuneparts.methods.superweights.ssn:SsnConfig",
        "deep_ensemble": "tuneparts.methods.ensembles.deep:DeepEnsembleConfig",
        "batch_ensemble": "tuneparts.methods.ensembles.batch_ensemble:BatchEnsembleConfig",
        "mimo": "tuneparts.methods.ensembles.mimo:MimoConfig",
        "slimmable": "tuneparts.methods.ensembles.slimmable:SlimmableConfig",
        "universally_slimmable": (
            "tuneparts.methods.ensembles.slimmable:UniversallySlimmableConfig"
        ),
        "msdnet": "tuneparts.methods.ensembles.msdnet:MsdNetConfig",
        "hne": "tuneparts.methods.ensembles.hne:HneConfig",
    },
    group="tuneparts.methods",
)
"""Nothing is imported until a method is asked for."""


def config_class(name: str) -> "type[MethodConfig]":
    """The config class of a method.

    Args:
        name: a name of `METHODS`, or `package.module:ConfigClass`.

    Raises:
        UnknownNameError: for a word that is no method's name; it lists them.
        ConfigError: for an import path that leads to no config class of a method.

    Example:
        >>> from tuneparts.methods import catalog
        >>> catalog.config_class("standard")(passes=10).passes
        10
        >>> catalog.config_class("tuneparts.testing.null:NullConfig").__name__
        'NullConfig'
    """
    from tuneparts.training.learner import MethodConfig

    found: type[MethodConfig] = METHODS.find(name, MethodConfig)
    return found


def check(config: "MethodConfig") -> None:
    """Refuse a config whose class a worker could not find again.

    Raises:
        ConfigError: The field `method` of the config does not lead to its class.

    Example:
        >>> from tuneparts.testing.null import NullConfig
        >>> check(NullConfig())
    """
    cls = type(config)
    path = import_path.of(cls)
    name = str(getattr(config, "method", None))
    try:
        found = import_path.of(config_class(name))
    except (ConfigError, UnknownNameError) as error:
        raise ConfigError(
            f"method `{name}` of {cls.__name__}: a worker finds a config's class by its field "
            f"`method`, and {error} {_HELP}"
        ) from error
    if found != path:
        raise ConfigError(f"method `{name}` of {path} is the name of {found}. {_HELP}")


_HELP = "Leave the field `method` out of the class: it is then the class's import path."
