"""Machines and users that are not as one would wish: each is told in a sentence."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuneparts.cli import main as command
from tuneparts.core import settings
from tuneparts.core.errors import ConfigError
from tuneparts.tracking import frames

pytestmark = pytest.mark.timeout(900)

MAIN = [sys.executable, "-m", "tuneparts.cli.main"]
SMALL = ["search", "rotated_digits", "--scale", "smoke", "--arms", "none", "--seeds", "0"]
STRANGER = """
import pwd, sys

def unknown(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = unknown
from tuneparts.cli.main import main
main()
"""


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_what_the_system_refuses_is_a_sentence(monkeypatch, capsys, number: int) -> None:
    def refuse() -> None:
        raise OSError(number, os.strerror(number), "/shared/results/lock")

    monkeypatch.setattr(command, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("tuneparts: ")
    assert "/shared/results/lock" in said
    assert len(said.splitlines()) == 1


def test_a_terminal_that_knows_ascii_alone_gets_what_it_can(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*MAIN, "searches"], env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"rotated_digits" in done.stdout


@pytest.mark.slow
@pytest.mark.mlflow
def test_a_user_without_a_name_and_a_home_runs_a_search(results: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    for words in ([*SMALL, "--local"], ["report"]):
        done = subprocess.run(
            [sys.executable, "-c", STRANGER, *words],
            env=environment,
            cwd=results,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "none has test accuracy" in done.stdout


@pytest.mark.slow
@pytest.mark.mlflow
def test_results_of_another_user_are_read_and_not_written(results: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can make files of another user")
    done = subprocess.run([*MAIN, *SMALL, "--local"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    paths = [results, *results.rglob("*")]
    for path in paths:
        os.chown(path, 65534, 65534)
    results.chmod(0o755)
    before = {path: path.stat().st_mtime_ns for path in paths}
    rights = "-dac_override,-dac_read_search,-fowner,-chown"
    bound = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
    for words in ([*SMALL, "--local"], ["resume"], ["report"]):
        told = subprocess.run([*bound, *MAIN, *words], capture_output=True, text=True, check=False)
        assert told.returncode == 2, told.stderr
        assert "Traceback" not in told.stderr
        assert "Permission denied" in told.stderr
        if words == ["report"]:
            assert "none has test accuracy" in told.stdout  # all that can be read is shown
    assert {path: path.stat().st_mtime_ns for path in paths} == before


@pytest.mark.slow
@pytest.mark.mlflow
def test_results_that_are_removed_end_the_search_with_a_sentence(results: Path) -> None:
    words = [*SMALL, "--local", "--set", "none.steps=100000", "--set", "none.interval=10"]
    driver = subprocess.Popen(
        [*MAIN, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    limit = time.monotonic() + 200
    while not any("row" in p.read_text() for p in results.glob("*/*/journal.jsonl")):
        assert time.monotonic() < limit, "no row"
        assert driver.poll() is None, driver.stdout and driver.stdout.read()
        time.sleep(0.2)
    for _ in range(3):  # the worker may write meanwhile
        shutil.rmtree(results / "rotated_digits", ignore_errors=True)
    said, _ = driver.communicate(timeout=200)
    assert driver.returncode == 2, said
    assert "was removed while the search was running" in said
    assert "Traceback" not in said


def test_a_name_from_a_file_gives_the_terminal_no_orders(monkeypatch, capsys) -> None:
    def refuse() -> None:
        raise ConfigError("layer `a\x1b[2J\x07b` is unknown.\nKnown: c.")

    monkeypatch.setattr(command, "app", refuse)
    with pytest.raises(SystemExit):
        command.main()
    assert capsys.readouterr().err == "tuneparts: layer `a\\x1b[2J\\x07b` is unknown.\nKnown: c.\n"


@pytest.mark.slow
@pytest.mark.mlflow
def test_two_users_with_one_group_go_on_with_each_other_s_runs(results: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can make files of another user")
    # The other user: no right beyond what owner, group and mode of a file give; umask 002.
    rights = "-dac_override,-dac_read_search,-fowner,-chown"
    bound = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*bound, *MAIN, *words], capture_output=True, text=True, check=False, umask=0o002
        )
        for path in [results, *results.rglob("*")]:  # what one user leaves to the other
            os.chown(path, 65534, 0)
        results.chmod(0o2775)
        return done

    (results / "mlflow.db").unlink()  # made by the first user, under this umask
    os.chown(results, 65534, 0)
    results.chmod(0o2775)
    first = run(*SMALL, "--local")
    assert first.returncode == 0, first.stderr
    journal = next(results.glob("*/*/journal.jsonl"))
    whole = journal.read_bytes()
    rows = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(rows[: len(rows) // 2]))  # as the first user's crash leaves it
    table = (journal.parent / "report" / "table.csv").read_bytes()
    for words in (["resume"], ["report"], [*SMALL, "--local"]):
        second = run(*words)
        assert second.returncode == 0, (words, second.stderr)
        assert "Traceback" not in second.stderr
    assert len(list(results.glob("*/*/journal.jsonl"))) == 2
    assert (journal.parent / "report" / "table.csv").read_bytes() == table


@pytest.mark.slow
@pytest.mark.mlflow
def test_two_machines_with_one_folder_search_side_by_side(results: Path) -> None:
    """They have one store, start in one second, and know nothing of each other's processes."""
    apart = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("only who may make namespaces has two machines in one")
    drivers = [
        subprocess.Popen(
            [*apart, "sh", "-c", f'hostname {name} && exec "$@"', "sh", *MAIN, *SMALL, "--local"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("alpha", "beta")
    ]
    said = [driver.communicate(timeout=400)[0] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], said
    tables = [path.read_text() for path in results.glob("*/*/report/trials.csv")]
    assert len(tables) == 2
    runs = frames.runs(settings.current().tracking_uri)
    assert sorted(runs["status"]) == ["FINISHED", "FINISHED"]
