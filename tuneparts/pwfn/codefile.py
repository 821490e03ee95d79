"""How small a fixed net is, its file, and weights from any kind of file.

A compressed net is a NumPy archive (npz) under LZMA. `codebook` has the distinct values of the
coded weights, the most frequent first, and `codes` their indices, in as few bits as fill bytes.
Other tensors stand in one array for each type. `layout` (JSON) has for each name of the net's state
the array and shape, or the name of the same tensor. Nothing is ever unpickled.
"""

import io
import json
import math
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tuneparts import settings, torchvision_door
from tuneparts.errors import CheckpointError, ConfigError, DataMissingError
from tuneparts.training import checkpoint

TORCHVISION = "torchvision:"
_NESTED = ("learner", "net", "state_dict", "model_state_dict", "model")
"""Keys under which programs keep a net's state."""


class Compressibility(NamedTuple):
    """Distinct values (zero included), bits a weight with and without zeros, share of zeros."""

    num_unique: int
    entropy: float
    entropy_nonzero: float
    sparsity: float


def measure(values_N: Tensor) -> Compressibility:
    """Measure how compressible weights are; negative zero counts as zero.

    Example:
        >>> measure(torch.tensor([0.0, 0.5, 0.5, 0.25])).entropy
        1.5
    """
    values, counts = torch.unique(values_N.detach() + 0.0, return_counts=True)
    is_zero = values == 0
    shares = [kept.double() / kept.sum() for kept in (counts, counts[~is_zero])]
    entropy, nonzero = (float(abs((share * share.log2()).sum())) for share in shares)
    zeros = counts[is_zero].sum().item() / len(values_N)
    return Compressibility(len(values), entropy, nonzero, zeros)


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
    order_K, bits = np.argsort(-counts_K, kind="stable"), _bits(len(values_K))
    codes_N = np.argsort(order_K)[index_N].astype(f"<u{max(1, bits // 8)}")
    if bits < 8:
        codes_N = np.packbits(np.unpackbits(codes_N[:, None], axis=1)[:, 8 - bits :])
    arrays |= {"codes": codes_N, "codebook": values_K[order_K]}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as archive:
        for kind, array in {**arrays, "layout": np.array(json.dumps(layout))}.items():
            with archive.open(f"{kind}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return content.getvalue()


def decode(content: bytes) -> dict[str, Tensor]:
    """Decode the content of a file: the net's state."""
    rest = dict(np.load(io.BytesIO(content), allow_pickle=False))
    index, bits = rest["codes"], _bits(len(rest["codebook"]))
    if bits < 8:
        index = np.packbits(np.unpackbits(index).reshape(-1, bits), axis=1)[:, 0] >> (8 - bits)
    rest["codes"] = rest["codebook"][index]
    state: dict[str, Tensor] = {}
    for name, kind, where in json.loads(rest["layout"].item()):
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


def load(file: Path | str, net: nn.Module) -> nn.Module:
    """Load weights into a net of the same architecture, and return the net.

    Args:
        file: what `compress` wrote, a checkpoint of a trial or of a learner, a file with a
            `state_dict` (by itself or under a usual key), or `torchvision:NAME` for weights that
            torchvision has downloaded before.
        net: unchanged if the weights do not fit or the file is damaged.
    """
    state = _state(_downloaded(file) if str(file).startswith(TORCHVISION) else Path(file))
    own, given = ({k: v.shape for k, v in one.items()} for one in (net.state_dict(), state))
    wrong = sorted({name for name, _ in own.items() ^ given.items()})
    if wrong:
        raise CheckpointError(
            f"{file}: {len(wrong)} tensors differ from the net's in name or shape: "
            f"{', '.join(wrong[:5])}. Build the net that they are of."
        )
    net.load_state_dict(state)
    return net


def torchvision_net(source: str) -> nn.Module:
    """Build `torchvision:NAME` with the weights that are on this machine."""
    models, name = torchvision_door.load().models, source.removeprefix(TORCHVISION)
    if name not in models.list_models():
        raise ConfigError(f"`{source}`: torchvision has no such net. Choose another name.")
    return load(source, models.get_model(name, weights=None))


def _downloaded(source: Path | str) -> Path:
    """Find the file of downloaded weights; those that torchvision prefers first."""
    name = str(source).removeprefix(TORCHVISION)
    weights = torchvision_door.load().models.get_model_weights(name)
    data_dir = settings.current().data_dir
    folders = [Path(torch.hub.get_dir()) / "checkpoints"]
    folders += [] if data_dir is None else [data_dir, data_dir / "weights"]
    files = [str(one.url).rpartition("/")[2] for one in (weights.DEFAULT, *weights)]
    for path in (folder / file for file in files for folder in folders):
        if path.is_file():
            return path
    raise DataMissingError(
        f"{source}: no weights in {', '.join(map(str, folders))}. Download {weights.DEFAULT.url} "
        "into one of them."
    )


def _state(path: Path) -> dict[str, Tensor]:
    """Read a net's state from any of the forms in which one is kept."""
    try:
        content = path.read_bytes()
        if content.startswith(checkpoint.MAGIC):
            found: Any = checkpoint.from_bytes(content)
        elif b"codebook.npy" in content:
            found = decode(content)
        else:
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # zipfile, LZMA, NumPy, JSON and torch each have their own
        raise CheckpointError(
            f"{path}: cannot be read as the weights of a net ({type(error).__name__}). Give a file "
            "of `compress`, a checkpoint, or a `state_dict` written by `torch.save`."
        ) from error
    while isinstance(found, Mapping) and not all(isinstance(v, Tensor) for v in found.values()):
        found = next((found[key] for key in _NESTED if isinstance(found.get(key), Mapping)), None)
    if not found or not isinstance(found, Mapping):
        raise CheckpointError(
            f"{path}: holds no tensors by name, nor under any of {', '.join(_NESTED)}. Of a trial "
            "whose method keeps them otherwise: `tuneparts compress RUN --arm ARM --out FILE`."
        )
    inside = all(name.startswith("module.") for name in found)  # of a net inside DataParallel
    return {name.removeprefix("module.") if inside else name: v for name, v in found.items()}
