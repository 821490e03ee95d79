import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from tuneparts.search.code import _importable
from tuneparts.search.events import TrialId
from tuneparts.tracking import models
from tuneparts.training.loop import FinalModule

pytestmark = pytest.mark.mlflow


@pytest.fixture
def run_id(toy) -> str:
    """The MLflow run of a trial that has ended."""
    tracker = toy.track(toy.events)
    assert tracker.close() == []
    return str(tracker.run_id(TrialId("random", 0, 0)))


def make_module() -> FinalModule:
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3))
    return FinalModule(body, mean=(0.5,), std=(0.25,), is_image=True).eval()


def globals_of_mlflow() -> tuple[dict[str, str], str, str]:
    import mlflow

    variables = {name: text for name, text in os.environ.items() if name.startswith("MLFLOW_")}
    return variables, mlflow.get_tracking_uri(), mlflow.get_registry_uri()


def test_a_model_is_logged_once_loads_predicts_and_registers(toy, uri: str, run_id: str) -> None:
    import mlflow

    trials = toy.trials
    before = globals_of_mlflow()
    module, example = make_module(), np.arange(12, dtype=np.uint8).reshape(2, 1, 2, 3)
    assert models.logged(uri, run_id) is None
    model_uri = models.log(uri, run_id, module, example)
    assert models.log(uri, run_id, module, example) == model_uri == models.logged(uri, run_id)
    place = Path(uri.removeprefix("sqlite:///")).parent / "artifacts" / "toy"
    (card,) = place.rglob("MLmodel")  # beside the store, not where the process was started
    assert (card.parent / "code" / "tuneparts" / "training" / "loop.py").exists()
    assert "tuneparts" not in (card.parent / "requirements.txt").read_text()
    version = models.register(uri, model_uri, "toy")
    assert version == "models:/toy/1"
    assert globals_of_mlflow() == before

    assert toy.trials["end"].equals(trials["end"])  # the run of the trial stays as it ended
    with models._store(uri):
        loaded = mlflow.pytorch.load_model(version)
        served = mlflow.pyfunc.load_model(model_uri)
    x = torch.from_numpy(example)
    assert torch.equal(loaded(x), module(x))
    for name, weights in module.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weights)
    answers = served.predict(example.astype(np.float32))
    np.testing.assert_allclose(answers, module(x).numpy(), rtol=1e-6)


OWN = """
from torch import nn

class OwnNet(nn.Linear):
    pass
"""


def test_a_model_of_a_class_of_ones_own_brings_its_code(
    uri: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    file = tmp_path / "code" / "own_class.py"
    file.parent.mkdir()
    file.write_text(OWN)
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a model adds to it
    example = np.ones((2, 6), dtype=np.float32)
    with _importable(file.parent):
        module = import_module("own_class").OwnNet(6, 3).requires_grad_(False)
        model_uri = models.log(uri, run_id, module, example, code=[file])
    del sys.modules["own_class"]
    file.unlink()
    with models._store(uri):
        loaded = mlflow.pytorch.load_model(model_uri)
    assert type(loaded).__name__ == "OwnNet"
    assert torch.equal(loaded.weight, module.weight)
    del sys.modules["own_class"]


BLOCK = """
import sys
from importlib.machinery import PathFinder

class Block:
    \"\"\"Finds this package among the code of a model alone, as where it is not installed.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name != "tuneparts":
            return None
        spec = PathFinder.find_spec(name, [p for p in sys.path if p.endswith("/code")])
        if spec is None:
            raise ModuleNotFoundError("not installed", name=name)
        return spec

sys.meta_path.insert(0, Block())
try:
    import tuneparts
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("the package is still there")
import mlflow
import numpy as np

mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
print(model.predict(np.zeros((2, 1, 2, 3), np.float32)).shape)
"""


@pytest.mark.slow  # a process that imports MLflow and torch anew
def test_a_model_predicts_where_the_package_is_not_installed(
    uri: str, run_id: str, tmp_path: Path
) -> None:
    model = models.log(uri, run_id, make_module(), np.zeros((2, 1, 2, 3), np.uint8))
    (tmp_path / "elsewhere.py").write_text(BLOCK)
    done = subprocess.run(
        [sys.executable, "elsewhere.py", uri, model],
        cwd=tmp_path,
        env={key: text for key, text in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "(2, 3)"
