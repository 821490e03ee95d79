"""The names of our own methods, and how any method's config class is found.

The name stands in the field `method` of the config, so that a config that was written as JSON finds
its class again, in this process or in a worker.
"""

from typing import TYPE_CHECKING

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.core.registry import Registry

if TYPE_CHECKING:  # torch takes seconds to import, and a listing does not need it
    from tuneparts.training.config import Method

METHODS = Registry(
    "method",
    {
        "standard": "tuneparts.methods.baselines.config:Standard",
        "augerino": "tuneparts.methods.baselines.config:Augerino",
        "validation": "tuneparts.methods.baselines.config:ValidationSet",
        "laplace": "tuneparts.methods.baselines.config:Laplace",
        "last_layer": "tuneparts.methods.baselines.config:LastLayer",
        "posthoc_laplace": "tuneparts.methods.baselines.config:PosthocLaplace",
        "partitioned": "tuneparts.methods.partitioned.config:Partitioned",
        "federated": "tuneparts.methods.federated.config:Federated",
        "fedavg": "tuneparts.methods.federated.config:FedAvg",
        "pwfn": "tuneparts.methods.pwfn.config:Pwfn",
        "superweights": "tuneparts.methods.superweights.config:SuperWeights",
        "ssn": "tuneparts.methods.superweights.config:Ssn",
        "deep_ensemble": "tuneparts.methods.ensembles.config:DeepEnsemble",
        "batch_ensemble": "tuneparts.methods.ensembles.config:BatchEnsemble",
        "mimo": "tuneparts.methods.ensembles.config:Mimo",
        "slimmable": "tuneparts.methods.ensembles.config:Slimmable",
        "universally_slimmable": "tuneparts.methods.ensembles.config:UniversallySlimmable",
        "msdnet": "tuneparts.methods.ensembles.config:MsdNetEnsemble",
        "hne": "tuneparts.methods.ensembles.config:Hne",
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


def config_class(name: str) -> "type[Method]":
    """The config class of a method, by a name of `METHODS` or `package.module:ConfigClass`.

    Example:
        >>> config_class("standard")(steps=10).steps
        10
    """
    from tuneparts.training.config import Method

    found: type[Method] = METHODS.find(name, Method)
    return found


def check(config: "Method") -> None:
    """Raise a `ConfigError` if the field `method` of a config does not lead to its class."""
    path, name = import_path.of(type(config)), str(getattr(config, "method", None))
    help_ = "Leave the field `method` out of the class: it is then the class's import path."
    try:
        found = import_path.of(config_class(name))
    except (ConfigError, UnknownNameError) as error:
        raise ConfigError(f"method `{name}` of {path} leads nowhere: {error} {help_}") from error
    if found != path:
        raise ConfigError(f"method `{name}` of {path} is the name of {found}. {help_}")
