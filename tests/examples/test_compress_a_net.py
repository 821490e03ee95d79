import runpy
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "compress_a_net.py"


def test_the_file_loads_into_a_new_net_and_the_norm_is_named(capsys):
    with torch.random.fork_rng(devices=[]):
        small = runpy.run_path(str(EXAMPLE))["main"](steps=60)
    out = capsys.readouterr().out
    assert "in float: norm.weight is of a LayerNorm (32)" in out
    assert set(small.left_out) == {"norm.weight", "norm.bias"}
    assert small.num_bytes < small.num_float_bytes / 2
    assert small.after["accuracy"] > 0.3
    assert "int8: " in out
