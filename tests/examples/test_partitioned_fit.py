import runpy
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "partitioned_fit.py"


def test_a_range_is_learnt_beside_the_weights(capsys):
    with torch.random.fork_rng(devices=[]):
        found = runpy.run_path(str(EXAMPLE))["main"](passes=200)
    assert found.hypers["rotation"] != 0.05
    assert float(capsys.readouterr().out.split("accuracy ")[1]) > 0.3
