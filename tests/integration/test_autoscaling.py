"""A search on a cluster that has no room for it yet; a stand-in for the autoscaler adds a node."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SCRIPT = """
import sys
import threading
from pathlib import Path

from tuneparts.executors.ray import cluster as ours

ours.prepare("address")
from ray.cluster_utils import Cluster

from tuneparts.executors import execute
from tuneparts.search import load

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
asked, request = [], ours.request


def scale(trials):
    request(trials)  # whichever autoscaler there is takes it
    asked.append(trials)
    if len(asked) == 1:
        options = {"num_cpus": 2, "include_dashboard": False}
        threading.Thread(target=cluster.add_node, kwargs=options, daemon=True).start()


ours.request = scale
search = load.load(sys.argv[1], scale="smoke", arms=["asha", "random"])
print(execute(search, folder=Path(sys.argv[2]), address=cluster.address).status)
print("asked", asked[0], "then", len(asked[1]), "last", asked[-1])
cluster.shutdown()
"""


@pytest.mark.timeout(400)
def test_a_cluster_that_starts_with_no_node_is_waited_for(null_file, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TUNEPARTS_NODE_LIMIT", "200")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(null_file), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout
    assert "asked [[{'CPU': 1.0}], [{'CPU': 1.0}]] then 10 last []" in done.stdout
    assert "waiting 200 s at most for nodes: a trial must fit one node" in done.stderr
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert journal.count('"kind": "end"') == 6 + 4
