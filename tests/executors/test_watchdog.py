import subprocess
import sys
import time
from pathlib import Path

from tuneparts.executors.watchdog import limit

HANG = """
import sys, time
from pathlib import Path
from tuneparts.executors.watchdog import limit

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
