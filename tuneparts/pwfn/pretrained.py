"""Weights that exist already, from wherever they are: the start of a compression.

Files are never unpickled: they hold tensors and plain values, or they are refused.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts import settings, torchvision_door
from tuneparts.errors import CheckpointError, ConfigError, DataMissingError
from tuneparts.pwfn import codefile
from tuneparts.training import checkpoint

TORCHVISION = "torchvision:"
_NESTED = ("learner", "net", "state_dict", "model_state_dict", "model")
"""Keys under which programs keep a net's state."""


def load_into(net: nn.Module, source: str) -> None:
    """Load weights into a net of the same architecture; it is unchanged if they do not fit.

    Args:
        net: what the weights are of.
        source: a checkpoint of a trial or of a learner, a file with a `state_dict` (by itself or
            under a usual key), a file that `compress` wrote, or `torchvision:NAME` for weights
            that torchvision has downloaded before.
    """
    if not source.startswith(TORCHVISION) and codefile.is_file(Path(source)):
        codefile.read(Path(source), net)
        return
    state = _torchvision_state(source) if source.startswith(TORCHVISION) else _state(Path(source))
    own = net.state_dict()
    wrong = sorted(
        name
        for name in own.keys() | state.keys()
        if name not in own or name not in state or own[name].shape != state[name].shape
    )
    if wrong:
        raise CheckpointError(
            f"pretrained weights have the names and shapes of the net's, but in {source} "
            f"{len(wrong)} differ: {', '.join(wrong[:5])}. Build the net that they are of."
        )
    net.load_state_dict(state)


def torchvision_net(source: str) -> nn.Module:
    """Build `torchvision:NAME` with the weights that are on this machine."""
    models = torchvision_door.load().models
    name = source.removeprefix(TORCHVISION)
    if name not in models.list_models():
        raise ConfigError(
            f"`{source}` names a net of torchvision, but it has no `{name}`. "
            "See `torchvision.models.list_models()`."
        )
    net: nn.Module = models.get_model(name, weights=None)
    load_into(net, source)
    return net


def _torchvision_state(source: str) -> Mapping[str, Tensor]:
    """Read downloaded weights; the ones that torchvision prefers first."""
    weights = torchvision_door.load().models.get_model_weights(source.removeprefix(TORCHVISION))
    folders = [Path(torch.hub.get_dir()) / "checkpoints"]
    data_dir = settings.current().data_dir
    if data_dir is not None:
        folders += [data_dir, data_dir / "weights"]
    files = [one.url.rpartition("/")[2] for one in (weights.DEFAULT, *weights)]
    for file in files:
        for folder in folders:
            if (folder / file).is_file():
                return _state(folder / file)
    raise DataMissingError(
        f"weights of {source} are read from this machine, but none of "
        f"{', '.join(sorted(set(files)))} is in {', '.join(map(str, folders))}. Download "
        f"{weights.DEFAULT.url} into one of them."
    )


def _state(path: Path) -> Mapping[str, Tensor]:
    """Read a net's state from any of the forms in which one is kept."""
    try:
        with path.open("rb") as file:
            is_ours = file.read(len(checkpoint.MAGIC)) == checkpoint.MAGIC
        found: Any = (
            checkpoint.load(path)
            if is_ours
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except OSError as error:
        raise CheckpointError(f"no weights can be read at {path}: {error.strerror}.") from error
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"pretrained weights are a checkpoint, or a `state_dict` written by `torch.save`, but "
            f"{path} is damaged or something else ({type(error).__name__})."
        ) from error
    while isinstance(found, Mapping) and not _is_state(found):
        inner = next((found[key] for key in _NESTED if isinstance(found.get(key), Mapping)), None)
        if inner is None:
            break
        found = inner
    if not isinstance(found, Mapping) or not _is_state(found):
        raise CheckpointError(
            f"pretrained weights are tensors by name, but {path} holds none, nor under any of "
            f"{', '.join(f'`{key}`' for key in _NESTED)}. {_cure(is_ours)}"
        )
    if all(name.startswith("module.") for name in found):  # of a net inside DataParallel
        found = {name.removeprefix("module."): value for name, value in found.items()}
    return dict(found)


def _cure(is_ours: bool) -> str:
    """What to do with a file that holds no net's state."""
    if is_ours:
        return (
            "The method of this trial keeps its weights in another form: let its run make the net, "
            "by `tuneparts compress RUN --arm ARM --out FILE`."
        )
    return "Write them by `torch.save(net.state_dict(), FILE)`."


def _is_state(found: Mapping[str, Any]) -> bool:
    return bool(found) and all(isinstance(value, Tensor) for value in found.values())
