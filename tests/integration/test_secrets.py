"""A secret of the environment, in a config and in an error, leaves no trace behind a search."""

import os
import stat
import subprocess
import sys
import time
import uuid
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


SPEAKS = '''
"""Is password={typed} kept?"""
import logging, os, subprocess, sys, warnings
from tuneparts import Arm, Search
from tuneparts.methods.objective import Objective

def speak(config, report):
    secret = os.environ["DB_PASS"]
    print("printed", secret)
    print("to stderr", secret, file=sys.stderr)
    logging.getLogger("mine").warning("logged %s", secret)
    warnings.warn(f"warned of {{secret}}")
    os.write(1, f"past Python {{secret}}\\n".encode())
    subprocess.run([sys.executable, "-c", "import os; print('child', os.environ['DB_PASS'])"])
    report({{"val/score": 1.0}})
    raise ValueError(f"failed with {{secret}} of mysql://u:{typed}@host")

def search(scale):
    config = Objective(function=speak, reports={{"val/score": "max"}}, steps=2, interval=1)
    good = Objective(function=fine, reports={{"val/score": "max"}}, steps=2, interval=1)
    return Search(
        name="speaks", question="Is password={typed} kept?", scale=scale, metric="val/score",
        steps=2, seeds=(0,), arms=(Arm(name="loud", config=config), Arm(name="fine", config=good)),
    )

def fine(config, report):
    report({{"val/score": 1.0}})
    report({{"val/score": 2.0}})
'''


def files_with(words: list[bytes], places: list[Path], since: float) -> list[Path]:
    """The files changed since then that hold one of the words, whoever wrote them."""
    found = []
    for place in places:
        for folder, _, names in os.walk(place):
            for path in (Path(folder) / name for name in names):
                try:
                    status = path.lstat()
                    if not stat.S_ISREG(status.st_mode) or status.st_mtime < since:
                        continue
                    content = path.read_bytes()
                except OSError:  # gone meanwhile, or of another user
                    continue
                if any(word in content for word in words):
                    found.append(path)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["--ray", "--local"])
def test_no_file_of_the_machine_holds_what_a_trial_says(tmp_path: Path, place: str) -> None:
    known, typed = f"known{uuid.uuid4().hex}", f"typed{uuid.uuid4().hex}"
    file = tmp_path / "source" / "speaks.py"
    file.parent.mkdir()
    file.write_text(SPEAKS.format(typed=typed))
    home, results = tmp_path / "home", tmp_path / "results"
    home.mkdir()
    environment = {
        **os.environ,
        "HOME": str(home),
        "TUNEPARTS_RESULTS": str(results),
        "TUNEPARTS_TRACKING_URI": f"sqlite:///{results}/mlflow.db",
        "DB_PASS": known,
    }
    begun = time.time() - 5
    done = subprocess.run(
        [sys.executable, "-m", "tuneparts.cli.main", "search", str(file), place],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        umask=0o077,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = [path for folder in (results, home) for path in folder.rglob("*")]
    assert len(written) > 10
    assert [path for path in written if path.lstat().st_mode & 0o077] == []
    (log,) = results.glob("speaks/*/trials/loud/seed0/00000/log/log.txt")
    for words in ("printed ***", "to stderr ***", "warned of ***", "failed with ***"):
        assert words in log.read_text()
    places = [Path(name) for name in ("/tmp", "/dev/shm", "/var/tmp", tmp_path)]
    left = files_with([known.encode(), typed.encode()], places, begun)
    # The search file is code, and its copy and the run's card hold it as it is.
    own = {"speaks.py", "run.json"}
    assert {path for path in left if path.name not in own and path.suffix != ".pyc"} == set()
