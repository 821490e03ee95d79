"""Trials packed onto GPUs by fraction, with logical GPUs on a machine that has none."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.ray

SCRIPT = """
import sys
from pathlib import Path

import ray

ray.init(address="local", num_cpus=4, num_gpus=1, log_to_driver=False, include_dashboard=False)
from tuneparts.executors import execute
from tuneparts.search import load

search = load.load(sys.argv[1], scale="smoke")
arm = search.arm("random").replaced({"resources.gpus": 0.5, "resources.cpus": 0.5})
search = search.model_copy(update={"arms": (arm,)})
most = 0


class Watch:
    def on_event(self, event):
        global most
        used = ray.cluster_resources()["GPU"] - ray.available_resources().get("GPU", 0.0)
        most = max(most, used)


execute(search, folder=Path(sys.argv[2]), observers=[Watch()])
print("most", most)

# What a worker is told, with a GPU and without.
from tuneparts.executors.ray.trainable import LearnerTrainable

worker = ray.remote(LearnerTrainable)
seen = lambda self: __import__("os").environ.get("CUDA_VISIBLE_DEVICES")
for gpus in (0, 0.5):
    actor = worker.options(num_gpus=gpus).remote()
    print("sees", gpus, repr(ray.get(actor.__ray_call__.remote(seen))))
"""


def test_two_halves_share_one_device(null_file, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(null_file), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "most 1.0" in done.stdout
    assert "sees 0 ''" in done.stdout
    assert "sees 0.5 '0'" in done.stdout
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert journal.count('"finished"') == 4


TWO = """
import sys
from pathlib import Path

import ray

ray.init(address="local", num_cpus=2, num_gpus=2, log_to_driver=False, include_dashboard=False)
from tuneparts.executors import execute
from tuneparts.search import load

changes = ["none.resources.gpus=2", "none.passes=40", "none.interval=20"]
search = load.load("rotated_digits", scale="smoke", arms=["none"], seeds=[0], changes=changes)
execute(search, folder=Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_trial_has_two_devices_to_itself(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert journal.count('"kind": "row"') == 2
    assert '"finished"' in journal
