"""Trials packed onto GPUs by fraction, with logical GPUs on a machine that has none."""

import os
from typing import Any

import pytest

from tuneparts.executors import execute
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

    execute(search.model_copy(update={"arms": (arm,)}), folder=tmp_path, observers=[Watch()])
    assert max(used) == 1.0
    ends = [record.end.outcome for record in records(tmp_path / "journal.jsonl").values()]
    assert ends == ["finished"] * 4


def test_a_worker_sees_the_device_that_it_was_given_and_no_other(local_ray) -> None:
    import ray

    from tuneparts.executors.ray import cluster, executor

    def seen(_: Any) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    workers = [ray.remote(TrainableActor).options(num_gpus=n, num_cpus=0).remote() for n in (0, 1)]
    assert ray.get([worker.__ray_call__.remote(seen) for worker in workers]) == ["", "0"]
    for worker in workers:
        ray.kill(worker)
