"""Learner state as bytes and as files: atomic to write, and damage is noticed.

Loading reads tensors, numbers, strings and containers of them; it runs nothing.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuneparts.core import atomic
from tuneparts.core.errors import CheckpointError

MAGIC = b"tuneparts checkpoint 1\n"
_JSON = b"{"
"""First byte of a state without tensors, which is written without torch."""


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """Serialise a state, sealed with its digest; the result shares no memory with it."""
    if _is_json(state):
        body = json.dumps(state).encode()
    else:
        import torch

        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        body = buffer.getvalue()
    return MAGIC + hashlib.sha256(body).digest() + body


def from_bytes(content: bytes, *, source: str = "checkpoint") -> dict[str, Any]:
    """The state behind `to_bytes`, on the CPU."""
    start = len(MAGIC) + hashlib.sha256().digest_size
    seal, body = content[:start], content[start:]
    if seal != MAGIC + hashlib.sha256(body).digest():
        raise CheckpointError(
            f"{source} ({len(content)} bytes) is truncated, damaged or no checkpoint. Use the one "
            "before it, or start anew."
        )
    if body.startswith(_JSON):
        return json.loads(body)  # type: ignore[no-any-return]
    import torch

    try:
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types
        raise CheckpointError(
            f"{source} holds more than tensors and plain values: {type(error).__name__}."
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"a checkpoint is a mapping, but {source} holds a {type(state)}.")
    return state


def _is_json(value: object) -> bool:
    """Whether a value comes back from JSON as it is."""
    if type(value) is dict:
        return all(type(name) is str and _is_json(one) for name, one in value.items())
    if type(value) is list:
        return all(map(_is_json, value))
    return type(value) in (str, int, float, bool, type(None))


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
