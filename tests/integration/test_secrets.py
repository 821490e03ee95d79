"""A secret of the environment, in a config and in an error, leaves no trace behind a search."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow]

TOKEN = "planted-token-value"


@pytest.mark.timeout(400)
def test_a_whole_search_leaves_no_planted_secret_behind(null_file: Path, tmp_path: Path) -> None:
    # The learner of this arm dies of a missing folder, whose name is in its message.
    changes = {"fault": "exit", "fault_folder": f"/nowhere/{TOKEN}"}
    words = [word for key, value in changes.items() for word in ("--set", f"broken.{key}={value}")]
    command = [sys.executable, "-m", "tuneparts.cli.main", "search", str(null_file), *words]
    environment = {
        **os.environ,
        "TUNEPARTS_RESULTS": str(tmp_path / "results"),
        "TUNEPARTS_TRACKING_URI": f"sqlite:///{tmp_path}/results/mlflow.db",
        "PLANTED_TOKEN": TOKEN,
    }
    done = subprocess.run(
        [*command, "--scale", "smoke", "--ray"], env=environment, capture_output=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said.decode()[-2000:]
    assert TOKEN.encode() not in said
    # What a resume needs is the search as it was: the run's own card and journal hold its config.
    own = {"run.json", "journal.jsonl"}
    files = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= own | {"mlflow.db", "report.html", "log.txt"}
    leaks = [path for path in files if path.name not in own and TOKEN.encode() in path.read_bytes()]
    assert leaks == []
    log = next((tmp_path / "results").glob("null/*/trials/broken/seed0/00000/log/log.txt"))
    assert "/nowhere/***/died" in log.read_text()
