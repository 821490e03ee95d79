import runpy
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "compress_a_net.py"


def test_the_file_loads_into_a_new_net_and_attention_is_named(capsys):
    with torch.random.fork_rng(devices=[]):
        small = runpy.run_path(str(EXAMPLE))["main"](passes=60)
    out = capsys.readouterr().out
    assert "in float: attention.in_proj_weight" in out
    assert set(small.left_out) == {
        "attention.in_proj_weight",
        "attention.in_proj_bias",
        "attention.out_proj",
        "norm",
    }
    assert small.num_bytes < small.num_float_bytes
    assert small.after["accuracy"] > 0.3 > small.before["accuracy"]
