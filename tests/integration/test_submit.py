"""`tuneparts submit` on a real job server that asks for a token."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.scene import Cluster, unused_port
from tuneparts.search import runs

pytest.importorskip("aiohttp_cors", reason="the job server needs ray[default]")
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        made.start(nodes=1, jobs_port=unused_port())
        yield made
    finally:
        made.kill()


def _submit(
    cluster: Cluster, search: Path, *words: str, token: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuneparts.cli.main", "submit", str(search)]
    command += ["--address", cluster.jobs_address, "--scale", "smoke", *words]
    environment = os.environ | {"TUNEPARTS_RAY_TOKEN_FILE": str(token or cluster.token)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_job_runs_the_search_and_its_output_comes_back(cluster, null_file, tmp_path) -> None:
    results = tmp_path / "results"
    done = _submit(cluster, null_file, "--results", str(results))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scores and costs" in done.stdout
    (run,) = runs.listing(results)
    assert (run.folder / "report" / "report.html").exists()
    again = _submit(cluster, null_file, "--results", str(results), "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [one.name for one in runs.listing(results)] == [run.name]


def test_results_are_not_put_where_ray_removes_them(cluster, null_file) -> None:
    done = _submit(cluster, null_file)
    assert done.returncode == 2
    assert "results outlive the job that makes them" in done.stdout


def test_what_the_cluster_refuses_comes_back_as_its_exit_code(cluster, null_file, tmp_path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = _submit(cluster, null_file, "--env", f"TUNEPARTS_RESULTS={tmp_path / 'file'}")
    assert done.returncode == 2
    assert done.stdout.count("no run can begin") == 1


def test_a_wrong_token_is_refused(cluster, null_file, tmp_path) -> None:
    wrong = tmp_path / "token"
    wrong.touch(mode=0o600)
    wrong.write_text(secrets.token_hex(32))
    done = _submit(cluster, null_file, token=wrong)
    assert done.returncode == 2
    assert "asks for a token" in done.stderr
