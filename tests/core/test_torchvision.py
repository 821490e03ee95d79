import importlib
import sys
from types import ModuleType

import pytest
import torch

from tuneparts.core import _torchvision

MISSING = "operator torchvision::nms does not exist"


class Importer:
    """Stands in for `importlib.import_module`: raises the given errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.package = ModuleType("torchvision")
        self.num_calls = 0

    def __call__(self, name: str) -> ModuleType:
        assert name == "torchvision"
        self.num_calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.package


@pytest.fixture
def declarations(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    calls: list[bool] = []
    monkeypatch.setattr(_torchvision, "_declare_operators", lambda: calls.append(True))
    monkeypatch.setattr(sys, "modules", {**sys.modules, "torchvision.extension": ModuleType("x")})
    return calls


def test_the_installed_torchvision_loads_and_its_nets_run():
    torchvision = _torchvision.load()
    with torch.device("meta"):
        net = torchvision.models.resnet18(num_classes=7)
        assert net(torch.empty(2, 3, 64, 64)).shape == (2, 7)
    assert _torchvision.load() is torchvision
    assert torch.ops.torchvision.nms.default._schema.name == "torchvision::nms"


def test_a_plain_import_that_works_declares_nothing(monkeypatch, declarations):
    importer = Importer()
    monkeypatch.setattr(importlib, "import_module", importer)
    assert _torchvision.load() is importer.package
    assert importer.num_calls == 1
    assert declarations == []
    assert "torchvision.extension" in sys.modules


def test_missing_operators_are_declared_and_the_import_starts_afresh(monkeypatch, declarations):
    importer = Importer(RuntimeError(MISSING))
    monkeypatch.setattr(importlib, "import_module", importer)
    assert _torchvision.load() is importer.package
    assert importer.num_calls == 2
    assert declarations == [True]
    assert "torchvision.extension" not in sys.modules


@pytest.mark.parametrize("error", [RuntimeError("CUDA driver too old"), ImportError("no PIL")])
def test_any_other_failure_is_passed_on(monkeypatch, declarations, error):
    monkeypatch.setattr(importlib, "import_module", Importer(error))
    with pytest.raises(type(error), match=str(error)):
        _torchvision.load()
    assert declarations == []


def test_a_second_failure_is_passed_on(monkeypatch, declarations):
    monkeypatch.setattr(
        importlib, "import_module", Importer(RuntimeError(MISSING), RuntimeError(MISSING))
    )
    with pytest.raises(RuntimeError, match="nms does not exist"):
        _torchvision.load()
