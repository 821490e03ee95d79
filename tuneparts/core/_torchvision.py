"""The one place that imports torchvision, also with a torch without its C++ operators.

torchvision's wheel on the public index is built for CUDA. With a CPU-only torch its operators do
not load, and the plain import ends in "operator torchvision::nms does not exist", although data
sets, transforms and classification nets need none of them.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_declared: list[Any] = []  # an operator lives as long as its `torch.library.Library`


def load() -> ModuleType:
    """The torchvision package; if it does not import, with `nms` and `qnms` without kernels."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    _declare_operators()
    # What the failed import left behind was made without the operators.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return importlib.import_module("torchvision")


def _declare_operators() -> None:
    import torch

    if _declared:
        return
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
