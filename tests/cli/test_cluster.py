from rich.console import Console

from tuneparts.cli.cluster import node_table, wall_seconds
from tuneparts.executors.place import GIB
from tuneparts.results.rendering import show


def test_one_line_per_node() -> None:
    nodes = [
        {
            "NodeManagerHostname": "one", "NodeManagerAddress": "10.0.0.1", "Alive": True,
            "Resources": {"CPU": 8.0, "GPU": 2.0, "memory": 4.0 * GIB, "node:10.0.0.1": 1.0,
                          "object_store_memory": 7.0, "ssd": 1.0},
        },
        {"NodeManagerAddress": "10.0.0.2", "Alive": False, "Resources": {}},
    ]  # fmt: skip
    console = Console(width=120, record=True)
    show(console, node_table(nodes))
    text = console.export_text()
    for words in (("one", "10.0.0.1", "alive", "8", "2", "4.0 GB", "1 ssd"), ("10.0.0.2", "dead")):
        assert any(all(word in line for word in words) for line in text.splitlines())
    assert "node:" not in text


def test_time_is_shared_work_but_at_least_the_longest_trial() -> None:
    work, longest = {"a": 100.0, "b": 40.0}, {"a": 10.0, "b": 40.0}
    assert wall_seconds(work, longest, {"a": 10, "b": 1}) == 50.0
    assert wall_seconds(work, longest, {"a": 10, "b": 10}) == 40.0
