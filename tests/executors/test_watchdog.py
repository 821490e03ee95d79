import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuneparts.core import settings
from tuneparts.core.errors import ConfigError
from tuneparts.executors import Place, execute
from tuneparts.executors._watchdog import Usage, limit
from tuneparts.search.journal import records

HANG = """
import sys, time
from pathlib import Path
from tuneparts.executors._watchdog import limit

with limit(0.2, lambda: Path(sys.argv[1]).touch()):
    time.sleep(60)
"""


def test_what_ends_in_time_is_left_alone(tmp_path: Path) -> None:
    with limit(0.05, (tmp_path / "word").touch):
        pass
    time.sleep(0.15)
    assert not (tmp_path / "word").exists()


def test_what_hangs_leaves_word_and_ends(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HANG, tmp_path / "word"], check=False, timeout=30)
    assert done.returncode == 1
    assert (tmp_path / "word").exists()


def test_a_busy_process_uses_a_core_and_one_that_sleeps_none() -> None:
    usage = Usage()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert 0.01 < usage.metrics()["system/cpu"] < 1.5
    usage = Usage()
    time.sleep(0.1)
    assert usage.metrics()["system/cpu"] < 0.5
    assert 10 < usage.metrics()["system/memory"] < 1e6


def test_rows_tell_of_the_worker_only_where_it_is_asked_for(
    null_search, null_arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for switch in ("0", "1"):
        monkeypatch.setenv("TUNEPARTS_SYSTEM_METRICS", switch)
        search = null_search(null_arm("fixed"))
        execute(search, folder=tmp_path / switch, place=Place("local", workers=1))
        (record,) = records(tmp_path / switch / "journal.jsonl").values()
        has = ["system/memory" in row.metrics for row in record.rows.values()]
        assert has == [switch == "1"] * 4


def test_a_switch_is_true_or_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEPARTS_SYSTEM_METRICS", "maybe")
    with pytest.raises(ConfigError, match="TUNEPARTS_SYSTEM_METRICS"):
        settings.current()
