import runpy
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "shared_weights.py"


def test_three_members_of_two_architectures_cost_less_than_alone(capsys):
    with torch.random.fork_rng(devices=[]):
        ensemble = runpy.run_path(str(EXAMPLE))["main"](steps=60)
    out = capsys.readouterr().out
    assert [len(list(net.parameters())) for net in ensemble.members] == [12] * 3
    assert ensemble.sizes.templates <= 4000
    assert ensemble.sizes.shared + ensemble.sizes.private < ensemble.sizes.plain
    assert out.count("member") == 3
    assert float(out.split("all: accuracy ")[1]) > 0.3
