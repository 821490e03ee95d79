from tuneparts.cli._cluster import node_rows, wall_seconds
from tuneparts.executors.place import GIB


def test_one_line_per_node() -> None:
    nodes = [
        {
            "NodeManagerHostname": "one", "NodeManagerAddress": "10.0.0.1", "Alive": True,
            "Resources": {"CPU": 8.0, "GPU": 2.0, "memory": 4.0 * GIB, "node:10.0.0.1": 1.0,
                          "object_store_memory": 7.0, "ssd": 1.0},
        },
        {"NodeManagerAddress": "10.0.0.2", "Alive": False, "Resources": {}},
    ]  # fmt: skip
    one, other = node_rows(nodes)
    assert one == {
        "node": "one", "address": "10.0.0.1", "state": "alive", "CPUs": 8, "GPUs": 2,
        "memory": "4.0 GB", "custom": "1 ssd",
    }  # fmt: skip
    assert (other["address"], other["state"], other["CPUs"]) == ("10.0.0.2", "dead", 0)


def test_time_is_shared_work_but_at_least_the_longest_trial() -> None:
    work, longest = {"a": 100.0, "b": 40.0}, {"a": 10.0, "b": 40.0}
    assert wall_seconds(work, longest, {"a": 10, "b": 1}) == 50.0
    assert wall_seconds(work, longest, {"a": 10, "b": 10}) == 40.0
