"""How small a fixed net is, a file of about that size, and weights from any kind of file.

A compressed net is a NumPy archive (npz): `codebook` has the distinct values of the coded weights,
the most frequent first, and `codes` their indices, of 1 to 32 bits. LZMA brings them to about their
entropy. Other tensors stand in one array for each type. `layout` (JSON) lists the names
of the net's state, each with its array and shape, or with the name of the same tensor. Nothing is
ever unpickled.

Shapes: N weights, K distinct values.
"""

import io
import json
import math
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuneparts import settings, torchvision_door
from tuneparts.errors import CheckpointError, ConfigError, DataMissingError
from tuneparts.training import checkpoint

TORCHVISION = "torchvision:"
_NESTED = ("learner", "net", "state_dict", "model_state_dict", "model")
"""Keys under which programs keep a net's state."""


@dataclass(frozen=True)
class Compressibility:
    """Distinct values (zero included), bits a weight, and the share of zeros.

    Published entropies differ in whether zeros count: they do in PWFN and do not in WFN.
    """

    num_unique: int
    entropy: float
    entropy_nonzero: float
    sparsity: float


def measure(values_N: Tensor) -> Compressibility:
    """Measure how compressible a vector of weights is; negative zero counts as zero.

    Example:
        >>> measure(torch.tensor([0.0, 0.5, 0.5, 0.25])).entropy
        1.5
    """
    values, counts = torch.unique(values_N.detach() + 0.0, return_counts=True)
    is_zero = values == 0
    return Compressibility(
        num_unique=len(values),
        entropy=_entropy(counts),
        entropy_nonzero=_entropy(counts[~is_zero]),
        sparsity=counts[is_zero].sum().item() / len(values_N),
    )


def _entropy(counts_K: Tensor) -> float:
    """Compute the Shannon entropy in bits of the shares behind positive counts (K,)."""
    if len(counts_K) < 2:
        return 0.0
    shares = counts_K.double() / counts_K.sum()
    return float(-(shares * shares.log2()).sum())


def num_plain_bytes(net: nn.Module) -> int:
    """Count the bytes of a net's state without coding; a tied tensor counts once."""
    once = {id(value): value for value in net.state_dict(keep_vars=True).values()}
    return sum(value.numel() * value.itemsize for value in once.values())


def encode(net: nn.Module, names: Collection[str]) -> bytes:
    """Encode a net's state as the content of a file; `names` are of the parameters to code."""
    coded = {id(net.get_parameter(name)) for name in names}
    first: dict[int, str] = {}
    layout: list[tuple[str, str, Any]] = []
    pieces: dict[str, list[Tensor]] = {}
    for name, value in net.state_dict(keep_vars=True).items():
        if first.setdefault(id(value), name) != name:
            layout.append((name, "same", first[id(value)]))
            continue
        plain = value.detach().cpu()
        if plain.dtype is torch.bfloat16:  # NumPy has none; float32 holds the same values
            plain = plain.float()
        kind = "codes" if id(value) in coded else str(plain.dtype).removeprefix("torch.")
        layout.append((name, kind, list(plain.shape)))
        pieces.setdefault(kind, []).append(plain.flatten())
    arrays = {kind: torch.cat(parts).numpy() for kind, parts in pieces.items()}
    values_K, index_N, counts_K = np.unique(
        arrays["codes"] + 0.0, return_inverse=True, return_counts=True
    )
    order_K = np.argsort(-counts_K, kind="stable")
    codes = np.argsort(order_K)[index_N]
    bits = _bits(len(values_K))
    if bits < 8:
        places = bits * np.arange(8 // bits)
        rows = np.pad(codes, (0, -len(codes) % len(places))).reshape(-1, len(places))
        codes = (rows << places).sum(axis=1)
    arrays["codes"] = codes.astype(f"<u{max(1, bits // 8)}")
    arrays |= {"codebook": values_K[order_K], "layout": np.array(json.dumps(layout))}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for kind, array in arrays.items():
            entry = zipfile.ZipInfo(f"{kind}.npy")  # without the time: same net, same bytes
            entry.compress_type = zipfile.ZIP_LZMA
            with archive.open(entry, "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return content.getvalue()


def decode(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
    """Decode what `np.load` makes of a file: the net's state."""
    index, bits = arrays["codes"], _bits(len(arrays["codebook"]))
    if bits < 8:
        places = bits * np.arange(8 // bits, dtype=np.uint8)
        index = (index[:, None] >> places & (2**bits - 1)).ravel()
    rest = {**arrays, "codes": arrays["codebook"][index]}
    state: dict[str, Tensor] = {}
    for name, kind, where in json.loads(arrays["layout"].item()):
        if kind == "same":
            state[str(name)] = state[where]
        else:
            size = math.prod(where)
            state[str(name)] = torch.tensor(rest[kind][:size]).view(where)
            rest[kind] = rest[kind][size:]
    return state


def _bits(num_values: int) -> int:
    """Bits of an index: whole indices fill whole bytes, whose frequencies LZMA can then use."""
    return next(bits for bits in (1, 2, 4, 8, 16, 32) if num_values <= 2**bits)


def load_into(net: nn.Module, source: str) -> None:
    """Load weights into a net of the same architecture; it is unchanged if they do not fit.

    Args:
        net: what the weights are of.
        source: a file that `compress` wrote, a checkpoint of a trial or of a learner, a file with a
            `state_dict` (by itself or under a usual key), or `torchvision:NAME` for weights that
            torchvision has downloaded before.
    """
    path = _downloaded(source) if source.startswith(TORCHVISION) else Path(source)
    state, own = _state(path), net.state_dict()
    wrong = sorted(
        name
        for name in own.keys() | state.keys()
        if name not in own or name not in state or own[name].shape != state[name].shape
    )
    if wrong:
        raise CheckpointError(
            f"{source}: {len(wrong)} tensors differ from the net's in name or shape: "
            f"{', '.join(wrong[:5])}. Build the net that they are of."
        )
    net.load_state_dict(state)


def torchvision_net(source: str) -> nn.Module:
    """Build `torchvision:NAME` with the weights that are on this machine."""
    models, name = torchvision_door.load().models, source.removeprefix(TORCHVISION)
    if name not in models.list_models():
        raise ConfigError(
            f"`{source}`: torchvision has no such net. See `torchvision.models.list_models()`."
        )
    net: nn.Module = models.get_model(name, weights=None)
    load_into(net, source)
    return net


def _downloaded(source: str) -> Path:
    """Find the file of downloaded weights; those that torchvision prefers first."""
    weights = torchvision_door.load().models.get_model_weights(source.removeprefix(TORCHVISION))
    folders = [Path(torch.hub.get_dir()) / "checkpoints"]
    data_dir = settings.current().data_dir
    folders += [] if data_dir is None else [data_dir, data_dir / "weights"]
    files = [one.url.rpartition("/")[2] for one in (weights.DEFAULT, *weights)]
    found = [path for file in files for folder in folders if (path := folder / file).is_file()]
    if not found:
        raise DataMissingError(
            f"{source}: none of {', '.join(sorted(set(files)))} is in "
            f"{', '.join(map(str, folders))}. Download {weights.DEFAULT.url} into one of them."
        )
    return found[0]


def _state(path: Path) -> dict[str, Tensor]:
    """Read a net's state from any of the forms in which one is kept."""
    try:
        found: Any = None
        with path.open("rb") as file:
            start = file.read(len(checkpoint.MAGIC))
            file.seek(0)
            if start.startswith(b"PK"):  # an archive, as `torch.save` writes it too
                arrays = np.load(file, allow_pickle=False)
                found = decode(arrays) if "layout" in arrays else None
        if start == checkpoint.MAGIC:
            found = checkpoint.load(path)
        found = found or torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zipfile, LZMA, NumPy, JSON and torch each have their own
        raise CheckpointError(
            f"{path}: cannot be read as the weights of a net ({type(error).__name__}). Give a file "
            "of `compress`, a checkpoint, or a `state_dict` written by `torch.save`."
        ) from error
    while isinstance(found, Mapping) and not _is_state(found):
        found = next((found[key] for key in _NESTED if isinstance(found.get(key), Mapping)), None)
    if not isinstance(found, Mapping):
        raise CheckpointError(
            f"{path}: holds no tensors by name, nor under any of {', '.join(_NESTED)}. Of a trial "
            "whose method keeps them otherwise: `tuneparts compress RUN --arm ARM --out FILE`."
        )
    inside = all(name.startswith("module.") for name in found)  # of a net inside DataParallel
    return {name.removeprefix("module.") if inside else name: v for name, v in found.items()}


def _is_state(found: Mapping[str, Any]) -> bool:
    return bool(found) and all(isinstance(value, Tensor) for value in found.values())
