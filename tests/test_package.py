"""`from tuneparts import ...`: what is there, and what need not be installed for it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tuneparts
from tuneparts.methods import catalog


def test_every_public_name_is_there_and_known_to_type_checkers() -> None:
    tree = ast.parse(Path(tuneparts.__file__).with_suffix(".pyi").read_text("utf-8"))
    typed = {
        (node.module, alias.asname)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for _, name in typed} | {"__version__"} == set(tuneparts.__all__)
    for name in tuneparts.__all__:
        assert getattr(tuneparts, name)
    for path in catalog.METHODS.known.values():
        assert path.partition(":")[2] in tuneparts.methods.__all__, "a search file needs it"


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in "ray mlflow laplace optuna plotly torchvision".split():
            raise ModuleNotFoundError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
"""
PARTITION = """
import torch
from torch import nn
import tuneparts as tp

x = torch.randn(40, 4)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
found = tp.PartitionedClassifier(net, steps=8).fit(x, (x[:, 0] > 0).long())
print(found.predict(x).shape[0])
"""


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import tuneparts; print(tuneparts.__version__)", tuneparts.__version__),
        (PARTITION, "40"),
    ],
)
def test_neither_ray_nor_mlflow_need_be_installed_for(code: str, printed: str) -> None:
    words = [sys.executable, "-c", BLOCKED + code]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == printed


def test_what_is_slow_to_import_is_not_imported_before_the_first_step() -> None:
    """Each of them takes a second or more."""
    modules = (
        "tuneparts, tuneparts.methods.partitioned, tuneparts.search.spec, "
        "tuneparts.results.running, tuneparts.tracking.tracker, tuneparts.executors._local"
    )
    slow = ("ray", "mlflow", "sklearn", "scipy", "torch._dynamo")
    load = "from tuneparts.data.config import Data; Data(name='digits').load()"
    code = f"import {modules}, sys; {load}; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
