"""Reads what `torch.save` wrote, as data: nothing in the file is run, and nothing can make it grow.

`torch.load` opens the archive and its pickle with code that was written for friends: a small file
can make it unpack or allocate gigabytes. Here Python's zip reader is the only one that looks at the
archive, every record is as long in memory as it is in the file, and the pickle may use only the
operations and names that `torch.save` itself uses for tensors, plain values and containers of them.
"""

import collections
import io
import math
import pickle
import zipfile
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch

_TYPED = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}
_OPERATIONS = (
    pickle.PROTO, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
    pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.LONG4, pickle.BINFLOAT,
    pickle.BINUNICODE, pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT,
    pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1,
    pickle.TUPLE2, pickle.TUPLE3, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET,
    pickle.LONG_BINGET, pickle.GLOBAL, pickle.REDUCE, pickle.BUILD, pickle.BINPERSID,
)  # fmt: skip


def read(content: bytes) -> Any:
    """The value behind `torch.save`, its tensors on the CPU.

    Raises:
        Exception: Of many types, for an archive that `torch.save` did not write.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        records = archive.infolist()
        if any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise ValueError("records are stored as they are")
        if sum(record.file_size for record in records) > len(content):
            raise ValueError("records fit the file")
        (data,) = (one for one in records if one.filename.endswith("/data.pkl"))
        root = data.filename.removesuffix("data.pkl")
        if (
            f"{root}byteorder" in archive.namelist()
            and archive.read(f"{root}byteorder") != b"little"
        ):
            raise ValueError("numbers are written with their low byte first")
        return _Reader(archive, root, archive.read(data)).load()


class _Storage:
    """The bytes of one record, which several tensors may share."""

    def __init__(self, content: bytes) -> None:
        # Not over the bytes themselves: torch's own memory is aligned, and can be written to.
        self.bytes_N = torch.empty(len(content), dtype=torch.uint8)
        self.bytes_N.numpy()[:] = np.frombuffer(content, np.uint8)


class _Reader(pickle._Unpickler):
    """An unpickler that knows these operations and names, and no others.

    The one in Python rather than the one in C: its table of operations can be cut down, and a
    number in the file makes it reserve no memory.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code[0]: pickle._Unpickler.dispatch[code[0]] for code in _OPERATIONS
    }
    stack: list[Any]

    def __init__(self, archive: zipfile.ZipFile, root: str, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._archive = archive
        self._root = root
        self._storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NAMES:
            return _NAMES[module, name]
        kind = getattr(torch, name, None) if module == "torch" else None
        if isinstance(kind, torch.dtype):
            return kind
        raise pickle.UnpicklingError(f"`{module}.{name}` is no part of a tensor")

    def persistent_load(self, pid: Any) -> tuple[_Storage, torch.dtype | None]:
        word, (dtype,), key, _, _ = pid
        if word != "storage":
            raise pickle.UnpicklingError("only storages lie outside the pickle")
        if key not in self._storages:
            self._storages[key] = _Storage(self._archive.read(f"{self._root}data/{key}"))
        return self._storages[key], dtype

    def load_build(self) -> None:
        """Give a state dict its `_metadata`; nothing else has attributes to set."""
        state = self.stack.pop()
        if type(self.stack[-1]) is not collections.OrderedDict or set(state) != {"_metadata"}:
            raise pickle.UnpicklingError("only the metadata of a state dict is an attribute")
        vars(self.stack[-1]).update(state)

    dispatch[pickle.BUILD[0]] = load_build


def _tensor(
    storage: tuple[_Storage, torch.dtype | None],
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    hooks: object,  # noqa: ARG001 - always empty
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """A tensor over a storage; torch refuses one that would reach beyond it."""
    record, typed = storage
    flat = record.bytes_N.view(typed or dtype or torch.uint8)
    if math.prod(size) > len(flat):
        raise ValueError("a tensor has no more elements than its storage")
    # `data`: a tensor of its own, and no view of another.
    return torch.as_strided(flat, size, stride, offset).data.requires_grad_(bool(requires_grad))


def _parameter(data: torch.Tensor, requires_grad: bool, hooks: object) -> torch.nn.Parameter:  # noqa: ARG001
    return torch.nn.Parameter(data, bool(requires_grad))


def _empty() -> "collections.OrderedDict[Any, Any]":
    return collections.OrderedDict()


# A storage type is a tuple, so that the pickle cannot call it.
_NAMES: dict[tuple[str, str], Callable[..., Any] | tuple[torch.dtype | None]] = {
    ("collections", "OrderedDict"): _empty,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor,
    ("torch.storage", "UntypedStorage"): (None,),
    **{("torch", name): (dtype,) for name, dtype in _TYPED.items()},
}
