"""The wheel in an empty environment, outside the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def run(*words: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TUNEPARTS", "MLFLOW"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_installs_and_answers_a_question(tmp_path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "-c", constraints, wheel, cwd=tmp_path)
    command = tmp_path / "env" / "bin" / "tuneparts"
    work = tmp_path / "work"
    work.mkdir()
    assert "rotated_digits" in run(command, "searches", cwd=work)
    dry = run(command, "search", "pwfn_rounds", "--scale", "smoke", "--dry-run", cwd=work)
    assert "digest" in dry  # its arms come from a study that lies beside the search files
    output = run(command, "search", "rotated_digits", "--scale", "smoke", cwd=work)
    assert "partitioned" in output
    assert list((work / "results" / "rotated_digits").glob("*/report/report.html"))


def test_a_project_elsewhere_brings_method_net_data_and_hyper(tmp_path) -> None:
    """With an environment inside the project's folder, as many have it."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "examples" / "outsider" / "flowers.py", work)
    venv.create(work / ".venv", with_pip=True)
    python = work / ".venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=work)
    # What is heavy comes from the environment of these tests; tuneparts does not.
    (site,) = (work / ".venv" / "lib").glob("*/site-packages")
    (site / "zz_rest.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    output = run(
        work / ".venv" / "bin" / "tuneparts", "search", "flowers.py", "--scale", "smoke", cwd=work
    )
    assert "offset" in output
    (page,) = (work / "results" / "flowers").glob("*/report/report.html")
    assert "gentle" in page.read_text("utf-8")
