"""How a hyper's class is named in JSON: its `kind`.

The kind is a word of `KINDS`, the name of an entry point of an installed package, or the import
path of the class, `package.module:Class`.
"""

from tuneparts.core import import_path
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.hypers.hyper import Hyper

KINDS: dict[str, str] = {
    "flip": "tuneparts.hypers.flip:Flip",
    "label_smoothing": "tuneparts.hypers.label_smoothing:LabelSmoothing",
    "weight_prior": "tuneparts.hypers.weight_prior:WeightPrior",
    "weight_decay": "tuneparts.hypers.weight_decay:WeightDecay",
}
"""Short names of our own hypers that are not fields of `HypersConfig` -> import path."""
GROUP = "tuneparts.hypers"
"""The entry points by which an installed package gives names to hypers of its own."""


def kinds() -> dict[str, str]:
    """List the import path of every hyper that has a short name.

    Raises:
        ConfigError: Two hypers have one name.
    """
    return import_path.with_installed("hyper", KINDS, group=GROUP)


def kind_of(hyper: Hyper) -> str:
    """The kind of a hyper: our own short name, or the import path of its class.

    Raises:
        ConfigError: No other process could import the class.
    """
    path = import_path.of(type(hyper))
    return next((name for name, target in KINDS.items() if target == path), path)


def hyper_class(kind: object) -> type[Hyper]:
    """The class of a kind.

    Raises:
        UnknownNameError: for a word that is no hyper's name; it lists them.
        ConfigError: for an import path that leads to no hyper.
    """
    path = KINDS.get(str(kind), str(kind))
    if ":" not in path:
        known = kinds()
        if path not in known:
            raise UnknownNameError("hyper", path, known)
        path = known[path]
    found = import_path.find(path)
    if not (isinstance(found, type) and issubclass(found, Hyper)):
        raise ConfigError(
            f"the import path of a hyper leads to a subclass of Hyper, but `{kind}` leads to "
            f"{found!r:.100}."
        )
    return found
