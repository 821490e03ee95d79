"""Trials packed onto GPUs by fraction, with logical GPUs on a machine that has none."""

import os
from typing import Any

import pytest

from tuneparts.executors import Place, execute
from tuneparts.search import load
from tuneparts.search.journal import records

pytestmark = pytest.mark.ray


def test_two_halves_share_one_device(local_ray, null_file, tmp_path) -> None:
    import ray

    search = load.load(str(null_file), scale="smoke")
    arm = search.arm("random").replaced({"resources.gpus": 0.5, "resources.cpus": 0.5})
    used: list[float] = []

    class Watch:
        def on_event(self, _: Any) -> None:
            free = ray.available_resources().get("GPU", 0.0)
            used.append(ray.cluster_resources()["GPU"] - free)

    execute(
        search.model_copy(update={"arms": (arm,)}),
        folder=tmp_path,
        place=Place("ray"),
        observers=[Watch()],
    )
    assert max(used) == 1.0
    ends = [record.end.outcome for record in records(tmp_path / "journal.jsonl").values()]
    assert ends == ["finished"] * 4


def test_a_worker_sees_the_device_that_it_was_given_and_no_other(local_ray) -> None:
    import ray

    from tuneparts.executors.ray import cluster, tasks

    def seen() -> tuple[list[Any], str | None]:
        tasks._use_given_gpu()
        return ray.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")

    look = ray.remote(max_calls=0)(seen)
    asked = [look.options(**cluster.options({"CPU": 0.5, "GPU": n})).remote() for n in (0.0, 1.0)]
    without, given = ray.get(asked)
    assert without == ([], "")
    assert given == ([0], None)  # all are seen, and torch is set to this one
