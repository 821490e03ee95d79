"""The names of our own methods, and how any method's config class is found.

A method is named by a word of `METHODS`, or by the import path of its config class,
`package.module:ConfigClass`. The name stands in the `method` field of the config, so that a config
that was written as JSON finds its class again, in this process or in a worker.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tuneparts.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:  # torch takes seconds to import, and a listing does not need it
    from tuneparts.training.learner import MethodConfig

METHODS: dict[str, str] = {
    "standard": "tuneparts.baselines.standard:StandardConfig",
    "augerino": "tuneparts.baselines.augerino:AugerinoConfig",
    "validation": "tuneparts.baselines.validation:ValidationConfig",
    "laplace": "tuneparts.baselines.laplace:LaplaceConfig",
    "posthoc_laplace": "tuneparts.baselines.posthoc:PosthocConfig",
    "partitioned": "tuneparts.partition.learner:PartitionedConfig",
    "released": "tuneparts.partition.released:ReleasedConfig",
    "federated": "tuneparts.federated.learner:FederatedConfig",
    "fedavg": "tuneparts.federated.learner:FedAvgConfig",
    "pwfn": "tuneparts.pwfn.learner:PwfnConfig",
    "superweights": "tuneparts.superweights.learner:SuperweightsConfig",
    "deep_ensemble": "tuneparts.ensembles.deep:DeepEnsembleConfig",
    "batch_ensemble": "tuneparts.ensembles.batch_ensemble:BatchEnsembleConfig",
    "mimo": "tuneparts.ensembles.mimo:MimoConfig",
    "slimmable": "tuneparts.ensembles.slimmable:SlimmableConfig",
    "universally_slimmable": ("tuneparts.ensembles.slimmable:UniversallySlimmableConfig"),
}
"""Name -> import path; nothing is imported until a method is asked for."""


def config_class(name: str) -> "type[MethodConfig]":
    """The config class of a method.

    Args:
        name: a key of `METHODS`, or `package.module:ConfigClass`.

    Raises:
        UnknownNameError: for a word that is not in `METHODS`; it lists them.
        ConfigError: for an import path that leads to no config class of a method.

    Example:
        >>> from tuneparts import catalog
        >>> catalog.config_class("standard")(passes=10).passes
        10
        >>> catalog.config_class("tuneparts.bench.null:NullConfig").__name__
        'NullConfig'
    """
    if name not in METHODS and ":" not in name:
        raise UnknownNameError("method", name, METHODS)
    path = METHODS.get(name, name)
    module, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            f"a method's import path reads `package.module:ConfigClass` and can be imported here, "
            f"but `{name}` cannot: {error}."
        ) from error
    from tuneparts.training.learner import MethodConfig

    if not (isinstance(found, type) and issubclass(found, MethodConfig)):
        raise ConfigError(
            f"a method's import path leads to a subclass of MethodConfig, but `{name}` leads to "
            f"{found!r}."
        )
    return found
