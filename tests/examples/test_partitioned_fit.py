import math
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "partitioned_fit.py"


def test_ranges_are_learnt_beside_the_weights(capsys, tmp_path):
    with torch.random.fork_rng(devices=[]):
        found = runpy.run_path(str(EXAMPLE))["main"](steps=120, folder=tmp_path)
    assert found.hypers_["rotation"] != pytest.approx(math.pi / 2)
    assert float(capsys.readouterr().out.split("accuracy ")[1]) > 0.2
    assert "rotation (rad)" in (tmp_path / "partitioned_fit.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_rotation_is_found_by_default_settings_and_no_other_motion(tmp_path):
    with torch.random.fork_rng(devices=[]):
        found = runpy.run_path(str(EXAMPLE))["main"](folder=tmp_path)
    assert found.hypers_["rotation"] > 1.0
    assert max(value for name, value in found.hypers_.items() if name != "rotation") < 0.1
