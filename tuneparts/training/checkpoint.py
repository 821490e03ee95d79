"""Learner state as bytes and as files: atomic to write, safe to read.

Loading never unpickles code: only tensors, numbers, strings and containers of them.
"""

import hashlib
import io
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tuneparts import atomic
from tuneparts.errors import CheckpointError

MAGIC = b"tuneparts checkpoint 1\n"
"""First bytes of every checkpoint."""
_TENSOR_PARTS = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch.storage", "UntypedStorage"),
}
_INDIRECT = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
"""Operations that reach objects in ways which `to_bytes` never uses."""


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """Serialise a state, sealed with its digest; the result shares no memory with it."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    body = buffer.getvalue()
    return MAGIC + hashlib.sha256(body).digest() + body


def from_bytes(content: bytes, *, source: str = "checkpoint") -> dict[str, Any]:
    """The state behind `to_bytes`, on the CPU.

    Args:
        content: what was written.
        source: where it came from, for the message when it cannot be read.
    """
    start = len(MAGIC) + hashlib.sha256().digest_size
    seal, body = content[:start], content[start:]
    if seal != MAGIC + hashlib.sha256(body).digest():
        raise CheckpointError(
            f"a checkpoint must be whole, but {source} ({len(content)} bytes) is truncated, "
            "damaged or something else. Use the one before it, or start anew."
        )
    try:
        _refuse_hostile(body)
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for hostile bytes
        raise CheckpointError(
            f"a checkpoint holds tensors and plain values only, but {source} does not: "
            f"{type(error).__name__}. It will not be loaded."
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"a checkpoint is a mapping, but {source} holds a {type(state)}.")
    return state


def _refuse_hostile(body: bytes) -> None:
    """Refuse an archive that could grow when read, or that names anything but tensors.

    The seal tells damage from wholeness, not friend from foe: anybody can compute it. So records
    must be stored as they are (a compressed one could unpack to any size), and the pickle may
    name no callable besides those that `to_bytes` itself writes.
    """
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        records = archive.infolist()
        grows = any(record.compress_type != zipfile.ZIP_STORED for record in records)
        if grows or sum(record.file_size for record in records) > len(body):
            raise ValueError("records are stored as they are, and fit the file")
        pickles = [record for record in records if record.filename.endswith(".pkl")]
        if len(pickles) != 1:
            raise ValueError("there is one pickle")
        for operation, argument, _ in pickletools.genops(archive.read(pickles[0])):
            is_known = operation.name != "GLOBAL" or _is_tensor_part(str(argument))
            if operation.name in _INDIRECT or not is_known:
                raise ValueError("a pickle names nothing but parts of tensors")


def _is_tensor_part(name: str) -> bool:
    module, _, attribute = name.partition(" ")
    if module == "torch":
        kind = getattr(torch, attribute, None)
        return attribute.endswith("Storage") or isinstance(kind, torch.dtype)
    return (module, attribute) in _TENSOR_PARTS


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write a file that is either whole or not there."""
    atomic.write_bytes(path, to_bytes(state), fsync=True)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"no checkpoint can be read at {path}: {error.strerror}.") from error
    return from_bytes(content, source=str(path))
