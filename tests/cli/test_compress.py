"""`tuneparts compress`: weights in, a file out."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tuneparts import Arm, Partitioned, Pwfn, Standard, executors
from tuneparts.cli.main import app
from tuneparts.core.errors import CheckpointError, ConfigError
from tuneparts.data.config import Data
from tuneparts.methods import pwfn
from tuneparts.nets import DigitsCnn
from tuneparts.search import runs
from tuneparts.search.spec import Search

SETTINGS = ["--set", "steps=12", "--set", "interval=6", "--set", "net=digits_cnn"]


def net() -> torch.nn.Module:
    return DigitsCnn().build((1, 8, 8), 10)


def test_a_state_dict_becomes_a_file(tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "weights.pt")
    out = tmp_path / "net.npz"
    arguments = ["compress", str(tmp_path / "weights.pt"), "--out", str(out), *SETTINGS]
    arguments += ["--set", "data.num_train=100"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"}, catch_exceptions=False)
    assert result.exit_code == 0
    words = ("accuracy on test data", "distinct values", "bits per covered weight", "share of")
    for word in words:
        assert word in result.output
    assert f"{out.stat().st_size:,}" in result.output
    loaded = pwfn.load(out, net()).eval()
    x = torch.from_numpy(Data(name="digits").load().test.inputs[:5].copy()).float()
    assert loaded(x).shape == (5, 10)
    assert len(torch.cat([p.flatten() for p in loaded.parameters()]).unique()) < 1000


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "weights.pt")
    runner = CliRunner()
    out = ["--out", str(tmp_path / "net.npz")]
    with pytest.raises(ConfigError, match="a run brings its own data"):
        runner.invoke(
            app, ["compress", "rotated_digits", "--data", "mnist", *out], catch_exceptions=False
        )
    arguments = ["compress", str(tmp_path / "weights.pt"), "--arm", "float", *out]
    with pytest.raises(ConfigError, match="only a run has arms"):
        runner.invoke(app, arguments, catch_exceptions=False)


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, null_search: Callable[..., Search]
) -> runs.Run:
    """A finished run of a plain arm, a partitioned one and one that fixed its weights."""
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path / "results"))
    fields = {"steps": 8, "interval": 8, "batch_size": 10, "net": DigitsCnn()}
    search = null_search(
        Arm(name="plain", config=Standard(**fields)),
        Arm(name="partitioned", config=Partitioned(**fields)),
        Arm(name="pwfn", config=Pwfn(**fields)),
    )
    made = runs.create(tmp_path / "results", search, command="", storage=None)
    executors.execute(search, folder=made.folder, place=executors.Place("local", workers=1))
    return made


@pytest.mark.parametrize("arm", ["plain", "partitioned", "pwfn"])
def test_the_net_of_an_arm_of_a_finished_run_becomes_a_file(
    run: runs.Run, tmp_path: Path, arm: str
) -> None:
    out = tmp_path / "net.npz"
    arguments = ["compress", run.name, "--arm", arm, "--out", str(out), *SETTINGS[:4]]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert f"the net of {arm}/seed0/00000" in result.output
    loaded = pwfn.load(out, net()).eval()
    assert len(torch.cat([p.flatten() for p in loaded.parameters()]).unique()) < 1000


def test_a_checkpoint_without_a_plain_net_points_to_its_run(run: runs.Run, tmp_path: Path) -> None:
    (file,) = (run.folder / "trials" / "partitioned").rglob("*.pt")
    arguments = ["compress", str(file), "--out", str(tmp_path / "net.npz"), *SETTINGS]
    with pytest.raises(CheckpointError, match="`tuneparts compress RUN --arm ARM --out FILE`"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
