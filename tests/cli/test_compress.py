"""`tuneparts compress`: weights in, a file out."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tuneparts import pwfn
from tuneparts.cli.main import app
from tuneparts.data.config import DataConfig
from tuneparts.errors import ConfigError
from tuneparts.models import DigitsCnn

SETTINGS = ["--set", "passes=12", "--set", "interval=6", "--set", "net=digits_cnn"]


def net() -> torch.nn.Module:
    return DigitsCnn().build((1, 8, 8), 10)


def test_a_state_dict_becomes_a_file(tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "weights.pt")
    out = tmp_path / "net.code"
    arguments = ["compress", str(tmp_path / "weights.pt"), "--out", str(out), *SETTINGS]
    arguments += ["--set", "data.num_train=100"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"}, catch_exceptions=False)
    assert result.exit_code == 0
    words = ("accuracy on test data", "distinct values", "bits per covered weight", "share of")
    for word in words:
        assert word in result.output
    assert f"{out.stat().st_size}" in result.output
    loaded = pwfn.load(out, net()).eval()
    x = torch.from_numpy(DataConfig(name="digits").load().test.inputs[:5].copy()).float()
    assert loaded(x).shape == (5, 10)
    assert len(torch.cat([p.flatten() for p in loaded.parameters()]).unique()) < 1000


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "weights.pt")
    runner = CliRunner()
    out = ["--out", str(tmp_path / "net.code")]
    with pytest.raises(ConfigError, match="a run brings its own data"):
        runner.invoke(
            app, ["compress", "rotated_digits", "--data", "mnist", *out], catch_exceptions=False
        )
    arguments = ["compress", str(tmp_path / "weights.pt"), "--arm", "float", *out]
    with pytest.raises(ConfigError, match="only a run has arms"):
        runner.invoke(app, arguments, catch_exceptions=False)
